package ring

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestPlaceIsOrderIndependent (P1): the list may come in any order and is not touched.
func TestPlaceIsOrderIndependent(t *testing.T) {
	t.Parallel()
	nodes := weighted("order", 37, 4)
	want := mustPlace(t, nodes, DefaultParams())
	rng := rand.New(rand.NewPCG(9, 10))
	for range 4 {
		rng.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
		given := slices.Clone(nodes)
		got := mustPlace(t, nodes, DefaultParams())
		if !slices.Equal(got.Names(), want.Names()) || !slices.Equal(got.Table(), want.Table()) {
			t.Fatal("another order of the list gave another placement")
		}
		if !slices.Equal(nodes, given) {
			t.Fatal("Place changed its argument")
		}
	}
}

// TestAssignIsOrderIndependent (I1): nor does the order matter in which servers bid and vnodes propose.
func TestAssignIsOrderIndependent(t *testing.T) {
	t.Parallel()
	b := newBidders(weighted("bid order", 5, 3), CacheSalt)
	capacity := make([]int, len(b.list))
	for i := range capacity {
		capacity[i] = 13_200 // hardly enough: many are refused
	}
	want := emptyTable()
	b.assign(want, capacity)

	// The servers in reverse; the vnodes' order is compared by way of the naive twin, which has none.
	slices.Reverse(b.list)
	got := emptyTable()
	b.assign(got, capacity)
	if d := Diff(want, got); d.Moved != 0 {
		t.Errorf("servers in reverse: %d vnodes differ", d.Moved)
	}
	if d := Diff(want, naiveAssign(emptyTable(), b, capacity)); d.Moved != 0 {
		t.Errorf("no order of vnodes: %d differ", d.Moved)
	}
}

func TestPlaceScalesWithWeights(t *testing.T) {
	t.Parallel()
	nodes := weighted("scale", 6, 3)
	want := mustPlace(t, nodes, DefaultParams())
	for _, factor := range []uint32{2, 1_000, 1 << 30} {
		scaled := slices.Clone(nodes)
		for i := range scaled {
			scaled[i].Weight *= factor
		}
		if got := mustPlace(t, scaled, DefaultParams()); !slices.Equal(got.Table(), want.Table()) {
			t.Errorf("weights times %d gave another placement", factor)
		}
	}
}

func TestWeightZeroTakesNothing(t *testing.T) {
	t.Parallel()
	with := []Node{{"a", 0}, {"b", 1}, {"c", 0}, {"d", 2}}
	without := []Node{{"b", 1}, {"d", 2}}
	p, q := mustPlace(t, with, DefaultParams()), mustPlace(t, without, DefaultParams())
	if !slices.Equal(p.Names(), []string{"a", "b", "c", "d"}) {
		t.Errorf("names %v", p.Names())
	}
	if p.Counts()[0] != 0 || p.Counts()[2] != 0 {
		t.Errorf("counts %v", p.Counts())
	}
	if got := mustReindex(t, p.Table(), p.Names(), q.Names()); !slices.Equal(got, q.Table()) {
		t.Error("servers of weight 0 changed what the others own")
	}
	for _, h := range p.Heirs(7, 10) {
		if h != 1 && h != 3 {
			t.Errorf("heir %d has weight 0", h)
		}
	}
}

func TestSmallFleets(t *testing.T) {
	t.Parallel()
	for _, nodes := range [][]Node{nil, {{"a", 0}}, {{"a", 0}, {"b", 0}}} {
		p := mustPlace(t, nodes, DefaultParams())
		if p.Owner(0) != None || p.Owner(65535) != None || len(p.Heirs(5, 3)) != 0 {
			t.Errorf("%v: somebody owns something", nodes)
		}
		if len(p.Counts()) != len(nodes) {
			t.Errorf("%v: counts %v", nodes, p.Counts())
		}
	}

	one := mustPlace(t, []Node{{"only", 3}}, DefaultParams())
	if one.Counts()[0] != Vnodes {
		t.Errorf("one server owns %d vnodes", one.Counts()[0])
	}
	if h := one.Heirs(9, 2); len(h) != 0 {
		t.Errorf("one server has heirs %v", h)
	}

	two := mustPlace(t, []Node{{"b", 1}, {"a", 1}}, DefaultParams())
	for v := range Vnodes {
		owner, heirs := two.Owner(uint16(v)), two.Heirs(uint16(v), 5)
		if owner > 1 || len(heirs) != 1 || heirs[0] != 1-owner {
			t.Fatalf("vnode %d: owner %d, heirs %v", v, owner, heirs)
		}
	}
	if c := two.Counts()[0]; c < 32_000 || c > 33_500 {
		t.Errorf("one of two servers owns %d vnodes", c)
	}
}

