package simulate

import (
	"cmp"
	"fmt"
	"slices"

	"ringside/ring"
)

// Change is one change of a fleet.
type Change struct {
	Name          string
	Before, After []ring.Node
}

// Fleet makes n servers; weights are given in turn and begin anew when they are used up, none means 1 for all.
func Fleet(n int, weights []uint32) []ring.Node {
	nodes := make([]ring.Node, n)
	for i := range nodes {
		nodes[i] = ring.Node{Name: fmt.Sprintf("c%0*d", len(fmt.Sprint(n)), i+1), Weight: 1}
		if len(weights) > 0 {
			nodes[i].Weight = weights[i%len(weights)]
		}
	}
	return nodes
}

// Changes are a join, a leave and a doubled weight, of a server in the middle of the list. The fleet is sorted by name, as schemes that
// count positions would have it.
func Changes(fleet []ring.Node) []Change {
	middle := len(fleet) / 2
	joined := append(slices.Clone(fleet), ring.Node{Name: fleet[middle].Name + "-new", Weight: fleet[middle].Weight})
	slices.SortFunc(joined, func(a, b ring.Node) int { return cmp.Compare(a.Name, b.Name) })
	doubled := slices.Clone(fleet)
	doubled[middle].Weight *= 2
	changes := []Change{{"join", fleet, joined}}
	if len(fleet) > 1 {
		changes = append(changes, Change{"leave", fleet, slices.Delete(slices.Clone(fleet), middle, middle+1)}, Change{"double a weight", fleet, doubled})
	}
	return changes
}

// Result is what one change does under one scheme. Shares are of all keys.
type Result struct {
	Scheme string `json:"scheme"`
	Change string `json:"change"`
	// Moved is the share of keys that have another server afterwards, Least what every scheme that ends balanced must move.
	Moved float64 `json:"moved"`
	Least float64 `json:"least"`
	// Collateral is the share of keys that moved between two servers that the change is not about.
	Collateral float64 `json:"collateral"`
	// Balance is the load of the fullest server, relative to its fair share, after the change.
	Balance float64 `json:"balance"`
}

// Compare works out one change under one scheme.
func Compare(s Scheme, c Change, keys [][]byte) (Result, error) {
	before, err := s.owners([][]ring.Node{c.Before}, keys)
	if err != nil {
		return Result{}, err
	}
	after, err := s.owners([][]ring.Node{c.Before, c.After}, keys)
	if err != nil {
		return Result{}, err
	}
	r := Result{Scheme: s.Name, Change: c.Name, Least: least(c)}
	changed := differing(c)
	load := map[string]int{}
	for i := range keys {
		load[after[i]]++
		if before[i] == after[i] {
			continue
		}
		r.Moved++
		if !changed[before[i]] && !changed[after[i]] {
			r.Collateral++
		}
	}
	n := float64(len(keys))
	r.Moved /= n
	r.Collateral /= n
	total := totalWeight(c.After)
	for _, node := range c.After {
		if node.Weight > 0 {
			r.Balance = max(r.Balance, float64(load[node.Name])/n*total/float64(node.Weight))
		}
	}
	return r, nil
}

// least is the sum of what the servers must gain.
func least(c Change) float64 {
	before, after := totalWeight(c.Before), totalWeight(c.After)
	had := map[string]float64{}
	for _, n := range c.Before {
		had[n.Name] = float64(n.Weight) / before
	}
	var sum float64
	for _, n := range c.After {
		sum += max(0, float64(n.Weight)/after-had[n.Name])
	}
	return sum
}

// differing are the servers that a change is about.
func differing(c Change) map[string]bool {
	weights := map[string]uint32{}
	for _, n := range c.Before {
		weights[n.Name] = n.Weight
	}
	out := map[string]bool{}
	for _, n := range c.After {
		if weights[n.Name] != n.Weight {
			out[n.Name] = true
		}
		delete(weights, n.Name)
	}
	for name := range weights {
		out[name] = true
	}
	return out
}

func totalWeight(nodes []ring.Node) float64 {
	var sum float64
	for _, n := range nodes {
		sum += float64(n.Weight)
	}
	return sum
}

// Keys makes n keys that look like an application's.
func Keys(n int) [][]byte {
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "user:%d", i+1)
	}
	return keys
}
