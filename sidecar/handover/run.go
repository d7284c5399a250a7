package handover

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"ringside/sidecar/topology"
)

const (
	retryMin = 50 * time.Millisecond // before a driver that failed begins anew; doubled at each failure
	retryMax = time.Second
	lookAt   = time.Second // at the latest
)

// Run drives the hand-overs of the topology, each in a goroutine of its own, until ctx ends. Every sidecar runs it: of all drivers of one hand-over
// only one acts at a time.
func (c *Carrier) Run(ctx context.Context) error {
	var work sync.WaitGroup
	defer work.Wait()
	stopMarking := func() {}
	defer func() { stopMarking() }()
	var last *topology.Topology
	for {
		changed := c.deps.Changed()
		if t := c.deps.Current(); t != nil && t != last {
			last = t
			c.follow(ctx, &work, t)
			stopMarking()
			stopMarking = c.markAll(ctx, &work, t)
		}
		timer := time.NewTimer(lookAt)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// follow begins to drive the hand-overs that t has, and ends the others.
func (c *Carrier) follow(ctx context.Context, work *sync.WaitGroup, t *topology.Topology) {
	c.links.keep(wantedLinks(t))
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.drivers
	c.drivers = map[topology.Handover]*driver{}
	for _, h := range t.Handovers {
		d := old[h]
		if d == nil {
			d = newDriver(c, h)
			own, cancel := context.WithCancel(ctx)
			d.cancel = cancel
			work.Go(func() { d.run(own) })
		}
		c.drivers[h] = d
		delete(old, h)
	}
	for _, d := range old {
		d.cancel()
	}
}

// markAll begins to let all servers know of t's epoch, so that whoever carries or sweeps by an earlier topology is refused where a vnode has come back to a
// server that it was taken from.
func (c *Carrier) markAll(ctx context.Context, work *sync.WaitGroup, t *topology.Topology) (stop func()) {
	ctx, stop = context.WithCancel(ctx)
	if !t.Changing() {
		return stop
	}
	for i := range t.Caches {
		name := t.Caches[i].Name
		if t.Caches[i].RunID == "" {
			continue
		}
		work.Go(func() {
			// Not all sidecars at the same moment; most find it done.
			for pause := rand.N(2 * retryMin); sleep(ctx, pause); pause = min(max(2*pause, retryMin), retryMax) {
				client, err := c.client(t, name, "")
				if err == nil {
					err = c.raise(ctx, client, name, t.Epoch)
				}
				if err == nil {
					return
				}
				c.log.Debug("a cache server is not marked", "server", name, "epoch", t.Epoch, "error", err)
			}
		})
	}
	return stop
}

// Progress tells how far the hand-overs have come that the topology has, in its order. Where another sidecar drives, the numbers are what it
// said of itself a moment ago.
func (c *Carrier) Progress() []Progress {
	t := c.deps.Current()
	if t == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Progress, 0, len(t.Handovers))
	for _, h := range t.Handovers {
		p := Progress{From: h.From, Since: h.Since}
		if d := c.drivers[h]; d != nil {
			p = d.get()
		}
		out = append(out, p)
	}
	return out
}
