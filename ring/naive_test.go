package ring

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// naiveAssign is the twin of assign: sort all pairs of a free vnode and a server by cost, then give each pair its way in turn if the vnode
// is still free and the server has room.
func naiveAssign(table []uint16, b *bidders, capacity []int) []uint16 {
	type pair struct {
		bid   bid
		vnode uint16
		at    int
	}
	var pairs []pair
	for v, owner := range table {
		if owner != None {
			continue
		}
		for i := range b.list {
			n := &b.list[i]
			rank := plainFeistel(n.identity, uint16(v))
			pairs = append(pairs, pair{b.bid(n, rank, vnodeMix(uint16(v))), uint16(v), i})
		}
	}
	slices.SortFunc(pairs, func(x, y pair) int {
		switch {
		case x.bid.before(y.bid):
			return -1
		case y.bid.before(x.bid):
			return 1
		default:
			return int(x.vnode) - int(y.vnode)
		}
	})
	out := slices.Clone(table)
	room := slices.Clone(capacity)
	for _, p := range pairs {
		if out[p.vnode] == None && room[p.at] > 0 {
			out[p.vnode] = p.bid.node
			room[p.at]--
		}
	}
	return out
}

// TestPlaceAsNaive (P1, I1): deferred acceptance finds what sorting everything finds.
func TestPlaceAsNaive(t *testing.T) {
	t.Parallel()
	caps := []int{0, 1_000, 20_000, 50_000}
	for c := range twinCases {
		rng := rand.New(rand.NewPCG(uint64(c), 7))
		nodes := make([]Node, 1+rng.IntN(8))
		for i := range nodes {
			nodes[i] = Node{Name: fmt.Sprintf("n%d-%d", c, rng.Uint32()), Weight: rng.Uint32N(6)}
		}
		params := DefaultParams()
		params.CapPPM = caps[c%len(caps)]
		got := mustPlace(t, nodes, params)

		inOrder, err := sorted(nodes)
		if err != nil {
			t.Fatal(err)
		}
		b := newBidders(inOrder, CacheSalt)
		capacity := make([]int, len(b.list))
		for i, n := range b.list {
			capacity[i] = loadCap(n.weight, totalWeight(nodes), params.CapPPM)
		}
		want := naiveAssign(emptyTable(), b, capacity)
		if d := Diff(want, got.Table()); d.Moved != 0 {
			t.Errorf("case %d: %v, cap %d: %d vnodes differ: %v", c, nodes, params.CapPPM, d.Moved, d.Flows)
		}
	}
}

// TestAssignAsNaiveWhenCrowded tries what a fleet's own caps never cause: rooms that have nothing to do with the weights and are too few.
func TestAssignAsNaiveWhenCrowded(t *testing.T) {
	t.Parallel()
	for c := range twinCases {
		rng := rand.New(rand.NewPCG(uint64(c), 8))
		b := newBidders(weighted(fmt.Sprint("crowd", c), 2+rng.IntN(8), 3), ShardSalt)
		table := emptyTable()
		for v := range table {
			if rng.IntN(8) > 0 {
				table[v] = 0
			}
		}
		capacity := make([]int, len(b.list))
		for i := range capacity {
			capacity[i] = rng.IntN(2_000)
		}
		want := naiveAssign(table, b, capacity)
		b.assign(table, capacity)
		if d := Diff(want, table); d.Moved != 0 {
			t.Errorf("case %d: %d vnodes differ: %v", c, d.Moved, d.Flows)
		}
	}
}
