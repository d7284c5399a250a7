package cache

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// The pauses between two asks while somebody else fills the entry and the server cannot be listened to.
const (
	firstPause = 2 * time.Millisecond
	lastPause  = 25 * time.Millisecond
)

// waits are the flights of one group that wait for somebody else's fill. It is for the goroutine that flies them.
type waits struct {
	until   time.Time // the end of their time
	pause   time.Duration
	signal  chan struct{} // capacity 1: some have been told
	flights []*flight
}

func newWaits(until time.Time) *waits {
	return &waits{until: until, pause: firstPause, signal: make(chan struct{}, 1)}
}

func (w *waits) over() bool { return !time.Now().Before(w.until) }

// await has flights, which have met a lease, wait for its end.
func (c *Cache) await(ctx context.Context, w *waits, flights []*flight) {
	c.metrics.waiting.Add(float64(len(flights)))
	w.flights = append(w.flights, flights...)
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StepTimeout)
	defer cancel()
	byServer := make(map[*server][]*flight, 1)
	for _, f := range flights {
		f.channel = wakePrefix + string(awaited(f.reply)[leaseHeader:])
		f.signal = w.signal
		f.told.Store(false)
		byServer[f.srv] = append(byServer[f.srv], f)
	}
	var group sync.WaitGroup
	for srv, some := range byServer {
		group.Go(func() {
			if !c.listen(ctx, srv, some) {
				c.metrics.polled.Add(float64(len(some)))
			}
		})
	}
	group.Wait()
}

// listen has flights hear of the end of leases on one server; false: they have to ask.
func (c *Cache) listen(ctx context.Context, srv *server, flights []*flight) bool {
	if err := srv.listener.join(ctx, flights); err != nil {
		c.log.Debug("waiting without being told", "server", srv.cfg.Name, "error", err)
		return false
	}
	steps := make([]*step, len(flights))
	for i, f := range flights {
		steps[i] = &step{srv: srv, script: c.scripts.await, name: f.ref.Name, args: []any{f.reply, awaited(f.reply)}}
	}
	c.exec(ctx, steps)
	var deaf []*flight
	for i, f := range flights {
		left, err := steps[i].number()
		f.ends = time.Now().Add(time.Duration(left) * time.Millisecond)
		switch f.listening = err == nil; {
		case err != nil:
			deaf = append(deaf, f)
		case left == 0: // it is gone already
			f.told.Store(true)
		}
	}
	if len(deaf) > 0 {
		srv.listener.leave(deaf)
	}
	return len(deaf) == 0
}

// next waits until some of the flights are to ask again, and returns those: they have been told, nobody will tell them, the lease has expired, or their
// time is over.
func (c *Cache) next(ctx context.Context, w *waits) []*flight {
	poll := time.Now().Add(w.pause/2 + rand.N(w.pause))
	for {
		now, wake := time.Now(), w.until
		over := w.over() || ctx.Err() != nil
		var again, rest []*flight
		for _, f := range w.flights {
			look := poll
			if f.listening {
				look = f.ends
			}
			if over || f.told.Load() || !now.Before(look) {
				again = append(again, f)
				continue
			}
			if look.Before(wake) {
				wake = look
			}
			rest = append(rest, f)
		}
		if len(again) > 0 {
			if !now.Before(poll) {
				w.pause = min(2*w.pause, lastPause)
			}
			w.flights = rest
			c.rouse(again)
			return again
		}
		timer := time.NewTimer(time.Until(wake))
		select {
		case <-w.signal:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// rouse ends the waiting of flights.
func (c *Cache) rouse(flights []*flight) {
	c.metrics.waiting.Sub(float64(len(flights)))
	heard := make(map[*server][]*flight, 1)
	for _, f := range flights {
		if f.listening {
			heard[f.srv] = append(heard[f.srv], f)
			f.overslept = !f.told.Load()
			if !f.overslept {
				c.metrics.woken.Inc()
			}
		}
		f.listening = false
	}
	for srv, some := range heard {
		srv.listener.leave(some)
	}
}
