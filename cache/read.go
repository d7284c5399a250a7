package cache

import (
	"context"
	"errors"
	"time"
)

// call is one ReadMany. Its results are written by the flights that its items joined.
type call struct {
	items []Item
	load  LoadFunc
	since time.Time
	done  chan struct{} // closed with the last result

	// guarded by Cache.mu
	results []Result // Err is errPending until there is a result
	left    int
	gone    bool // the caller no longer waits
}

var errPending = errors.New("no result yet")

// ReadMany is Read for many rows. Those that have to be loaded are loaded by as few calls of load as their entries allow, usually
// one. There is one Result per item, in their order. A context that ends fails only the items that are not there yet.
func (c *Cache) ReadMany(ctx context.Context, items []Item, load LoadFunc) []Result {
	if len(items) == 0 {
		return nil
	}
	cl := &call{items: items, load: load, since: time.Now(), done: make(chan struct{}), results: make([]Result, len(items)), left: len(items)}
	for i := range cl.results {
		cl.results[i].Err = errPending
	}
	if err := ctx.Err(); err != nil {
		return cl.pendingAre(context.Cause(ctx))
	}
	if !c.join(cl) {
		return cl.pendingAre(ErrClosed)
	}
	select {
	case <-cl.done:
		return cl.results
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		cl.gone = true
		return cl.pendingAre(context.Cause(ctx))
	}
}

// pendingAre gives err to the items without a result. Needs Cache.mu once the call has joined flights.
func (cl *call) pendingAre(err error) []Result {
	for i := range cl.results {
		if cl.results[i].Err == errPending {
			cl.results[i].Err = err
		}
	}
	return cl.results
}

// deliver needs Cache.mu.
func (cl *call) deliver(idx int, r Result) {
	if cl.gone {
		return
	}
	cl.results[idx] = r
	if cl.left--; cl.left == 0 {
		close(cl.done)
	}
}

// join puts each item on the flight of its ref, and starts one flight for all refs that have none. False: the cache is closed.
func (c *Cache) join(cl *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	var own []*flight
	for i, item := range cl.items {
		f := c.flights[item.Ref]
		if f == nil {
			f = &flight{ref: item.Ref}
			f.lead = waiter{call: cl, idx: i}
			if item.Ref.Name != "" { // else nobody can tell whether another row is meant
				c.flights[item.Ref] = f
			}
			own = append(own, f)
		} else {
			c.metrics.coalesced.Inc()
		}
		f.waiters = append(f.waiters, waiter{call: cl, idx: i, joined: f.step})
	}
	if len(own) > 0 {
		c.flying.Add(1)
		go c.fly(own)
	}
	return true
}

// detach makes later readers of refs start flights of their own, instead of waiting for ones that a write has overtaken and whose
// values they could not take.
func (c *Cache) detach(refs []Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range refs {
		delete(c.flights, r)
	}
}
