package ring

import "fmt"

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
