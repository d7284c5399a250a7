package handover

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"ringside/cache"
	"ringside/ring"
	"ringside/sidecar/topology"
)

// Progress is how far one hand-over has come.
type Progress struct {
	From    string
	Since   uint64
	Step    topology.Step
	Done    bool  // all that there was has been carried; the topology may drop the hand-over
	Scanned int64 // keys looked at
	Carried int64 // keys put on their new owners by the driver; what commands needed before is not in it
	Swept   int64 // keys removed that the server has no business with any more
	TooBig  int64 // keys dropped
	Rounds  int64 // times that all keys were gone through
	// Elsewhere: another sidecar drives it.
	Elsewhere bool
	// Err is why it does not go on, nil while it does.
	Err error
}

// numbers are what a driver lets others know, in the lease.
func (p Progress) numbers() string {
	done := 0
	if p.Done {
		done = 1
	}
	return fmt.Sprintf(" %d %d %d %d %d %d", p.Scanned, p.Carried, p.Swept, p.TooBig, p.Rounds, done)
}

// hear takes over what another driver's lease says. What is not understood, from another version, is 0.
func (p *Progress) hear(lease string) {
	var token string
	var done int
	_, _ = fmt.Sscan(lease, &token, &p.Scanned, &p.Carried, &p.Swept, &p.TooBig, &p.Rounds, &done)
	p.Done, p.Elsewhere, p.Err = done == 1, true, nil
}

// driverName is the key of the lease of who drives the hand-overs from a server, on that server.
const driverName = cache.Prefix + "driver"

var (
	errElsewhere = errors.New("another sidecar drives the hand-over")
	errLeaseLost = errors.New("the driver's lease is lost")
)

// driver drives one hand-over, for as long as the topology has it.
type driver struct {
	c      *Carrier
	h      topology.Handover
	token  string
	lease  string // key of the lease
	cancel func()
	pace   pace

	mu       sync.Mutex // guards the following
	progress Progress
}

func newDriver(c *Carrier, h topology.Handover) *driver {
	return &driver{
		c: c, h: h, token: rand.Text(), lease: fmt.Sprintf("%s:%d", driverName, h.Since), pace: pace{rate: float64(c.cfg.Rate)},
		progress: Progress{From: h.From, Since: h.Since},
	}
}

func (d *driver) get() Progress {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.progress
}

func (d *driver) set(f func(p *Progress)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(&d.progress)
}

// run drives until ctx ends, or the source is another process: then there is nothing to hand over, as the topology is about to say.
func (d *driver) run(ctx context.Context) {
	defer d.c.metrics.step.DeleteLabelValues(d.h.From)
	log := d.c.log.With("from", d.h.From, "since", d.h.Since)
	log.Info("plain keys are handed over")
	pause := retryMin
	for {
		err := d.drive(ctx)
		if ctx.Err() != nil {
			log.Info("the hand-over has ended", "carried", d.get().Carried, "swept", d.get().Swept, "dropped", d.get().TooBig)
			return
		}
		wait := pause
		if errors.Is(err, errElsewhere) {
			pause, wait = retryMin, d.c.cfg.Asserting
		} else {
			d.c.metrics.failures.Inc()
			d.set(func(p *Progress) { p.Err = err })
			log.Warn("a hand-over does not go on; it is tried again", "error", err)
			pause = min(2*pause, retryMax)
		}
		var other *cache.IncarnationError
		if errors.As(err, &other) && other.Server == d.h.From {
			return
		}
		if !sleep(ctx, wait) {
			return
		}
	}
}

// drive takes the lease and goes through the steps. It returns only with an error.
func (d *driver) drive(ctx context.Context) error {
	from, err := d.c.client(d.c.deps.Current(), d.h.From, d.h.RunID)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := d.hold(ctx, from); err != nil {
		return err
	}
	d.set(func(p *Progress) { *p = Progress{From: p.From, Since: p.Since, Step: p.Step} })
	var keeper sync.WaitGroup
	keeper.Go(func() { d.keep(ctx, cancel, from) })
	err = d.steps(ctx, from)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	cancel(nil)
	keeper.Wait()
	d.resign(context.WithoutCancel(ctx), from)
	return err
}

// hold takes or renews the lease. errElsewhere: another driver has it.
func (d *driver) hold(ctx context.Context, from *redis.Client) error {
	ctx, cancel := context.WithTimeout(ctx, d.c.cfg.StepTimeout)
	defer cancel()
	reply, err := d.c.scripts.drive.Run(ctx, from, []string{d.lease}, d.token, d.token+d.get().numbers(), d.c.cfg.DriverTTL.Milliseconds()).Result()
	if err != nil {
		return serverError(d.h.From, err)
	}
	text, other := reply.(string)
	if !other {
		return nil
	}
	m, _, err := readMarker(ctx, from)
	if err != nil {
		return serverError(d.h.From, err)
	}
	d.set(func(p *Progress) {
		p.hear(text)
		p.Step = m.Steps[d.h.Since]
	})
	return errElsewhere
}

