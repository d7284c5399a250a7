package ring

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestLog2(t *testing.T) {
	table := newLogTable()
	for exponent := range uint64(63) {
		if got := table.log2(1 << exponent); got != exponent<<logFraction {
			t.Errorf("log2(2^%d) = %d/2^58", exponent, got)
		}
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200_000 {
		x := rng.Uint64() >> rng.IntN(64)
		if x == 0 {
			continue
		}
		got := float64(table.log2(x)) / (1 << logFraction)
		if math.Abs(got-math.Log2(float64(x))) > 1.0/(1<<26) {
			t.Fatalf("log2(%d) = %v, want %v", x, got, math.Log2(float64(x)))
		}
	}
}

// TestCostsAreDistinct: a step of the draw is always a step of the cost, so no node is ever in doubt between two vnodes (I1).
func TestCostsAreDistinct(t *testing.T) {
	table := newLogTable()
	rng := rand.New(rand.NewPCG(5, 6))
	check := func(x uint64) {
		if table.log2(x+1) <= table.log2(x) {
			t.Fatalf("log2(%d) = %d, log2(%d) = %d", x, table.log2(x), x+1, table.log2(x+1))
		}
	}
	for range 200_000 {
		check(1 + rng.Uint64()>>(64-drawBits))
	}
	for segment := range uint64(logSegments) { // where two pieces of the table meet
		check((logSegments+segment)<<(drawBits-1-logIndexBits) - 1)
	}
}

func TestPermutation(t *testing.T) {
	for _, name := range []string{"c1", "c2", "a longer name"} {
		id := identity(CacheSalt, name)
		p := newPermutation(id)
		seen := make([]bool, Vnodes)
		for v := range Vnodes {
			rank := p.at(uint16(v))
			if seen[rank] {
				t.Fatalf("%s: rank %d twice", name, rank)
			}
			seen[rank] = true
			if want := plainFeistel(id, uint16(v)); rank != want {
				t.Fatalf("%s: rank of %d is %d, want %d", name, v, rank, want)
			}
		}
	}
}

// plainFeistel is the permutation without tables.
func plainFeistel(id uint64, v uint16) uint16 {
	left, right := v>>8, v&0xff
	for round := range uint64(4) {
		left, right = right, left^uint16(mix64(id+(round*256+uint64(right))*golden)>>56)
	}
	return left<<8 | right
}

// TestFavouriteAsInFloats: fixed point picks the server that floating point picks.
func TestFavouriteAsInFloats(t *testing.T) {
	nodes := weighted("float", 20, 4)
	b := newBidders(nodes, CacheSalt)
	unbounded := make([]holding, len(nodes))
	for i := range unbounded {
		unbounded[i].capacity = Vnodes
	}
	differing := 0
	for v := 0; v < Vnodes; v += 5 {
		vnode, mix := uint16(v), vnodeMix(uint16(v))
		want, least := -1, math.Inf(1)
		for i, n := range nodes {
			id := identity(CacheSalt, n.Name)
			fill := float64(mix64(id^mix)>>32) / (1 << 32)
			u := (float64(plainFeistel(id, vnode)) + fill) / Vnodes
			if cost := -math.Log1p(-u) / float64(n.Weight); cost < least {
				want, least = i, cost
			}
		}
		if got := b.favourite(vnode, unbounded); got.at != want {
			differing++
		}
	}
	if differing > 0 {
		t.Errorf("%d vnodes go to another server than in floating point", differing)
	}
}
