package cache

import (
	"context"
	"time"

	"ringside/internal/failpoint"
)

// taken are rows of one server whose entries are ours to fill, by one lease.
type taken struct {
	srv   *server
	items []*Item
	lease []byte
	step  *step
}

// CarryOver takes over the entries of rows that nobody has asked for yet, as a reader of each would, and returns how many. It loads nothing: what
// is there already, or is being written, filled or read by others, is left to them. It may be called as soon as all writers
// clean both places, or have been acknowledged, or will look again before they are.
func (c *Cache) CarryOver(ctx context.Context, items []Item) (carried int) {
	all := c.take(ctx, items)
	var wanted []*Item
	for _, t := range all {
		wanted = append(wanted, t.items...)
	}
	if len(wanted) > 0 {
		given := c.hand(ctx, wanted)
		for _, t := range all {
			carried += c.put(ctx, t, given[:len(t.items)])
			given = given[len(t.items):]
		}
		failpoint.At(failpoint.TakenOver)
	}
	for _, t := range all {
		c.servers.release(t.srv)
	}
	c.metrics.carried.Add(float64(carried))
	return carried
}

// take gets the leases of those entries that are not there yet. Who else meets one of them takes it for that of a reader.
func (c *Cache) take(ctx context.Context, items []Item) []*taken {
	groups := map[Ref]*taken{} // by server
	var all []*taken
	var steps []*step
	now := time.Now()
	for i := range items {
		if !items[i].Carry.offered(now) {
			continue
		}
		at := Ref{Server: items[i].Ref.Server, RunID: items[i].Ref.RunID}
		t := groups[at]
		if t == nil {
			srv, err := c.usable(at, now)
			if err != nil {
				c.degraded(at.Server, err)
				continue
			}
			t = &taken{srv: srv, lease: AppendLease(make([]byte, 0, HeaderSize), c.tokens.next())}
			groups[at] = t
			all = append(all, t)
		}
		t.items = append(t.items, &items[i])
	}
	for _, t := range all {
		t.step = t.ask(c.scripts.take, t.items, t.lease, c.cfg.LeaseTTL.Milliseconds())
		steps = append(steps, t.step)
	}
	c.exec(ctx, steps)
	for _, t := range all {
		answers, err := t.step.list()
		if ctx.Err() == nil {
			t.srv.gate.report(fate(err), time.Now())
		}
		if err != nil {
			c.degraded(t.srv.cfg.Name, err)
		}
		ours := t.items[:0]
		for i, answer := range answers[:min(len(answers), len(t.items))] {
			if answer == int64(1) {
				ours = append(ours, t.items[i])
			}
		}
		t.items = ours
	}
	return all
}

// ask is a script about many entries of a server.
func (t *taken) ask(s *script, items []*Item, args ...any) *step {
	st := &step{srv: t.srv, script: s, name: items[0].Ref.Name, args: args}
	for _, item := range items[1:] {
		st.more = append(st.more, item.Ref.Name)
	}
	return st
}

// put puts what was handed in the place of our leases, as far as they are still there, gives back the others, and returns how many it has put.
func (c *Cache) put(ctx context.Context, t *taken, given []handed) (put int) {
	var steps []*step
	var firsts []int // indexes of each step's first item
	for from := 0; from < len(t.items); {
		args := []any{t.lease, awaited(t.lease)}
		to := from
		for bytes := 0; to < len(t.items) && bytes < handBytes; to++ {
			args = append(args, given[to].bytes(), given[to].life.Milliseconds())
			bytes += len(given[to].entry)
		}
		steps = append(steps, t.ask(c.scripts.put, t.items[from:to], args...))
		firsts = append(firsts, from)
		from = to
	}
	c.exec(ctx, steps)
	for n, st := range steps {
		answers, err := st.list()
		if err != nil {
			c.log.Debug("putting entries that were taken over", "server", t.srv.cfg.Name, "error", err)
			continue
		}
		for i, answer := range answers {
			switch is := given[firsts[n]+i].life > 0; {
			case answer != int64(1) && is:
				c.metrics.fillsRefused.Inc()
			case answer == int64(1) && is:
				c.metrics.fills.Inc()
				put++
			case answer == int64(1):
				c.metrics.released.Inc()
			}
		}
	}
	return put
}

// bytes is the entry, empty if nothing was handed.
func (h *handed) bytes() []byte {
	if h.life == 0 {
		return nil
	}
	return h.entry
}
