package mover

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"ringside/shard"
)

// sum is what is compared of a set of rows.
type sum struct {
	rows int64
	hash string
}

// differError says that rows differ which must not. Nothing was committed.
type differError struct{ table, where string }

func (e *differError) Error() string {
	return fmt.Sprintf("the rows of table %s differ between the shards (%s): the move was called off", e.table, e.where)
}

// comparePage is how many vnodes are compared by one statement, about.
const comparePage = 512

// compareAll compares all rows, vnode by vnode, while writes go on. What differs may be a change that is on its way, so it is looked at again after that was
// applied; what still differs is remembered to be compared when nothing can change. From its beginning on, changed rows are remembered too (I5).
func (p *part) compareAll(ctx context.Context) error {
	p.touched, p.doubtful = map[touch]struct{}{}, nil
	for at := range p.tables {
		for vnodes := range slices.Chunk(p.spec.Vnodes, comparePage) {
			begun := time.Now()
			differ, err := p.differing(ctx, at, vnodes)
			if err != nil {
				return err
			}
			if err := p.rest(ctx, time.Since(begun)); err != nil {
				return err
			}
			for round := 0; len(differ) > 0 && round < 4; round++ {
				if err := p.catchUp(ctx); err != nil {
					return err
				}
				if differ, err = p.differing(ctx, at, differ); err != nil {
					return err
				}
			}
			for _, v := range differ {
				p.doubtful = append(p.doubtful, doubt{at, v})
			}
			if err := p.breathe(ctx); err != nil {
				return err
			}
		}
	}
	if err := p.catchUp(ctx); err != nil {
		return err
	}
	p.compared = p.touched != nil // else too much has changed meanwhile to compare it while writes wait
	return nil
}

// doubt is a vnode of one table whose rows were not found equal yet.
type doubt struct {
	table int
	vnode uint16
}

// differing returns those vnodes whose rows differ.
func (p *part) differing(ctx context.Context, at int, vnodes []uint16) ([]uint16, error) {
	t := &p.tables[at]
	sql := fmt.Sprintf(`select ringside_vnode, %s from %s where ringside_vnode = any(%s)%s group by 1`, t.checksum(), t.Name, numbers(vnodes), p.scope.also(t))
	sums, err := onBoth(ctx, p, func(ctx context.Context, s *side) (map[int32]sum, error) {
		out := map[int32]sum{}
		rows, err := s.conn.Query(ctx, sql)
		if err != nil {
			return nil, err
		}
		var vnode int32
		var x sum
		_, err = pgx.ForEachRow(rows, []any{&vnode, &x.rows, &x.hash}, func() error {
			out[vnode] = x
			return nil
		})
		return out, err
	})
	if err != nil {
		return nil, err
	}
	var out []uint16
	for _, v := range vnodes {
		if sums[0][int32(v)] != sums[1][int32(v)] {
			out = append(out, v)
		}
	}
	return out, nil
}

// onBoth asks both shards at the same time.
func onBoth[T any](ctx context.Context, p *part, ask func(ctx context.Context, s *side) (T, error)) (answers [2]T, err error) {
	done := make(chan error, 1)
	go func() {
		var err error
		answers[1], err = ask(ctx, p.to)
		done <- err
	}()
	answers[0], err = ask(ctx, p.from)
	if other := <-done; err == nil {
		err = other
	}
	return answers, err
}

// polish leaves little to be done while writers wait: tables are looked at, what has been noted is applied, and of the rows that have changed since all were compared those that are equal by now
// need not be compared again, unless they change once more.
func (p *part) polish(ctx context.Context) (err error) {
	if p.prints, err = onBoth(ctx, p, fingerprint); err == nil {
		err = p.checkTables(ctx)
	}
	if err == nil {
		err = p.catchUp(ctx)
	}
	if err != nil {
		return err
	}
	changed := p.touched
	if changed == nil {
		return nil // too many: all are compared again
	}
	p.touched = map[touch]struct{}{}
	differ, err := p.stillDiffering(ctx, changed)
	if err == nil {
		err = p.catchUp(ctx)
	}
	if err != nil {
		differ = changed
	}
	if p.touched != nil {
		for x := range differ {
			p.touched[x] = struct{}{}
		}
	}
	return err
}

// stillDiffering returns those of the changed rows that are not the same on both shards.
func (p *part) stillDiffering(ctx context.Context, changed map[touch]struct{}) (map[touch]struct{}, error) {
	differ := map[touch]struct{}{}
	for at := range p.tables {
		t := &p.tables[at]
		var keys []string
		for x := range changed {
			if x.table == at {
				keys = append(keys, x.key)
			}
		}
		for some := range slices.Chunk(keys, changesAtOnce) {
			hashes, err := onBoth(ctx, p, func(ctx context.Context, s *side) (map[string]int64, error) {
				return t.hashes(ctx, s.conn, some, p.scope.mine(t, s.part))
			})
			if err != nil {
				return nil, err
			}
			for _, key := range unequal(some, hashes[0], hashes[1]) {
				differ[touch{at, key}] = struct{}{}
			}
		}
	}
	return differ, nil
}

