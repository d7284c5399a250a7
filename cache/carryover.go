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
			carried += c.putTaken(ctx, t, given[:len(t.items)])
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

// putTaken puts what was handed in the place of our leases, as far as they are still there, gives back the others, and returns how many it has put.
func (c *Cache) putTaken(ctx context.Context, t *taken, given []handed) (put int) {
	list := make([]putting, len(t.items))
	for i, item := range t.items {
		list[i] = putting{item.Ref.Name, given[i].bytes(), given[i].life}
	}
	var steps []*step
	for rest := list; len(rest) > 0; {
		s, n := c.put(t.srv, t.lease, rest)
		steps, rest = append(steps, s), rest[n:]
	}
	c.exec(ctx, steps)
	for _, s := range steps {
		about := list[:1+len(s.more)]
		list = list[len(about):]
		answers, err := s.numbers()
		if err != nil {
			c.log.Debug("putting entries that were taken over", "server", t.srv.cfg.Name, "error", err)
			continue
		}
		for i, n := range answers[:min(len(answers), len(about))] {
			e := endRelease
			if about[i].entry != nil {
				e = endCarry
			}
			if c.countEnd(e, n == 1); e == endCarry && n == 1 {
				put++
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
