package ring

import (
	"fmt"
	"testing"
)

// fleet returns n servers of weight 1 whose names nobody else uses.
func fleet(set string, n int) []Node { return weighted(set, n, 1) }

// weighted returns n servers whose weights go 1, 2, ..., most, 1, 2, ...
func weighted(set string, n int, most uint32) []Node {
	nodes := make([]Node, n)
	for i := range nodes {
		nodes[i] = Node{Name: fmt.Sprintf("%s-%04d", set, i), Weight: 1 + uint32(i)%most}
	}
	return nodes
}

func mustPlace(t testing.TB, nodes []Node, p Params) *Placement {
	t.Helper()
	placement, err := Place(nodes, CacheSalt, p)
	if err != nil {
		t.Fatal(err)
	}
	return placement
}

func mustPlan(t testing.TB, current []uint16, nodes []Node) []uint16 {
	t.Helper()
	table, err := PlanShards(current, nodes, ShardSalt)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func mustReindex(t testing.TB, table []uint16, from, to []string) []uint16 {
	t.Helper()
	out, err := Reindex(table, from, to)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
