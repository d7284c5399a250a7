package topology

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"ringside/ring"
)

// fleetOf is a cluster of n cache servers c1, c2, ... of weight 1, all met.
func fleetOf(t *testing.T, n int) *Topology {
	t.Helper()
	var caches []Cache
	for i := 1; i <= n; i++ {
		caches = append(caches, Cache{Name: fmt.Sprintf("c%d", i), Addr: fmt.Sprintf("127.0.0.1:%d", i), Weight: 1, RunID: fmt.Sprintf("r%d", i), Gen: 1})
	}
	topo, err := Bootstrap(caches, nil)
	if err != nil {
		t.Fatal(err)
	}
	return topo
}

// must is for changes that are not to be refused.
func must(t *testing.T) func(*Topology, error) *Topology {
	return func(topo *Topology, err error) *Topology {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return topo
	}
}

// finished is t with all that it hands over carried out.
func finished(t *testing.T, topo *Topology) *Topology {
	t.Helper()
	done := must(t)(Finish(topo, topo.Handovers, true))
	if done.Changing() {
		t.Fatal("still changing")
	}
	return done
}

func stateOf(topo *Topology, name string) State {
	if i := topo.CacheIndex(name); i >= 0 {
		return topo.Caches[i].State
	}
	return "gone"
}

// TestLifeOfACacheServer is the state machine as a table: what each change does to a server in each state.
func TestLifeOfACacheServer(t *testing.T) {
	ready := map[string]string{"c1": "new"}
	changes := map[string]func(*Topology) (*Topology, error){
		"add": func(t *Topology) (*Topology, error) {
			return AddCache(t, Cache{Name: "c1", Addr: "127.0.0.1:1", Weight: 1})
		},
		"activate": func(t *Topology) (*Topology, error) { return Activate(t, ready) },
		"drain":    func(t *Topology) (*Topology, error) { return DrainCache(t, "c1") },
		"weigh 2":  func(t *Topology) (*Topology, error) { return WeighCache(t, "c1", 2) },
		"remove":   func(t *Topology) (*Topology, error) { return RemoveCache(t, "c1") },
		"down":     func(t *Topology) (*Topology, error) { return MarkDown(t, []string{"c1"}) },
		"rejoin":   func(t *Topology) (*Topology, error) { return Rejoin(t, []string{"c1"}) },
		"restart":  func(t *Topology) (*Topology, error) { return AdoptRuns(t, ready) },
	}
	const refused, same = "refused", "same"
	for from, want := range map[State]map[string]string{
		"gone":   {"add": "joining", "activate": refused, "drain": refused, "weigh 2": refused, "remove": refused, "down": refused, "rejoin": refused, "restart": refused},
		Joining:  {"add": refused, "activate": "active", "drain": refused, "weigh 2": "joining", "remove": "gone", "down": same, "rejoin": same, "restart": same},
		Active:   {"add": refused, "activate": refused, "drain": "draining", "weigh 2": "active", "remove": refused, "down": "down", "rejoin": same, "restart": "active"},
		Draining: {"add": refused, "activate": refused, "drain": same, "weigh 2": "active", "remove": "gone", "down": "draining", "rejoin": same, "restart": same},
		Down:     {"add": refused, "activate": refused, "drain": "draining", "weigh 2": "down", "remove": "gone", "down": same, "rejoin": "joining", "restart": same},
	} {
		if len(want) != len(changes) {
			t.Fatalf("%s: %d of %d changes", from, len(want), len(changes))
		}
		for change, want := range want {
			topo := fleetOf(t, 4)
			switch from {
			case "gone":
				topo = finished(t, must(t)(DrainCache(topo, "c1")))
				topo = must(t)(RemoveCache(topo, "c1"))
			case Joining:
				topo = finished(t, must(t)(MarkDown(topo, []string{"c1"})))
				topo = must(t)(Rejoin(topo, []string{"c1"}))
			case Draining:
				topo = finished(t, must(t)(DrainCache(topo, "c1")))
			case Down:
				topo = finished(t, must(t)(MarkDown(topo, []string{"c1"})))
			}
			if got := stateOf(topo, "c1"); got != from {
				t.Fatalf("the preparation made it %s, not %s", got, from)
			}
			next, err := changes[change](topo)
			_, isRefusal := errors.AsType[*Refusal](err)
			switch {
			case want == refused:
				if !isRefusal {
					t.Errorf("%s, %s: %v", from, change, err)
				}
			case err != nil:
				t.Errorf("%s, %s: %v", from, change, err)
			case want == same:
				if next != topo {
					t.Errorf("%s, %s: something was changed", from, change)
				}
			case string(stateOf(next, "c1")) != want || next.Epoch != topo.Epoch+1:
				t.Errorf("%s, %s: %s at epoch %d", from, change, stateOf(next, "c1"), next.Epoch)
			}
		}
	}
}

