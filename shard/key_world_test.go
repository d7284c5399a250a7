//go:build !race

package shard

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The second explorer looks at what belongs to whom: three shards, one vnode, one shard key of it with a row whose content is its version. The operator has the
// vnode and the key moved, in any order: parts one after another, or, with the journal switched off, at the same time. Each part is driven by a driver that may be
// replaced at any time by another one, and goes on after that; copying is one step here (the first explorer takes it apart). Writers go to any shard that lets them.

type keyRules struct {
	journal bool // one part at a time that has to do with the vnode
	alone   bool // a shard lets nothing begin of what is in a move there
	know    bool // who expects a vnode is told its overrides
	apart   bool // a key with an override does not go with its vnode
	fence   bool // the key's row counts before its vnode's
	token   bool // the shard map is changed only by the present driver
	mark    bool // a key that leaves keeps a row at the owner of its vnode
}

func allKeyRules() keyRules { return keyRules{true, true, true, true, true, true, true} }

type stateAt struct {
	state MoveState
	part  int8 // that it is in; 0: none
}

type keyDriver struct {
	pc                      uint8 // 0 waits, 1 looks, 2 acts, 3 ended
	step                    MoveStep
	held, settled, compared bool
	published               bool
}

type keyPart struct {
	key, clear bool
	from, to   int8
	rows       [2]MoveRow // source, destination
	apart      bool       // the key does not go with the vnode
	drivers    [2]keyDriver
	token      uint64 // of the lease
	ended      bool
}

type keyWorld struct {
	vnode  [3]stateAt
	key    [3]stateAt
	value  [3]int8
	acked  int8
	inside int8 // shard that the writer is inside, from 1; 0: none
	writes int8
	parts  [3]keyPart
	begun  int8
	home   int8 // the map: shard of the vnode
	over   int8 // and of the key, from 1; 0: no override
	taken  bool // a driver was replaced: once in all parts
}

func (w *keyWorld) resolve(s stateAt, at int8) MoveState {
	if s.part == 0 {
		return s.state
	}
	p := &w.parts[s.part-1]
	if p.from == at {
		return p.rows[0].State
	}
	return p.rows[1].State
}

// of is what a shard says of the key.
func (e *keyExplorer) of(w *keyWorld, at int8) MoveState {
	if k := w.key[at]; k.state != MoveNone && e.fence {
		return w.resolve(k, at)
	}
	return w.resolve(w.vnode[at], at)
}

func (w *keyWorld) claim(at int8) KeyClaim {
	return KeyClaim{Vnode: w.vnode[at].state, Key: w.key[at].state, Moving: w.vnode[at].part != 0 || w.key[at].part != 0}
}

type keyExplorer struct {
	keyRules
	seen  map[keyWorld]int32
	nodes []keyWorld
	back  []int32
	how   []string
	at    int32
	moved bool
	wrong string
	small bool // two parts, and no driver is replaced
}

func (e *keyExplorer) add(w keyWorld, format string, args ...any) {
	if w == e.nodes[e.at] {
		return
	}
	e.moved = true
	if _, ok := e.seen[w]; ok {
		return
	}
	e.seen[w] = int32(len(e.nodes))
	e.nodes, e.back, e.how = append(e.nodes, w), append(e.back, e.at), append(e.how, fmt.Sprintf(format, args...))
}

func (e *keyExplorer) fault(w *keyWorld) string {
	owners, owner := 0, int8(-1)
	vnodes := 0
	for at := range int8(3) {
		if e.of(w, at) == MoveOwned {
			owners, owner = owners+1, at
		}
		if w.resolve(w.vnode[at], at) == MoveOwned {
			vnodes++
		}
	}
	switch {
	case owners > 1:
		return "two owners of the key"
	case vnodes > 1:
		return "two owners of the vnode"
	case owners == 1 && w.value[owner] < w.acked:
		return "lost write"
	}
	return ""
}

// rest says what is wrong when nothing can happen any more.
func (e *keyExplorer) rest(w *keyWorld) string {
	for i := range w.begun {
		if !w.parts[i].ended {
			return "not finished"
		}
	}
	place := w.home
	if w.over != 0 {
		place = w.over - 1
	}
	for at := range int8(3) {
		switch owned := e.of(w, at) == MoveOwned; {
		case owned != (at == place):
			return "the map is wrong about the key"
		case (w.vnode[at].state == MoveOwned) != (at == w.home):
			return "the map is wrong about the vnode"
		case at == w.home && (w.key[at].state != MoveNone) != (w.over != 0):
			return "the vnode's owner does not know"
		case at != place && w.value[at] >= 0:
			return "left behind"
		}
	}
	return ""
}

