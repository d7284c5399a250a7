package cache

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"ringside/internal/failpoint"
)

// A flight brings the row of one ref for all callers of this process that want it. It runs on its own context: a caller that goes
// away fails nobody else.
//
// Whom may its value be given to? A caller must see every write that was acknowledged, by any sidecar, before it came. A flight counts
// its steps (each round trip to the cache server or the shard that may decide its value), and knows as of which step its value is
// fresh; a caller knows after how many steps it joined. It takes the value if it joined before that step began (serves):
//
//	an entry found            fresh as of the ask that found it
//	a row loaded              fresh as of the load
//	a row loaded and filled   fresh as of the fill: the lease was still there. Any write acknowledged since the ask would have taken
//	                          it away, so there was none, and who joined during the load may have the value too
//	an entry carried          fresh as of the former server's answer, as an entry found; if the lease was still there when it was put, as
//	                          of that, as a row loaded and filled
//
// The line about a row loaded and filled is why 50 cold readers cost one load although most of them come while it runs. A caller that comes too late stays
// for another flight, which begins at once, when the first one ends; it joined before all of that one's steps. So a caller waits for two
// flights at most, and a row is not loaded twice at a time in one process (unless a local write detached its flight, after which new
// callers need not wait for a value that they cannot take).
type flight struct {
	ref Ref

	// guarded by Cache.mu
	step    uint64
	waiters []waiter

	// used by the goroutine that flies it
	lead      waiter // whose item and load are used
	srv       *server
	reply     []byte // the entry that the last ask found
	lease     []byte // the lease that the last ask tried to set
	asked     asked
	asOf      uint64 // the last step
	waiting   bool   // it has waited for somebody else's fill
	overslept bool   // nobody told it that the fill was over
	discarded bool

	// While it waits for the end of a lease:
	listening bool            // it will be told
	channel   string          // on which
	ends      time.Time       // when the lease expires
	signal    chan<- struct{} // capacity 1: how the goroutine that flies it is told to look
	told      atomic.Bool     // it has been; set by the listener
}

type waiter struct {
	call   *call
	idx    int
	joined uint64 // steps that the flight had begun before
}

func (f *flight) item() *Item { return &f.lead.call.items[f.lead.idx] }

// fly brings a group of flights home, which share the call that leads them.
func (c *Cache) fly(group []*flight) {
	defer c.flying.Done()
	lead := group[0].lead.call
	ctx, cancel := context.WithDeadline(c.base, lead.since.Add(c.cfg.ReadTimeout))
	defer cancel()

	var bringing sync.WaitGroup
	defer bringing.Wait()

	waits := newWaits(time.Now().Add(c.cfg.LeaseWait))
	for len(group) > 0 {
		c.ask(ctx, group)
		var load, carry, discard, wait []*flight
		waited := waits.over()
		for _, f := range group {
			f.asked.waited, f.asked.discarded = waited, f.discarded
			switch onAsk(f.asked) {
			case actServe:
				c.metrics.hits.Inc()
				if f.overslept {
					c.metrics.wakesLost.Inc()
				}
				v := Value{Source: Hit}
				if f.asked.kind == KindValue {
					v.Found, v.Body = true, Body(f.reply)
				}
				if Due(f.reply, time.Now()) {
					idx := f.lead.idx
					c.Refresh(*f.item(), func(ctx context.Context, _ []int) ([]Loaded, error) { return lead.load(ctx, []int{idx}) })
				}
				c.land(f, Result{Value: v}, f.asOf)
			case actFill:
				c.metrics.misses.Inc()
				if f.item().Carry.offered(time.Now()) {
					carry = append(carry, f)
				} else {
					load = append(load, f)
				}
			case actBypass:
				c.countBypass(f)
				f.lease = nil
				load = append(load, f)
			case actWait:
				if !f.waiting {
					f.waiting = true
					c.metrics.leaseWaits.Inc()
				}
				wait = append(wait, f)
			case actDiscard:
				f.discarded = true
				discard = append(discard, f)
			}
		}
		if len(discard) > 0 {
			c.discard(ctx, discard)
		}
		if len(load) > 0 { // the others do not wait for it: theirs may be there sooner, or their time for waiting be over
			bringing.Go(func() { c.bring(ctx, load) })
		}
		if len(carry) > 0 {
			bringing.Go(func() {
				if rest := c.carry(ctx, carry); len(rest) > 0 {
					c.bring(ctx, rest)
				}
			})
		}
		if len(wait) > 0 {
			c.await(ctx, waits, wait)
		}
		if group = discard; len(group) == 0 && len(waits.flights) > 0 {
			group = c.next(ctx, waits)
		}
	}
}

