package topology

import (
	"fmt"
	"slices"

	"ringside/ring"
)

// Former is the placement that a change of the ring replaces. It stays in the topology until rows and plain keys have been handed over.
type Former struct {
	Epoch     uint64   `json:"epoch"` // the last epoch in which it counted
	Caches    []Cache  `json:"caches"`
	Appointed PerVnode `json:"appointed"`
}

// Handover is one former owner that may still hold plain keys of vnodes that it has lost. The vnodes are those whose Content.Handing names it;
// when there are none any more, it only remains to sweep what was left there.
type Handover struct {
	From  string `json:"from"`   // name of the cache server
	RunID string `json:"run_id"` // of its incarnation: another one has nothing to hand over
	Since uint64 `json:"since"`  // epoch in which it lost them
}

// former is what follows from a Former, in terms of the present topology.
type former struct {
	epoch uint64
	// owner by vnode, as index into the present Caches; None if it had none or the server is not there any more.
	owner []uint16
	// generation by vnode; 0 when there is nothing to take over: no owner, or one that is down or was started anew.
	generation []uint64
}

func newFormer(f *Former, now []Cache, p ring.Params, known []*Topology) (*former, error) {
	placement, err := placeCaches(f.Caches, p, known)
	if err != nil {
		return nil, fmt.Errorf("former placement: %w", err)
	}
	index := make([]uint16, len(f.Caches)) // in the present list
	usable := make([]bool, len(f.Caches))
	for i := range f.Caches {
		was := &f.Caches[i]
		index[i] = ring.None
		if at := indexOf(now, was.Name); at >= 0 {
			index[i] = uint16(at)
			usable[i] = now[at].State != Down && was.RunID != "" && now[at].RunID == was.RunID
		}
	}
	appointed := f.Appointed.expand()
	out := &former{epoch: f.Epoch, owner: make([]uint16, ring.Vnodes), generation: make([]uint64, ring.Vnodes)}
	for v, i := range placement.Table() {
		out.owner[v] = ring.None
		if i == ring.None {
			continue
		}
		out.owner[v] = index[i]
		if usable[i] {
			out.generation[v] = max(appointed[v], f.Caches[i].Gen)
		}
	}
	return out, nil
}

// placeCaches places cache servers, as one of the known topologies has if there is one with the same.
func placeCaches(caches []Cache, p ring.Params, known []*Topology) (*ring.Placement, error) {
	nodes := nodesOf(caches)
	for _, t := range known {
		if t != nil && t.Params == p && slices.Equal(nodes, nodesOf(t.Caches)) {
			return t.placement, nil
		}
	}
	return ring.Place(nodes, ring.CacheSalt, p)
}

func nodesOf(caches []Cache) []ring.Node {
	nodes := make([]ring.Node, len(caches))
	for i, s := range caches {
		nodes[i] = ring.Node{Name: s.Name, Weight: s.Weight}
		if s.State != Active {
			nodes[i].Weight = 0
		}
	}
	return nodes
}

func indexOf(caches []Cache, name string) int {
	for i := range caches {
		if caches[i].Name == name {
			return i
		}
	}
	return -1
}

// Changing reports whether a change of the ring is still being carried out: not all has been handed over.
func (t *Topology) Changing() bool { return t.former != nil || len(t.Handovers) > 0 }

// FormerEpoch is the epoch before the change that is being carried out, 0 when there is none.
func (t *Topology) FormerEpoch() uint64 {
	if t.former == nil {
		return 0
	}
	return t.former.epoch
}

// HandoverOf returns the index in Handovers of the server from which the plain keys of a vnode are being carried over, or -1.
func (t *Topology) HandoverOf(vnode uint16) int {
	if t.handing == nil {
		return -1
	}
	return int(t.handing[vnode]) - 1
}

// Lost reports whether the plain keys of a vnode went down with its former owner in the change that is being carried out. Its new owner
// may be used as soon as nobody can be using the former one.
func (t *Topology) Lost(vnode uint16) bool {
	f := t.former
	return f != nil && f.owner[vnode] != t.cacheOf[vnode] && f.generation[vnode] == 0 && t.HandoverOf(vnode) < 0
}

// LostHandovers returns the hand-overs of was that is, a later topology, does not have any more although their server cannot have ended them: it is down,
// gone, or another process by now. What it had not handed over is lost. Whether that was anything is for the caller to know: one that was carried out
// whole may have been ended just before.
func LostHandovers(was, is *Topology) []Handover {
	var out []Handover
	for _, h := range was.Handovers {
		at := is.CacheIndex(h.From)
		if !slices.Contains(is.Handovers, h) && (at < 0 || is.Caches[at].State == Down || is.Caches[at].RunID != h.RunID) {
			out = append(out, h)
		}
	}
	return out
}
