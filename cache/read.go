package cache

import (
	"context"
	"errors"
	"time"
)

// call is one ReadEach. Its results are written by the flights that its items joined.
type call struct {
	items []Item
	load  LoadFunc
	since time.Time
	there chan int // indexes of items that have their result; there is room for all

	// guarded by Cache.mu until the index is there
	results []Result // Err is errPending until there is a result
	gone    bool     // the caller no longer waits
}

var errPending = errors.New("no result yet")

// ReadMany is Read for many rows. Those that have to be loaded are loaded by as few calls of load as their entries allow, usually
// one. There is one Result per item, in their order. A context that ends fails only the items that are not there yet.
func (c *Cache) ReadMany(ctx context.Context, items []Item, load LoadFunc) []Result {
	var all []Result
	c.ReadEach(ctx, items, load, func(_ []int, results []Result) { all = results })
	return all
}

// ReadEach is ReadMany for a caller who does not want rows that are there to wait for others. got is called on the caller's goroutine with the indexes
// of those items that have their results by then, until each has been told once: of results, which has one for each item, it may use those and the
// ones told before. at is good for that call.
func (c *Cache) ReadEach(ctx context.Context, items []Item, load LoadFunc, got func(at []int, results []Result)) {
	if len(items) == 0 {
		return
	}
	cl := &call{items: items, load: load, since: time.Now(), there: make(chan int, len(items)), results: make([]Result, len(items))}
	for i := range cl.results {
		cl.results[i].Err = errPending
	}
	switch {
	case ctx.Err() != nil:
		cl.pendingAre(context.Cause(ctx))
	case !c.join(cl):
		cl.pendingAre(ErrClosed)
	}
	at := make([]int, 0, len(items))
	for told := 0; told < len(items); told += len(at) {
		at = at[:0]
		select {
		case i := <-cl.there:
			at = append(at, i)
		case <-ctx.Done():
			c.mu.Lock()
			cl.gone = true
			cl.pendingAre(context.Cause(ctx))
			c.mu.Unlock()
		}
		for len(cl.there) > 0 {
			at = append(at, <-cl.there)
		}
		got(at, cl.results)
	}
}

// pendingAre gives err to the items without a result. Needs Cache.mu once the call has joined flights.
func (cl *call) pendingAre(err error) {
	for i := range cl.results {
		if cl.results[i].Err == errPending {
			cl.set(i, Result{Err: err})
		}
	}
}

// deliver needs Cache.mu.
func (cl *call) deliver(idx int, r Result) {
	if !cl.gone {
		cl.set(idx, r)
	}
}

func (cl *call) set(idx int, r Result) {
	cl.results[idx] = r
	cl.there <- idx // never waits: once for each item
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

// Reads reports whether somebody here is reading that row just now, so that another one costs nobody anything. Any goroutine.
func (c *Cache) Reads(ref Ref) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.flights[ref] != nil
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
