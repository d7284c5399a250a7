package topology

import (
	"fmt"
	"slices"
	"strings"

	"ringside/ring"
)

// Refusal says why a change makes no sense in the state that the cluster is in. Nothing was changed.
type Refusal struct {
	Unknown bool // it names something that is not there
	Reason  string
}

func (e *Refusal) Error() string { return e.Reason }

func refuse(format string, args ...any) error { return &Refusal{Reason: fmt.Sprintf(format, args...)} }

// The functions below are the life cycle of cache servers:
//
//	AddCache -> joining --Activate--> active <--WeighCache/DrainCache--> draining --RemoveCache--> gone
//	                       ^             |
//	                       |          MarkDown
//	                       +--Rejoin-- down
//
// Each makes the next topology from t, or returns t itself when there is nothing to change. They are pure; who commits the result, by
// compare-and-swap, decides outside. What a change takes from a server that can still be reached is handed over: the next topology names
// the placement before it (Former) and the servers that may still hold plain keys (Handovers).

// AddCache lets a new server join. It owns nothing until it is activated.
func AddCache(t *Topology, c Cache) (*Topology, error) {
	if c.Name == "" || c.Addr == "" {
		return nil, refuse("a cache server needs a name and an address")
	}
	for _, other := range t.Caches {
		switch {
		case other.Name == c.Name:
			return nil, refuse("there is a cache server %s already (%s, at %s)", c.Name, other.State, other.Addr)
		case other.Addr == c.Addr:
			return nil, refuse("cache server %s has the address %s already", other.Name, c.Addr)
		}
	}
	return t.next(func(next *Content) {
		next.Caches = append(next.Caches, Cache{Name: c.Name, Addr: c.Addr, Weight: c.Weight, State: Joining})
	})
}

// Activate gives servers that are joining (name -> run_id of the process that was made ready) their share of the ring.
func Activate(t *Topology, ready map[string]string) (*Topology, error) {
	for name, runID := range ready {
		i := t.CacheIndex(name)
		switch {
		case i < 0:
			return nil, unknownCache(name)
		case t.Caches[i].State != Joining:
			return nil, refuse("cache server %s is %s, not joining", name, t.Caches[i].State)
		case runID == "":
			return nil, refuse("cache server %s: empty run_id", name)
		}
	}
	if len(ready) == 0 {
		return t, nil
	}
	if err := t.settledFirst(); err != nil {
		return nil, err
	}
	return t.next(func(next *Content) {
		for i := range next.Caches {
			if c := &next.Caches[i]; ready[c.Name] != "" {
				c.State, c.RunID, c.Gen = Active, ready[c.Name], next.Epoch
			}
		}
	})
}

// DrainCache takes all that a server owns from it, so that it can be removed. One that is down does not come back by itself.
func DrainCache(t *Topology, name string) (*Topology, error) {
	i := t.CacheIndex(name)
	if i < 0 {
		return nil, unknownCache(name)
	}
	switch t.Caches[i].State {
	case Draining:
		return t, nil
	case Joining:
		return nil, refuse("cache server %s is still joining and owns nothing: remove it", name)
	case Down:
		return t.next(func(next *Content) { next.Caches[i].State, next.Caches[i].RunID = Draining, "" })
	}
	if err := t.othersServe(name); err != nil {
		return nil, err
	}
	if err := t.settledFirst(); err != nil {
		return nil, err
	}
	return t.next(func(next *Content) { next.Caches[i].State = Draining })
}

// WeighCache gives a server another weight; 0 takes all that it owns from it. A server that is draining becomes active again.
func WeighCache(t *Topology, name string, weight uint32) (*Topology, error) {
	i := t.CacheIndex(name)
	if i < 0 {
		return nil, unknownCache(name)
	}
	c := t.Caches[i]
	if c.Weight == weight && c.State != Draining {
		return t, nil
	}
	if weight == 0 && c.State == Active {
		if err := t.othersServe(name); err != nil {
			return nil, err
		}
	}
	if c.State == Active || c.State == Draining {
		if err := t.settledFirst(); err != nil {
			return nil, err
		}
	}
	return t.next(func(next *Content) {
		c := &next.Caches[i]
		c.Weight = weight
		switch {
		case c.State == Draining && c.RunID == "":
			c.State = Joining // it went down meanwhile: it has to be made ready
		case c.State == Draining:
			c.State = Active
		}
	})
}

