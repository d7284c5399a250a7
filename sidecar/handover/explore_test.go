package handover

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The explorer goes through every order of steps of a small world: one key, two servers X and Y, two clients on sidecars of their own that carry the
// key when they find it on its former owner, and a driver that carries it too. Any of them may stop anywhere for any time: an order in which
// it does nothing any more is among all orders. First the key is handed over from X to Y; then the vnode may turn and be handed back. The decisions
// are those of progress.hear; the servers do what the scripts do.

// A value is 1: what was there in the beginning, 2: what clients set on Y, 3: what they set on X after the turn. 0: the key is not there.
const (
	none  = 0
	first = 1
)

type carrierState struct {
	on    bool
	back  bool // it carries by the second topology
	value uint8
	progress
}

type clientState uint8

const (
	unsettled clientState = iota
	sawNothing
	carrying
	settled
)

const (
	worldClients  = 2
	worldCarriers = 3 // one for each client, and the driver's
)

type world struct {
	value    [2]uint8 // X, Y
	lease    [2]uint8 // 1 + carrier
	marker   [2]bool  // raised to the second topology
	turned   bool
	expired  bool  // the first value's time is over
	truth    uint8 // set of what a client may find: 1 << value
	carriers [worldCarriers]carrierState
	clients  [worldClients]clientState
}

// rules are what the protocol rests on. All of them are on in ringside.
type rules struct{ lease, remove, void, release, expiry, fence bool }

type explorer struct {
	rules
	evicts, expires, turns bool

	seen  map[world]int
	nodes []world
	from  []int
	how   []string
	at    int
	wrong string
}

func (e *explorer) add(w world, how string, args ...any) {
	if _, ok := e.seen[w]; ok {
		return
	}
	e.seen[w] = len(e.nodes)
	e.nodes, e.from, e.how = append(e.nodes, w), append(e.from, e.at), append(e.how, fmt.Sprintf(how, args...))
}

// explore returns the way to the first wrong read, empty if there is none.
func (e *explorer) explore() string {
	e.seen = map[world]int{}
	e.add(world{value: [2]uint8{first, none}, truth: 1 << first}, "begin")
	for e.at = 0; e.at < len(e.nodes); e.at++ {
		e.next(e.nodes[e.at])
		if e.wrong != "" {
			way := []string{e.wrong}
			for i := e.at; i > 0; i = e.from[i] {
				way = append(way, e.how[i])
			}
			slices.Reverse(way)
			return strings.Join(way, "\n\t")
		}
	}
	return ""
}

func (e *explorer) next(w world) {
	from, to := 0, 1
	if w.turned {
		from, to = 1, 0
	}
	for i := range w.clients {
		e.client(w, i, from, to)
	}
	for i := range w.carriers {
		e.carrier(w, i)
	}
	if c := w.carriers[2]; !c.on || c.next == opEnd {
		n := w
		n.carriers[2] = carrierState{on: true, back: w.turned}
		e.add(n, "driver begins")
	}
	for s := range w.value {
		if w.lease[s] != 0 {
			n := w
			n.lease[s] = 0
			e.add(n, "lease on %c expires", 'X'+s)
		}
		if e.evicts && w.value[s] != none {
			n := w
			n.value[s] = none
			n.truth |= 1 << none
			if s == to && w.value[from] == none && slices.Contains(w.clients[:], settled) {
				n.truth = 1 << none
			}
			e.add(n, "eviction on %c", 'X'+s)
		}
		if e.turns && !w.marker[s] {
			n := w
			n.marker[s] = true
			e.add(n, "marker on %c is raised", 'X'+s)
		}
	}
	if e.expires && !w.expired {
		n := w
		n.expired = true
		for s := range n.value {
			if n.value[s] == first {
				n.value[s] = none
			}
		}
		if n.truth&(1<<first) != 0 {
			n.truth = n.truth&^(1<<first) | 1<<none
		}
		e.add(n, "the value expires")
	}
	// All sidecars have the second topology, and all that was sent by the first one to Y has been executed.
	if w.marker == [2]bool{true, true} && !w.turned {
		n := w
		n.turned = true
		n.clients = [worldClients]clientState{}
		e.add(n, "the vnode is handed back")
	}
}

