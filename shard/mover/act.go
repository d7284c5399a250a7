package mover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"ringside/shard"
	"ringside/shard/catalog"
)

// act makes one step.
func (p *part) act(ctx context.Context, step shard.MoveStep, s shard.MoveSight) error {
	if p.atHome() {
		return p.actAtHome(ctx, step)
	}
	if step >= shard.MoveExpect && step <= shard.MoveCommit {
		if !p.turn.take(ctx, p) { // parts are copied and cut over one after another
			p.holdUp("another part is being copied")
			return shard.ErrMoveState
		}
	}
	switch step {
	case shard.MoveWait:
		if s.To.Token > p.token || s.From.Token > p.token {
			return shard.ErrMoveTaken
		}
		return sleep(ctx, glance)
	case shard.MoveClaimTo:
		return p.to.claim(ctx)
	case shard.MoveClaimFrom:
		return p.from.claim(ctx)
	case shard.MoveExpect:
		return p.expect(ctx)
	case shard.MoveEnlist:
		return p.enlist(ctx)
	case shard.MoveCapture:
		return p.from.barrier(ctx, step, func() {}, nil)
	case shard.MoveCopy:
		return p.within(ctx, p.copy)
	case shard.MoveCatchUp:
		return p.within(ctx, p.catchUp)
	case shard.MoveCompare:
		return p.within(ctx, p.compareAll)
	case shard.MoveHold:
		return p.hold(ctx)
	case shard.MoveFreeze:
		if err := p.within(ctx, p.polish); err != nil {
			return err
		}
		if !p.compared {
			return shard.ErrMoveState
		}
		return p.freeze(ctx)
	case shard.MoveSettle:
		return p.settleInTime(ctx)
	case shard.MoveClose:
		return p.from.step(ctx, step, p.cfg.Block, nil)
	case shard.MoveCommit:
		return p.commit(ctx)
	case shard.MoveThaw:
		return p.thaw(ctx)
	case shard.MoveGive:
		return p.from.step(ctx, step, stepTimeout, nil)
	case shard.MovePublish:
		return p.publish(ctx)
	case shard.MoveRelease:
		return p.letGo(ctx)
	case shard.MoveClean:
		return p.clean(ctx)
	case shard.MoveForget:
		return p.to.step(ctx, step, stepTimeout, func(ctx context.Context, tx pgx.Tx) error { return p.settleOwners(ctx, p.to, tx, step) })
	case shard.MoveCancel:
		return p.to.step(ctx, step, stepTimeout, nil)
	case shard.MoveRestore:
		return p.restore(ctx)
	case shard.MoveWipe:
		return p.wipe(ctx)
	case shard.MoveStuck:
		p.holdUp(fmt.Sprintf("the two shards contradict each other (source %q, destination %q): see docs/RESHARDING.md", s.From.State, s.To.State))
		return sleep(ctx, 5*time.Second)
	}
	return nil
}

func (p *part) publish(ctx context.Context) error {
	err := p.deps.Publish(ctx, p.token, p.spec.NewPart)
	if errors.Is(err, catalog.ErrDeposed) {
		return shard.ErrMoveTaken
	}
	p.published = err == nil
	return err
}

// within describes the tables before what needs them.
func (p *part) within(ctx context.Context, do func(ctx context.Context) error) error {
	if err := p.describeTables(ctx); err != nil {
		return err
	}
	if err := p.narrow(ctx); err != nil {
		return err
	}
	return do(ctx)
}

func (p *part) describeTables(ctx context.Context) error {
	if p.tables != nil {
		return nil
	}
	both, err := onBoth(ctx, p, func(ctx context.Context, s *side) ([]table, error) { return describe(ctx, s.conn) })
	if err != nil {
		return err
	}
	if what := sameTables(both[0], both[1], p.spec.From, p.spec.To); what != "" {
		return fmt.Errorf("%w: %s", errTables, what)
	}
	for i := range both[0] {
		both[0][i].Triggers, both[0][i].Foreign = both[1][i].Triggers, both[1][i].Foreign // it is there that they would fire
	}
	p.tables = both[0]
	if p.tables == nil {
		p.tables = []table{}
	}
	return nil
}

// expect makes what is moved incoming on the destination.
func (p *part) expect(ctx context.Context) error {
	if err := p.describeTables(ctx); err != nil {
		return err
	}
	return p.to.step(ctx, shard.MoveExpect, stepTimeout, func(ctx context.Context, tx pgx.Tx) error {
		var err error
		if p.spec.Key != "" {
			err = p.beginKey(ctx, tx, p.to, shard.MoveExpect)
		} else {
			err = p.expectVnodes(ctx, tx)
		}
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `select ringside.forward()`)
		return err
	})
}

// enlist puts it under the part on the source.
func (p *part) enlist(ctx context.Context) error {
	if err := p.to.open(ctx); err != nil {
		return err
	}
	return p.from.step(ctx, shard.MoveEnlist, stepTimeout, func(ctx context.Context, tx pgx.Tx) error {
		var err error
		if p.spec.Key != "" {
			err = p.beginKey(ctx, tx, p.from, shard.MoveEnlist)
		} else {
			err = p.enlistVnodes(ctx, tx)
		}
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `select ringside.forward()`)
		return err
	})
}