// RemoveCache forgets a server that owns nothing and has nothing left to hand over: also an active one whose weight is 0.
func RemoveCache(t *Topology, name string) (*Topology, error) {
	i := t.CacheIndex(name)
	if i < 0 {
		return nil, unknownCache(name)
	}
	if c := &t.Caches[i]; c.State == Active && c.Weight > 0 {
		settled := t.settledFirst()
		if settled == nil {
			return nil, refuse("cache server %s is active: drain it first", name)
		}
		return nil, refuse("cache server %s is active: drain it first; but %v", name, settled)
	}
	if t.Caches[i].State != Joining {
		if err := t.settledFirst(); err != nil {
			return nil, err
		}
	}
	return t.next(func(next *Content) { next.Caches = slices.Delete(next.Caches, i, i+1) })
}

// MarkDown takes servers out of use that most sidecars cannot reach. What plain keys they hold are lost. Never more than half of the weight
// is down: servers beyond that stay, in the order of their names, since then it is more likely the network that is broken.
func MarkDown(t *Topology, names []string) (*Topology, error) {
	var total, down uint64
	for _, c := range t.Caches {
		switch c.State {
		case Down:
			down += uint64(c.Weight)
			total += uint64(c.Weight)
		case Active:
			total += uint64(c.Weight)
		}
	}
	marked := map[string]bool{}
	names = slices.Clone(names)
	slices.Sort(names)
	for _, name := range names {
		i := t.CacheIndex(name)
		if i < 0 {
			return nil, unknownCache(name)
		}
		switch c := t.Caches[i]; {
		case c.State == Draining && c.RunID != "":
			marked[name] = true
		case c.State == Active && 2*(down+uint64(c.Weight)) <= total:
			down += uint64(c.Weight)
			marked[name] = true
		}
	}
	if len(marked) == 0 {
		return t, nil
	}
	return t.next(func(next *Content) {
		for i := range next.Caches {
			if c := &next.Caches[i]; marked[c.Name] {
				// One that was draining stays so, and has nothing to hand over any more.
				if c.RunID = ""; c.State == Active {
					c.State = Down
				}
			}
		}
	})
}

// Rejoin lets servers that are down, and answer again, join anew.
func Rejoin(t *Topology, names []string) (*Topology, error) {
	back := map[string]bool{}
	for _, name := range names {
		i := t.CacheIndex(name)
		if i < 0 {
			return nil, unknownCache(name)
		}
		back[name] = t.Caches[i].State == Down
	}
	return t.next(func(next *Content) {
		for i := range next.Caches {
			if c := &next.Caches[i]; back[c.Name] {
				c.State = Joining
			}
		}
	})
}

// AdoptRuns lets new incarnations of active cache servers (name -> run_id) be used, under a generation of their own, so that nothing which an
// earlier incarnation cached, or brings back from its disk, is ever read again (promise P3). Whoever calls it has emptied them.
//
// Each shard goes through the phase shard.Preparing with it: rows whose generation has changed are kept out of the cache until
// no sidecar can be using the earlier incarnation any more (it may live on behind an old connection).
func AdoptRuns(t *Topology, met map[string]string) (*Topology, error) {
	for server, runID := range met {
		i := t.CacheIndex(server)
		if i < 0 {
			return nil, unknownCache(server)
		}
		if runID == "" {
			return nil, fmt.Errorf("cache server %s: empty run_id", server)
		}
	}
	return t.next(func(next *Content) {
		for i := range next.Caches {
			if c := &next.Caches[i]; c.State == Active && met[c.Name] != "" && met[c.Name] != c.RunID {
				c.RunID, c.Gen = met[c.Name], next.Epoch
			}
		}
	})
}

// RaiseFlush makes all that is cached of a shard's rows useless: changes behind our back may have been missed. Each shard goes through the phase
// shard.Preparing with it, and the rows of the flushed one are kept out of the cache until nobody can be using what it was.
func RaiseFlush(t *Topology, shardName string) (*Topology, error) {
	if t.ShardIndex(shardName) < 0 {
		return nil, &Refusal{Unknown: true, Reason: fmt.Sprintf("there is no shard %s", shardName)}
	}
	return t.next(func(next *Content) {
		flush := slices.Clone(t.flush)
		for _, v := range t.Holding(shardName) {
			flush[v] = next.Epoch
		}
		next.Flush = Each(flush)
	})
}

// Finish ends what has been carried out: the hand-overs given, and, when rows is set, that of rows, for which all shards must be in phase
// shard.Done of an epoch of t's placement.
func Finish(t *Topology, carried []Handover, rows bool) (*Topology, error) {
	return t.next(func(next *Content) {
		kept := make([]uint64, len(next.Handovers)+1) // old number -> new
		var left []Handover
		for i, h := range next.Handovers {
			if !slices.Contains(carried, h) {
				left = append(left, h)
				kept[i+1] = uint64(len(left))
			}
		}
		if len(left) != len(next.Handovers) {
			next.Handovers = left
			next.Handing = t.mapHanding(func(v uint16, n uint64) uint64 { return kept[n] })
		}
		if rows && len(left) == 0 {
			next.Former = nil
		}
	})
}

