//go:build !race

package cache

import (
	"fmt"
	"testing"

	"ringside/ring"
	"ringside/shard"
	"ringside/sidecar/topology"
)

// One goroutine and millions of states: the race detector has nothing to find here and would take minutes. `make test` runs it without.

// An exhaustive search through the protocol over a change of the ring, in a small model: one row, the server X that has its entry before the
// change and the server Y that has it after, two sidecars of which one may lose touch, writers and readers that may stop anywhere, entries
// that may be lost at any time. Where the decisions of the product are pure, the product's own functions are called: which copies count
// (topology.Copies), what a reader does with what it finds (onAsk), what becomes of its lease (onLoaded), what a writer does after its
// transaction (onCommit). The model has the rest: Redis's scripts, the shard's fence and lock, and time.
//
// Time is in the order of things: a phase is left only when every sidecar has heard of it or trusts what it heard no longer. That is what the
// keeper's hold makes sure of. Nothing is assumed of what is under way: it may go on as late as it likes.
//
// Guards P3: a read that begins after a write was acknowledged never returns an older version. Where no entry is lost, a read that begins after another
// one has returned a version never returns an older one either, whatever became of the writer.

// rules are what can be left out, to show that the search finds what comes of it.
type rules struct{ lease, poison, fence, clean, order, closing, hold, wait, guard, claim bool }

// The phases of the change, as the model counts them. From the beginning of one to that of the next but one takes more than view_ttl.
const (
	phaseBefore = iota // the shard is at the old epoch
	phasePreparing
	phaseCarrying // in which it still is, for so long by now that a keeper\'s carrier may begin
	phaseActive
	phaseAfter
	phases
)

// The steps of writers and readers.
const (
	idle = iota
	poisoning
	inTransaction
	cleaning
	stopped // done, refused or dead
	getting
	asking
	carrying // so is a carrier with the lease of the new copy
	loading
	filling
	onShard
	answering
	reloading // the value is claimed
	renewing
)

// The model's entries, by what is there.
const (
	nothing = iota
	value   // arg: the version, and above claimedBy who refreshes it
	leased  // arg: the reader, or carrier
	poisons // arg: the set of writers
)

// claimedBy is added to the version in a value for each reader up to that which has claimed it.
const claimedBy = 16

const (
	x = 0
	y = 1
)

type modelEntry struct{ is, arg uint8 }

type modelWriter struct {
	step, sidecar, view, version, committedIn uint8
	left                                      uint8 // copies to poison or clean, a set
}

type modelReader struct{ step, sidecar, view, floor, value uint8 }

// answered reports whether the reader has its answer. It may still be refreshing what it found.
func (r modelReader) answered() bool { return r.step == stopped || r.step >= reloading }

// modelCarrier takes the entry over without being asked for it, again and again.
type modelCarrier struct{ step, value uint8 }

type modelState struct {
	entry                 [2]modelEntry
	version, acked, phase uint8
	returned              uint8 // the latest version that a read returned; where entries may be lost it is not kept
	closed, unreachable   bool  // X: closed for this shard; out of reach of writers
	view                  [2]uint8
	lost                  [2]bool // the sidecar cannot confirm its view
	writers               [2]modelWriter
	readers               [3]modelReader
	carrier               modelCarrier
	losses                uint8
}

// model is one space to search.
type model struct {
	rules
	writers, readers, losses int
	carrier                  bool // there is one
	refreshes                bool // readers that find a value may refresh it
	loseTouch                bool // sidecar 0 may
	inTurn                   bool // a reader begins when the one before it has its answer
	down                     bool // the change is X going down
	writeBy, firstBy, restBy []uint8
	copies                   [phases]topology.Copies // by phase
	of                       map[topology.Copy]uint8
}