// bring loads the rows of flights, fills those entries whose lease we have, and lands the flights.
func (c *Cache) bring(ctx context.Context, flights []*flight) {
	lead := flights[0].lead.call
	idx := make([]int, len(flights))
	for i, f := range flights {
		idx[i] = f.lead.idx
	}
	c.begin(flights)
	c.metrics.loads.Add(float64(len(flights)))
	failpoint.At(failpoint.Leased)
	loaded := c.callLoad(ctx, lead.load, idx)
	failpoint.At(failpoint.Loaded)

	results := make([]Result, len(flights))
	asOf := make([]uint64, len(flights))
	ends := make([]end, 0, len(flights))
	for i, f := range flights {
		l := loaded[i]
		asOf[i] = f.asOf
		results[i] = Result{Value: Value{Found: l.Found, Body: l.Body, Source: Bypassed}, Err: l.Err}
		if l.Err != nil {
			c.metrics.loadErrors.Inc()
			results[i].Value = Value{}
		}
		if e := onLoaded(f.lease != nil, l, f.item().TTL > 0, f.item().NegTTL > 0); e != endNothing {
			ends = append(ends, end{flight: f, ending: e, loaded: l, at: i})
		}
	}
	c.end(ctx, ends)
	for _, e := range ends {
		if proves(e.ending, e.stillThere, e.loaded) {
			asOf[e.at] = e.flight.asOf
			if e.ending != endRelease {
				results[e.at].Source = Filled
			}
		}
	}
	for i, f := range flights {
		c.land(f, results[i], asOf[i])
	}
}

// callLoad calls load and makes one Loaded per index of whatever it returns.
func (c *Cache) callLoad(ctx context.Context, load LoadFunc, idx []int) []Loaded {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.LoadTimeout)
	defer cancel()
	loaded, err := load(ctx, idx)
	if err == nil && len(loaded) == len(idx) {
		return loaded
	}
	switch {
	case c.base.Err() != nil:
		err = ErrClosed
	case err == nil:
		err = errLoadShort
	}
	loaded = make([]Loaded, len(idx))
	for i := range loaded {
		loaded[i].Err = err
	}
	return loaded
}

// begin begins a step of each flight.
func (c *Cache) begin(flights []*flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range flights {
		f.step++
		f.asOf = f.step
	}
}

// land gives the result to all who may have it. Those who came too late for it fly again.
func (c *Cache) land(f *flight, r Result, asOf uint64) {
	if f.srv != nil {
		c.servers.release(f.srv)
		f.srv = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	late := f.waiters[:0]
	for _, w := range f.waiters {
		switch {
		case w.call.gone:
		case c.serves(w.joined, asOf):
			given := r
			if r.Err == nil && (w.call != f.lead.call || w.idx != f.lead.idx) {
				given.Source = Coalesced
			}
			w.call.deliver(w.idx, given)
		default:
			late = append(late, w)
		}
	}
	clear(f.waiters[len(late):])
	f.waiters = late
	if len(late) == 0 {
		if c.flights[f.ref] == f {
			delete(c.flights, f.ref)
		}
		return
	}
	c.metrics.rereads.Add(float64(len(late)))
	f.lead, f.reply, f.lease, f.waiting, f.overslept, f.discarded = late[0], nil, nil, false, false, false
	c.flying.Add(1)
	go c.fly([]*flight{f})
}

func (c *Cache) countBypass(f *flight) {
	switch {
	case f.asked.failed || f.asked.uncachable:
	case f.asked.kind == KindPoison:
		c.metrics.poisonSeen.Inc()
	case f.asked.kind == KindLease:
		c.metrics.leaseWaitsOver.Inc()
	}
}

// sleep returns after d or with ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
