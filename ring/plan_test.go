package ring

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// checkPlan (P2) holds a plan against what the planner promises, computed another way.
func checkPlan(t *testing.T, before, after []uint16, nodes []Node) {
	t.Helper()
	n := len(nodes)
	held, holds := Counts(before, n), Counts(after, n)
	necessary := 0
	for i, node := range nodes {
		necessary += max(0, holds[i]-held[i])
		fair := float64(Vnodes) * float64(node.Weight) / float64(totalWeight(nodes))
		if off := float64(holds[i]) - fair; off >= 1 || off <= -1 {
			t.Fatalf("%s holds %d vnodes, its fair share is %.2f", node.Name, holds[i], fair)
		}
	}
	if want := leastMoves(held, nodes); necessary != want {
		t.Fatalf("the targets ask for %d moves, %d would do", necessary, want)
	}
	moved := 0
	for v := range Vnodes {
		was, is := before[v], after[v]
		if is == None {
			t.Fatalf("vnode %d has no owner", v)
		}
		if was == is {
			continue
		}
		moved++
		if holds[is] < held[is] {
			t.Fatalf("vnode %d went to %s, which has to give", v, nodes[is].Name)
		}
	}
	if moved != necessary {
		t.Fatalf("%d moved, %d necessary", moved, necessary)
	}
}

// leastMoves returns the least sum of max(0, target - held) over all ways to round the fair shares by largest remainder. Within a group
// of equal remainders it does not matter who gets the spare vnodes but for how many already have them.
func leastMoves(held []int, nodes []Node) int {
	total := totalWeight(nodes)
	left := Vnodes
	groups := make(map[uint64][]int) // remainder -> what receiving a spare vnode costs each node: 0 or 1
	moves := 0
	for i, n := range nodes {
		floor := int(uint64(n.Weight) * Vnodes / total)
		left -= floor
		moves += max(0, floor-held[i])
		cost := 1
		if held[i] > floor {
			cost = 0
		}
		remainder := uint64(n.Weight) * Vnodes % total
		groups[remainder] = append(groups[remainder], cost)
	}
	var remainders []uint64
	for r := range groups {
		remainders = append(remainders, r)
	}
	slices.Sort(remainders)
	slices.Reverse(remainders)
	for _, r := range remainders {
		slices.Sort(groups[r])
		for _, cost := range groups[r] {
			if left > 0 {
				moves += cost
				left--
			}
		}
	}
	return moves
}

// fleetOf makes a sorted list of nodes from weights by name.
func fleetOf(t *testing.T, weights map[string]uint32) []Node {
	t.Helper()
	var nodes []Node
	for name, w := range weights {
		nodes = append(nodes, Node{Name: name, Weight: w})
	}
	nodes, err := sorted(nodes)
	if err != nil {
		t.Fatal(err)
	}
	return nodes
}

// TestPlanOverTime follows one table through random joins, leaves, drains and new weights: each plan is balanced and moves no more
// than it must.
func TestPlanOverTime(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(11, 12))
	weights := map[string]uint32{"s0": 1}
	nodes := fleetOf(t, weights)
	table := mustPlan(t, nil, nodes)
	checkPlan(t, emptyTable(), table, nodes)
	moved := 0
	for step := range planSteps {
		name := nodes[rng.IntN(len(nodes))].Name
		switch {
		case len(nodes) < 3 || len(nodes) < 24 && rng.IntN(2) == 0:
			weights[fmt.Sprintf("s%d", rng.Uint32())] = 1 + rng.Uint32N(4)
		case rng.IntN(3) == 0:
			delete(weights, name)
		default:
			weights[name] = rng.Uint32N(5)
		}
		next := fleetOf(t, weights)
		if totalWeight(next) == 0 {
			weights[name] = 1
			next = fleetOf(t, weights)
		}
		before := mustReindex(t, table, names(nodes), names(next))
		rng.Shuffle(len(next), func(i, j int) { next[i], next[j] = next[j], next[i] })
		after := mustPlan(t, before, next)
		next = fleetOf(t, weights)
		checkPlan(t, before, after, next)
		if d := Diff(after, mustPlan(t, after, next)); d.Moved != 0 {
			t.Fatalf("step %d: planning a finished plan moves %d more", step, d.Moved)
		}
		moved += Diff(before, after).Moved
		nodes, table = next, after
	}
	t.Logf("%d steps moved %d vnodes, none of them needlessly", planSteps, moved)
}

