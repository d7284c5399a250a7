package sidecar

import (
	"context"
	"errors"
	"sync"
	"time"

	"ringside/shard"
	"ringside/shard/origin"
	"ringside/sidecar/proxy"
)

const (
	// cutOverFor is how long requests wait in the sidecar for a cut-over to end, altogether; cutOverLook how often the shard is asked whether it has.
	cutOverFor  = 500 * time.Millisecond
	cutOverLook = 5 * time.Millisecond
	// mostDetours is how many shards a row is followed to, one after the other, before the map is waited for.
	mostDetours = 3
)

// detour is the way of one row that was not where the map has it: the shard that refuses says where it went. Nobody else need have heard: whether that shard has it is for
// the shard to say, and which cached copies count follows from its view, as ever.
type detour struct {
	to    string    // the shard to ask instead of the map's; empty: the map's
	turns int       // how many it was sent to
	since time.Time // when it first met a cut-over; zero: it has not
}

// next decides where to go when err has refused the row. again: at once, after the cut-over that is under way on the shard await, if that is not empty, has ended. Else the map
// must change. Pure.
func (d *detour) next(err error, now time.Time) (await string, again bool) {
	e, ok := errors.AsType[*shard.ElsewhereError](err)
	switch {
	case !ok:
		d.to = ""
		return "", false
	case e.CutOver:
		if d.since.IsZero() {
			d.since = now
		}
		if now.Sub(d.since) >= cutOverFor {
			d.to = ""
			return "", false
		}
		d.to = e.To
		return e.Shard, true
	case d.to != "" && e.To == "": // it was not given to that one after all
		d.to = ""
		return "", !d.since.IsZero()
	case e.To != "" && d.turns < mostDetours:
		d.to = e.To
		d.turns++
		return "", true
	}
	d.to = ""
	return "", false
}

// follow sends rows that were refused where the shards say. It reports whether one of them has another place to look at.
func (r *rows) follow(ctx context.Context, open []int, detours map[int]*detour, out []proxy.Row) (again bool) {
	waits := map[string]*detour{}
	for _, i := range open {
		d := detours[i]
		if d == nil {
			d = &detour{}
			detours[i] = d
		}
		if await, next := d.next(out[i].Err, time.Now()); next {
			waits[await] = d
		}
	}
	for await, d := range waits {
		r.beforeDetour(ctx, d, await)
	}
	return len(waits) > 0 && ctx.Err() == nil
}

// beforeDetour waits for the cut-over on a shard, if there is one; else a newer map is looked for, though it is not waited for.
func (r *rows) beforeDetour(ctx context.Context, d *detour, await string) {
	if await == "" {
		r.feed.suspect()
		return
	}
	ctx, cancel := context.WithDeadline(ctx, d.since.Add(cutOverFor))
	defer cancel()
	r.cutOvers.await(ctx, await)
}

// cutOvers lets those who wait for a cut-over of one shard ask it together.
type cutOvers struct {
	fleet *origin.Fleet
	mu    sync.Mutex
	under map[string]chan struct{} // by shard: closed when whoever asks has stopped
}

func newCutOvers(fleet *origin.Fleet) *cutOvers {
	return &cutOvers{fleet: fleet, under: map[string]chan struct{}{}}
}

// await returns when the shard's cut-over is over, or ctx, or cannot be asked about.
func (c *cutOvers) await(ctx context.Context, name string) {
	c.mu.Lock()
	asking := c.under[name]
	if asking != nil {
		c.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
		}
		return
	}
	asking = make(chan struct{})
	c.under[name] = asking
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.under, name)
		c.mu.Unlock()
		close(asking)
	}()
	tick := time.NewTicker(cutOverLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if under, err := c.fleet.CuttingOver(ctx, name); err != nil || !under {
			return
		}
	}
}
