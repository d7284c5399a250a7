package origin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"ringside/internal/failpoint"
	"ringside/shard"
	"ringside/shard/keyspace"
)

// fenceSQL passes the fence and gives what follows in the transaction its own time limit. It says whether this is a standby, where a write that changes nothing
// would pass, and whether the shard withholds any rows.
const fenceSQL = `select pg_is_in_recovery(), exists (select from ringside.outbox), set_config('statement_timeout', $1, true), ringside.fence($2, $3, $4, $5)`

// unfencedSQL is fenceSQL without the fence: what comes of that is tested.
const unfencedSQL = `select pg_is_in_recovery(), exists (select from ringside.outbox), set_config('statement_timeout', $1, true), $2::int + length($3::text) + $4::bigint + $5::int`

// raceAttempts is how often a write that must end in a row is tried when others insert and delete that row meanwhile.
const raceAttempts = 4

// Write carries out one write in a transaction of its own that first passes the shard's fence, acting by view v (promise P4). When the
// statement has been carried out, and nothing is visible yet, beforeCommit is called: its error rolls back and is returned as
// it is. Before that, a transaction whose session turns out to be dead, or on a standby, is tried once more over another one. It may be nil, is called at most once, and must return well within WriteTimeout, since the shard ends a transaction that
// idles longer. It may ask for the row to be remembered in the outbox, which becomes true with the write, or, with ErrOutboxFull, neither does.
//
// A cancelled ctx ends the wait for a connection only. Errors, nothing written: *shard.StaleViewError, shard.ErrNotOwner,
// shard.ErrFrozen, shard.ErrOverloaded, shard.ErrLocked, *shard.BadRowError, *shard.DownError. A *shard.DownError that wraps
// shard.ErrOutcomeUnknown: the connection broke during COMMIT, and the write may or may not be there.
func (f *Fleet) Write(ctx context.Context, name string, v shard.View, op keyspace.Op, beforeCommit func() (remember bool, err error)) (keyspace.Outcome, error) {
	p, err := f.pool(name)
	if err != nil {
		return keyspace.Outcome{}, err
	}
	w := &write{pool: p, view: v, op: op, beforeCommit: beforeCommit}
	called, limit := time.Now(), f.cfg.WriteTimeout+Grace
	var first error
	err = p.run(ctx, request, limit, func(ctx context.Context, conn *pgx.Conn) error {
		first = w.run(ctx, conn)
		return first
	})
	// What is left is less by all that has passed, so that both attempts together keep within WriteBound.
	if left := limit - time.Since(called); lostOnce(first) && !w.past && left > Grace {
		err = p.run(ctx, request, left, w.run)
	}
	if w.refused != nil {
		return keyspace.Outcome{}, w.refused
	}
	if err != nil {
		return keyspace.Outcome{}, err
	}
	return w.outcome, nil
}

// write is one call of Write.
type write struct {
	pool         *pool
	view         shard.View
	op           keyspace.Op
	beforeCommit func() (remember bool, err error)
	past         bool // the statement was carried out, and COMMIT may have been sent: from here on nothing is repeated

	outcome keyspace.Outcome
	refused error // what beforeCommit said
}

