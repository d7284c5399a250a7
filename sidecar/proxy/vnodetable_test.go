package proxy

import (
	"testing"

	"ringside/ring"
)

func TestVnodeTableHoldsWhatItWasGiven(t *testing.T) {
	for _, c := range []struct{ values, words int }{
		{1, 0}, {2, 1024}, {3, 2048}, {4, 2048}, {5, 4096}, {9, 4096}, {16, 4096}, {17, 8192}, {mostValues, 8192}, {mostValues + 1, 0}, {ring.Vnodes, 0},
	} {
		of := func(v uint16) uint64 { return uint64(int(v)*7919%c.values) + 1<<40 }
		table := packVnodes(of)
		if packed := c.values <= mostValues; len(table.words) != c.words || packed && len(table.values) != c.values || packed != (table.of == nil) {
			t.Errorf("%d values, in %d words, expected %d and %d", len(table.values), len(table.words), c.values, c.words)
		}
		for v := range ring.Vnodes {
			if got, want := table.at(uint16(v)), of(uint16(v)); got != want {
				t.Fatalf("of %d values, that of vnode %d is %d, expected %d", c.values, v, got, want)
			}
		}
	}
}

func BenchmarkPackVnodes(b *testing.B) {
	for _, n := range []uint16{3, mostValues} {
		b.Run(map[uint16]string{3: "few", mostValues: "many"}[n], func(b *testing.B) {
			for b.Loop() {
				packVnodes(func(v uint16) uint16 { return v * 7919 % n })
			}
		})
	}
}
