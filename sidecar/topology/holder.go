package topology

import (
	"slices"
	"sync/atomic"
)

// Holder publishes the topology: one atomic pointer. The zero value holds none.
//
// It keeps the topologies before the present one for a while: a shard that has not come to the present epoch yet is governed by the one that
// it is at, and its rows are served by that one. Safe for concurrent use.
type Holder struct{ held atomic.Pointer[[]*Topology] } // the present one first, then earlier ones

// keptTopologies is how many a Holder keeps. Shards pass through an epoch in seconds; one that needs longer is down.
const keptTopologies = 6

// Current returns the topology to act by, or nil before the first was published.
func (h *Holder) Current() *Topology {
	if held := h.held.Load(); held != nil {
		return (*held)[0]
	}
	return nil
}

// At returns the topology of an epoch, nil if it is not kept.
func (h *Holder) At(epoch uint64) *Topology {
	held := h.held.Load()
	if held == nil {
		return nil
	}
	for _, t := range *held {
		if t.Epoch == epoch {
			return t
		}
	}
	return nil
}

// Publish makes t the topology to act by. Of two with the same epoch only the later one published is kept.
func (h *Holder) Publish(t *Topology) { h.put(t, true) }

// Remember keeps t, one of an earlier epoch, for At. It does nothing if one of that epoch is kept already.
func (h *Holder) Remember(t *Topology) { h.put(t, false) }

func (h *Holder) put(t *Topology, first bool) {
	for {
		old := h.held.Load()
		var next []*Topology
		if old != nil {
			next = slices.Clone(*old)
		}
		at := slices.IndexFunc(next, func(other *Topology) bool { return other.Epoch == t.Epoch })
		switch {
		case first && at >= 0:
			next = slices.Insert(slices.Delete(next, at, at+1), 0, t)
		case first:
			next = slices.Insert(next, 0, t)
		case at >= 0 || len(next) == 0:
			return
		default:
			next = slices.Insert(next, 1, t)
		}
		next = next[:min(len(next), keptTopologies)]
		if h.held.CompareAndSwap(old, &next) {
			return
		}
	}
}