// newModel takes the copies from real topologies: c1 and c2, then one of them leaves.
func newModel(t *testing.T, down bool) *model {
	t.Helper()
	before, err := topology.Bootstrap([]topology.Cache{
		{Name: "c1", Addr: "127.0.0.1:1", Weight: 1, RunID: "r1", Gen: 1}, {Name: "c2", Addr: "127.0.0.1:2", Weight: 1, RunID: "r2", Gen: 1},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var after *topology.Topology
	if down {
		after, err = topology.MarkDown(before, []string{"c1"})
	} else {
		after, err = topology.DrainCache(before, "c1")
	}
	if err != nil {
		t.Fatal(err)
	}
	vnode := -1
	for v := range ring.Vnodes {
		if before.Caches[before.CacheOf(uint16(v))].Name == "c1" {
			vnode = v
			break
		}
	}
	views := [phases]shard.View{
		phaseBefore:    {Epoch: before.Epoch, Phase: shard.Done},
		phasePreparing: {Epoch: after.Epoch, Phase: shard.Preparing, From: before.Epoch},
		phaseCarrying:  {Epoch: after.Epoch, Phase: shard.Preparing, From: before.Epoch},
		phaseActive:    {Epoch: after.Epoch, Phase: shard.Active, From: before.Epoch},
		phaseAfter:     {Epoch: after.Epoch, Phase: shard.Done, From: before.Epoch},
	}
	m := &model{rules: rules{true, true, true, true, true, true, true, true, true, true}, down: down, of: map[topology.Copy]uint8{}}
	for i, view := range views {
		by := after
		if i == phaseBefore {
			by = before
		}
		m.copies[i] = by.Copies(view, uint16(vnode), 0)
	}
	m.of[m.copies[phaseBefore].Read] = x
	m.of[m.copies[phaseAfter].Read] = y
	if len(m.of) != 2 || after.HandsOver(before.Epoch) == down {
		t.Fatalf("the change is not the one that the model is about: %+v", m.copies)
	}
	return m
}

// cleans are the copies that a writer with this view cleans, as a set.
func (m *model) cleans(view uint8) (set uint8) {
	c := &m.copies[view]
	for _, copy := range c.Clean[:c.Cleans] {
		set |= 1 << m.of[copy]
	}
	return set
}

// reads is where a reader with this view looks.
func (m *model) reads(view uint8) (at uint8, ok bool) {
	c := m.copies[view].Read
	return m.of[c], !c.IsNone()
}

// search visits every state that can be reached. It returns the first stale read, empty if there is none, and how many states there are.
func (m *model) search() (found string, states int) {
	start := modelState{entry: [2]modelEntry{{is: value}, {}}, losses: uint8(m.losses)}
	seen := map[modelState]struct{}{start: {}}
	queue := []modelState{start}
	for len(queue) > 0 && found == "" {
		s := queue[0]
		queue = queue[1:]
		m.follow(s, func(next modelState) {
			if _, ok := seen[next]; !ok {
				seen[next] = struct{}{}
				queue = append(queue, next)
			}
		}, func(what string) { found = what })
	}
	return found, len(seen)
}

// follow calls next with every state that may come right after s.
func (m *model) follow(s modelState, next func(modelState), stale func(string)) {
	m.ring(s, next)
	if s.losses > 0 {
		for e := range s.entry {
			if s.entry[e].is != nothing {
				n := s
				n.entry[e], n.losses = modelEntry{}, s.losses-1
				next(n)
			}
		}
	}
	for k := range m.writers {
		m.write(s, k, next)
	}
	for k := range m.readers {
		m.read(s, k, next, stale)
	}
}

func (m *model) write(s modelState, k int, next func(modelState)) {
	w := s.writers[k]
	go1 := func(w modelWriter, change func(n *modelState)) {
		n := s
		n.writers[k] = w
		if change != nil {
			change(&n)
		}
		next(n)
	}
	if w.step == poisoning || w.step == inTransaction || w.step == cleaning {
		dead := w
		dead.step = stopped
		go1(dead, nil)
	}
	switch w.step {
	case idle:
		for _, i := range m.writeBy {
			if m.copies[s.view[i]].Frozen {
				continue
			}
			go1(modelWriter{step: poisoning, sidecar: i, view: s.view[i], left: m.cleans(s.view[i])}, nil)
		}
	case poisoning:
		if w.left != 0 && m.poison {
			m.each(w.left, func(e uint8) {
				if e == x && s.unreachable {
					return // refused: it never gets to its commit
				}
				n := w
				n.left &^= 1 << e
				go1(n, func(n *modelState) { n.entry[e] = poisonedBy(n.entry[e], k) })
			})
			return
		}
		if m.fence && w.view != viewIn(s.phase) {
			return // refused by the shard
		}
		n := w
		n.step = inTransaction
		go1(n, nil)
	case inTransaction:
		if onCommit(nil) != afterClean {
			return
		}
		n := w
		n.step, n.version, n.committedIn, n.left = cleaning, s.version+1, s.phase, m.cleans(w.view)
		go1(n, func(n *modelState) { n.version++ })
	case cleaning:
		m.clean(s, k, go1)
	}
}

// clean is a writer after its commit. Before it acknowledges it looks whether the shard's phase has gone on so far that others may use a copy which it has
// not cleaned.
func (m *model) clean(s modelState, k int, go1 func(modelWriter, func(*modelState))) {
	w := s.writers[k]
	if w.left != 0 && m.rules.clean {
		set := w.left
		if m.order && set&(1<<x) != 0 {
			set = 1 << x // the former copy first: what is carried over from it meanwhile is cleaned with the new one
		}
		m.each(set, func(e uint8) {
			if e == x && s.unreachable {
				return // it cannot be cleaned, so the write is never acknowledged
			}
			n := w
			n.left &^= 1 << e
			go1(n, func(n *modelState) {
				if left := without(n.entry[e], k); n.entry[e].is == poisons && left.is == poisons {
					n.entry[e] = left
				} else {
					n.entry[e] = modelEntry{}
				}
			})
		})
		return
	}
	if more := m.cleans(s.phase) &^ m.cleans(w.view); m.guard && more != 0 && s.phase > w.committedIn+1 {
		n := w
		n.view, n.left, n.committedIn = s.phase, more, s.phase
		go1(n, nil)
		return
	}
	n := w
	n.step = stopped
	go1(n, func(n *modelState) { n.acked = max(n.acked, w.version) })
}

func poisonedBy(e modelEntry, k int) modelEntry {
	if e.is != poisons {
		return modelEntry{poisons, 1 << k}
	}
	return modelEntry{poisons, e.arg | 1<<k}
}

func without(e modelEntry, k int) modelEntry {
	if e.is == poisons && e.arg&^(1<<k) != 0 {
		return modelEntry{poisons, e.arg &^ (1 << k)}
	}
	return modelEntry{}
}

func (m *model) each(set uint8, f func(e uint8)) {
	for e := uint8(0); e < 2; e++ {
		if set&(1<<e) != 0 {
			f(e)
		}
	}
}

func (m *model) read(s modelState, k int, next func(modelState), stale func(string)) {
	r := s.readers[k]
	to := func(r modelReader, change func(n *modelState)) {
		n := s
		n.readers[k] = r
		if change != nil {
			change(&n)
		}
		next(n)
	}
	step := func(step uint8, v uint8) {
		n := r
		n.step, n.value = step, v
		to(n, nil)
	}
	at, cached := m.reads(r.view)
	switch r.step {
	case idle:
		if m.inTurn && k > 0 && !s.readers[k-1].answered() {
			return
		}
		by := m.firstBy
		if k > 0 {
			by = m.restBy
		}
		for _, i := range by {
			n := modelReader{step: onShard, sidecar: i, view: s.view[i], floor: max(s.acked, s.returned)}
			if _, cached := m.reads(s.view[i]); cached && !s.lost[i] {
				n.step = getting
			}
			to(n, nil)
		}
	case getting:
		if e := s.entry[at]; e.is == value {
			step(answering, e.arg%claimedBy)
			if m.refreshes && e.arg < claimedBy {
				n := r
				n.step = reloading
				to(n, func(n *modelState) { n.entry[at].arg += claimedBy * uint8(k+1) })
			}
			return
		}
		step(asking, 0)
	case reloading:
		n := r
		n.step, n.value = renewing, s.version
		if onLoaded(true, Loaded{Found: true, MayFill: m.copies[s.phase].Cleaned(m.copies[r.view].Read)}, true, true) != endFill {
			n.step = stopped // and the claim is given back, or expires with the value
		}
		to(n, nil)
	case renewing:
		n := r
		n.step = stopped
		to(n, func(n *modelState) {
			if e := n.entry[at]; e.is == value && (e.arg/claimedBy == uint8(k+1) || !m.claim) {
				n.entry[at] = modelEntry{value, r.value}
			}
		})
	case asking:
		m.ask(s, k, at, step, to)
	case carrying:
		if e := s.entry[x]; e.is == value && !(m.closing && s.closed) {
			step(filling, e.arg%claimedBy)
			return
		}
		step(loading, 0)
	case loading:
		n := r
		n.step, n.value = filling, s.version
		loaded := Loaded{Found: true, MayFill: m.copies[s.phase].Cleaned(m.copies[r.view].Read)}
		if onLoaded(true, loaded, true, true) != endFill {
			n.step = answering // and the lease is given back, or expires
		}
		to(n, nil)
	case filling:
		n := r
		n.step = answering
		to(n, func(n *modelState) {
			if n.entry[at] == (modelEntry{leased, uint8(k)}) || !m.lease {
				n.entry[at] = modelEntry{value, r.value}
			}
		})
	case onShard:
		step(answering, s.version)
	case answering:
		if r.value < r.floor {
			stale(fmt.Sprintf("reader %d got version %d, %d was acknowledged before: %+v", k, r.value, r.floor, s))
		}
		n := r
		n.step = stopped
		to(n, func(n *modelState) {
			if m.losses == 0 {
				n.returned = max(n.returned, r.value)
			}
		})
	}
	if !cached && r.step == getting {
		stale("a reader without a copy asks the cache")
	}
}

func (m *model) ask(s modelState, k int, at uint8, step func(uint8, uint8), to func(modelReader, func(*modelState))) {
	e := s.entry[at]
	a := asked{missing: e.is == nothing, waited: true}
	switch e.is {
	case value:
		a.kind = KindValue
	case leased:
		a.kind = KindLease
	case poisons:
		a.kind = KindPoison
	}
	switch onAsk(a) {
	case actServe:
		step(answering, e.arg%claimedBy)
	case actBypass:
		step(onShard, 0)
	case actFill:
		n := s.readers[k]
		n.step = loading
		if !m.copies[n.view].Carry.IsNone() {
			n.step = carrying
		}
		to(n, func(n *modelState) { n.entry[at] = modelEntry{leased, uint8(k)} })
	}
}
