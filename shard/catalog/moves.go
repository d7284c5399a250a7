package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// The journal of moves. The catalog keeps what is to be moved, who drives it, and how far that is, as told by the driver. What has really happened to the
// rows stands on the shards themselves.

// PartState is how a part of a move stands.
type PartState string

// The states. A part that has ended stays as it is.
const (
	PartWaiting   PartState = "waiting"
	PartRunning   PartState = "running"
	PartDone      PartState = "done"
	PartCancelled PartState = "cancelled"
	PartFailed    PartState = "failed" // called off, for the reason given
)

// Ended reports whether nothing more happens to the part.
func (s PartState) Ended() bool { return s == PartDone || s == PartCancelled || s == PartFailed }

// NewPart is a part that is to be moved: vnodes, or one shard key. From and To are the same when a key's override begins or ends to name the shard that it is on.
type NewPart struct {
	From, To string
	Vnodes   []uint16 // of a shard key: its one vnode
	Key      string   // the shard key; empty: all of the vnodes that no override places
	Clear    bool     // of a shard key: it goes back to the shard of its vnode, and has no override then
	Rows     int64    // as estimated
	Bytes    int64    // likewise
}

// Part is one part of a move: what goes from one shard to another together.
type Part struct {
	NewPart
	ID, Move int64
	Cancel   bool // the operator has asked for it
	State    PartState
	Progress
	Created, Started, Ended time.Time // zero: not yet
}

// Progress is what the driver tells of a part.
type Progress struct {
	Step     string  // what it does
	Why      string  // what holds it up, or why it failed; empty: nothing
	Copied   int64   // rows
	Sent     int64   // bytes
	Changes  int64   // of rows, applied after they were copied
	Deleted  int64   // rows, on the source
	Rate     float64 // rows a second, lately
	Attempts int     // at the cut-over
	// Blocked is for how long the last cut-over took no writes.
	Blocked time.Duration
}

const createMoves = `
create table if not exists ringside.driver (
	one    boolean primary key default true check (one),
	holder text not null default '',
	token  bigint not null default 0, -- rises with each new holder
	until  timestamptz not null default '-infinity'
);
insert into ringside.driver default values on conflict do nothing;
create table if not exists ringside.move (
	id         bigint generated always as identity primary key,
	cancel     boolean not null default false,
	created_at timestamptz not null default now()
);
create table if not exists ringside.move_part (
	id          bigint generated always as identity primary key,
	move        bigint not null references ringside.move,
	source      text not null,
	destination text not null,
	vnodes      int[] not null,
	rows        bigint not null,
	bytes       bigint not null,
	state       text not null default 'waiting' check (state in ('waiting', 'running', 'done', 'cancelled', 'failed')),
	step        text not null default '',
	why         text not null default '',
	copied      bigint not null default 0,
	sent        bigint not null default 0,
	changes     bigint not null default 0,
	deleted     bigint not null default 0,
	rate        float8 not null default 0,
	attempts    int not null default 0,
	blocked     bigint not null default 0, -- microseconds
	started_at  timestamptz,
	ended_at    timestamptz
);
alter table ringside.move_part add column if not exists shard_key text not null default ''; -- one key of the vnode; '': all of the vnodes
alter table ringside.move_part add column if not exists clear boolean not null default false; -- its override ends
create index if not exists move_part_move on ringside.move_part (move);
create index if not exists move_part_open on ringside.move_part (id) where state in ('waiting', 'running');`

// CreateMove writes a move down, to be carried out by whoever drives. The error is ErrConflict when a vnode is part of another one that has not ended.
func (c *Catalog) CreateMove(ctx context.Context, parts []NewPart) (id int64, err error) {
	if len(parts) == 0 {
		return 0, errors.New("catalog: a move without parts")
	}
	err = c.call(ctx, "create a move", false, func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, c.db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `lock table ringside.move in share row exclusive mode`); err != nil { // one at a time
				return err
			}
			if err := tx.QueryRow(ctx, `insert into ringside.move default values returning id`).Scan(&id); err != nil {
				return err
			}
			for _, p := range parts {
				tag, err := tx.Exec(ctx, `insert into ringside.move_part (move, source, destination, vnodes, rows, bytes, shard_key, clear) select $1, $2, $3, $4, $5, $6, $7, $8
where not exists (select from ringside.move_part o cross join lateral unnest(o.vnodes) x join unnest($4::int[]) y on y = x where o.state in ('waiting', 'running'))`,
					id, p.From, p.To, ints(p.Vnodes), p.Rows, p.Bytes, p.Key, p.Clear)
				if err != nil {
					return err
				}
				if tag.RowsAffected() == 0 {
					return fmt.Errorf("%w: some of its vnodes are being moved already", ErrConflict)
				}
			}
			return nil
		})
	})
	return id, err
}

func ints(vnodes []uint16) []int32 {
	out := make([]int32, len(vnodes))
	for i, v := range vnodes {
		out[i] = int32(v)
	}
	return out
}

// Parts returns the parts of the latest moves, the newest move first, with all parts that have not ended.
func (c *Catalog) Parts(ctx context.Context, moves int) ([]Part, error) {
	return c.parts(ctx, `where p.state in ('waiting', 'running') or p.move in (select id from ringside.move order by id desc limit $1) order by p.move desc, p.id`, moves)
}