func numbersOf(vnodes []uint16) []int32 {
	out := make([]int32, len(vnodes))
	for i, v := range vnodes {
		out[i] = int32(v)
	}
	return out
}

// copy copies pages for a moment.
func (p *part) copy(ctx context.Context) error {
	if p.copier == nil {
		var note []byte
		if err := p.to.conn.QueryRow(ctx, `select copying from ringside.part where id = $1`, p.spec.ID).Scan(&note); err != nil {
			return err
		}
		at, err := decodeCursor(note)
		if err != nil {
			return err
		}
		p.copier = newCopier(at, p.tables, &p.scope)
	}
	for begun := time.Now(); time.Since(begun) < copyFor; {
		if err := p.breathe(ctx); err != nil {
			return err
		}
		next, ok, err := p.copier.plan(ctx, p.from)
		if err != nil {
			return err
		}
		if !ok {
			p.copier = nil
			return p.to.step(ctx, shard.MoveCopied, stepTimeout, nil)
		}
		rows, bytes, took, err := copyPage(ctx, p.from, p.to, next)
		if code(err) == "23505" {
			// A value that must be unique has gone from a row that was copied to one of this page: the change of the former is noted.
			if err = p.catchUp(ctx); err == nil {
				rows, bytes, took, err = copyPage(ctx, p.from, p.to, next)
			}
		}
		if err != nil {
			return err
		}
		p.copier.taken(next, took, p.page())
		p.count(func(g *gauge) {
			g.copied += rows
			g.sent += bytes
			g.why = ""
		})
		p.met.rows.Add(float64(rows))
		p.met.bytes.Add(float64(bytes))
		if err := p.rest(ctx, took); err != nil {
			return err
		}
	}
	return nil
}

// hold makes both shards keep their view until the cut-over is over (I6).
func (p *part) hold(ctx context.Context) error {
	r := p.deps.Ring()
	p.loose = false
	for _, s := range []*side{p.to, p.from} {
		err := s.transaction(ctx, stepTimeout, func(ctx context.Context, tx pgx.Tx) error {
			if err := s.leave(ctx, tx, shard.MoveHold); err != nil {
				return err
			}
			// A flush that is owed is of the vnodes that the shard has by the map: it goes first.
			tag, err := tx.Exec(ctx, `update ringside.view set cutover = $1 where epoch = $2 and phase = 3 and (cutover is null or cutover = $1)
	and not exists (select from ringside.cdc where flush_due <> '{}')`, s.part, int64(r.Epoch))
			if err == nil && tag.RowsAffected() == 0 {
				err = errNotNow
			}
			return err
		})
		if errors.Is(err, errNotNow) {
			p.holdUp(fmt.Sprintf("shard %s is changing its view, owes a flush, or another cut-over is not over", s.shard))
			p.next = time.Now().Add(p.cfg.Retry)
			return p.unpin(ctx)
		}
		if err != nil {
			return err
		}
	}
	p.held = true
	return nil
}

var errNotNow = errors.New("not now")

// errOwed: those who read by the new map would not be told to keep away from the copies.
var errOwed = errors.New("cached copies of its rows are still to be deleted (the shard's outbox)")

// unpin lets both shards change their views again.
func (p *part) unpin(ctx context.Context) error {
	p.held = false
	for _, s := range []*side{p.from, p.to} {
		err := s.transaction(ctx, stepTimeout, func(ctx context.Context, tx pgx.Tx) error {
			if err := s.leave(ctx, tx, shard.MoveWait); err != nil {
				return err
			}
			return s.unpin(ctx, tx)
		})
		if err != nil {
			return err
		}
	}
	p.loose = true
	return nil
}

// freeze stops writes on the source.
func (p *part) freeze(ctx context.Context) error {
	p.count(func(g *gauge) { g.attempts++ })
	var locked time.Time
	err := p.from.barrier(ctx, shard.MoveFreeze, func() {
		locked = time.Now()
	}, func(ctx context.Context, tx pgx.Tx) error {
		p.frozen = locked
		var held, owed bool
		err := tx.QueryRow(ctx, `select exists (select from ringside.view where cutover = $1), exists (select from ringside.outbox where shard_vnode = any($2::int[]))`,
			p.spec.ID, numbersOf(p.spec.Vnodes)).Scan(&held, &owed)
		switch {
		case err != nil:
		case !held:
			err = errNotNow
		case owed:
			err = errOwed
		}
		return err
	})
	p.settled = false
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errBusy):
		p.frozen = time.Time{}
		return p.later(ctx, errors.New(p.busy(ctx)))
	case errors.Is(err, errNotNow), errors.Is(err, errOwed):
		p.frozen = time.Time{}
		return p.later(ctx, err)
	case code(err) != "":
		p.frozen = time.Time{}
	}
	return err // it may be frozen: look
}

