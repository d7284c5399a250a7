//go:build !race

package cache

import (
	"fmt"
	"testing"
)

// An exhaustive search through writes that could not put a copy out of reach (consistency: bounded), in a small model: one row, the server X that has its
// entry, and three sidecars: 0 writes and cannot reach X, 1 sees to what is remembered, 2 reads and fills. X may be lost to all but the reader, or
// taken out of the ring; any of them may stop anywhere. Which copies count by which view is topology.Copies's to say, as in ringchange_test.go.
//
// Time is in the order of things: what waits for it goes on when every sidecar has asked the shard since, or does not use the cache any more.
//
// Guards P3: a read that begins after the write was acknowledged never returns what was before.

// outboxRules are what can be left out.
type outboxRules struct{ withhold, whole, hold, clean, frozen, lease bool }

type outboxModel struct {
	outboxRules
	ring *model
}

// The steps of a worker, besides idle.
const (
	looked = iota + 100
	cleaned
)

type outboxState struct {
	entry           modelEntry
	version, acked  uint8
	phase           uint8
	remembered      bool
	unreachable     bool    // X, for whoever cleans
	asked, withheld [3]bool // by sidecar: it has asked the shard since the commit; and was told to keep away
	lost            [3]bool
	view            [3]uint8
	writer          uint8                      // idle, inTransaction, answering, stopped
	worker          struct{ step, view uint8 } // on sidecar 1
	readers         [2]modelReader
}

func (m *outboxModel) search() (found string, states int) {
	start := outboxState{entry: modelEntry{is: value}}
	for i := range start.asked {
		start.asked[i] = true
	}
	seen := map[outboxState]struct{}{start: {}}
	queue := []outboxState{start}
	for len(queue) > 0 && found == "" {
		s := queue[0]
		queue = queue[1:]
		next := func(change func(n *outboxState)) {
			n := s
			change(&n)
			if _, ok := seen[n]; !ok {
				seen[n] = struct{}{}
				queue = append(queue, n)
			}
		}
		m.shard(&s, next)
		m.write(&s, next)
		m.work(&s, next)
		for k := range s.readers {
			m.read(&s, k, next, func(what string) { found = what })
		}
	}
	return found, len(seen)
}

// everybody reports whether every sidecar that uses the cache satisfies ok.
func (s *outboxState) everybody(ok func(i int) bool) bool {
	for i := range s.view {
		if !s.lost[i] && !ok(i) {
			return false
		}
	}
	return true
}

// shard is what sidecars hear of it, and the change of the ring by which X goes down.
func (m *outboxModel) shard(s *outboxState, next func(func(*outboxState))) {
	for i := range s.view {
		next(func(n *outboxState) {
			n.asked[i], n.withheld[i], n.view[i], n.lost[i] = true, s.remembered, s.phase, false
		})
		if !m.whole { // somebody takes a load, which does not say what is remembered, for a confirmation
			next(func(n *outboxState) { n.asked[i], n.view[i] = true, s.phase })
		}
		if i == 2 {
			next(func(n *outboxState) { n.lost[i] = true })
		}
	}
	next(func(n *outboxState) { n.unreachable = true })
	next(func(n *outboxState) { n.entry = modelEntry{} }) // evicted
	if s.phase != phaseAfter && s.writer != inTransaction && s.everybody(func(i int) bool { return s.view[i] == s.phase }) {
		next(func(n *outboxState) {
			if n.phase++; n.phase == phaseActive {
				n.phase++
			}
		})
	}
}

// write is sidecar 0's, by the view before the change: by a later one there is nothing of X to be put out of reach.
func (m *outboxModel) write(s *outboxState, next func(func(*outboxState))) {
	switch s.writer {
	case idle:
		if s.view[0] == phaseBefore && s.phase == phaseBefore {
			next(func(n *outboxState) { n.writer = inTransaction })
		}
	case inTransaction:
		next(func(n *outboxState) {
			n.version, n.remembered, n.writer = 1, true, answering
			n.asked = [3]bool{}
		})
		next(func(n *outboxState) { n.writer = stopped })
	case answering:
		next(func(n *outboxState) { n.writer = stopped })
		gone := s.asked[0] && !s.withheld[0]
		told := !m.hold || s.everybody(func(i int) bool { return s.asked[i] })
		if gone || told {
			next(func(n *outboxState) { n.acked, n.writer = 1, stopped })
		}
	}
}