// unequal returns those keys whose rows have other hashes here than there. A row that none of the keys names is one of theirs, written otherwise: then nothing can be said of any. Pure.
func unequal(keys []string, here, there map[string]int64) (out []string) {
	named := 0
	for _, key := range keys {
		a, is := here[key]
		b, too := there[key]
		if is != too || a != b {
			out = append(out, key)
		}
		for _, found := range []bool{is, too} {
			if found {
				named++
			}
		}
	}
	if named != len(here)+len(there) {
		return keys
	}
	return out
}

// compareChanged compares, while nothing can change, what was not found equal before or has changed since.
func (p *part) compareChanged(ctx context.Context) error {
	for at := range p.tables {
		t := &p.tables[at]
		keys := map[string]struct{}{}
		for x := range p.touched {
			if x.table == at {
				keys[x.key] = struct{}{}
			}
		}
		if len(keys) > 0 {
			list := keyList(keys)
			if err := p.equal(ctx, t, fmt.Sprintf("of %d changed ones", len(keys)), func(part int64) string { return t.among(list, p.scope.mine(t, part)) }); err != nil {
				return err
			}
		}
		var vnodes []uint16
		for _, d := range p.doubtful {
			if d.table == at {
				vnodes = append(vnodes, d.vnode)
			}
		}
		if len(vnodes) > 0 {
			which := "ringside_vnode = any(" + numbers(vnodes) + ")" + p.scope.also(t)
			if err := p.equal(ctx, t, fmt.Sprintf("vnode %d and others, %d in all", vnodes[0], len(vnodes)), func(int64) string { return which }); err != nil {
				return err
			}
		}
	}
	return nil
}

// equal compares the rows that meet a condition.
func (p *part) equal(ctx context.Context, t *table, which string, where func(part int64) string) error {
	sums, err := onBoth(ctx, p, func(ctx context.Context, s *side) (x sum, err error) {
		err = s.timed(ctx, p.limit(), func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, fmt.Sprintf(`select %s from %s where %s`, t.checksum(), t.Name, where(s.part))).Scan(&x.rows, &x.hash)
		})
		return x, err
	})
	if err == nil && sums[0] != sums[1] {
		return &differError{t.Name, which}
	}
	return err
}

// timed is a transaction that only reads, ended by the server after the limit.
func (s *side) timed(ctx context.Context, limit time.Duration, do func(ctx context.Context, tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, s.conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `select set_config('statement_timeout', $1, true)`, milliseconds(limit)); err != nil {
			return err
		}
		return do(ctx, tx)
	})
}

// settle applies the last changes after the freeze, when no more can come, and compares.
func (p *part) settle(ctx context.Context) error {
	// No more come, and whoever thaws the source applies them again: they need not be struck.
	last, err := readChanges(ctx, p.from, p.tables, maxTouched)
	switch {
	case err != nil:
		return err
	case len(last.seqs) == maxTouched:
		return errLate // too many for the time that is left
	case len(last.seqs) > 0:
		if err := p.apply(ctx, last, shard.MoveSettle); err != nil {
			return err
		}
	}
	prints, err := onBoth(ctx, p, fingerprint)
	if err == nil && prints != p.prints {
		err = p.checkTables(ctx)
	}
	if err != nil {
		return err
	}
	if err := p.compareChanged(ctx); err != nil {
		return err
	}
	return p.awaitStandbys(ctx)
}

// checkTables looks whether what was copied is all there is, and what it was.
func (p *part) checkTables(ctx context.Context) error {
	now, err := onBoth(ctx, p, func(ctx context.Context, s *side) ([]table, error) { return describe(ctx, s.conn) })
	if err != nil {
		return err
	}
	for i, name := range []string{p.spec.From, p.spec.To} {
		if what := sameTables(p.tables, now[i], "of before", name); what != "" {
			return fmt.Errorf("%w: %s", errTables, what)
		}
	}
	return nil
}

// awaitStandbys waits until standbys of the source that might be promoted know that it is frozen. Else one of them could take writes after the commit.
func (p *part) awaitStandbys(ctx context.Context) error {
	var lsn string
	var any bool
	err := p.from.conn.QueryRow(ctx, `select pg_current_wal_insert_lsn()::text, exists (select from pg_stat_replication r `+physical+`)`).Scan(&lsn, &any)
	if err != nil || !any {
		return err
	}
	for {
		var behind bool
		err := p.from.conn.QueryRow(ctx, `select coalesce(bool_or(r.replay_lsn < $1::pg_lsn), false) from pg_stat_replication r `+physical, lsn).Scan(&behind)
		if err != nil || !behind {
			return err
		}
		if p.late() {
			return errLate
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// physical leaves out those that follow changes of rows.
const physical = `where r.state = 'streaming' and r.replay_lsn is not null
	and not exists (select from pg_replication_slots l where l.active_pid = r.pid and l.slot_type = 'logical')`