// keep renews the lease, and sees to it that the markers say what they should, until ctx ends. It ends ctx when the lease is lost.
func (d *driver) keep(ctx context.Context, cancel context.CancelCauseFunc, from *redis.Client) {
	renewed := time.Now()
	for sleep(ctx, d.c.cfg.Asserting) {
		asked := time.Now()
		err := d.hold(ctx, from)
		switch {
		case err == nil:
			renewed = asked
		case errors.Is(err, errElsewhere) || time.Since(renewed) >= d.c.cfg.DriverTTL:
			cancel(errLeaseLost)
			return
		}
		if _, err := d.mark(ctx, from, d.get().Step); err != nil {
			d.c.log.Debug("a marker cannot be looked after", "server", d.h.From, "error", err)
		}
		if err := d.markOwners(ctx, d.c.deps.Current()); err != nil {
			d.c.log.Debug("a marker cannot be looked after", "error", err)
		}
	}
}

func (d *driver) resign(ctx context.Context, from *redis.Client) {
	ctx, cancel := context.WithTimeout(ctx, d.c.cfg.StepTimeout/10)
	defer cancel()
	if err := d.c.scripts.resign.Run(ctx, from, []string{d.lease}, d.token).Err(); err != nil {
		d.c.log.Debug("a driver's lease is left to its end", "server", d.h.From, "error", err)
	}
}

// mark brings the source's marker to at least step, and tells which one it has come to.
func (d *driver) mark(ctx context.Context, from *redis.Client, step topology.Step) (topology.Step, error) {
	t := d.c.deps.Current()
	var live []uint64
	for _, h := range t.Handovers {
		if h.From == d.h.From {
			live = append(live, h.Since)
		}
	}
	m, err := d.c.changeMarker(ctx, from, d.h.From, func(m topology.Marker) topology.Marker {
		return forward(m, max(t.Epoch, d.h.Since), d.h.Since, step, live)
	})
	if err != nil {
		return step, err
	}
	step = m.Steps[d.h.Since]
	d.set(func(p *Progress) { p.Step = step })
	d.c.metrics.step.WithLabelValues(d.h.From).Set(float64(step))
	return step, nil
}

// markOwners sees to it that all who get keys know of t's epoch: from then on nothing that was meant for an earlier one can happen there.
func (d *driver) markOwners(ctx context.Context, t *topology.Topology) error {
	seen := map[string]bool{}
	for v := range ring.Vnodes {
		to, ok := target(t, d.h, uint16(v))
		if !ok || seen[to] {
			continue
		}
		seen[to] = true
		client, err := d.c.client(t, to, "")
		if err == nil {
			err = d.c.raise(ctx, client, to, t.Epoch)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// steps takes the hand-over from where it is to its end, and stays there until ctx ends.
func (d *driver) steps(ctx context.Context, from *redis.Client) error {
	at, err := d.mark(ctx, from, topology.Open)
	for err == nil && at < topology.Handed {
		if err := d.markOwners(ctx, d.c.deps.Current()); err != nil {
			return err
		}
		next, patience := topology.Held, d.c.cfg.HearPatience
		if at == topology.Held {
			next, patience = topology.Handed, d.c.cfg.HoldPatience
		}
		hinders := func(caller topology.Caller) bool { return caller.Hinders(d.h, next) }
		if err := d.c.rollCall(ctx, from, d.h.From, patience, hinders); err != nil {
			return err
		}
		at, err = d.mark(ctx, from, next)
	}
	if err != nil {
		return err
	}
	for round := 0; ; round++ {
		t := d.c.deps.Current()
		if err := d.markOwners(ctx, t); err != nil {
			return err
		}
		found, err := d.round(ctx, from, t, round)
		if err != nil {
			return err
		}
		// Nothing is added to what was lost, so one look at all of it that finds nothing is the end.
		if found == 0 && d.c.deps.Current() == t {
			break
		}
	}
	d.set(func(p *Progress) { p.Done = true })
	d.c.metrics.step.WithLabelValues(d.h.From).Set(float64(topology.Handed) + 1)
	for {
		if f := d.c.deps.Carried; f != nil {
			f(d.h)
		}
		if !sleep(ctx, d.c.cfg.Asserting) {
			return ctx.Err()
		}
	}
}
