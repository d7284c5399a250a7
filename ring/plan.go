package ring

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// PlanShards proposes the next shard table: balanced by weight and reached with the fewest moves. It changes nothing; the caller
// publishes the proposal or not.
//
// current and the result hold indexes into nodes sorted by name. After a shard was added or taken out of the list, Reindex the table
// first; vnodes of a shard that is no longer in the list are then None, which is unassigned. A nil current means that nothing is assigned.
//
// Each shard's target is its fair share, rounded by largest remainder. Shards above it give up the vnodes for which they have
// the least affinity; those and the unassigned ones go to shards below their target by bounded rendezvous. So the number of entries that
// change is the sum of max(0, target - current), and no shard ends one vnode or more from its fair share.
//
// It fails on an empty or repeated name, more than MaxNodes shards, no shard of weight above 0, a table of the wrong length, and an
// index outside nodes.
func PlanShards(current []uint16, nodes []Node, salt string) ([]uint16, error) {
	nodes, err := sorted(nodes)
	if err != nil {
		return nil, fmt.Errorf("shard plan: %w", err)
	}
	if totalWeight(nodes) == 0 {
		return nil, errors.New("shard plan: no shard has a weight above 0, so nobody could own the rows")
	}
	table := emptyTable()
	if current != nil {
		if err := checkTable(current, len(nodes)); err != nil {
			return nil, fmt.Errorf("shard plan: %w", err)
		}
		copy(table, current)
	}

	held := Counts(table, len(nodes))
	target := targets(nodes, held)
	b := newBidders(nodes, salt)
	release(table, held, target, b)
	receivers := &bidders{log: b.log}
	var room []int
	for _, n := range b.list {
		if missing := target[n.node] - held[n.node]; missing > 0 {
			receivers.list = append(receivers.list, n)
			room = append(room, missing)
		}
	}
	receivers.assign(table, room)
	return table, nil
}

func checkTable(table []uint16, nodes int) error {
	if len(table) != Vnodes {
		return fmt.Errorf("the table has %d entries instead of %d", len(table), Vnodes)
	}
	for v, owner := range table {
		if owner != None && int(owner) >= nodes {
			return fmt.Errorf("vnode %d belongs to shard number %d, but there are only %d", v, owner, nodes)
		}
	}
	return nil
}

// targets returns how many vnodes each node should hold: its fair share rounded down, and one more for those with the largest remainders
// until all vnodes are given out. Of equal remainders, first come nodes that hold the extra vnode already, then the name.
func targets(nodes []Node, held []int) []int {
	total := totalWeight(nodes)
	target := make([]int, len(nodes))
	remainder := make([]uint64, len(nodes))
	order := make([]int, len(nodes))
	left := Vnodes
	for i, n := range nodes {
		share := uint64(n.Weight) << Bits
		target[i] = int(share / total)
		remainder[i] = share % total
		order[i] = i
		left -= target[i]
	}
	keeps := func(i int) int { // 0 if the extra vnode is there, 1 if it would have to move in
		if held[i] > target[i] {
			return 0
		}
		return 1
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(remainder[b], remainder[a]), cmp.Compare(keeps(a), keeps(b)), cmp.Compare(a, b))
	})
	for _, i := range order[:left] { // the remainders add up to left*total, so at least `left` of them are above 0
		target[i]++
	}
	return target
}

// release sets to None what each node holds above its target, costliest first. A node of weight 0 has no costs and lets go of everything.
func release(table []uint16, held, target []int, b *bidders) {
	bidderOf := make([]*bidder, len(held))
	for i := range b.list {
		bidderOf[b.list[i].node] = &b.list[i]
	}
	surplus := make([][]seat, len(held))
	for v, owner := range table {
		if owner == None || held[owner] <= target[owner] {
			continue
		}
		s := seat{vnode: uint16(v)}
		if n := bidderOf[owner]; n != nil {
			s.cost = b.bid(n, n.rank.at(s.vnode), vnodeMix(s.vnode)).cost
		}
		surplus[owner] = append(surplus[owner], s)
	}
	for i, seats := range surplus {
		slices.SortFunc(seats, func(a, b seat) int {
			return cmp.Or(cmp.Compare(b.cost, a.cost), cmp.Compare(a.vnode, b.vnode))
		})
		for _, s := range seats[:max(0, len(seats)-target[i])] {
			table[s.vnode] = None
		}
	}
}
