package sidecar

import (
	"testing"
	"time"

	"ringside/shard"
	"ringside/sidecar/topology"
)

// lives are topologies in the order in which they follow each other:
//
//	1  c1, c2, c3           4  c4 active: takes rows from the others
//	2  c1 was started anew  5  c4 down
//	3  c4 is joining        6  c4 joining again
func lives(t *testing.T) map[uint64]*topology.Topology {
	t.Helper()
	var caches []topology.Cache
	for _, name := range []string{"c1", "c2", "c3"} {
		caches = append(caches, topology.Cache{Name: name, Addr: name + ":1", Weight: 1, RunID: "run " + name, Gen: 1})
	}
	all := map[uint64]*topology.Topology{}
	now, err := topology.Bootstrap(caches, []topology.Shard{{Name: "s1", Weight: 1, MaxConnections: 4}})
	step := func(next *topology.Topology, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		now = next
		all[now.Epoch] = now
	}
	step(now, err)
	step(topology.AdoptRuns(now, map[string]string{"c1": "run c1 anew"}))
	next, err := topology.Finish(now, now.Handovers, true)
	if err != nil {
		t.Fatal(err)
	}
	// As if it had been finished within epoch 2, so that the numbers above hold.
	c := next.Content()
	c.Epoch = 2
	step(topology.New(c))
	step(topology.AddCache(now, topology.Cache{Name: "c4", Addr: "c4:1", Weight: 1}))
	step(topology.Activate(now, map[string]string{"c4": "run c4"}))
	step(topology.MarkDown(now, []string{"c4"}))
	step(topology.Rejoin(now, []string{"c4"}))
	return all
}

func TestNextStepOfAKeeper(t *testing.T) {
	const hold = 2 * time.Second
	at := lives(t)
	view := func(epoch uint64, p shard.Phase, from uint64) shard.View {
		return shard.View{Epoch: epoch, Phase: p, From: from}
	}
	to := func(epoch uint64, p shard.Phase, given bool) move {
		m := move{step: stepAdvance, view: shard.View{Epoch: epoch, Phase: p}}
		if given {
			m.t = at[epoch]
		}
		return m
	}
	for _, c := range []struct {
		name    string
		view    shard.View
		seen    time.Duration
		now     uint64
		heard   bool
		carried bool
		want    move
	}{
		{"never heard", shard.View{}, time.Hour, 4, true, false, move{step: stepInstall}},
		{"as it should be", view(4, shard.Done, 3), time.Hour, 4, true, false, move{}},
		{"ahead, its topology is not known", view(9, shard.Done, 4), 0, 4, true, false, move{step: stepLearn}},
		{"ahead and changing", view(9, shard.Preparing, 4), time.Hour, 4, true, false, move{step: stepLearn}},

		{"its rows stay", view(2, shard.Done, 1), 0, 3, true, false, to(3, shard.Done, true)},
		{"its rows stay: the others have not heard yet", view(2, shard.Done, 1), 0, 3, false, false, move{look: gracePause}},
		{"rows change: the others have not heard yet", view(3, shard.Done, 2), 0, 4, false, false, move{look: gracePause}},
		{"rows change", view(3, shard.Done, 2), 0, 4, true, false, to(4, shard.Preparing, true)},
		{"behind one that moves nothing and one that does", view(2, shard.Done, 1), 0, 4, true, false, to(4, shard.Preparing, true)},
		{"far behind", view(1, shard.Done, 0), 0, 4, true, false, to(4, shard.Preparing, true)},
		{"the one between needs a server that was lost", view(3, shard.Done, 2), 0, 5, true, false, to(5, shard.Preparing, true)},

		{"preparing, too early to carry", view(4, shard.Preparing, 3), carriesAfter(hold) - 1, 4, true, false, move{look: 1}},
		{"preparing, for long enough to carry", view(4, shard.Preparing, 3), carriesAfter(hold), 4, true, false, move{step: stepCarry}},
		{"preparing, held, not carried yet", view(4, shard.Preparing, 3), time.Hour, 4, true, false, move{step: stepCarry}},
		{"preparing, carried, not held yet", view(4, shard.Preparing, 3), hold - 1, 4, true, true, move{look: 1}},
		{"preparing, held and carried", view(4, shard.Preparing, 3), hold, 4, true, true, to(4, shard.Active, false)},
		{"preparing, former copies are lost, not held yet", view(2, shard.Preparing, 1), hold - 1, 2, true, false, move{look: 1}},
		{"preparing, held, former copies are lost", view(2, shard.Preparing, 1), hold, 2, true, false, to(2, shard.Done, false)},
		{"preparing, some former copies counted long ago", view(4, shard.Preparing, 1), carriesAfter(hold), 4, true, false, move{step: stepCarry}},
		{"preparing, held, no former copy ever counted here", view(4, shard.Preparing, 0), hold, 4, true, false, to(4, shard.Done, false)},
		{"active: carry from the start", view(4, shard.Active, 3), 0, 4, true, false, move{step: stepCarry}},
		{"active, held: not before they are closed", view(4, shard.Active, 3), time.Hour, 4, true, false, move{step: stepCarry}},
		{"active, carried and closed by another keeper, not held yet", view(4, shard.Active, 3), hold - 1, 4, true, true, move{look: 1}},
		{"active, held, carried and closed", view(4, shard.Active, 3), hold, 4, true, true, to(4, shard.Done, false)},

		{"behind, but its own change first", view(2, shard.Preparing, 1), 0, 3, true, false, move{look: hold}},
		{"behind, its own phase held", view(2, shard.Preparing, 1), hold, 3, true, false, to(2, shard.Done, false)},
		{"a server is lost while preparing", view(4, shard.Preparing, 3), 0, 5, false, false, to(5, shard.Preparing, true)},
		{"a server is lost while active", view(4, shard.Active, 3), 0, 6, false, false, to(6, shard.Preparing, true)},
		{"after that", view(5, shard.Preparing, 3), hold, 5, true, false, to(5, shard.Done, false)},
	} {
		s := sight{view: c.view, seen: c.seen, carried: c.carried, by: at[c.view.Epoch], now: at[c.now], heard: c.heard}
		if got := nextStep(s, hold); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	for _, c := range []struct {
		from, now uint64
		known     time.Duration
		waits     bool
	}{
		{2, 3, hold/8 - 1, true}, {2, 3, hold / 8, false}, // its rows stay
		{3, 4, graceFor - 1, true}, {3, 4, graceFor, false},
	} {
		s := sight{view: view(c.from, shard.Done, 1), by: at[c.from], now: at[c.now], known: c.known}
		if got := nextStep(s, hold); (got == move{look: gracePause}) != c.waits {
			t.Errorf("from %d to %d, known for %v: %+v", c.from, c.now, c.known, got)
		}
	}
	for _, viewTTL := range []time.Duration{100 * time.Millisecond, time.Second, time.Minute} {
		if after, hold := carriesAfter(holdFor(viewTTL)), holdFor(viewTTL); after <= viewTTL*9/8 || after >= hold {
			t.Errorf("with views that hold for %v entries are carried after %v of %v", viewTTL, after, hold)
		}
	}
}