func TestWhatMakesNoSenseIsRefused(t *testing.T) {
	topo := fleetOf(t, 2)
	one := finished(t, must(t)(DrainCache(topo, "c1")))
	changing := must(t)(DrainCache(fleetOf(t, 3), "c1"))
	joining := must(t)(AddCache(topo, Cache{Name: "c9", Addr: "127.0.0.1:9", Weight: 1}))
	weighing := must(t)(WeighCache(fleetOf(t, 3), "c1", 0))
	if removed := must(t)(RemoveCache(finished(t, weighing), "c1")); len(removed.Caches) != 2 || removed.Changing() {
		t.Errorf("a server of weight 0 was removed: %v", removed.Caches)
	}
	for _, c := range []struct {
		do      func() (*Topology, error)
		unknown bool
		says    string
	}{
		{func() (*Topology, error) { return AddCache(topo, Cache{Name: "c1", Addr: "127.0.0.1:9"}) }, false, "there is a cache server c1 already (active, at 127.0.0.1:1)"},
		{func() (*Topology, error) { return AddCache(topo, Cache{Name: "c9", Addr: "127.0.0.1:1"}) }, false, "cache server c1 has the address 127.0.0.1:1 already"},
		{func() (*Topology, error) { return AddCache(topo, Cache{Name: "c9"}) }, false, "needs a name and an address"},
		{func() (*Topology, error) { return DrainCache(topo, "c9") }, true, "there is no cache server c9"},
		{func() (*Topology, error) { return DrainCache(one, "c2") }, false, "c2 is the last one that owns anything"},
		{func() (*Topology, error) { return WeighCache(one, "c2", 0) }, false, "c2 is the last one that owns anything"},
		{func() (*Topology, error) { return RemoveCache(topo, "c1") }, false, "c1 is active: drain it first"},
		{func() (*Topology, error) { return RemoveCache(changing, "c1") }, false, "keys are being carried over from c1"},
		{func() (*Topology, error) { return RemoveCache(changing, "c2") }, false,
			"c2 is active: drain it first; but another change is still being carried out (keys are being carried over from c1): wait until it is done"},
		{func() (*Topology, error) { return RemoveCache(weighing, "c1") }, false, "keys are being carried over from c1"},
		{func() (*Topology, error) { return DrainCache(changing, "c2") }, false, "another change is still being carried out"},
		{func() (*Topology, error) { return WeighCache(changing, "c2", 3) }, false, "another change is still being carried out"},
		{func() (*Topology, error) { return Activate(joining, map[string]string{"c9": ""}) }, false, "c9: empty run_id"},
	} {
		_, err := c.do()
		refusal, ok := errors.AsType[*Refusal](err)
		if !ok || refusal.Unknown != c.unknown || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want one that says %q", err, c.says)
		}
	}
}