// work is what sidecar 1 does about what is remembered. Sidecar 0 cannot reach X.
func (m *outboxModel) work(s *outboxState, next func(func(*outboxState))) {
	w := s.worker
	switch w.step {
	case idle:
		if s.remembered && s.withheld[1] {
			next(func(n *outboxState) { n.worker.step, n.worker.view = looked, s.phase })
		}
	case looked:
		c := &m.ring.copies[w.view]
		if c.Frozen && m.frozen {
			next(func(n *outboxState) { n.worker.step = idle })
			return
		}
		onX := false
		for _, copy := range c.Clean[:c.Cleans] {
			onX = onX || m.ring.of[copy] == x
		}
		switch {
		case !onX || !m.clean:
			next(func(n *outboxState) { n.worker.step = cleaned })
		case s.unreachable:
			next(func(n *outboxState) { n.worker.step = idle })
		default:
			next(func(n *outboxState) {
				n.worker.step = cleaned
				n.entry = modelEntry{}
			})
		}
	case cleaned:
		next(func(n *outboxState) {
			if n.worker.step = idle; s.phase == w.view { // it stood
				n.remembered = false
			}
		})
	}
}

func (m *outboxModel) read(s *outboxState, k int, next func(func(*outboxState)), stale func(string)) {
	r := s.readers[k]
	step := func(step, v uint8) {
		next(func(n *outboxState) { n.readers[k].step, n.readers[k].value = step, v })
	}
	switch r.step {
	case idle:
		copy := m.ring.copies[s.view[2]].Read
		uses := !copy.IsNone() && m.ring.of[copy] == x && !s.lost[2] && !(m.withhold && s.withheld[2])
		next(func(n *outboxState) {
			n.readers[k] = modelReader{step: onShard, floor: s.acked}
			if uses {
				n.readers[k].step = asking
			}
		})
	case asking:
		a := asked{missing: s.entry.is == nothing, waited: true}
		switch s.entry.is {
		case value:
			a.kind = KindValue
		case leased:
			a.kind = KindLease
		}
		switch onAsk(a) {
		case actServe:
			step(answering, s.entry.arg)
		case actBypass:
			step(onShard, 0)
		case actFill:
			next(func(n *outboxState) { n.readers[k].step, n.entry = loading, modelEntry{leased, uint8(k)} })
		}
	case loading:
		step(filling, s.version)
	case filling:
		next(func(n *outboxState) {
			n.readers[k].step = answering
			if !m.lease || n.entry == (modelEntry{leased, uint8(k)}) {
				n.entry = modelEntry{value, r.value}
			}
		})
	case onShard:
		step(answering, s.version)
	case answering:
		if r.value < r.floor {
			stale(fmt.Sprintf("reader %d got version %d, %d was acknowledged before: %+v", k, r.value, r.floor, *s))
		}
		step(stopped, r.value)
	}
}

func TestSearchOfBoundedWrites(t *testing.T) {
	all := outboxRules{true, true, true, true, true, true}
	found, states := (&outboxModel{all, newModel(t, true)}).search()
	if found != "" {
		t.Error(found)
	}
	t.Logf("%d states", states)
	for name, leaveOut := range map[string]func(r *outboxRules){
		"withhold": func(r *outboxRules) { r.withhold = false },
		"whole":    func(r *outboxRules) { r.whole = false },
		"hold":     func(r *outboxRules) { r.hold = false },
		"clean":    func(r *outboxRules) { r.clean = false },
		"frozen":   func(r *outboxRules) { r.frozen = false },
		"lease":    func(r *outboxRules) { r.lease = false },
	} {
		t.Run("without "+name, func(t *testing.T) {
			t.Parallel()
			rules := all
			leaveOut(&rules)
			found, states := (&outboxModel{rules, newModel(t, true)}).search()
			if found == "" {
				t.Errorf("no stale read was found in %d states", states)
			} else {
				t.Logf("after %d states: %s", states, found)
			}
		})
	}
}
