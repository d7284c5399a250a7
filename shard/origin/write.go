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

const (
	beginSQL  = `begin isolation level read committed` // the fence works in no other
	commitSQL = `commit`
)

// raceAttempts is how often a write that must end in a row is tried when others insert and delete that row meanwhile.
const raceAttempts = 4

// Pass lets one write use a session of a shard. It is for one goroutine.
type Pass struct {
	pool *pool
	came time.Time
	used bool
}

// Admit waits until a write may use a session of the named shard: nothing need be done for it before. The caller must call Leave when it is done with it. The
// errors are shard.ErrOverloaded, *shard.DownError and ctx's own.
func (f *Fleet) Admit(ctx context.Context, name string) (*Pass, error) {
	p, err := f.pool(name)
	if err != nil {
		return nil, err
	}
	pass := &Pass{pool: p, came: time.Now()}
	if err := p.admission.enter(ctx, request); err != nil {
		return nil, err
	}
	return pass, nil
}

// Leave gives back the session of a pass that was not used. It may be called of any.
func (s *Pass) Leave() {
	if !s.used {
		s.used = true
		s.pool.admission.leave()
	}
}

// Write is Pass.Write of a write that is admitted first.
func (f *Fleet) Write(ctx context.Context, name string, v shard.View, op keyspace.Op, beforeCommit func() (remember bool, err error)) (keyspace.Outcome, error) {
	pass, err := f.Admit(ctx, name)
	if err != nil {
		return keyspace.Outcome{}, err
	}
	return pass.Write(ctx, v, op, beforeCommit)
}

// Write carries out one write in a transaction of its own that first passes the shard's fence, acting by view v (promise P4). While the shard
// is at it, and nothing is visible yet, beforeCommit is called; COMMIT is sent only after it has returned. Its error rolls back and is returned as
// it is, unless the shard has refused the write for a reason of its own. A transaction whose session turns out to be dead before COMMIT is sent, or on a standby, is tried
// once more over another one. It may be nil, is called at most once, and must return well within WriteTimeout, since the
// shard ends a transaction that idles longer. It may ask for the row to be remembered in the outbox, which becomes true with the write, or, with ErrOutboxFull, neither does.
//
// It may be called once. A cancelled ctx ends the wait for a connection only. Errors, nothing written: *shard.StaleViewError, shard.ErrNotOwner,
// shard.ErrFrozen, shard.ErrOverloaded, shard.ErrLocked, *shard.BadRowError, *shard.DownError. A *shard.DownError that wraps
// shard.ErrOutcomeUnknown: the connection broke after COMMIT was sent, and the write may or may not be there.
func (s *Pass) Write(ctx context.Context, v shard.View, op keyspace.Op, beforeCommit func() (remember bool, err error)) (keyspace.Outcome, error) {
	s.used = true
	w := &write{pool: s.pool, view: v, op: op, beforeCommit: beforeCommit}
	called, limit := time.Now(), s.pool.cfg.WriteTimeout+Grace
	var first error
	err := s.pool.runAdmitted(ctx, request, s.came, limit, func(ctx context.Context, conn *pgx.Conn) error {
		first = w.run(ctx, conn)
		return first
	})
	// What is left is less by all that has passed, so that both attempts together keep within WriteBound.
	if left := limit - time.Since(called); lostOnce(first) && !w.past && left > Grace {
		err = s.pool.run(ctx, request, left, w.run)
	}
	if w.refused != nil {
		return keyspace.Outcome{}, w.refused
	}
	if err != nil {
		return keyspace.Outcome{}, err
	}
	return w.outcome, nil
}