// TestPlanMeansAffinity: donors keep the vnodes they like best, and receivers get what a sort of all pairs gives them.
func TestPlanMeansAffinity(t *testing.T) {
	t.Parallel()
	nodes := weighted("affinity", 5, 3)
	before := mustPlan(t, nil, nodes)
	grown := slices.Clone(nodes)
	grown = append(grown, Node{"affinity-8", 2}, Node{"affinity-9", 1})
	after := mustPlan(t, before, grown)
	checkPlan(t, before, after, grown)

	b := newBidders(grown, ShardSalt)
	cost := func(i, v int) uint64 {
		return b.bid(&b.list[i], b.list[i].rank.at(uint16(v)), vnodeMix(uint16(v))).cost
	}
	released := emptyTable()
	for i := range nodes {
		dearestKept, cheapestGiven := uint64(0), ^uint64(0)
		for v := range Vnodes {
			switch {
			case before[v] != uint16(i):
			case after[v] == uint16(i):
				dearestKept = max(dearestKept, cost(i, v))
				released[v] = uint16(i)
			default:
				cheapestGiven = min(cheapestGiven, cost(i, v))
			}
		}
		if dearestKept >= cheapestGiven {
			t.Errorf("%s gave away a vnode that it likes better than one it kept", nodes[i].Name)
		}
	}
	held, holds := Counts(before, len(grown)), Counts(after, len(grown))
	room := make([]int, len(grown))
	for i := range room {
		room[i] = max(0, holds[i]-held[i])
	}
	if d := Diff(naiveAssign(released, b, room), after); d.Moved != 0 {
		t.Errorf("%d vnodes went elsewhere than by a sort of all pairs", d.Moved)
	}
}

func TestPlanKeepsTheSpareVnodes(t *testing.T) {
	nodes := []Node{{"a", 1}, {"b", 1}, {"c", 1}} // 21845 each and one to spare
	table := emptyTable()
	for v := range table {
		table[v] = uint16(v % 3) // a has the spare one
	}
	for range 3 {
		if d := Diff(table, mustPlan(t, table, nodes)); d.Moved != 0 {
			t.Fatalf("a balanced table was changed: %v", d.Flows)
		}
		for v := range table { // the spare one goes to the next: any of the three may keep it
			table[v] = (table[v] + 1) % 3
		}
	}
}

func TestPlanDrains(t *testing.T) {
	t.Parallel()
	nodes := fleet("drain", 4)
	before := mustPlan(t, nil, nodes)
	nodes[2].Weight = 0
	after := mustPlan(t, before, nodes)
	checkPlan(t, before, after, nodes)
	for _, f := range Diff(before, after).Flows {
		if f.From != 2 {
			t.Errorf("%d vnodes of a shard that stays went from %d to %d", f.Vnodes, f.From, f.To)
		}
	}
	nodes = []Node{{"last", 1}, {"old", 0}}
	for _, owner := range mustPlan(t, nil, nodes) {
		if owner != 0 {
			t.Fatal("the only shard with a weight does not own everything")
		}
	}
}

func TestTargets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.OneOf(rapid.Uint32Range(0, 4), rapid.Uint32()), 1, 40).Draw(t, "weights")
		nodes := make([]Node, len(weights))
		held := make([]int, len(weights))
		for i, w := range weights {
			nodes[i] = Node{Name: fmt.Sprintf("%02d", i), Weight: w}
			held[i] = rapid.IntRange(0, 2*Vnodes/len(weights)).Draw(t, "held")
		}
		total := totalWeight(nodes)
		if total == 0 {
			return
		}
		sum, moves := 0, 0
		for i, n := range targets(nodes, held) {
			sum += n
			moves += max(0, n-held[i])
			if over := uint64(n)*total - uint64(weights[i])*Vnodes; int64(over) >= int64(total) || int64(over) <= -int64(total) {
				t.Fatalf("target %d of %d is a whole vnode off", n, i)
			}
			if weights[i] == 0 && n != 0 {
				t.Fatalf("weight 0 has target %d", n)
			}
		}
		if sum != Vnodes {
			t.Fatalf("targets add up to %d", sum)
		}
		if want := leastMoves(held, nodes); moves != want {
			t.Fatalf("targets need %d moves, %d would do", moves, want)
		}
	})
}

func TestPlanRefuses(t *testing.T) {
	valid := fleet("valid", 2)
	foreign := emptyTable()
	foreign[77] = 2
	for _, c := range []struct {
		what    string
		current []uint16
		nodes   []Node
		want    string
	}{
		{"nobody", nil, nil, "no shard has a weight"},
		{"nobody with a weight", nil, []Node{{"a", 0}}, "no shard has a weight"},
		{"empty name", nil, []Node{{"", 1}}, "empty name"},
		{"repeated name", nil, []Node{{"a", 1}, {"a", 1}}, `"a"`},
		{"short table", make([]uint16, 5), valid, "5 entries instead of 65536"},
		{"foreign index", foreign, valid, "vnode 77 belongs to shard number 2"},
	} {
		table, err := PlanShards(c.current, c.nodes, ShardSalt)
		if err == nil || table != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", c.what, err, c.want)
		}
	}
}

func TestPlanLeavesItsArgumentAlone(t *testing.T) {
	t.Parallel()
	nodes := fleet("argument", 3)
	current := mustPlan(t, nil, nodes[:2])
	given := slices.Clone(current)
	mustPlan(t, current, nodes)
	if !slices.Equal(current, given) {
		t.Error("PlanShards changed the current table")
	}
}