func (e *explorer) client(w world, i, from, to int) {
	n := w
	c := &n.carriers[i]
	switch w.clients[i] {
	case unsettled:
		switch {
		case w.value[from] == none && e.void:
			n.clients[i] = sawNothing
		case w.value[from] == none:
			n.clients[i] = settled
		case c.on && c.next != opEnd:
			return // an earlier one is still under way
		default:
			n.clients[i], *c = carrying, carrierState{on: true, back: w.turned}
		}
		e.add(n, "client %d looks at %c", i, 'X'+from)
	case sawNothing:
		n.lease[to], n.clients[i] = 0, settled
		e.add(n, "client %d removes the lease on %c", i, 'X'+to)
	case carrying:
		if c.next != opEnd {
			return
		}
		n.clients[i] = unsettled
		if c.end == endSettled {
			n.clients[i] = settled
		}
		*c = carrierState{}
		e.add(n, "client %d hears of its carrier", i)
	case settled:
		if found := w.value[to]; w.truth&(1<<found) == 0 {
			e.wrong = fmt.Sprintf("client %d finds %d on %c; possible were %04b", i, found, 'X'+to, w.truth)
		} else {
			n.truth = 1 << found
			e.add(n, "client %d finds %d", i, found)
		}
		n = w
		n.value[to] = uint8(3 - to)
		n.truth = 1 << n.value[to]
		e.add(n, "client %d sets %d", i, n.value[to])
		n.value[to], n.truth = none, 1<<none
		e.add(n, "client %d deletes", i)
	}
}

// carrier does one step of a carrier as the scripts do it, and lets it decide what follows.
func (e *explorer) carrier(w world, i int) {
	c := w.carriers[i]
	if !c.on || c.next == opEnd {
		return
	}
	from, to := 0, 1
	if c.back {
		from, to = 1, 0
	}
	n := w
	// Something fails: it gives up, and removes the lease if it can.
	if c.next != opLease {
		n.lease[to] = 0
	}
	n.carriers[i].progress = progress{opEnd, endAgain}
	e.add(n, "carrier %d fails", i)

	n = w
	a := answerDone
	fenced := func(server int) bool { return e.fence && w.marker[server] && !c.back }
	switch c.next {
	case opLease:
		if w.lease[to] != 0 {
			a = answerTaken
		} else {
			n.lease[to] = uint8(i + 1)
		}
	case opDump:
		switch {
		case fenced(from):
			a = answerStale
		case w.value[from] == none:
			a = answerAbsent
		default:
			n.carriers[i].value = w.value[from]
		}
	case opRestore:
		switch {
		case fenced(to):
			a = answerStale
		case e.lease && w.lease[to] != uint8(i+1):
			a = answerLost
		case w.value[to] != none:
			a = answerThere
		case e.expiry && w.expired && c.value == first:
			// RESTORE of what has expired puts nothing there
		default:
			n.value[to] = c.value
		}
		n.carriers[i].value = none
	case opRemove:
		switch {
		case fenced(from):
			a = answerStale
		case e.remove:
			n.value[from] = none
		}
	case opRelease:
		if e.release || w.lease[to] == uint8(i+1) {
			n.lease[to] = 0
		}
	}
	n.carriers[i].progress = c.hear(a)
	e.add(n, "carrier %d: %v", i, c.next)
}

func allRules() rules { return rules{true, true, true, true, true, true} }

// TestNoOrderOfStepsLosesAKeyOrBringsItBack guards the invariants H1 and H2.
func TestNoOrderOfStepsLosesAKeyOrBringsItBack(t *testing.T) {
	for name, e := range map[string]*explorer{
		"handed over":       {},
		"with evictions":    {evicts: true},
		"with expiry":       {expires: true, evicts: true},
		"back, and expired": {turns: true, expires: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e.rules = allRules()
			if way := e.explore(); way != "" {
				t.Error(way)
			}
			t.Logf("%d states", len(e.nodes))
			if len(e.nodes) < 1000 {
				t.Error("too little was explored")
			}
		})
	}
}

// TestEachRuleIsNeeded shows that the explorer can fail: without any one rule it finds a wrong read.
func TestEachRuleIsNeeded(t *testing.T) {
	for name, off := range map[string]func(r *rules){
		"the lease is checked when the value is put":            func(r *rules) { r.lease = false },
		"removed from the former owner before the command":      func(r *rules) { r.remove = false },
		"who finds nothing on the former owner ends all leases": func(r *rules) { r.void = false },
		"who has carried ends all leases":                       func(r *rules) { r.release = false },
		"the end of life is a time":                             func(r *rules) { r.expiry = false },
		"the markers fence earlier topologies off":              func(r *rules) { r.fence = false },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &explorer{rules: allRules(), turns: strings.Contains(name, "fence"), expires: strings.Contains(name, "life")}
			off(&e.rules)
			way := e.explore()
			if way == "" {
				t.Errorf("no wrong read was found in %d states", len(e.nodes))
			}
			t.Log(way)
		})
	}
}