func (e *keyExplorer) explore() (wrong, way string) {
	first := keyWorld{value: [3]int8{0, -1, -1}, taken: e.small}
	first.vnode[0].state = MoveOwned
	e.seen = map[keyWorld]int32{first: 0}
	e.nodes, e.back, e.how = []keyWorld{first}, []int32{0}, []string{""}
	for e.at = 0; int(e.at) < len(e.nodes); e.at++ {
		w := e.nodes[e.at]
		e.moved = false
		if e.wrong = e.fault(&w); e.wrong == "" {
			e.next(w)
		}
		if e.wrong == "" && !e.moved {
			e.wrong = e.rest(&w)
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

func (e *keyExplorer) next(w keyWorld) {
	if w.inside == 0 && w.writes < 1 {
		for at := range int8(3) {
			if e.of(&w, at) == MoveOwned {
				w := w
				w.inside = at + 1
				e.add(w, "a writer enters shard %d", at)
			}
		}
	}
	if at := w.inside - 1; at >= 0 {
		w := w
		w.value[at] = max(w.value[at], 0) + 1
		w.acked = max(w.acked, w.value[at])
		w.inside, w.writes = 0, w.writes+1
		e.add(w, "the writer commits %d on shard %d", w.value[at], at)
	}
	e.operator(w)
	for i := range w.begun {
		for d := range w.parts[i].drivers {
			e.driver(w, i, d)
		}
	}
}

// operator begins another part: what makes sense by the map.
func (e *keyExplorer) operator(w keyWorld) {
	if int(w.begun) == len(w.parts) || e.small && w.begun == 2 {
		return
	}
	for i := range w.begun {
		if e.journal && !w.parts[i].ended {
			return
		}
	}
	begin := func(p keyPart) {
		w := w
		p.drivers[0].pc, p.token = 1, 1
		w.parts[w.begun] = p
		w.begun++
		e.add(w, "part %d begins: key %t, clear %t, from %d to %d", w.begun, p.key, p.clear, p.from, p.to)
	}
	place := w.home
	if w.over != 0 {
		place = w.over - 1
	}
	for to := range int8(3) {
		if to == 2 && w.begun == 0 {
			continue // the second and the third shard are alike
		}
		if to != w.home {
			begin(keyPart{from: w.home, to: to})
		}
		if w.over == 0 || w.over-1 != to {
			begin(keyPart{key: true, from: place, to: to})
		}
	}
	if w.over != 0 {
		begin(keyPart{key: true, clear: true, from: place, to: w.home})
	}
}

func (e *keyExplorer) driver(w keyWorld, i int8, n int) {
	p := &w.parts[i]
	d := &p.drivers[n]
	token := uint64(n + 1)
	switch d.pc {
	case 0:
		if !p.ended && p.drivers[0].pc != 0 && !w.taken && i < 2 { // what it does in the last part nobody builds upon
			d.pc, p.token, w.taken = 1, token, true
			e.add(w, "part %d: driver %d takes over", i+1, n)
		}
	case 1:
		d.step = e.decide(p, d, token)
		if d.pc = 2; d.step == MoveWait || d.step == MoveDone {
			*d = keyDriver{pc: 3}
			if p.rows[0].State == MoveGone && (p.from == p.to || p.rows[1].State == MoveGone) {
				p.ended = true
				if p.drivers[1-n].pc == 0 || p.drivers[1-n].pc == 3 { // nobody remembers it
					*p = keyPart{ended: true}
					p.drivers[0].pc, p.drivers[1].pc = 3, 3
					p.rows[0], p.rows[1] = MoveRow{State: MoveGone, Token: 9}, MoveRow{State: MoveGone, Token: 9}
				}
			}
		}
		if d.step == MoveStuck {
			e.wrong = "stuck"
		}
		e.add(w, "part %d: driver %d decides: %v", i+1, n, d.step)
	case 2:
		d.pc = 1
		step := d.step
		if err := e.act(&w, i, d, token); err == errBarrier {
			return
		} else if errors.Is(err, ErrMoveTaken) {
			*d = keyDriver{pc: 3}
		}
		e.add(w, "part %d: driver %d: %v", i+1, n, step)
	}
}

var errBarrier = errors.New("a writer is inside")

func (e *keyExplorer) decide(p *keyPart, d *keyDriver, token uint64) MoveStep {
	if p.from == p.to {
		return NextHomeStep(p.rows[0], token, false, d.published)
	}
	return NextMoveStep(MoveSight{
		From: p.rows[0], To: p.rows[1], Token: token, Compared: d.compared, Ready: true, Held: d.held, Settled: d.settled, Published: d.published, Released: true, Aged: true,
		Cancel: p.rows[1].State == MoveCancelled,
	})
}
