package mover

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"ringside/shard"
	"ringside/shard/catalog"
)

// Mover is a sidecar's part in moving vnodes. Create it with New, then call Run once; everything else may be called at any time, by any goroutine.
type Mover struct {
	cfg    Config
	deps   Deps
	met    *metrics
	log    *slog.Logger
	wakeup chan struct{}
	after  func(step shard.MoveStep) error // tests
}

const (
	partsAtOnce = 3
	reportEvery = 500 * time.Millisecond
)

// New does no I/O.
func New(cfg Config, deps Deps) (*Mover, error) {
	if err := deps.validate(); err != nil {
		return nil, err
	}
	if cfg.Holder == "" {
		return nil, errors.New("mover: Holder is empty")
	}
	return &Mover{cfg: cfg.WithDefaults(), deps: deps, met: newMetrics(deps.Registerer), log: deps.Log.With("component", "mover"), wakeup: make(chan struct{}, 1)}, nil
}

// Wake makes it look now whether there is something to do. Never blocks.
func (m *Mover) Wake() {
	select {
	case m.wakeup <- struct{}{}:
	default:
	}
}

// Run drives moves whenever this sidecar is the one to do so, until ctx ends. It returns nil then, after all that it began has been left in order.
func (m *Mover) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := m.attend(ctx); err != nil && ctx.Err() == nil {
			m.log.Warn("moves cannot be looked after", "error", err)
		}
		timer := time.NewTimer(m.cfg.Look*3/4 + rand.N(m.cfg.Look/2))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-m.wakeup:
		}
		timer.Stop()
	}
	return nil
}

// attend drives as long as there is something to move and nobody else does.
func (m *Mover) attend(ctx context.Context) error {
	journal, err := m.deps.Journal(ctx)
	if err != nil {
		return err
	}
	open, err := journal.AnyOpen(ctx)
	if err != nil || !open {
		return err
	}
	asked := time.Now()
	token, ok, err := journal.Lead(ctx, m.cfg.Holder, 0, m.cfg.Lease)
	if err != nil || !ok {
		return err
	}
	m.log.Info("this sidecar drives the moves now", "token", token)
	m.met.driving.Set(1)
	defer m.met.driving.Set(0)
	leading, stop := context.WithCancel(ctx)
	defer stop()
	var lease sync.WaitGroup
	lease.Go(func() {
		defer stop()
		m.keepLease(leading, journal, token, asked)
	})
	err = m.drive(leading, journal, token)
	stop()
	lease.Wait()
	if errors.Is(err, errStopped) {
		return nil // it died
	}
	resigning, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if resigned := journal.Resign(resigning, m.cfg.Holder, token); err == nil {
		err = resigned
	}
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return err
}

// keepLease renews the lease until ctx ends or it may be over.
func (m *Mover) keepLease(ctx context.Context, journal *catalog.Catalog, token uint64, renewed time.Time) {
	for sleep(ctx, m.cfg.Lease/4) == nil {
		asked := time.Now()
		_, ok, err := journal.Lead(ctx, m.cfg.Holder, token, m.cfg.Lease)
		switch {
		case err == nil && !ok:
			m.log.Warn("another sidecar drives the moves")
			return
		case err == nil:
			renewed = asked
		case time.Since(renewed) > m.cfg.Lease*3/4:
			if ctx.Err() == nil {
				m.log.Warn("the lease of the driver of moves could not be renewed", "error", err)
			}
			return
		}
	}
}

// drive moves parts until none is open.
func (m *Mover) drive(ctx context.Context, journal *catalog.Catalog, token uint64) error {
	type running struct {
		*part
		ended chan error
	}
	under := map[int64]*running{}
	turn := newTurn()
	ctx, stop := context.WithCancel(ctx)
	defer func() {
		stop()
		for _, r := range under {
			<-r.ended
		}
	}()
	for {
		parts, err := journal.OpenParts(ctx)
		if err != nil {
			return err
		}
		if len(parts) == 0 && len(under) == 0 {
			return nil
		}
		for _, spec := range parts {
			r := under[spec.ID]
			switch {
			case r != nil && spec.Cancel:
				r.cancel.Store(true)
			case r != nil:
			case spec.Cancel && spec.State == catalog.PartWaiting:
				if err := journal.Report(ctx, token, spec.ID, catalog.PartCancelled, spec.Progress); err != nil {
					return err
				}
			case len(under) < partsAtOnce:
				p := m.newPart(spec, token, turn)
				r := &running{p, make(chan error, 1)}
				under[spec.ID] = r
				go func() {
					_, err := p.run(ctx)
					r.ended <- err
				}()
			}
		}
		for id, r := range under {
			select {
			case err := <-r.ended:
				r.ended <- nil // for whoever waits for the end of all
				if err != nil {
					return err
				}
				state, progress := r.progress()
				if err := journal.Report(ctx, token, id, state, progress); err != nil {
					return err
				}
				delete(under, id)
			default:
				state, progress := r.progress()
				if state != catalog.PartRunning {
					continue // it is ending
				}
				if err := journal.Report(ctx, token, id, state, progress); err != nil {
					return err
				}
			}
		}
		pause := reportEvery
		if len(under) == 0 {
			pause = 10 * time.Millisecond
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

func (m *Mover) newPart(spec catalog.Part, token uint64, t *turn) *part {
	p := &part{
		cfg: m.cfg, deps: m.deps, spec: spec, scope: scope{vnodes: spec.Vnodes, key: spec.Key}, token: token, met: m.met, after: m.after, turn: t,
		log:  m.log.With("part", spec.ID, "from", spec.From, "to", spec.To),
		from: &side{shard: spec.From, peer: spec.To, source: true, part: spec.ID, token: token, dsn: m.deps.DSN},
		to:   &side{shard: spec.To, peer: spec.From, part: spec.ID, token: token, dsn: m.deps.DSN},
	}
	p.cancel.Store(spec.Cancel)
	p.gauge = gauge{copied: spec.Copied, sent: spec.Sent, changes: spec.Changes, deleted: spec.Deleted, attempts: spec.Attempts, blocked: spec.Blocked}
	return p
}