// OpenParts returns the parts that have not ended, in the order in which they are to be moved.
func (c *Catalog) OpenParts(ctx context.Context) ([]Part, error) {
	return c.parts(ctx, `where p.state in ('waiting', 'running') order by p.id`)
}

// AnyOpen reports whether a part has not ended.
func (c *Catalog) AnyOpen(ctx context.Context) (open bool, err error) {
	err = c.call(ctx, "look for moves", true, func(ctx context.Context) error {
		return c.db.QueryRow(ctx, `select exists (select from ringside.move_part where state in ('waiting', 'running'))`).Scan(&open)
	})
	return open, err
}

func (c *Catalog) parts(ctx context.Context, which string, args ...any) (parts []Part, err error) {
	err = c.call(ctx, "read the moves", true, func(ctx context.Context) error {
		parts = nil
		rows, err := c.db.Query(ctx, `select p.id, p.move, p.source, p.destination, p.vnodes, p.shard_key, p.clear, p.rows, p.bytes, m.cancel, p.state, p.step, p.why, p.copied, p.sent,
	p.changes, p.deleted, p.rate, p.attempts, p.blocked, m.created_at, coalesce(p.started_at, 'epoch'), coalesce(p.ended_at, 'epoch')
from ringside.move_part p join ringside.move m on m.id = p.move `+which, args...)
		if err != nil {
			return err
		}
		parts, err = pgx.CollectRows(rows, scanPart)
		return err
	})
	return parts, err
}

func scanPart(row pgx.CollectableRow) (Part, error) {
	var p Part
	var vnodes []int32
	var blocked int64
	err := row.Scan(&p.ID, &p.Move, &p.From, &p.To, &vnodes, &p.Key, &p.Clear, &p.Rows, &p.Bytes, &p.Cancel, &p.State, &p.Step, &p.Why, &p.Copied, &p.Sent,
		&p.Changes, &p.Deleted, &p.Rate, &p.Attempts, &blocked, &p.Created, &p.Started, &p.Ended)
	p.Blocked = time.Duration(blocked) * time.Microsecond
	for _, at := range []*time.Time{&p.Started, &p.Ended} {
		if at.Unix() == 0 {
			*at = time.Time{}
		}
	}
	p.Vnodes = make([]uint16, len(vnodes))
	for i, v := range vnodes {
		p.Vnodes[i] = uint16(v)
	}
	return p, err
}

// CancelMove asks for a move to be called off: of its parts, those that are not committed. found is false when there is none of that id, open when
// nothing of it is left to be called off.
func (c *Catalog) CancelMove(ctx context.Context, id int64) (found, open bool, err error) {
	err = c.call(ctx, "cancel a move", true, func(ctx context.Context) error {
		tag, err := c.db.Exec(ctx, `update ringside.move set cancel = true where id = $1`, id)
		if found = err == nil && tag.RowsAffected() == 1; !found {
			return err
		}
		return c.db.QueryRow(ctx, `select exists (select from ringside.move_part where move = $1 and state in ('waiting', 'running'))`, id).Scan(&open)
	})
	return found, open, err
}

// Lead makes holder the one driver of moves for so long from now, by the catalog's clock, if nobody else is, and returns its fencing token: the same while it
// stays the holder. Another one is given a higher token. renew is the token of before, 0: none; who has lost it gets a new one.
func (c *Catalog) Lead(ctx context.Context, holder string, renew uint64, ttl time.Duration) (token uint64, ok bool, err error) {
	err = c.call(ctx, "lead", true, func(ctx context.Context) error {
		var n int64
		err := c.db.QueryRow(ctx, `update ringside.driver set holder = $1, until = clock_timestamp() + $3::float8 * interval '1 second',
	token = case when holder = $1 and token = $2 then token else token + 1 end
where until < clock_timestamp() or holder = $1 and token = $2 returning token`, holder, int64(renew), ttl.Seconds()).Scan(&n)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		token, ok = uint64(n), err == nil
		return err
	})
	return token, ok, err
}

// Resign ends the lease of a driver that stops, so that another one need not wait for its end.
func (c *Catalog) Resign(ctx context.Context, holder string, token uint64) error {
	return c.call(ctx, "resign", true, func(ctx context.Context) error {
		_, err := c.db.Exec(ctx, `update ringside.driver set until = '-infinity' where holder = $1 and token = $2`, holder, int64(token))
		return err
	})
}

// Report writes down how far the driver with that token is with a part. The error is ErrConflict when another driver has taken over.
func (c *Catalog) Report(ctx context.Context, token uint64, id int64, state PartState, p Progress) error {
	return c.call(ctx, "report", true, func(ctx context.Context) error {
		tag, err := c.db.Exec(ctx, `update ringside.move_part set state = $3, step = $4, why = $5, copied = $6, sent = $7, changes = $8, deleted = $9, rate = $10,
	attempts = $11, blocked = $12, started_at = coalesce(started_at, now()), ended_at = case when $3 in ('done', 'cancelled', 'failed') then coalesce(ended_at, now()) end
where id = $2 and exists (select from ringside.driver where token = $1)`,
			int64(token), id, string(state), p.Step, p.Why, p.Copied, p.Sent, p.Changes, p.Deleted, p.Rate, p.Attempts, p.Blocked.Microseconds())
		if err == nil && tag.RowsAffected() == 0 {
			return fmt.Errorf("%w: another sidecar drives the moves", ErrConflict)
		}
		return err
	})
}
