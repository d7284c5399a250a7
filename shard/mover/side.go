package mover

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"ringside/shard"
	"ringside/shard/cdc"
	"ringside/shard/origin"
)

const (
	connectTimeout = 3 * time.Second
	// stepTimeout bounds one transaction that is not part of a cut-over.
	stepTimeout = 30 * time.Second
	// How the exclusive lock is got: polled first, since to queue for it stalls every writer that comes after; then queued for briefly, with pauses.
	pollingTime  = 300 * time.Millisecond
	pollingPause = 5 * time.Millisecond
	queuedTime   = 150 * time.Millisecond
	queuedPause  = 200 * time.Millisecond
	lockAttempts = 5
)

// errBusy: no moment without writers was found.
var errBusy = errors.New("writers hold the shard's lock for long (an open transaction?)")

// side is one of the two shards of a part, as its driver reaches it. One goroutine uses it.
type side struct {
	shard  string
	peer   string
	source bool
	part   int64
	token  uint64
	dsn    func(name string) (string, bool)

	conn     *pgx.Conn // nil: none
	measured time.Time // when the lag of its standbys was last found small
	served   uint64    // requests of this sidecar when they were last counted
	counted  time.Time
	alone    bool // nobody else uses it, as far as that tells
}

// dial opens a session whose texts mean the same on every shard. The error shows nothing of the connection string.
func dial(ctx context.Context, name string, dsn func(string) (string, bool)) (*pgx.Conn, error) {
	text, ok := dsn(name)
	if !ok {
		return nil, fmt.Errorf("shard %s is not in the topology", name)
	}
	cfg, err := pgx.ParseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("shard %s: its dsn is not a PostgreSQL connection string", name)
	}
	cfg.ConnectTimeout = connectTimeout
	cfg.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite // whatever the DSN's target_session_attrs says
	for name, value := range map[string]string{
		"application_name": "ringside mover", "timezone": "UTC", "datestyle": "ISO, YMD", "intervalstyle": "postgres", "extra_float_digits": "1",
		"bytea_output": "hex", "statement_timeout": milliseconds(stepTimeout), "idle_in_transaction_session_timeout": milliseconds(stepTimeout),
		"lock_timeout": "5000", "client_encoding": "UTF8",
	} {
		cfg.RuntimeParams[name] = value
	}
	ctx, cancel := context.WithTimeout(ctx, 2*connectTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("shard %s: %w", name, err)
	}
	return conn, nil
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(max(1, d.Milliseconds()), 10) }

// open makes sure that there is a session.
func (s *side) open(ctx context.Context) error {
	if s.conn != nil && !s.conn.IsClosed() {
		return nil
	}
	conn, err := dial(ctx, s.shard, s.dsn)
	s.conn = conn
	return err
}

func (s *side) close() {
	if s.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.conn.Close(ctx) // it is being thrown away
	s.conn = nil
}

// look reads the part's row.
func (s *side) look(ctx context.Context) (shard.MoveRow, error) {
	if err := s.open(ctx); err != nil {
		return shard.MoveRow{}, err
	}
	return readRow(ctx, s.conn, s.part, "")
}

// querier is a session or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func readRow(ctx context.Context, q querier, part int64, lock string) (shard.MoveRow, error) {
	var r shard.MoveRow
	var token int64
	err := q.QueryRow(ctx, `select state, token, capture, copied from ringside.part where id = $1 `+lock, part).Scan(&r.State, &token, &r.Capture, &r.Copied)
	if errors.Is(err, pgx.ErrNoRows) {
		return shard.MoveRow{}, nil
	}
	r.Token = uint64(token)
	return r, err
}

// step makes one step in a transaction of its own: the part's row is held, MoveRow.After must agree, do does the rest.
func (s *side) step(ctx context.Context, step shard.MoveStep, limit time.Duration, do func(ctx context.Context, tx pgx.Tx) error) error {
	return s.transaction(ctx, limit, func(ctx context.Context, tx pgx.Tx) error {
		before, err := readRow(ctx, tx, s.part, "for update")
		if err != nil {
			return err
		}
		after, err := before.After(step, s.token)
		if err != nil {
			return err
		}
		if after != before {
			_, err = tx.Exec(ctx, `update ringside.part set state = $2, token = $3, capture = $4, copied = $5, changed_at = now() where id = $1`,
				s.part, string(after.State), int64(after.Token), after.Capture, after.Copied)
			if err != nil {
				return err
			}
		}
		if do == nil {
			return nil
		}
		return do(ctx, tx)
	})
}

