package cache

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"ringside/internal/failpoint"
)

// Carry is where the entry of a row was before the change of the ring that is being carried out. A reader that gets the lease of Item.Ref takes
// the entry over from there. It may be given only while writers clean both places. The zero value: there is nothing to take over.
type Carry struct {
	Ref   Ref
	Shard string // the row's; its marker on the former server says whether that is closed
	Epoch uint64 // of the change
	// Until is the time after which the former server is not asked any more: that until which the view holds by which this was worked out.
	Until time.Time
}

// offered reports whether there is something that may be taken over now.
func (c *Carry) offered(now time.Time) bool { return c.Ref.Server != "" && !now.After(c.Until) }

// handed is what the former server had of a row.
type handed struct {
	entry []byte
	life  time.Duration // in its new place; 0: nothing was handed
}

// carry takes over the entries of flights that have their lease, lands those flights, and returns the others: they have to be loaded.
func (c *Cache) carry(ctx context.Context, flights []*flight) (rest []*flight) {
	c.begin(flights)
	items := make([]*Item, len(flights))
	for i, f := range flights {
		items[i] = f.item()
	}
	given := c.hand(ctx, items)
	var ends []end
	var asOf []uint64
	for i, f := range flights {
		if given[i].life == 0 {
			rest = append(rest, f)
			continue
		}
		asOf = append(asOf, f.asOf)
		ends = append(ends, end{flight: f, ending: endCarry, entry: given[i].entry, life: given[i].life})
	}
	c.end(ctx, ends)
	failpoint.At(failpoint.TakenOver)
	for i, e := range ends {
		if e.stillThere {
			c.metrics.carried.Inc()
			asOf[i] = e.flight.asOf
		}
		v := Value{Source: Carried}
		if Kind(e.entry) == KindValue {
			v.Found, v.Body = true, Body(e.entry)
		}
		c.land(e.flight, Result{Value: v}, asOf[i])
	}
	return rest
}

// handing is what is asked of one former server about the rows of one shard.
type handing struct {
	srv   *server
	shard string
	epoch uint64
	of    []int // indexes of items that it has not answered yet
	step  *step
}

// hand asks the former servers of items for their entries. What cannot be had is not there.
func (c *Cache) hand(ctx context.Context, items []*Item) []handed {
	failpoint.At(failpoint.TakingOver)
	given := make([]handed, len(items))
	open := c.former(items)
	for len(open) > 0 {
		steps := make([]*step, len(open))
		for i, h := range open {
			names := make([]string, len(h.of))
			for n, of := range h.of {
				names[n] = items[of].Carry.Ref.Name
			}
			h.step = &step{srv: h.srv, script: c.scripts.hand, name: closedMarker(h.shard), more: names, args: []any{h.epoch, putBytes}}
			steps[i] = h.step
		}
		c.exec(ctx, steps)
		rest := open[:0]
		for _, h := range open {
			if c.answered(ctx, h, items, given); len(h.of) > 0 {
				rest = append(rest, h)
			} else {
				c.servers.release(h.srv)
			}
		}
		open = rest
	}
	failpoint.At(failpoint.Handed)
	return given
}

// former groups the indexes of items by what is asked together, and leaves out those whose former servers cannot be used.
func (c *Cache) former(items []*Item) []*handing {
	type key struct {
		server, runID, shard string
		epoch                uint64
	}
	groups := map[key]*handing{}
	var all []*handing
	now := time.Now()
	for i, item := range items {
		carry := &item.Carry
		k := key{carry.Ref.Server, carry.Ref.RunID, carry.Shard, carry.Epoch}
		h := groups[k]
		if h == nil {
			srv, err := c.usable(carry.Ref, now)
			if err != nil {
				c.degraded(carry.Ref.Server, err)
				c.metrics.carryMisses.Inc()
				continue
			}
			h = &handing{srv: srv, shard: carry.Shard, epoch: carry.Epoch}
			groups[k] = h
			all = append(all, h)
		}
		h.of = append(h.of, i)
	}
	return all
}

// usable returns the server that r may be used on now. It must be released.
func (c *Cache) usable(r Ref, now time.Time) (*server, error) {
	srv, err := c.servers.of(r)
	if err == nil && !srv.gate.pass(now) {
		c.servers.release(srv)
		return nil, errSuspended
	}
	return srv, err
}

// answered takes what a former server has said, and leaves in h.of what it has not said anything about.
func (c *Cache) answered(ctx context.Context, h *handing, items []*Item, given []handed) {
	answer, err := h.step.cmd.(*redis.Cmd).Result()
	if ctx.Err() == nil {
		h.srv.gate.report(fate(err), time.Now())
	}
	list, _ := answer.([]any)
	switch {
	case err != nil:
		c.degraded(h.srv.cfg.Name, err)
		c.metrics.carryMisses.Add(float64(len(h.of)))
		h.of = nil
		return
	case len(list) == 0: // -1
		c.metrics.carryRefused.Add(float64(len(h.of)))
		h.of = nil
		return
	}
	n := min(len(list), len(h.of))
	for i, of := range h.of[:n] {
		parts, _ := list[i].([]any)
		if given[of] = handedOf(parts, items[of]); given[of].life == 0 {
			c.metrics.carryMisses.Inc()
		}
	}
	h.of = h.of[n:]
}

// handedOf reads an answer of the script hand.
func handedOf(parts []any, item *Item) handed {
	if len(parts) != 2 {
		return handed{}
	}
	text, _ := parts[0].(string)
	left, _ := parts[1].(int64)
	h := handed{entry: []byte(text)}
	h.life = carriedLife(Kind(h.entry), time.Duration(left)*time.Millisecond, item.TTL, item.NegTTL)
	return h
}
