package proxy

import (
	"testing"

	"ringside/ring"
)

func TestOwnerTableHoldsWhatItWasGiven(t *testing.T) {
	for _, c := range []struct{ servers, words int }{
		{0, 1024}, {1, 1024}, {2, 2048}, {3, 2048}, {4, 4096}, {15, 4096}, {16, 8192}, {255, 8192}, {256, 16384}, {ring.Vnodes - 1, 16384},
	} {
		owners := make([]uint16, ring.Vnodes)
		for v := range owners {
			owners[v] = uint16((v*7919 + v>>8) % (c.servers + 1))
			if int(owners[v]) == c.servers {
				owners[v] = ring.None
			}
		}
		table := packOwners(owners, c.servers)
		if len(table.words) != c.words {
			t.Errorf("%d servers take %d words, expected %d", c.servers, len(table.words), c.words)
		}
		for v, want := range owners {
			if got := table.owner(uint16(v)); got != want {
				t.Fatalf("of %d servers vnode %d is owned by %d, expected %d", c.servers, v, got, want)
			}
		}
	}
}

func TestOwnerTableOfNothing(t *testing.T) {
	var table ownerTable
	for v := range ring.Vnodes {
		if got := table.owner(uint16(v)); got != ring.None {
			t.Fatalf("vnode %d is owned by %d, expected nobody", v, got)
		}
	}
}
