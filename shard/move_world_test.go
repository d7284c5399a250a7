//go:build !race

package shard

import (
	"fmt"
	"slices"
	"strings"
)

// The explorer goes through every order of steps of a small world: one row, whose content is its version, on a vnode that is moved. Writers and readers
// believe in the source or the destination at random, and the ownership is checked in their own transaction. Drivers decide by NextMoveStep and are held
// back by MoveRow.After; any of them may stop anywhere, be replaced by one with a higher token, and go on after that. The operator may call the move
// off once, at any time.

// nothing: there is no row.
const nothing = -1

// moveRules are what the protocol rests on, beside what the functions under test decide. All of them hold in ringside.
type moveRules struct {
	fence   bool // the source refuses writers of what it does not own
	barrier bool // capture begins when no writer is inside
	leave   bool // and ends likewise
	log     bool // a writer's change is noted
	freeze  bool // freezing waits for those inside
	drain   bool // what was noted is applied before the commit
	token   bool // a step checks the token
	close   bool // a closed vnode is not read
	commit  bool // the commit needs the destination to be incoming
	ignore  bool // a driver that takes over does not trust a cut-over that it finds begun
	wipe    bool // the destination's rows are deleted when the move is called off
	clean   bool // the source's are, when it was carried out
	compare bool // rows are compared before the commit
}

func allMoveRules() moveRules {
	return moveRules{true, true, true, true, true, true, true, true, true, true, true, true, true}
}

type moveWriter struct {
	pc      uint8 // 0 begins, 1 inside, 2 committed and acknowledged
	to      bool  // at the destination
	capture bool
}

type moveReader struct {
	pc    uint8 // 0 begins, 1 reading, 2 done
	to    bool
	floor int8 // what was acknowledged when it began
}

const (
	driverWaits uint8 = iota
	driverLooks
	driverActs
	driverWrites  // it has read what it copies
	driverRereads // it has read what was noted
	driverApplies // and the row
	driverStrikes // and has written it
	driverEnded
)

type moveDriver struct {
	pc                      uint8
	step                    MoveStep
	value, noted            int8
	compared, held, settled bool
}

type moveWorld struct {
	from, to        MoveRow
	source, copy    int8 // the row's version on the two shards
	noted           int8
	acked           int8
	writers         [2]moveWriter
	readers         [1]moveReader
	drivers         [2]moveDriver
	cancel          bool
	cleaned, forgot bool
	thawed          bool
}

func (w *moveWorld) fromState() MoveState {
	switch {
	case w.from.State == MoveNone, w.from.State == MoveGone && !w.cleaned:
		return MoveOwned
	case w.from.State == MoveGone:
		return MoveMoved
	}
	return w.from.State
}

func (w *moveWorld) toState() MoveState {
	if w.forgot {
		return MoveOwned
	}
	return w.to.State
}

func (w *moveWorld) inside(to bool) bool {
	for _, x := range w.writers {
		if x.to == to && x.pc == 1 {
			return true
		}
	}
	return false
}

// fault says what is wrong with a world.
func (w *moveWorld) fault() string {
	from, to := w.fromState() == MoveOwned, w.toState() == MoveOwned
	switch {
	case from && to:
		return "two owners"
	case to && w.copy < w.acked, from && w.source < w.acked:
		return "lost write"
	}
	return ""
}

// rest says what is wrong with a world in which nothing can happen any more.
func (w *moveWorld) rest() string {
	from, to := w.fromState() == MoveOwned, w.toState() == MoveOwned
	switch {
	case !from && !to:
		return "nobody owns"
	case from && w.copy != nothing, to && w.source != nothing, w.noted != 0:
		return "left behind"
	case w.from.State != MoveGone || w.to.State != MoveGone:
		return "not finished"
	}
	return ""
}

type moveExplorer struct {
	moveRules
	faulty bool // what is copied may arrive changed

	seen  map[moveWorld]int32
	nodes []moveWorld
	back  []int32
	how   []string
	at    int32
	moved bool // the world at hand has a successor that differs
	wrong string
}

