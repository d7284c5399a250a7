package ring

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// loads sums up what each node has by a table.
func loads(table []uint16, load []float64, n int) []float64 {
	out := make([]float64, n)
	for v, owner := range table {
		out[owner] += load[v]
	}
	return out
}

func changed(a, b []uint16) (n int) {
	for v := range a {
		if a[v] != b[v] {
			n++
		}
	}
	return n
}

// By load every shard gets its share of it, with few moves: those of the heaviest vnodes that fit.
func TestPlanByLoad(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	nodes := []Node{{Name: "a", Weight: 1}, {Name: "b", Weight: 1}, {Name: "c", Weight: 2}}
	current := make([]uint16, Vnodes)
	load := make([]float64, Vnodes)
	for v := range current {
		current[v] = uint16(v % 3)
		load[v] = math.Pow(random.Float64(), 8) // few are heavy
		if current[v] == 0 {
			load[v] *= 4
		}
	}
	table, err := PlanShardsByLoad(current, nodes, load, nil)
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	for _, l := range load {
		sum += l
	}
	for i, got := range loads(table, load, 3) {
		if want := sum * float64(nodes[i].Weight) / 4; math.Abs(got-want) > 0.03*want {
			t.Errorf("%s has %.0f, want %.0f", nodes[i].Name, got, want)
		}
	}
	// The excess of a, in vnodes of its mean load, would be many more.
	if n := changed(current, table); n == 0 || n > Vnodes/16 {
		t.Errorf("%d vnodes are moved", n)
	}
	again, err := PlanShardsByLoad(table, nodes, load, nil)
	if err != nil || changed(table, again) != 0 {
		t.Errorf("a plan that was carried out moves %d more: %v", changed(table, again), err)
	}
	if same, err := PlanShardsByLoad(current, nodes, load, nil); err != nil || !slices.Equal(same, table) {
		t.Error("the same input gives another plan")
	}
}

// A vnode that is heavier than all that there is to move stays, and what is beside it goes.
func TestPlanByLoadLeavesTheHottest(t *testing.T) {
	nodes := []Node{{Name: "a", Weight: 1}, {Name: "b", Weight: 1}}
	current, load := make([]uint16, Vnodes), make([]float64, Vnodes)
	for v := range current {
		current[v], load[v] = uint16(v%2), 1
	}
	load[6] = Vnodes
	table, err := PlanShardsByLoad(current, nodes, load, nil)
	if err != nil || table[6] != 0 {
		t.Fatalf("the hot vnode goes to %d: %v", table[6], err)
	}
	if n := Counts(table, 2); n[0] > 1+Vnodes/50 {
		t.Errorf("%d others stay beside it", n[0])
	}
	if got := loads(table, load, 2); math.Abs(got[0]-got[1]) > 0.05*got[0] {
		t.Errorf("%v", got)
	}
}

// What cannot be moved counts: its shard gets less of the rest.
func TestPlanByLoadCountsWhatIsFixed(t *testing.T) {
	nodes := []Node{{Name: "a", Weight: 1}, {Name: "b", Weight: 1}}
	current, load := make([]uint16, Vnodes), make([]float64, Vnodes)
	for v := range current {
		current[v], load[v] = uint16(v%2), 1
	}
	table, err := PlanShardsByLoad(current, nodes, load, []float64{Vnodes / 2, 0})
	if err != nil {
		t.Fatal(err)
	}
	if n := Counts(table, 2); math.Abs(float64(n[0])-Vnodes/4) > Vnodes/50 {
		t.Errorf("beside a fixed load of half of all a keeps %d vnodes", n[0])
	}
}

// A shard of weight 0 is emptied, whatever its vnodes' load; what nobody owns is given out.
func TestPlanByLoadDrains(t *testing.T) {
	nodes := []Node{{Name: "a", Weight: 1}, {Name: "b", Weight: 0}, {Name: "c", Weight: 1}}
	current, load := make([]uint16, Vnodes), make([]float64, Vnodes)
	for v := range current {
		current[v] = uint16(v % 3)
		if v%7 == 0 {
			load[v] = 1
		}
	}
	current[5] = None
	table, err := PlanShardsByLoad(current, nodes, load, nil)
	if err != nil {
		t.Fatal(err)
	}
	n := Counts(table, 3)
	if got := loads(table, load, 3); n[1] != 0 || n[0]+n[2] != Vnodes || math.Abs(got[0]-got[2]) > 0.05*got[0] || math.Abs(float64(n[0]-n[2])) > Vnodes/8 {
		t.Errorf("vnodes %v, load %v", n, got)
	}
}

func TestPlanByLoadRefuses(t *testing.T) {
	one := []Node{{Name: "a", Weight: 1}}
	table, load := make([]uint16, Vnodes), make([]float64, Vnodes)
	bad := slices.Clone(load)
	bad[3] = math.NaN()
	for want, give := range map[string]func() error{
		"no load was seen":           func() error { _, err := PlanShardsByLoad(table, one, load, nil); return err },
		"the load of vnode 3 is NaN": func() error { _, err := PlanShardsByLoad(table, one, bad, nil); return err },
		"loads of 2 vnodes":          func() error { _, err := PlanShardsByLoad(table, one, load[:2], nil); return err },
		"no shard has a weight":      func() error { _, err := PlanShardsByLoad(table, []Node{{Name: "a"}}, load, nil); return err },
		"the table has 1 entries":    func() error { _, err := PlanShardsByLoad(table[:1], one, load, nil); return err },
	} {
		if err := give(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