// run carries out the write, once more if the table turns out to have changed since its columns were fetched.
func (w *write) run(ctx context.Context, conn *pgx.Conn) error {
	start := time.Now()
	defer since(w.pool.timings.write, start)
	s, err := w.statement(ctx, conn, false)
	if err != nil {
		return err
	}
	err = w.attempt(ctx, conn, s)
	switch code(err) {
	case codeUndefinedColumn, codeUndefinedTable, codeFeature, codeNoStatement:
		if w.past { // a deferred trigger said so at COMMIT
			break
		}
		if s, err = w.statement(ctx, conn, true); err != nil {
			return err
		}
		err = w.attempt(ctx, conn, s)
	}
	if stale, ok := errors.AsType[*shard.StaleViewError](translate(w.pool.name, err)); ok {
		w.pool.word.mentioned(w.pool, stale.View, start)
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && isBadRow(pg) && !errors.Is(err, shard.ErrOutcomeUnknown) {
		return w.badRow(ctx, conn, s, pg)
	}
	return err
}

// statement builds the statement. A column that is not known may be new: then the table is looked at again.
func (w *write) statement(ctx context.Context, conn *pgx.Conn, refresh bool) (*statement, error) {
	for {
		t, err := w.pool.table(ctx, conn, w.op.Key.Keyspace.Table, refresh)
		if err != nil {
			return nil, err
		}
		s, err := newStatement(t, w.op)
		unknown, isUnknown := errors.AsType[*unknownColumnError](err)
		switch {
		case !isUnknown:
			return s, err
		case refresh:
			return nil, &shard.BadRowError{Column: unknown.column, Reason: "the table has no such column"}
		}
		refresh = true
	}
}

// attempt is one transaction. Begin, fence and statement are one round trip, COMMIT is the second.
func (w *write) attempt(ctx context.Context, conn *pgx.Conn, s *statement) error {
	asked := time.Now()
	var batch pgx.Batch
	batch.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted}) // the fence works in no other
	fence := fenceSQL
	if failpoint.Without(failpoint.Fence) {
		fence = unfencedSQL
	}
	batch.Queue(fence, milliseconds(w.pool.cfg.WriteTimeout),
		int32(w.op.Key.ShardVnode), string(w.op.Key.ShardKey), int64(w.view.Epoch), int32(w.view.Phase))
	batch.Queue(s.sql, s.args...)

	results := conn.SendBatch(ctx, &batch)
	tx := results.Tx()
	defer rollback(tx)
	var standby, withholds bool
	err := func() error {
		if _, err := results.Exec(); err != nil { // begin
			return err
		}
		failpoint.At(failpoint.Begun)
		if err := results.QueryRow().Scan(&standby, &withholds, nil, nil); err != nil { // fence
			return err
		}
		if standby {
			return &shard.DownError{Shard: w.pool.name, Err: errReadOnly}
		}
		failpoint.At(failpoint.Fenced)
		return w.read(results.QueryRow())
	}()
	if closed := results.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	for tries := 1; w.raced(); tries++ {
		if tries == raceAttempts {
			return &shard.BadRowError{Reason: "the row was neither found nor inserted (does a trigger of the table suppress it?)"}
		}
		if err := w.read(tx.QueryRow(ctx, s.sql, s.args...)); err != nil {
			return err
		}
	}
	w.past = true
	failpoint.At(failpoint.Stated)
	if w.beforeCommit != nil {
		done := w.beforeCommit
		w.beforeCommit = nil
		var remembered bool
		if remembered, w.refused = done(); w.refused != nil {
			return nil
		}
		if remembered {
			failpoint.At(failpoint.Remembering)
			err := remember(ctx, tx, &w.op.Key)
			if errors.Is(err, ErrOutboxFull) {
				w.refused, err = err, nil
			}
			if w.refused != nil || err != nil {
				return err
			}
			withholds = true
		}
	}
	failpoint.At(failpoint.Committing)
	if err := tx.Commit(ctx); err != nil {
		w.pool.conclude(err)
		return commitError(w.pool.name, err)
	}
	failpoint.At(failpoint.Committed)
	if !withholds {
		w.pool.word.repeated(w.pool, w.view, asked)
	}
	return nil
}

// read takes the statement's one row.
func (w *write) read(row pgx.Row) error {
	var changed, inserted bool
	var value *int64
	if err := row.Scan(&changed, &inserted, &value); err != nil {
		return err
	}
	w.outcome = keyspace.Outcome{Applied: changed || inserted, Inserted: inserted}
	if value != nil {
		w.outcome.Value = *value
	}
	return nil
}

// raced reports whether a write that must end in a row found none and inserted none: somebody else inserted it at the same time. A
// repetition in the same transaction sees that row.
func (w *write) raced() bool {
	return !w.outcome.Applied && (w.op.Kind == keyspace.Upsert || w.op.Kind == keyspace.Increment)
}

// rollback ends a transaction that was not committed. A refusal by the fence is normal traffic and must not cost the connection, which
// the pool destroys when a transaction is left open. The deadline of the write may have passed, so it has its own.
func rollback(tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.Background(), rollbackTimeout)
	defer cancel()
	_ = tx.Rollback(ctx) // it is closed already, or the connection is broken and the shard rolls back by itself
}

// commitError tells apart a COMMIT that certainly failed from one whose outcome is not known. Certain are: it was never sent, or the
// server answered it with an error that leaves the session alive (a deferred constraint), or the session had been ended before for idling.
func commitError(name string, err error) error {
	pg, answered := errors.AsType[*pgconn.PgError](err)
	switch {
	case pgconn.SafeToRetry(err), errors.Is(err, pgx.ErrTxCommitRollback), errors.Is(err, pgx.ErrTxClosed):
		return &shard.DownError{Shard: name, Err: fmt.Errorf("not committed: %w", err)}
	case answered && pg.Code == codeIdleInTransaction:
		return &shard.DownError{Shard: name, Err: fmt.Errorf("not committed, it took too long: %w", err)}
	case answered && pg.SeverityUnlocalized == "ERROR":
		return err
	}
	return &shard.DownError{Shard: name, Err: fmt.Errorf("%w: %w", shard.ErrOutcomeUnknown, err)}
}