// later puts the next attempt at a cut-over off.
func (p *part) later(ctx context.Context, why error) error {
	p.pause = min(max(2*p.pause, p.cfg.Retry), 16*p.cfg.Retry)
	p.next = time.Now().Add(p.pause)
	p.holdUp(fmt.Sprintf("the cut-over is tried again: %v", why))
	p.met.attempts.WithLabelValues("put off").Inc()
	return p.unpin(ctx)
}

// settleInTime is settle; what takes too long is undone.
func (p *part) settleInTime(ctx context.Context) error {
	err := p.within(ctx, p.settle)
	switch {
	case err == nil:
		p.settled = true
	case errors.Is(err, errLate), code(err) == "57014":
		p.frozen = time.Now().Add(-p.cfg.Block) // late, whatever the clocks say
		return nil
	}
	return err
}

// commit is the commit point.
func (p *part) commit(ctx context.Context) error {
	p.committing, p.settled = true, false // if it fails, it is not tried again but undone, unless it was made
	err := p.to.step(ctx, shard.MoveCommit, stepTimeout, func(ctx context.Context, tx pgx.Tx) error {
		var held bool
		err := tx.QueryRow(ctx, `select exists (select from ringside.view where cutover = $1)`, p.spec.ID).Scan(&held)
		if err == nil && !held {
			err = errNotNow
		}
		return err
	})
	if err == nil {
		blocked := time.Since(p.frozen)
		p.frozen = time.Time{}
		p.count(func(g *gauge) { g.blocked = blocked })
		p.met.blocked.Observe(blocked.Seconds())
		p.met.attempts.WithLabelValues("committed").Inc()
		p.log.Info("vnodes have changed their shard", "vnodes", len(p.spec.Vnodes), "blocked", blocked.Round(time.Millisecond))
	}
	return err
}

// thaw lets the source take writes again.
func (p *part) thaw(ctx context.Context) error {
	if err := p.from.step(ctx, shard.MoveThaw, stepTimeout, func(ctx context.Context, tx pgx.Tx) error { return p.from.unpin(ctx, tx) }); err != nil {
		return err
	}
	if !p.frozen.IsZero() {
		p.count(func(g *gauge) { g.blocked = time.Since(p.frozen) })
	}
	p.frozen, p.settled, p.committing = time.Time{}, false, false
	return p.later(ctx, errLate)
}

// restore makes the vnodes the source's own again.
func (p *part) restore(ctx context.Context) error {
	return p.from.barrier(ctx, shard.MoveRestore, func() {}, func(ctx context.Context, tx pgx.Tx) error {
		return p.settleOwners(ctx, p.from, tx, shard.MoveRestore)
	})
}

// clean deletes the rows that have moved from the source, then forgets the part there.
func (p *part) clean(ctx context.Context) error {
	if err := p.delete(ctx, p.from, shard.MoveClean); err != nil {
		return err
	}
	p.tellOwner(ctx)
	return p.from.step(ctx, shard.MoveClean, stepTimeout, func(ctx context.Context, tx pgx.Tx) error {
		return p.settleOwners(ctx, p.from, tx, shard.MoveClean)
	})
}

// wipe deletes what was copied in vain from the destination, then forgets the part there.
func (p *part) wipe(ctx context.Context) error {
	if err := p.delete(ctx, p.to, shard.MoveWipe); err != nil {
		return err
	}
	return p.to.step(ctx, shard.MoveWipe, stepTimeout, func(ctx context.Context, tx pgx.Tx) error {
		return p.settleOwners(ctx, p.to, tx, shard.MoveWipe)
	})
}

// deleteAtOnce is how many rows one transaction deletes.
const deleteAtOnce = 2000

// delete deletes the rows of the part from one shard, in small transactions.
func (p *part) delete(ctx context.Context, s *side, step shard.MoveStep) error {
	tables, err := describe(ctx, s.conn)
	if err != nil {
		return err
	}
	local := p.scope
	if local.without, err = apart(ctx, s.conn, p.spec.Vnodes); err != nil { // the same on both, once they are known there
		return err
	}
	for i := range tables {
		t := &tables[i]
		for {
			var n int64
			start := time.Now()
			err := s.transaction(ctx, stepTimeout, func(ctx context.Context, tx pgx.Tx) error {
				if err := s.leave(ctx, tx, step); err != nil {
					return err
				}
				if t.muted() {
					if _, err := tx.Exec(ctx, mute); err != nil {
						return err
					}
				}
				tag, err := tx.Exec(ctx, fmt.Sprintf(`delete from %s where ctid = any(array(select ctid from %s where %s limit %d))`, t.Name, t.Name, local.mine(t, s.part), deleteAtOnce))
				n = tag.RowsAffected()
				return err
			})
			if err != nil {
				return err
			}
			if s.source {
				p.count(func(g *gauge) { g.deleted += n })
			}
			if n < deleteAtOnce {
				break
			}
			if err := p.rest(ctx, time.Since(start)); err != nil {
				return err
			}
		}
	}
	return nil
}