// write is one call of Pass.Write.
type write struct {
	pool         *pool
	view         shard.View
	op           keyspace.Op
	beforeCommit func() (remember bool, err error)
	past         bool // the statement was carried out, and COMMIT may have been: from here on nothing is repeated

	remember bool  // what beforeCommit said: the row is to be remembered
	refusal  error // likewise: nothing is to be committed
	outcome  keyspace.Outcome
	refused  error // the refusal of a write that the shard would have committed
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
	if isOutdated(err) && !w.past { // past it, a deferred trigger said so at COMMIT
		if err := unprepare(ctx, conn); err != nil {
			return err
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

// isOutdated reports whether an error may come of a statement that was built or prepared for the table as it was before.
func isOutdated(err error) bool {
	switch code(err) {
	case codeUndefinedColumn, codeUndefinedTable, codeUndefinedFunction, codeMismatch, codeCannotCoerce, codeGenerated, codeFeature, codeNoStatement:
		return true
	}
	return false
}

// statement builds the statement. Before a client is told that the table does not allow it, the table is looked at again.
func (w *write) statement(ctx context.Context, conn *pgx.Conn, refresh bool) (*statement, error) {
	for {
		t, err := w.pool.table(ctx, conn, w.op.Key.Keyspace.Table, refresh)
		if err != nil {
			return nil, err
		}
		s, err := newStatement(t, w.op)
		if err == nil || refresh {
			return s, err
		}
		refresh = true
	}
}

// attempt is one transaction, and further ones while others keep inserting and deleting the row.
func (w *write) attempt(ctx context.Context, conn *pgx.Conn, s *statement) error {
	for tries := 1; ; tries++ {
		if err := w.transact(ctx, conn, s); err != nil || w.refused != nil || !w.raced() {
			return err
		}
		if tries == raceAttempts {
			return &shard.BadRowError{Reason: "the row was neither found nor inserted (does a trigger of the table suppress it?)"}
		}
		w.past = false // what was committed is nothing
	}
}

// transact is one transaction. Begin, fence and statement are sent together, and COMMIT as soon as beforeCommit lets it, without waiting for what the shard says
// to them: if one of them has failed, it makes a ROLLBACK of the COMMIT. So a write waits for the shard once.
func (w *write) transact(ctx context.Context, conn *pgx.Conn, s *statement) error {
	begin, err := prepare(ctx, conn, beginSQL)
	if err != nil {
		return err
	}
	fence, err := prepare(ctx, conn, w.fence())
	if err != nil {
		return err
	}
	change, err := prepare(ctx, conn, s.sql)
	if err != nil {
		return err
	}
	commit, err := prepare(ctx, conn, commitSQL)
	if err != nil {
		return err
	}

	asked := time.Now()
	p := newPipeline(ctx, conn)
	defer rollback(conn)
	defer p.Close() // what it says has been said before
	err = errors.Join(
		p.queue(begin),
		p.queue(fence, milliseconds(w.pool.cfg.WriteTimeout), int32(w.op.Key.ShardVnode), string(w.op.Key.ShardKey), int64(w.view.Epoch), int32(w.view.Phase)),
		p.queue(change, s.args...))
	if sent := p.Sync(); err == nil {
		err = sent
	}
	if err != nil {
		return err
	}
	failpoint.At(failpoint.Begun)
	if w.beforeCommit != nil {
		w.remember, w.refusal = w.beforeCommit()
		w.beforeCommit = nil
	}
	committing := w.refusal == nil && !w.remember
	if committing {
		failpoint.At(failpoint.Committing)
		if err := ctx.Err(); err != nil {
			return err // known to be not committed, which it would not be after an attempt
		}
		if severed(conn) {
			return errSevered
		}
		err = p.queue(commit)
		if sent := p.Sync(); err == nil {
			err = sent
		}
	}
	withholds := false
	if err == nil {
		withholds, err = w.answers(p)
	}
	switch {
	case err != nil && committing:
		return w.unanswered(err)
	case err != nil:
		return err
	case committing:
		if err = w.committed(p.done()); err == nil && !withholds {
			w.pool.word.repeated(w.pool, w.view, asked)
		}
		return err
	}
	if err := p.Close(); err != nil {
		return err
	}
	if w.refusal != nil {
		w.refused = w.refusal
		return nil
	}
	failpoint.At(failpoint.Remembering)
	switch err := remember(ctx, conn, &w.op.Key); {
	case errors.Is(err, ErrOutboxFull):
		w.refused = err
		return nil
	case err != nil:
		return err
	}
	failpoint.At(failpoint.Committing)
	return w.committed(conn.Exec(ctx, commitSQL))
}

func (w *write) fence() string {
	if failpoint.Without(failpoint.Fence) {
		return unfencedSQL
	}
	return fenceSQL
}

// answers reads what the shard says to begin, fence and statement.
func (w *write) answers(p *pipeline) (withholds bool, err error) {
	if _, err := p.done(); err != nil {
		return false, err
	}
	var standby bool
	if err := p.row(&standby, &withholds, nil, nil); err != nil {
		return false, err
	}
	if standby {
		return false, &shard.DownError{Shard: w.pool.name, Err: errReadOnly}
	}
	failpoint.At(failpoint.Fenced)
	var changed, inserted bool
	var value *int64
	if err := p.row(&changed, &inserted, &value); err != nil {
		return false, err
	}
	w.outcome = keyspace.Outcome{Applied: changed || inserted, Inserted: inserted}
	if value != nil {
		w.outcome.Value = *value
	}
	w.past = true
	failpoint.At(failpoint.Stated)
	return withholds, p.synced()
}

// unanswered is the error of a transaction whose COMMIT was sent and one of whose statements has no answer. When the shard has said why, it has not committed;
// nor when it was a standby as the transaction began, which stays read-only then.
func (w *write) unanswered(err error) error {
	if _, answered := errors.AsType[*pgconn.PgError](err); answered || errors.Is(err, errReadOnly) || pgconn.SafeToRetry(err) {
		return err
	}
	w.pool.conclude(err)
	return &shard.DownError{Shard: w.pool.name, Err: fmt.Errorf("%w: %w", shard.ErrOutcomeUnknown, err)}
}

// committed makes of the shard's answer to COMMIT what the caller is told.
func (w *write) committed(tag pgconn.CommandTag, err error) error {
	if err == nil && tag.String() != "COMMIT" {
		err = pgx.ErrTxCommitRollback
	}
	if err != nil {
		w.pool.conclude(err)
		return commitError(w.pool.name, err)
	}
	failpoint.At(failpoint.Committed)
	return nil
}

// raced reports whether a write that must end in a row found none and inserted none: somebody else inserted it at the same time. A
// repetition in the same transaction sees that row.
func (w *write) raced() bool {
	return !w.outcome.Applied && (w.op.Kind == keyspace.Upsert || w.op.Kind == keyspace.Increment)
}

// rollback ends a transaction that was not committed. A refusal by the fence is normal traffic and must not cost the connection, which
// the pool destroys when a transaction is left open. The deadline of the write may have passed, so it has its own.
func rollback(conn *pgx.Conn) {
	if conn.IsClosed() || conn.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), rollbackTimeout)
	defer cancel()
	_, _ = conn.Exec(ctx, "rollback") // if it fails the connection is broken, and the shard rolls back by itself
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