func (e *moveExplorer) add(w moveWorld, how string) {
	if a, b := w.writers[0], w.writers[1]; a.pc > b.pc || a.pc == b.pc && (a.to && !b.to || a.to == b.to && a.capture && !b.capture) {
		w.writers[0], w.writers[1] = b, a // they are alike
	}
	if w == e.nodes[e.at] {
		return
	}
	e.moved = true
	if _, ok := e.seen[w]; ok {
		return
	}
	e.seen[w] = int32(len(e.nodes))
	e.nodes, e.back, e.how = append(e.nodes, w), append(e.back, e.at), append(e.how, how)
}

// explore returns what goes wrong first, and the way to it; empty: nothing.
func (e *moveExplorer) explore() (wrong, way string) {
	first := moveWorld{source: 0, copy: nothing}
	first.drivers[0].pc = driverLooks
	e.seen = map[moveWorld]int32{first: 0}
	e.nodes, e.back, e.how = []moveWorld{first}, []int32{0}, []string{""}
	for e.at = 0; int(e.at) < len(e.nodes); e.at++ {
		w := e.nodes[e.at]
		e.moved = false
		if e.wrong = w.fault(); e.wrong == "" {
			e.next(w)
		}
		if e.wrong == "" && !e.moved {
			e.wrong = w.rest()
		}
		if e.wrong != "" {
			var steps []string
			for i := e.at; i > 0; i = e.back[i] {
				steps = append(steps, e.how[i])
			}
			slices.Reverse(steps)
			return e.wrong, strings.Join(steps, "\n\t") + fmt.Sprintf("\n\t%+v", w)
		}
	}
	return "", ""
}

func (e *moveExplorer) next(w moveWorld) {
	for i := range w.writers {
		e.writer(w, i)
	}
	for i := range w.readers {
		e.reader(w, i)
	}
	if !w.cancel && w.to.State != MoveGone {
		w := w
		w.cancel = true
		e.add(w, "the operator calls it off")
	}
	for i := range w.drivers {
		e.driver(w, i)
	}
}

func (e *moveExplorer) writer(w moveWorld, i int) {
	x := &w.writers[i]
	switch x.pc {
	case 0:
		if w.fromState() == MoveOwned || !e.fence {
			w := w
			w.writers[i] = moveWriter{pc: 1, capture: w.from.Capture}
			e.add(w, fmt.Sprintf("writer %d enters the source", i))
		}
		if w.toState() == MoveOwned {
			w.writers[i] = moveWriter{pc: 1, to: true}
			e.add(w, fmt.Sprintf("writer %d enters the destination", i))
		}
	case 1:
		at := &w.source
		if x.to {
			at = &w.copy
		}
		*at = max(*at, 0) + 1
		w.acked = max(w.acked, *at)
		if x.capture && e.log {
			w.noted++
		}
		*x = moveWriter{pc: 2}
		e.add(w, fmt.Sprintf("writer %d commits %d", i, *at))
	}
}

func (e *moveExplorer) reader(w moveWorld, i int) {
	r := &w.readers[i]
	switch r.pc {
	case 0:
		for _, to := range []bool{false, true} {
			w := w
			w.readers[i] = moveReader{pc: 1, to: to, floor: w.acked}
			e.add(w, "a reader begins")
		}
	case 1:
		value, may := w.source, w.fromState() == MoveOwned || w.fromState() == MoveFrozen || w.fromState() == MoveClosed && !e.close
		if r.to {
			value, may = w.copy, w.toState() == MoveOwned
		}
		switch {
		case !may:
			r.to = !r.to
			e.add(w, "a reader is sent on")
		case value < r.floor:
			e.wrong = "stale read"
		default:
			*r = moveReader{pc: 2}
			e.add(w, "a reader reads")
		}
	}
}