func unknownCache(name string) error {
	return &Refusal{Unknown: true, Reason: fmt.Sprintf("there is no cache server %s", name)}
}

// settledFirst refuses a planned change while another one is being carried out: a plain key is looked for in two places at most.
func (t *Topology) settledFirst() error {
	if !t.Changing() {
		return nil
	}
	var from []string
	for _, h := range t.Handovers {
		from = append(from, h.From)
	}
	what := "rows are being handed over"
	if len(from) > 0 {
		what = "keys are being carried over from " + strings.Join(from, ", ")
	}
	return refuse("another change is still being carried out (%s): wait until it is done", what)
}

func (t *Topology) othersServe(name string) error {
	for _, c := range t.Caches {
		if c.Name != name && c.State == Active && c.Weight > 0 {
			return nil
		}
	}
	return refuse("cache server %s is the last one that owns anything: add another one first", name)
}

// next makes the topology of the next epoch by change, and works out what it hands over. It returns t when change changes nothing.
func (t *Topology) next(change func(next *Content)) (*Topology, error) {
	c := t.Content()
	c.Epoch = t.Epoch + 1
	change(&c)
	same := c.clone()
	same.Epoch = t.Epoch
	if _, digest := same.encode(); digest == t.digest {
		return t, nil
	}
	next, err := newBeside(c, t)
	if err != nil {
		return nil, err
	}
	moved := false
	appointed := slices.Clone(t.appointed)
	handing := newHanding(t, next)
	for v := range ring.Vnodes {
		v := uint16(v)
		was, is := t.ownerName(v), next.ownerName(v)
		if was != is {
			appointed[v] = c.Epoch
		}
		moved = moved || was != is || t.Generation(v) != next.Generation(v)
		handing.vnode(v, was, is)
	}
	if moved {
		c = next.Content()
		c.Appointed = Each(appointed)
		c.Former = &Former{Epoch: t.Epoch, Caches: t.content.Caches, Appointed: t.content.Appointed}
	}
	c.Handovers, c.Handing = handing.result()
	return newBeside(c, t, next)
}

func (t *Topology) ownerName(vnode uint16) string {
	if i := t.cacheOf[vnode]; i != ring.None {
		return t.Caches[i].Name
	}
	return ""
}

func (t *Topology) mapHanding(f func(v uint16, n uint64) uint64) PerVnode {
	out := make([]uint64, ring.Vnodes)
	for v := range out {
		if t.handing != nil {
			out[v] = f(uint16(v), t.handing[v])
		}
	}
	return Each(out)
}

// newHanding begins to work out from which servers plain keys are carried over in next.
func newHanding(t, next *Topology) *handingOver {
	h := &handingOver{next: next, number: make(map[string]uint64), of: make([]uint64, ring.Vnodes)}
	kept := make([]uint64, len(next.Handovers)+1)
	for i, old := range next.Handovers {
		// One whose source was lost has nothing to hand over. One that has lost all its vnodes still has to be swept.
		if at := next.CacheIndex(old.From); at >= 0 && next.Caches[at].RunID == old.RunID && next.Caches[at].State != Down {
			h.list = append(h.list, old)
			kept[i+1] = uint64(len(h.list))
		}
	}
	if next.handing != nil {
		for v, n := range next.handing {
			h.of[v] = kept[n]
		}
	}
	return h
}

type handingOver struct {
	next   *Topology
	list   []Handover
	number map[string]uint64 // of the hand-over that began now, by server
	of     []uint64          // by vnode: number of its hand-over, from 1; 0: none
}

// vnode takes note of who owned a vnode and who does now. Of two hand-overs of one vnode the later one counts.
func (h *handingOver) vnode(v uint16, was, is string) {
	if n := h.of[v]; n != 0 && h.list[n-1].From == is {
		h.of[v] = 0 // it is back where its keys are
	}
	if was == is || was == "" {
		return
	}
	at := h.next.CacheIndex(was)
	if at < 0 {
		return
	}
	c := &h.next.Caches[at]
	if c.RunID == "" || c.State == Down {
		return // lost
	}
	n, ok := h.number[was]
	if !ok {
		h.list = append(h.list, Handover{From: was, RunID: c.RunID, Since: h.next.Epoch})
		n = uint64(len(h.list))
		h.number[was] = n
	}
	h.of[v] = n
}

func (h *handingOver) result() ([]Handover, PerVnode) {
	if len(h.list) == 0 {
		return nil, PerVnode{}
	}
	return h.list, Each(h.of)
}