// TestAPlannedChangeSaysWhatItReplaces: generations rise where the owner changes and nowhere else, and who loses a vnode hands it over.
func TestAPlannedChangeSaysWhatItReplaces(t *testing.T) {
	before := fleetOf(t, 3)
	joining := must(t)(AddCache(before, Cache{Name: "c4", Addr: "127.0.0.1:4", Weight: 1}))
	if joining.Changing() || !slices.Equal(joining.CacheTable(), before.CacheTable()) || joining.ChangesRows(before.Epoch) {
		t.Fatal("a server that is joining has changed something")
	}
	after := must(t)(Activate(joining, map[string]string{"c4": "r4"}))
	if after.FormerEpoch() != joining.Epoch || len(after.Handovers) != 3 || !after.HandsOver(joining.Epoch) || !after.ChangesRows(joining.Epoch) {
		t.Fatalf("former %d, hand-overs %v", after.FormerEpoch(), after.Handovers)
	}
	if got := after.FormerOwners(joining.Epoch); !slices.Equal(got, []string{"c1", "c2", "c3"}) && len(got) != 3 {
		t.Errorf("former owners %v", got)
	}
	moved := 0
	for v := range ring.Vnodes {
		v := uint16(v)
		was, is := joining.ownerName(v), after.ownerName(v)
		h := after.HandoverOf(v)
		switch {
		case was == is:
			if h >= 0 || after.Generation(v) != joining.Generation(v) || after.Lost(v) {
				t.Fatalf("vnode %d stays and is handed over", v)
			}
		default:
			moved++
			if is != "c4" || h < 0 || after.Handovers[h] != (Handover{From: was, RunID: "r" + was[1:], Since: after.Epoch}) || after.Generation(v) != after.Epoch || after.Lost(v) {
				t.Fatalf("vnode %d from %s to %s: hand-over %d, generation %d", v, was, is, h, after.Generation(v))
			}
		}
	}
	if share := ring.Share(moved); share < 0.24 || share > 0.26 {
		t.Errorf("%.3f moved", share)
	}
	again, err := Decode(after.Encode())
	if err != nil || again.Digest() != after.Digest() || again.FormerEpoch() != after.FormerEpoch() || len(again.Handovers) != 3 {
		t.Errorf("it does not survive its encoding: %v", err)
	}

	part := must(t)(Finish(after, after.Handovers[:1], true))
	if len(part.Handovers) != 2 || part.FormerEpoch() == 0 || part.ChangesRows(after.Epoch) {
		t.Errorf("one hand-over of three: %v left", part.Handovers)
	}
	done := finished(t, part)
	if done.ChangesRows(after.Epoch) || !slices.Equal(done.CacheTable(), after.CacheTable()) {
		t.Error("finishing changed who owns what")
	}

	// Add and drain: the placement is exactly the former one (P1), under a new generation where it had changed.
	back := finished(t, must(t)(DrainCache(done, "c4")))
	back = must(t)(RemoveCache(back, "c4"))
	if !slices.Equal(back.CacheTable(), before.CacheTable()) {
		t.Error("after add and drain the placement is another one")
	}
	for v := range ring.Vnodes {
		v := uint16(v)
		if came := after.ownerName(v) == "c4"; came != (back.Generation(v) > after.Epoch) {
			t.Fatalf("vnode %d: generation %d", v, back.Generation(v))
		}
	}
}

func TestWhatIsDownHandsNothingOver(t *testing.T) {
	before := fleetOf(t, 4)
	after := must(t)(MarkDown(before, []string{"c2"}))
	if after.HandsOver(before.Epoch) || !after.ChangesRows(before.Epoch) || len(after.Handovers) != 0 || !after.Changing() {
		t.Fatalf("hand-overs %v", after.Handovers)
	}
	for v := range ring.Vnodes {
		v := uint16(v)
		if lost := before.ownerName(v) == "c2"; after.Lost(v) != lost {
			t.Fatalf("vnode %d: lost is %v", v, after.Lost(v))
		}
	}

	// Never more than half of the weight.
	two := must(t)(MarkDown(before, []string{"c4", "c1", "c3"}))
	if stateOf(two, "c1") != Down || stateOf(two, "c3") != Down || stateOf(two, "c4") != Active {
		t.Errorf("of three of four: %v", two.Caches)
	}
	if more := must(t)(MarkDown(two, []string{"c2", "c4"})); more != two {
		t.Error("more than half is down")
	}

	// It comes back as one that joins, and takes its vnodes over from those who had them meanwhile.
	back := must(t)(Rejoin(finished(t, after), []string{"c2"}))
	back = must(t)(Activate(back, map[string]string{"c2": "r2"}))
	if !slices.Equal(back.CacheTable(), before.CacheTable()) || len(back.Handovers) != 3 {
		t.Errorf("hand-overs %v", back.Handovers)
	}
	for v := range ring.Vnodes {
		if v := uint16(v); back.ownerName(v) == "c2" && back.Generation(v) != back.Epoch {
			t.Fatalf("vnode %d came back under generation %d", v, back.Generation(v))
		}
	}
}

