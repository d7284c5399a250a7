//go:build !race

package ring

import (
	"fmt"
	"slices"
	"testing"
)

// TestFiguresOfAThousand: with 65 vnodes a server, balance still holds (I2), while what moves is no longer the least: a full server lets go of a vnode
// whenever somebody who likes it better comes. The bounds are what was measured, with room; docs/ARCHITECTURE.md says where the ring is at home.
func TestFiguresOfAThousand(t *testing.T) {
	t.Parallel()
	for _, most := range []uint32{1, 4} {
		t.Run(fmt.Sprintf("weights 1 to %d", most), func(t *testing.T) {
			t.Parallel()
			set := fmt.Sprintf("thousand%d", most)
			nodes := weighted(set, 1000, most)
			p := mustPlace(t, nodes, DefaultParams())
			total := totalWeight(nodes)
			for i, n := range p.Counts() {
				if limit := loadCap(uint64(nodes[i].Weight), total, 50_000); n > limit {
					t.Errorf("%s owns %d vnodes, its cap is %d", p.Names()[i], n, limit)
				}
			}
			if slices.Contains(p.Table(), None) {
				t.Error("a vnode has no owner")
			}
			for kind, c := range changes(t, set, 1000, most) {
				t.Logf("%s: moved %.3f of the least, between servers that stay %.3f", kind, c.moved, c.collateral)
				if c.moved > 1.6 || c.collateral > 0.6 {
					t.Errorf("%s: moved %.3f, collateral %.3f", kind, c.moved, c.collateral)
				}
			}
		})
	}
}
