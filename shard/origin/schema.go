package origin

import (
	"cmp"
	"context"
	_ "embed" // schema.sql
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"ringside/shard"
)

// schemaVersion is the version that schema.sql installs. A shard with a newer one is left as it is: newer sidecars are being rolled
// out, and they keep what older ones need.
const schemaVersion = 5

//go:embed schema.sql
var schemaSQL string

// movesSQL follows schemaSQL.
//
//go:embed moves.sql
var movesSQL string

const installAttempts = 3

// Install makes the database ready to be a shard: it installs the schema where it is missing or old, and, if the database has no view yet,
// records that it is the named shard, at view v, with the given copy of the topology, and owner of these vnodes. All of it is
// one transaction; two that start at once agree. On a database that has a view nothing but the schema changes, whatever is given.
//
// The error is a *WrongShardError when the database was installed as another shard. The role must own the schema, or be allowed to create it.
func (f *Fleet) Install(ctx context.Context, name string, v shard.View, topology []byte, owned []uint16) error {
	p, err := f.pool(name)
	if err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		err = p.run(ctx, internal, f.cfg.AdminTimeout, func(ctx context.Context, conn *pgx.Conn) error {
			return p.install(ctx, conn, v, topology, owned)
		})
		// Somebody who takes no lock, such as a migration tool, may create the schema in the same moment.
		raced := code(err) == codeUniqueViolation || code(err) == codeDuplicateSchema
		if !raced || attempt == installAttempts {
			break
		}
	}
	if err == nil {
		p.askNow()
	}
	return err
}

func (p *pool) install(ctx context.Context, conn *pgx.Conn, v shard.View, topology []byte, owned []uint16) error {
	tx, err := p.beginAdmin(ctx, conn)
	if err != nil {
		return err
	}
	defer rollback(tx.Conn())
	if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock($1, 0)`, int32(LockSchema)); err != nil {
		return err
	}
	if err := installSchema(ctx, tx); err != nil {
		return fmt.Errorf("installing schema ringside: %w", err)
	}
	var holds string
	err = tx.QueryRow(ctx, `select shard from ringside.view`).Scan(&holds)
	switch {
	case err == nil && holds != p.name:
		return &WrongShardError{Shard: p.name, Holds: holds}
	case err == nil:
		return tx.Commit(ctx)
	case !errors.Is(err, pgx.ErrNoRows):
		return err
	}
	// No writer passes the fence of a shard without a view, so this waits for nobody for long.
	if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock($1, 0)`, int32(LockGlobal)); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `insert into ringside.view (shard, epoch, phase, topology) values ($1, $2, $3, $4)`,
		p.name, int64(v.Epoch), int16(v.Phase), topology)
	if err != nil {
		return err
	}
	vnodes := make([]int32, len(owned))
	for i, n := range owned {
		vnodes[i] = int32(n)
	}
	_, err = tx.Exec(ctx, `insert into ringside.owner (vnode, state, epoch) select n, 'owned', $2 from unnest($1::int[]) n`,
		vnodes, int64(v.Epoch))
	if err != nil {
		return err
	}
	return tx.Commit(ctx)
}

func installSchema(ctx context.Context, tx pgx.Tx) error {
	var exists, versioned bool
	err := tx.QueryRow(ctx, `select to_regnamespace('ringside') is not null, to_regclass('ringside.schema_version') is not null`).
		Scan(&exists, &versioned)
	if err != nil {
		return err
	}
	version := 0
	if versioned {
		err := tx.QueryRow(ctx, `select coalesce(max(version), 0) from ringside.schema_version`).Scan(&version)
		if err != nil {
			return err
		}
	}
	if version >= schemaVersion {
		return nil
	}
	if !exists { // "if not exists" would ask for the right to create even where there is nothing to create
		if _, err := tx.Exec(ctx, `create schema ringside`); err != nil {
			return err
		}
	}
	// A script of many statements goes by the simple protocol. It holds no parameters.
	if _, err := tx.Conn().PgConn().Exec(ctx, schemaSQL+movesSQL).ReadAll(); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `insert into ringside.schema_version (version) values ($1)`, schemaVersion)
	return err
}

// beginAdmin begins a transaction that may take as long as an administrative operation.
func (p *pool) beginAdmin(ctx context.Context, conn *pgx.Conn) (pgx.Tx, error) {
	var batch pgx.Batch
	batch.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	batch.Queue(`select set_config('statement_timeout', $1, true), set_config('lock_timeout', $1, true)`, milliseconds(p.cfg.AdminTimeout))
	results := conn.SendBatch(ctx, &batch)
	tx := results.Tx()
	if err := results.Close(); err != nil {
		rollback(tx.Conn())
		return nil, err
	}
	return tx, nil
}

// How Advance gets the exclusive global lock. To be queued for it would stall every new writer until the slowest one before it has
// ended, so it is polled first; under steady traffic polling alone might never find it free, so then it is queued for briefly, with
// pauses in which writers pass.
const (
	pollingTime  = 300 * time.Millisecond
	pollingPause = 5 * time.Millisecond
	queuedTime   = 200 * time.Millisecond
	queuedPause  = 100 * time.Millisecond
)

