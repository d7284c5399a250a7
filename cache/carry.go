package cache

import (
	"context"
	"slices"
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

// handed is what the former server had of a flight's row.
type handed struct {
	entry []byte
	life  time.Duration // in its new place; 0: nothing was handed
}

// carry takes over the entries of flights that have their lease, lands those flights, and returns the others: they have to be loaded.
func (c *Cache) carry(ctx context.Context, flights []*flight) (rest []*flight) {
	c.begin(flights)
	given := c.hand(ctx, flights)
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

// hand asks the former servers of flights for their entries. What cannot be had is not there.
func (c *Cache) hand(ctx context.Context, flights []*flight) []handed {
	failpoint.At(failpoint.TakingOver)
	given := make([]handed, len(flights))
	now := time.Now()
	var sent []*step
	var of []int
	for i, f := range flights {
		carry := &f.item().Carry
		srv, err := c.servers.of(carry.Ref)
		if err == nil && !srv.gate.pass(now) {
			c.servers.release(srv)
			err = errSuspended
		}
		if err != nil {
			c.degraded(carry.Ref.Server, err)
			c.metrics.carryMisses.Inc()
			continue
		}
		sent = append(sent, &step{srv: srv, script: c.scripts.hand, name: carry.Ref.Name, second: closedMarker(carry.Shard), args: []any{carry.Epoch}})
		of = append(of, i)
	}
	c.exec(ctx, sent)
	for n, st := range sent {
		i := of[n]
		item := flights[i].item()
		answer, err := st.cmd.(*redis.Cmd).Result()
		if ctx.Err() == nil {
			st.srv.gate.report(fate(err), time.Now())
		}
		c.servers.release(st.srv)
		parts, _ := answer.([]any)
		switch {
		case err != nil:
			c.degraded(item.Carry.Ref.Server, err)
			c.metrics.carryMisses.Inc()
		case answer == int64(-1):
			c.metrics.carryRefused.Inc()
		default:
			if given[i] = handedOf(parts, item); given[i].life == 0 {
				c.metrics.carryMisses.Inc()
			}
		}
	}
	failpoint.At(failpoint.Handed)
	return given
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

// CarryOver takes over the entries of rows that nobody has asked for yet, as a reader of each would, and returns how many. It loads nothing: what
// is there already, or is being written, filled or read by others, is left to them. It may be called as soon as all writers
// clean both places, or have been acknowledged, or will look again before they are.
func (c *Cache) CarryOver(ctx context.Context, items []Item) (carried int) {
	now := time.Now()
	flights := make([]*flight, 0, len(items))
	lead := &call{items: items}
	for i := range items {
		if items[i].Carry.offered(now) {
			flights = append(flights, &flight{ref: items[i].Ref, lead: waiter{call: lead, idx: i}})
		}
	}
	if flights = c.lacking(ctx, flights); len(flights) == 0 {
		return 0
	}
	c.ask(ctx, flights)
	leased := flights[:0:0]
	for _, f := range flights {
		if onAsk(f.asked) == actFill {
			leased = append(leased, f)
		}
	}
	if len(leased) > 0 {
		ends := make([]end, len(leased))
		for i, h := range c.hand(ctx, leased) {
			ends[i] = end{flight: leased[i], ending: endRelease}
			if h.life > 0 {
				ends[i].ending, ends[i].entry, ends[i].life = endCarry, h.entry, h.life
			}
		}
		c.end(ctx, ends)
		failpoint.At(failpoint.TakenOver)
		for i := range ends {
			if ends[i].ending == endCarry && ends[i].stillThere {
				carried++
			}
		}
		c.metrics.carried.Add(float64(carried))
	}
	for _, f := range flights {
		if f.srv != nil {
			c.servers.release(f.srv)
		}
	}
	return carried
}

// lacking leaves out what goes to servers that have all of it already: nothing is asked there but how many of the entries exist.
func (c *Cache) lacking(ctx context.Context, flights []*flight) []*flight {
	names := map[Ref][]string{} // by server
	for _, f := range flights {
		at := Ref{Server: f.ref.Server, RunID: f.ref.RunID}
		names[at] = append(names[at], f.ref.Name)
	}
	var steps []*step
	has := map[Ref]*step{}
	for at, names := range names {
		if srv, err := c.servers.of(at); err == nil {
			defer c.servers.release(srv)
			has[at] = &step{srv: srv, cmd: redis.NewIntCmd(ctx, existArgs(names)...)}
			steps = append(steps, has[at])
		}
	}
	c.exec(ctx, steps)
	return slices.DeleteFunc(flights, func(f *flight) bool {
		at := Ref{Server: f.ref.Server, RunID: f.ref.RunID}
		st := has[at]
		return st != nil && st.cmd.Err() == nil && st.cmd.(*redis.IntCmd).Val() == int64(len(names[at]))
	})
}

func existArgs(names []string) []any {
	args := make([]any, 0, 1+len(names))
	args = append(args, "EXISTS")
	for _, name := range names {
		args = append(args, name)
	}
	return args
}