// TestThousandServers: balance holds where a server has but 65 vnodes (I2).
func TestThousandServers(t *testing.T) {
	t.Parallel()
	nodes := fleet("thousand", 1000)
	p := mustPlace(t, nodes, DefaultParams())
	for i, n := range p.Counts() {
		if n < 30 || n > 69 { // 65.536 * 1.05, rounded up
			t.Errorf("%s owns %d vnodes", p.Names()[i], n)
		}
	}
	if slices.Contains(p.Table(), None) {
		t.Error("a vnode has no owner")
	}
}

func TestHeirsAreTheOrderWithoutTheOwner(t *testing.T) {
	t.Parallel()
	nodes := weighted("heirs", 20, 4)
	p := mustPlace(t, nodes, DefaultParams())
	for v := 0; v < Vnodes; v += 97 {
		vnode := uint16(v)
		var order []bid
		for i := range p.bidders.list {
			n := &p.bidders.list[i]
			if n.node != p.Owner(vnode) {
				order = append(order, p.bidders.bid(n, n.rank.at(vnode), vnodeMix(vnode)))
			}
		}
		slices.SortFunc(order, func(a, b bid) int {
			if a.before(b) {
				return -1
			}
			return 1
		})
		for _, n := range []int{-1, 0, 1, 2, 7, 19, 20, 50} {
			heirs := p.Heirs(vnode, n)
			if len(heirs) != max(0, min(n, 19)) {
				t.Fatalf("vnode %d: %d heirs of %d asked for", v, len(heirs), n)
			}
			for i, h := range heirs {
				if h != order[i].node {
					t.Fatalf("vnode %d: heirs %v differ from the order at %d", v, heirs, i)
				}
			}
		}
	}
}

func TestLoadCap(t *testing.T) {
	for _, c := range []struct {
		weight, total uint64
		ppm, want     int
	}{
		{1, 1, 50_000, Vnodes},
		{1, 2, 0, 32_768},
		{1, 3, 0, 21_846},
		{1, 3, 50_000, 22_938}, // 22937.6
		{1, 100, 50_000, 689},  // 688.128
		{3, 4, 1_000_000, Vnodes},
		{1, 65_534, 50_000, 2},
		{1<<32 - 1, (1<<32 - 1) * 65_534, 50_000, 2},
		{1<<32 - 1, 1<<32 - 1, 1_000_000, Vnodes},
		{1, 1<<48 - 1, 1_000_000, 1},
	} {
		if got := loadCap(c.weight, c.total, c.ppm); got != c.want {
			t.Errorf("loadCap(%d, %d, %d) = %d, want %d", c.weight, c.total, c.ppm, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) { // caps suffice for all vnodes (I2)
		weights := rapid.SliceOfN(rapid.Uint32Min(1), 1, 50).Draw(t, "weights")
		ppm := rapid.IntRange(0, maxCap).Draw(t, "ppm")
		var total uint64
		for _, w := range weights {
			total += uint64(w)
		}
		sum := 0
		for _, w := range weights {
			sum += loadCap(uint64(w), total, ppm)
		}
		if sum < Vnodes {
			t.Fatalf("caps add up to %d", sum)
		}
	})
}

func TestPlaceRefuses(t *testing.T) {
	valid := []Node{{"a", 1}}
	change := func(f func(*Params)) Params {
		p := DefaultParams()
		f(&p)
		return p
	}
	for _, c := range []struct {
		what   string
		nodes  []Node
		params Params
		want   string
	}{
		{"empty name", []Node{{"a", 1}, {"", 1}}, DefaultParams(), "empty name"},
		{"repeated name", []Node{{"b", 1}, {"a", 1}, {"b", 2}}, DefaultParams(), `"b"`},
		{"too many", make([]Node, MaxNodes+1), DefaultParams(), "at most 65534"},
		{"hash", valid, change(func(p *Params) { p.Hash = "crc16" }), `"crc16"`},
		{"seed", valid, change(func(p *Params) { p.Seed = 7 }), "seed 7"},
		{"vnode bits", valid, change(func(p *Params) { p.VnodeBits = 14 }), "14 vnode bits"},
		{"negative cap", valid, change(func(p *Params) { p.CapPPM = -1 }), "-1 millionths"},
		{"huge cap", valid, change(func(p *Params) { p.CapPPM = 1_000_001 }), "0 to 1000000"},
		{"zero parameters", valid, Params{}, `""`},
	} {
		p, err := Place(c.nodes, CacheSalt, c.params)
		if err == nil || p != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", c.what, err, c.want)
		}
	}
}
