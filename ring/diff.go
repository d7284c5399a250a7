package ring

import (
	"cmp"
	"fmt"
	"slices"
)

// Flow says how many vnodes go from one server to another. Either end may be None.
type Flow struct {
	From, To uint16
	Vnodes   int
}

// Delta is what differs between two tables.
type Delta struct {
	Moved int    // vnodes whose entry differs
	Flows []Flow // who loses to whom, ordered by From, then To
}

// Diff compares two tables whose indexes mean the same servers; Reindex makes them so. Where one table ends early, nobody owns the rest.
func Diff(before, after []uint16) Delta {
	type ends struct{ from, to uint16 }
	flows := make(map[ends]int)
	var d Delta
	for v := range max(len(before), len(after)) {
		e := ends{from: None, to: None}
		if v < len(before) {
			e.from = before[v]
		}
		if v < len(after) {
			e.to = after[v]
		}
		if e.from != e.to {
			d.Moved++
			flows[e]++
		}
	}
	for e, n := range flows {
		d.Flows = append(d.Flows, Flow{From: e.from, To: e.to, Vnodes: n})
	}
	slices.SortFunc(d.Flows, func(a, b Flow) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	return d
}

// Reindex translates a table of indexes into the names `from` to one of indexes into the names `to`. Entries of a server that `to` does not
// have become None. It fails on an index outside `from`.
func Reindex(table []uint16, from, to []string) ([]uint16, error) {
	position := make(map[string]uint16, len(to))
	for i, name := range to {
		position[name] = uint16(i)
	}
	translation := make([]uint16, len(from))
	for i, name := range from {
		if at, ok := position[name]; ok {
			translation[i] = at
		} else {
			translation[i] = None
		}
	}
	out := make([]uint16, len(table))
	for v, owner := range table {
		switch {
		case owner == None:
			out[v] = None
		case int(owner) < len(translation):
			out[v] = translation[owner]
		default:
			return nil, fmt.Errorf("vnode %d belongs to server number %d, but there are only %d", v, owner, len(from))
		}
	}
	return out, nil
}
