package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"

	"ringside/ring"
)

// Scheme places keys on servers.
type Scheme struct {
	Name string
	// owners returns for each key the name of its server, after the fleet has been each of the given ones in turn. Only a scheme with a
	// table of its own looks at more than the last.
	owners func(fleets [][]ring.Node, keys [][]byte) ([]string, error)
}

// Schemes returns ringside's placement and those it is compared with.
func Schemes() []Scheme {
	return []Scheme{
		{"ringside", placed},
		{"ring of 160 points", karger},
		{"1024 buckets in a table", buckets},
		{"modulo", modulo},
	}
}

var errNoWeight = errors.New("no server has a weight above 0")

// placed is ring.Place.
func placed(fleets [][]ring.Node, keys [][]byte) ([]string, error) {
	p, err := ring.Place(fleets[len(fleets)-1], ring.CacheSalt, ring.DefaultParams())
	if err != nil {
		return nil, err
	}
	names := p.Names()
	h := ring.NewHasher()
	owners := make([]string, len(keys))
	for i, k := range keys {
		owner := p.Owner(h.Vnode(k))
		if owner == ring.None {
			return nil, errNoWeight
		}
		owners[i] = names[owner]
	}
	return owners, nil
}

// kargerPoints is what most libraries give to a server of weight 1.
const kargerPoints = 160

// karger is consistent hashing as in Karger et al. (STOC 1997): the first point clockwise owns the key.
func karger(fleets [][]ring.Node, keys [][]byte) ([]string, error) {
	type point struct {
		at    uint32
		owner string
	}
	h := ring.NewHasher()
	var points []point
	for _, n := range fleets[len(fleets)-1] {
		for j := range kargerPoints * int(n.Weight) {
			points = append(points, point{h.Sum32(fmt.Appendf(nil, "%s-%d", n.Name, j)), n.Name})
		}
	}
	if len(points) == 0 {
		return nil, errNoWeight
	}
	slices.SortFunc(points, func(a, b point) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.owner, b.owner)) })
	owners := make([]string, len(keys))
	for i, k := range keys {
		at := h.Sum32(k)
		j := sort.Search(len(points), func(j int) bool { return points[j].at >= at })
		owners[i] = points[j%len(points)].owner
	}
	return owners, nil
}

const bucketCount = 1024

// buckets is a fixed number of logical buckets whose owners stand in a table, changed by as few moves as the new shares ask for.
func buckets(fleets [][]ring.Node, keys [][]byte) ([]string, error) {
	table := make([]string, bucketCount)
	for _, nodes := range fleets {
		if err := replan(table, nodes); err != nil {
			return nil, err
		}
	}
	h := ring.NewHasher()
	owners := make([]string, len(keys))
	for i, k := range keys {
		owners[i] = table[h.Sum32(k)%bucketCount]
	}
	return owners, nil
}

// replan gives every server its share of the table: the surplus of some, and what nobody owns any more, goes to those that lack.
func replan(table []string, nodes []ring.Node) error {
	var total uint64
	for _, n := range nodes {
		total += uint64(n.Weight)
	}
	if total == 0 {
		return errNoWeight
	}
	want := map[string]int{}
	var sum uint64
	for _, n := range nodes {
		before := uint64(len(table)) * sum / total
		sum += uint64(n.Weight)
		want[n.Name] = int(uint64(len(table))*sum/total - before)
	}
	var free []int
	for i, owner := range table {
		if want[owner] > 0 {
			want[owner]--
		} else {
			free = append(free, i)
		}
	}
	for _, n := range nodes {
		for ; want[n.Name] > 0; want[n.Name]-- {
			table[free[0]] = n.Name
			free = free[1:]
		}
	}
	return nil
}

// modulo is the hash modulo the number of servers; a server of weight w counts w times.
func modulo(fleets [][]ring.Node, keys [][]byte) ([]string, error) {
	var slots []string
	for _, n := range fleets[len(fleets)-1] {
		for range n.Weight {
			slots = append(slots, n.Name)
		}
	}
	if len(slots) == 0 {
		return nil, errNoWeight
	}
	h := ring.NewHasher()
	owners := make([]string, len(keys))
	for i, k := range keys {
		owners[i] = slots[h.Sum32(k)%uint32(len(slots))]
	}
	return owners, nil
}