// TestADownInTheMiddleOfAHandOver: what the dead server had to hand over is lost, what others have is not.
func TestADownInTheMiddleOfAHandOver(t *testing.T) {
	joining := must(t)(AddCache(fleetOf(t, 4), Cache{Name: "c5", Addr: "127.0.0.1:5", Weight: 1}))
	active := must(t)(Activate(joining, map[string]string{"c5": "r5"}))
	after := must(t)(MarkDown(active, []string{"c1"}))
	for _, h := range after.Handovers {
		if h.From == "c1" {
			t.Error("the dead server hands over")
		}
		if h.Since != active.Epoch {
			t.Errorf("a hand-over from %s began anew", h.From)
		}
	}
	if len(after.Handovers) != 3 || after.FormerEpoch() != active.Epoch {
		t.Errorf("%v, former %d", after.Handovers, after.FormerEpoch())
	}
	for v := range ring.Vnodes {
		v := uint16(v)
		n := active.HandoverOf(v)
		if n < 0 || active.Handovers[n].From == "c1" {
			continue
		}
		if m := after.HandoverOf(v); m < 0 || after.Handovers[m] != active.Handovers[n] {
			t.Fatalf("vnode %d: hand-over %d", v, m)
		}
	}
	// The one that they are handed to dies: they go on to whoever owns them now, or stay where they are.
	after = must(t)(MarkDown(active, []string{"c5"}))
	for v := range ring.Vnodes {
		v := uint16(v)
		n, m := active.HandoverOf(v), after.HandoverOf(v)
		if n < 0 {
			continue
		}
		from := active.Handovers[n].From
		if home := after.ownerName(v) == from; home != (m < 0) {
			t.Fatalf("vnode %d of %s is owned by %s, hand-over %d", v, from, after.ownerName(v), m)
		}
	}
}

func TestARestartedServerHandsNothingOver(t *testing.T) {
	active := must(t)(DrainCache(fleetOf(t, 3), "c1"))
	next := must(t)(AdoptRuns(active, map[string]string{"c2": "again"}))
	if len(next.Handovers) != 1 || next.FormerEpoch() != active.Epoch || next.HandsOver(active.Epoch) {
		t.Errorf("%v, former %d", next.Handovers, next.FormerEpoch())
	}
	for v := range ring.Vnodes {
		if v := uint16(v); next.ownerName(v) == "c2" && (next.Generation(v) != next.Epoch || next.Lost(v)) {
			t.Fatalf("vnode %d: generation %d, lost %v", v, next.Generation(v), next.Lost(v))
		}
	}
}

func TestLostHandovers(t *testing.T) {
	drain := must(t)(DrainCache(fleetOf(t, 4), "c1"))
	drained := finished(t, drain)
	again := must(t)(AddCache(fleetOf(t, 4), Cache{Name: "c5", Addr: "127.0.0.1:5", Weight: 1}))
	again = must(t)(Activate(again, map[string]string{"c5": "r5"}))
	for _, test := range []struct {
		name    string
		was, is *Topology
		want    string
	}{
		{"nothing is handed over", fleetOf(t, 4), must(t)(MarkDown(fleetOf(t, 4), []string{"c1"})), ""},
		{"it begins", fleetOf(t, 4), drain, ""},
		{"it goes on", drain, must(t)(MarkDown(drain, []string{"c2"})), ""},
		{"it is carried out", drain, drained, ""},
		{"the source goes down", drain, must(t)(MarkDown(drain, []string{"c1"})), "c1"},
		{"it went down afterwards", drained, must(t)(MarkDown(drained, []string{"c1"})), ""},
		{"it was removed, what was between was not seen", drain, must(t)(RemoveCache(drained, "c1")), "c1"},
		{"one source of several goes down", again, must(t)(MarkDown(again, []string{"c3"})), "c3"},
		{"one source of several was started anew", again, must(t)(AdoptRuns(again, map[string]string{"c2": "new"})), "c2"},
		{"one is carried out, another one is down", again, must(t)(MarkDown(must(t)(Finish(again, again.Handovers[:1], false)), []string{"c4"})), "c4"},
		{"where the keys go to goes down", again, must(t)(MarkDown(again, []string{"c5"})), ""},
	} {
		var got []string
		for _, h := range LostHandovers(test.was, test.is) {
			if !slices.Contains(test.was.Handovers, h) {
				t.Errorf("%s: %v was none", test.name, h)
			}
			got = append(got, h.From)
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: %v, want %q", test.name, got, test.want)
		}
	}
}
