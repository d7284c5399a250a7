package mover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"ringside/shard"
	"ringside/shard/catalog"
)

// part is one part of a move under way, driven by one goroutine. What it knows by itself dies with it; the rest is on the shards.
type part struct {
	cfg      Config
	deps     Deps
	spec     catalog.Part
	token    uint64
	from, to *side
	log      *slog.Logger
	met      *metrics
	after    func(step shard.MoveStep) error // tests: called after each step; an error ends the driver as a crash would
	cancel   atomic.Bool                     // the operator has asked for it
	turn     *turn
	hasTurn  bool

	scope    scope
	tables   []table   // as the source describes them, with the destination's triggers; nil: not looked at yet
	prints   [2]string // fingerprints of both shards' tables when they were last found to be those
	copier   *copier
	compared bool
	touched  map[touch]struct{} // changed since it began to compare; nil: not remembered
	doubtful []doubt
	held     bool
	// loose: no shard can be keeping its view for this part, not even on behalf of a driver that died or was cut off between one shard and the other.
	loose   bool
	settled bool
	frozen  time.Time // when writers began to be kept waiting; zero: they are not, by this driver
	// committing: the commit was sent, so that it may have been made.
	committing bool
	published  bool      // by this driver: what it believes of the map may be old
	next       time.Time // no attempt at a cut-over before that
	pause      time.Duration
	fault      error // why it is called off, besides the operator
	release    release
	aged       time.Time // when the grace period is over

	mu    sync.Mutex
	gauge gauge
}

// gauge is what is shown of a part.
type gauge struct {
	step         shard.MoveStep
	why          string
	copied, sent int64
	changes      int64
	deleted      int64
	attempts     int
	blocked      time.Duration
	rate         float64
	rated        time.Time
	ratedCopied  int64
	finished     catalog.PartState
}

func (p *part) count(f func(g *gauge)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.gauge)
}

// progress is what the journal is told.
func (p *part) progress() (catalog.PartState, catalog.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := &p.gauge
	if now := time.Now(); now.Sub(g.rated) >= time.Second {
		if !g.rated.IsZero() {
			g.rate = float64(g.copied-g.ratedCopied) / now.Sub(g.rated).Seconds()
		}
		g.rated, g.ratedCopied = now, g.copied
	}
	state := catalog.PartRunning
	if g.finished != "" {
		state = g.finished
	}
	return state, catalog.Progress{
		Step: g.step.String(), Why: g.why, Copied: g.copied, Sent: g.sent, Changes: g.changes, Deleted: g.deleted, Rate: g.rate, Attempts: g.attempts, Blocked: g.blocked,
	}
}

var (
	// errTables: what is attached has changed since it was looked at.
	errTables = errors.New("tables were attached or changed during the move")
	// errLate: the block of writes has lasted its time.
	errLate = errors.New("writes were blocked for as long as is allowed")
	// errNotOwned: the shard does not own what it should, or owns what it should not.
	errNotOwned = errors.New("the vnodes are not as the move expects them")
)

const (
	glance     = 50 * time.Millisecond // between looks while it waits
	afterError = 500 * time.Millisecond
)

// run drives the part until it has ended (true), or ctx ends, or another driver has taken over.
func (p *part) run(ctx context.Context) (ended bool, err error) {
	defer p.from.close()
	defer p.to.close()
	defer p.turn.leave(p)
	for ctx.Err() == nil {
		step, err := p.once(ctx)
		switch {
		case step == shard.MoveDone:
			p.finish()
			return true, nil
		case errors.Is(err, shard.ErrMoveTaken):
			return false, err
		case errors.Is(err, errStopped):
			return false, err
		case err == nil, errors.Is(err, shard.ErrMoveState):
			continue
		case ctx.Err() != nil:
		default:
			p.trouble(step, err)
			if p.late() && !p.committing {
				// The destination may be out of reach. This driver has not committed, and by its token nobody else can have.
				if err := p.thaw(ctx); err == nil || p.frozen.IsZero() {
					continue
				}
			}
			pause := afterError
			switch {
			case errors.Is(err, errBusy): // each attempt keeps writers waiting
				p.pause = min(max(2*p.pause, p.cfg.Retry), 16*p.cfg.Retry)
				pause = p.pause
				p.holdUp(p.busy(ctx))
			case !p.frozen.IsZero():
				pause = glance
			}
			_ = sleep(ctx, pause)
		}
	}
	p.giveUp()
	return false, ctx.Err()
}

