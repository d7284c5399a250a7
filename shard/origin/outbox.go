package origin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"ringside/shard"
	"ringside/shard/keyspace"
)

// The outbox remembers the rows whose cached copies a committed write could not put out of reach. A row comes in with the write, in its transaction, and
// goes out when those copies are gone. Meanwhile the shard withholds the row: every answer to a question for the view says so (shard.Withheld),
// and no answer that does not say is taken for a confirmation.

// OutboxLimit is how many rows one shard remembers at most, give or take the writes that are under way at the same moment.
const OutboxLimit = 4096

// ErrOutboxFull says that a shard remembers as many rows already as it may. Nothing was written.
var ErrOutboxFull = errors.New("too many rows wait for their cached copies to be deleted")

// Remembered is one row of the outbox.
type Remembered struct {
	ID         int64
	Key        []byte // the row's key, as text
	CacheVnode uint16
	ShardVnode uint16
}

// rememberSQL gives a row that is remembered already another id: whoever is seeing to it now may have done so before this write.
const rememberSQL = `with known as (update ringside.outbox set id = nextval('ringside.outbox_id_seq') where key = $1 returning 1),
added as (insert into ringside.outbox (key, vnode, shard_vnode) select $1, $2, $3
where not exists (select from known) and (select count(*) from ringside.outbox) < $4 returning 1)
select exists (select from known) or exists (select from added)`

// remember adds a row to the outbox, in the session's transaction, which has passed the fence or done likewise.
func remember(ctx context.Context, conn *pgx.Conn, k *keyspace.Key) error {
	var done bool
	err := conn.QueryRow(ctx, rememberSQL, k.Text, int32(k.CacheVnode), int32(k.ShardVnode), OutboxLimit).Scan(&done)
	if err == nil && !done {
		err = ErrOutboxFull
	}
	return err
}

// ownedSQL takes the locks of a writer, and asks for the owner afterwards.
var ownedSQL = fmt.Sprintf(`select pg_advisory_xact_lock_shared(%d, 0), pg_advisory_xact_lock_shared(%d, $1)`, LockGlobal, LockStripe)

// Remember adds a row to the outbox of a shard whose write is committed already. The error may be ErrOutboxFull, or shard.ErrNotOwner if the row has moved
// since; after any other one the row may or may not be remembered.
func (f *Fleet) Remember(ctx context.Context, name string, k *keyspace.Key) error {
	return f.onOutbox(ctx, name, func(ctx context.Context, conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, ownedSQL, int32(k.ShardVnode)%LockStripes); err != nil {
				return err
			}
			var owned bool
			err := tx.QueryRow(ctx, `select coalesce((select state from ringside.key_ownership where shard_key = $2),
	(select state from ringside.ownership where vnode = $1)) is not distinct from 'owned'`, int32(k.ShardVnode), string(k.ShardKey)).Scan(&owned)
			if err == nil && !owned {
				err = fmt.Errorf("vnode %d: %w", k.ShardVnode, shard.ErrNotOwner)
			}
			if err != nil {
				return err
			}
			return remember(ctx, conn, k)
		})
	})
}

// Outbox returns up to limit rows that a shard has remembered for at least that long, any of them: the first ones may be those that nobody can do
// anything about.
func (f *Fleet) Outbox(ctx context.Context, name string, age time.Duration, limit int) (list []Remembered, err error) {
	err = f.onOutbox(ctx, name, func(ctx context.Context, conn *pgx.Conn) error {
		found, err := conn.Query(ctx, `select id, key, vnode, shard_vnode from ringside.outbox where at <= clock_timestamp() - make_interval(secs => $1) order by random() limit $2`,
			age.Seconds(), limit)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(found, pgx.RowToStructByPos[Remembered])
		return err
	})
	return list, err
}

// Settled takes rows out of a shard's outbox: their copies are gone.
func (f *Fleet) Settled(ctx context.Context, name string, ids []int64) error {
	return f.onOutbox(ctx, name, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `delete from ringside.outbox where id = any($1)`, ids)
		return err
	})
}

func (f *Fleet) onOutbox(ctx context.Context, name string, do func(ctx context.Context, conn *pgx.Conn) error) error {
	p, err := f.pool(name)
	if err != nil {
		return err
	}
	if err := p.run(ctx, internal, f.cfg.LoadTimeout+Grace, do); err != nil {
		return fmt.Errorf("outbox of shard %s: %w", name, err)
	}
	return nil
}

// outboxRow is what the shard says of its outbox when it is asked for its view.
type outboxRow struct {
	rows   int64
	oldest float64 // seconds
	vnodes []int32
}

// outboxSQL is the part of a question that asks for it.
const outboxSQL = `(select count(*) as n, coalesce(extract(epoch from clock_timestamp() - min(at)), 0)::float8 as oldest,
array_agg(distinct vnode) as vnodes from ringside.outbox) o`

func (r *outboxRow) withheld() *shard.Withheld {
	vnodes := make([]uint16, len(r.vnodes))
	for i, v := range r.vnodes {
		vnodes[i] = uint16(v)
	}
	return shard.Withhold(vnodes)
}