// barrier is step under the exclusive lock: no writer is inside. got is called when the lock is had, or begins to be queued for, which is when writers begin to wait.
func (s *side) barrier(ctx context.Context, step shard.MoveStep, got func(), do func(ctx context.Context, tx pgx.Tx) error) error {
	begun, queued := time.Now(), 0
	for {
		queue := time.Since(begun) > pollingTime
		err := s.transaction(ctx, stepTimeout, func(ctx context.Context, tx pgx.Tx) error {
			if queue {
				got()
				queued++
				if _, err := tx.Exec(ctx, `select set_config('lock_timeout', $1, true)`, milliseconds(queuedTime)); err != nil {
					return err
				}
				if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock($1, 0)`, int32(origin.LockGlobal)); err != nil {
					return err
				}
			} else {
				var free bool
				if err := tx.QueryRow(ctx, `select pg_try_advisory_xact_lock($1, 0)`, int32(origin.LockGlobal)).Scan(&free); err != nil {
					return err
				}
				if !free {
					return errBusy
				}
				got()
			}
			before, err := readRow(ctx, tx, s.part, "for update")
			if err != nil {
				return err
			}
			after, err := before.After(step, s.token)
			if err != nil {
				return err
			}
			if _, err = tx.Exec(ctx, `update ringside.part set state = $2, capture = $3, changed_at = now() where id = $1`, s.part, string(after.State), after.Capture); err != nil || do == nil {
				return err
			}
			return do(ctx, tx)
		})
		if !errors.Is(err, errBusy) && code(err) != "55P03" {
			return err
		}
		pause := pollingPause
		if queue {
			if pause = queuedPause; queued == lockAttempts {
				return errBusy
			}
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// transaction runs do in a transaction that everybody can tell from those of others (I7).
func (s *side) transaction(ctx context.Context, limit time.Duration, do func(ctx context.Context, tx pgx.Tx) error) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	// The server ends it first, so that the session lives.
	ctx, cancel := context.WithTimeout(ctx, limit+2*time.Second)
	defer cancel()
	// One round trip: pages and cut-overs are made of them.
	tx, err := s.conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: fmt.Sprintf(`begin isolation level read committed; select set_config('statement_timeout', '%s', true),
	set_config('ringside.mover', 'on', true), pg_logical_emit_message(true, '%s', '')`, milliseconds(limit), cdc.MoverOrigin)})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = tx.Rollback(ctx) // nothing after a commit
	}()
	if err := do(ctx, tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// leave asks whether this driver may still do what it is about to do, and keeps it so to the end of the transaction.
func (s *side) leave(ctx context.Context, tx pgx.Tx, step shard.MoveStep) error {
	row, err := readRow(ctx, tx, s.part, "for share")
	if err != nil {
		return err
	}
	if step == shard.MoveWait {
		return row.Applied(s.token)
	}
	_, err = row.After(step, s.token)
	return err
}

// claim makes this driver the one that may act on the shard.
func (s *side) claim(ctx context.Context) error {
	step, name := shard.MoveClaimTo, "destination"
	if s.source {
		step, name = shard.MoveClaimFrom, "source"
	}
	if err := s.transaction(ctx, stepTimeout, func(ctx context.Context, tx pgx.Tx) error {
		var holds string
		if err := tx.QueryRow(ctx, `select shard from ringside.view`).Scan(&holds); err != nil || holds != s.shard {
			return cmpErr(err, fmt.Errorf("shard %s: its dsn leads to the database of shard %s", s.shard, holds))
		}
		_, err := tx.Exec(ctx, `insert into ringside.part (id, side, peer) values ($1, $2, $3) on conflict do nothing`, s.part, name, s.peer)
		return err
	}); err != nil {
		return err
	}
	return s.step(ctx, step, stepTimeout, nil)
}

func cmpErr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// unpin lets the view of the shard change again, if it was this part that held it.
func (s *side) unpin(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `update ringside.view set cutover = null where cutover = $1`, s.part)
	return err
}

func code(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// numbers writes vnodes as an array literal of SQL.
func numbers(vnodes []uint16) string {
	var b strings.Builder
	b.WriteString("'{")
	for i, v := range vnodes {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(int(v)))
	}
	b.WriteString("}'::int[]")
	return b.String()
}