// giveUp thaws what this driver has frozen, before it leaves.
func (p *part) giveUp() {
	if p.frozen.IsZero() || p.committing {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := p.thaw(ctx); err != nil {
		p.log.Warn("writes stay blocked until another driver takes over", "error", err)
	}
}

// once looks, decides and makes one step.
func (p *part) once(ctx context.Context) (shard.MoveStep, error) {
	var s shard.MoveSight
	var step shard.MoveStep
	var err error
	if p.atHome() {
		step, err = p.nextAtHome(ctx)
	} else if s, err = p.see(ctx); err == nil {
		step = shard.NextMoveStep(s)
	}
	if err != nil {
		return shard.MoveWait, err
	}
	p.count(func(g *gauge) {
		if g.step != step && step != shard.MoveWait {
			g.step, g.why = step, ""
		}
	})
	if err := p.act(ctx, step, s); err != nil {
		return step, err
	}
	if p.after != nil {
		if err := p.after(step); err != nil {
			return step, fmt.Errorf("%w: %w", errStopped, err)
		}
	}
	return step, nil
}

var errStopped = errors.New("stopped")

// see is what NextMoveStep is to decide by.
func (p *part) see(ctx context.Context) (s shard.MoveSight, err error) {
	s = shard.MoveSight{
		Token: p.token, Cancel: p.cancel.Load() || p.fault != nil, Compared: p.compared, Held: p.held, Settled: p.settled, Late: p.late(),
		Released: p.release.done, Aged: !p.aged.IsZero() && time.Now().After(p.aged),
	}
	rows, err := onBoth(ctx, p, func(ctx context.Context, s *side) (shard.MoveRow, error) { return s.look(ctx) })
	if err != nil {
		return s, err
	}
	s.From, s.To = rows[0], rows[1]
	s.Published = p.published
	if s.From.State == shard.MoveOwned {
		p.frozen, p.committing = time.Time{}, false
		// Otherwise a change of the ring that has begun meanwhile would wait for that shard, and the cut-over for the change, for ever.
		if ours := s.From.Token == p.token && s.To.Token == p.token; ours && !p.held && !p.loose {
			if err := p.unpin(ctx); err != nil {
				return s, err
			}
		}
	}
	switch {
	case s.From.State == shard.MoveOwned && s.To.Copied:
		err = p.from.conn.QueryRow(ctx, `select count(*) > $2 from (select from ringside.change where part = $1 limit $2 + 1) c`, p.spec.ID, changesAtOnce/4).Scan(&s.Behind)
		s.Ready = p.ready(p.deps.Ring())
	case s.From.State == shard.MoveFrozen && p.frozen.IsZero():
		s.Held = false // by a driver before this one
	}
	return s, err
}

// ready reports whether a cut-over may be tried now.
func (p *part) ready(r Ring) bool {
	if time.Now().Before(p.next) {
		return false
	}
	why := ""
	switch a, b := p.viewOf(p.spec.From), p.viewOf(p.spec.To); {
	case !r.Settled:
		why = "the ring of cache servers is changing"
	case a.Epoch != r.Epoch || !a.Same(b) || a.Phase != shard.Done:
		why = fmt.Sprintf("the shards are at views %v and %v, the topology at %d", a, b, r.Epoch)
	}
	if why != "" {
		p.holdUp(why)
	}
	return why == ""
}

// viewOf returns what a shard has confirmed lately.
func (p *part) viewOf(name string) shard.View {
	v, asked := p.deps.View(name)
	if time.Since(asked) > 2*p.cfg.ViewTTL {
		return shard.View{}
	}
	return v
}

func (p *part) holdUp(why string) {
	p.count(func(g *gauge) { g.why = why })
}

// late reports whether writers have been kept waiting for as long as is allowed.
func (p *part) late() bool { return !p.frozen.IsZero() && time.Since(p.frozen) >= p.cfg.Block }

// limit is how long a statement may take now.
func (p *part) limit() time.Duration {
	if p.frozen.IsZero() {
		return stepTimeout
	}
	return max(p.cfg.Block-time.Since(p.frozen), 10*time.Millisecond)
}

// trouble takes note of an error of a step. Some call the move off, the others are tried again.
func (p *part) trouble(step shard.MoveStep, err error) {
	p.holdUp(err.Error())
	if differ, ok := errors.AsType[*differError](err); ok || errors.Is(err, errTables) || errors.Is(err, errNotOwned) || hopeless(err) {
		if p.fault == nil {
			p.fault = err
			if ok {
				p.fault = differ
			}
		}
		p.log.Error("the move is called off", "step", step, "error", err)
		return
	}
	p.log.Warn("a step of a move failed, it will be tried again", "step", step, "error", err)
	p.copier = nil // what it believes of the destination may be wrong
	if _, answered := errors.AsType[*pgconn.PgError](err); !answered {
		p.from.close()
		p.to.close()
	}
}

// busy says who holds the lock that the source's barrier waits for.
func (p *part) busy(ctx context.Context) string {
	var who string
	if p.from.conn == nil || p.from.conn.QueryRow(ctx, `select coalesce((select format(': process %s, for %s', a.pid, date_trunc('second', now() - a.xact_start)) from pg_stat_activity a
	where a.datname = current_database() and a.backend_xid is not null and a.pid <> pg_backend_pid() order by a.xact_start limit 1), '')`).Scan(&who) != nil {
		who = "" // the session is mended in the next step
	}
	return errBusy.Error() + who
}

// hopeless reports whether the database refuses what is asked for, and will again.
func hopeless(err error) bool {
	switch c := code(err); c {
	case "42501", "42P01", "42703", "42883", "42804", "42P10", "22P02", "23502", "23503", "23514": // privileges, names, types, constraints
		return true
	}
	return false
}

// finish tells how the part has ended.
func (p *part) finish() {
	p.count(func(g *gauge) {
		g.step = shard.MoveDone
		switch {
		case p.fault != nil && !p.release.done:
			g.finished, g.why = catalog.PartFailed, p.fault.Error()
		case p.release.done || p.published || p.deps.Ring().has(p.spec.NewPart):
			g.finished, g.why = catalog.PartDone, ""
		default:
			g.finished, g.why = catalog.PartCancelled, ""
		}
	})
}