// Advance raises the shard's view to v, with the given copy of the topology, if it is lower. It returns the view that is there
// now, which may be higher than v, and is lower while a cut-over of moving vnodes holds it. When it returns, no writer that acted by an older view than
// that is still under way on the shard, and none can begin.
//
// It tries for AdminTimeout to find a moment without writers. Errors: *shard.DownError, *WrongShardError, ctx's between two attempts. After
// an error the view may or may not have been raised; to repeat the call is safe.
func (f *Fleet) Advance(ctx context.Context, name string, v shard.View, topology []byte) (shard.View, error) {
	p, err := f.pool(name)
	if err != nil {
		return shard.View{}, err
	}
	var now shard.View
	var stopped error
	caller := ctx
	err = p.run(ctx, internal, f.cfg.AdminTimeout, func(ctx context.Context, conn *pgx.Conn) error {
		start := time.Now()
		for {
			asked := time.Now()
			queue := asked.Sub(start) > pollingTime
			var done bool
			var err error
			var box outboxRow
			now, box, done, err = p.advance(ctx, conn, v, topology, queue)
			if err != nil && code(err) != codeLockNotAvailable && !errors.Is(err, errLockHeld) {
				return err
			}
			if done {
				p.word.said(p, now, asked, box)
				return nil
			}
			pause := pollingPause
			if queue {
				pause = queuedPause
			}
			select {
			case <-caller.Done():
				stopped = caller.Err()
				return nil
			case <-ctx.Done():
				return &shard.DownError{Shard: p.name, Err: fmt.Errorf("no moment without writers within %v", p.cfg.AdminTimeout)}
			case <-time.After(pause/2 + rand.N(pause)):
			}
		}
	})
	if err = cmp.Or(stopped, err); err != nil {
		return shard.View{}, err
	}
	return now, nil
}

// advance is one attempt. errLockHeld, or a lock timeout of the server, asks for another.
func (p *pool) advance(ctx context.Context, conn *pgx.Conn, v shard.View, topology []byte, queue bool) (now shard.View, box outboxRow, done bool, err error) {
	now, box, _, err = p.topology(ctx, conn)
	if err != nil || !now.Less(v) {
		return now, box, err == nil, err
	}
	var held bool
	if err := conn.QueryRow(ctx, `select cutover is not null from ringside.view`).Scan(&held); err != nil || held {
		return now, box, err == nil, err // writers are not to be held up in vain
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return now, box, false, err
	}
	defer rollback(tx.Conn())
	if err := lockGlobal(ctx, tx, queue); err != nil {
		return now, box, false, err
	}
	// previous follows only from a view in phase done: one that was skipped half-way is still changing hands.
	_, err = tx.Exec(ctx, `update ringside.view set epoch = $1, phase = $2, topology = coalesce($3, topology), changed_at = now(),
	previous = case when phase = 3 and epoch < $1 then epoch else previous end
where shard = $4 and (epoch, phase) < ($1, $2) and cutover is null`, int64(v.Epoch), int16(v.Phase), topology, p.name)
	if err != nil {
		return now, box, false, err
	}
	if now, box, _, err = p.topology(ctx, conn); err != nil {
		return now, box, false, err
	}
	if err := tx.Commit(ctx); err != nil {
		return now, box, false, err
	}
	return now, box, true, nil
}

// errLockHeld says that the global lock was not free when it was polled.
var errLockHeld = errors.New("writers hold the lock")

func lockGlobal(ctx context.Context, tx pgx.Tx, queue bool) error {
	if queue {
		_, err := tx.Exec(ctx, `select set_config('lock_timeout', $1, true)`, milliseconds(queuedTime))
		if err == nil {
			_, err = tx.Exec(ctx, `select pg_advisory_xact_lock($1, 0)`, int32(LockGlobal))
		}
		return err
	}
	var got bool
	err := tx.QueryRow(ctx, `select pg_try_advisory_xact_lock($1, 0)`, int32(LockGlobal)).Scan(&got)
	if err == nil && !got {
		return errLockHeld
	}
	return err
}

// Topology returns the shard's view and its own copy of the topology, nil if it has none.
func (f *Fleet) Topology(ctx context.Context, name string) (shard.View, []byte, error) {
	p, err := f.pool(name)
	if err != nil {
		return shard.View{}, nil, err
	}
	var v shard.View
	var topology []byte
	err = p.run(ctx, internal, f.cfg.LoadTimeout+Grace, func(ctx context.Context, conn *pgx.Conn) error {
		asked := time.Now()
		var err error
		var box outboxRow
		if v, box, topology, err = p.topology(ctx, conn); err == nil {
			p.word.said(p, v, asked, box)
		}
		return err
	})
	if err != nil {
		return shard.View{}, nil, err
	}
	return v, topology, nil
}

func (p *pool) topology(ctx context.Context, conn *pgx.Conn) (shard.View, outboxRow, []byte, error) {
	var name string
	var v viewRow
	var box outboxRow
	var topology []byte
	var standby bool
	err := conn.QueryRow(ctx, `select shard, epoch, phase, previous, topology, pg_is_in_recovery(), o.n, o.oldest, o.vnodes from ringside.view, `+outboxSQL).
		Scan(&name, &v.epoch, &v.phase, &v.previous, &topology, &standby, &box.rows, &box.oldest, &box.vnodes)
	switch {
	case errors.Is(err, pgx.ErrNoRows), code(err) == codeUndefinedTable, code(err) == codeUndefinedSchema:
		return shard.View{}, box, nil, &shard.DownError{Shard: p.name, Err: errNotSetUp}
	case err != nil:
		return shard.View{}, box, nil, err
	case name != p.name:
		return shard.View{}, box, nil, &WrongShardError{Shard: p.name, Holds: name}
	case standby:
		return shard.View{}, box, nil, &shard.DownError{Shard: p.name, Err: errReadOnly}
	}
	return v.view(), box, topology, nil
}
