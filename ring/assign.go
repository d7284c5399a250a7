package ring

// seat is a vnode that a node holds for the time being.
type seat struct {
	cost  uint64
	vnode uint16
}

// holding is what one node holds while the assignment runs.
type holding struct {
	capacity int
	// seats is a heap with the costliest on top once the node is full; before that its order means nothing.
	seats []seat
}

// accepts reports whether the node would take a vnode of this cost. What it refuses once it refuses for ever: its costliest
// seat only gets cheaper.
func (h *holding) accepts(cost uint64) bool {
	return len(h.seats) < h.capacity || h.capacity > 0 && cost < h.seats[0].cost
}

// take seats the vnode, which must be acceptable, and returns the vnode that had to make room.
func (h *holding) take(s seat) (evicted uint16, full bool) {
	if len(h.seats) < h.capacity {
		h.seats = append(h.seats, s)
		if len(h.seats) == h.capacity {
			for i := h.capacity/2 - 1; i >= 0; i-- {
				h.sink(i)
			}
		}
		return 0, false
	}
	evicted = h.seats[0].vnode
	h.seats[0] = s
	h.sink(0)
	return evicted, true
}

func (h *holding) sink(i int) {
	s := h.seats[i]
	for {
		child := 2*i + 1
		if child >= len(h.seats) {
			break
		}
		if child+1 < len(h.seats) && h.seats[child+1].cost > h.seats[child].cost {
			child++
		}
		if h.seats[child].cost <= s.cost {
			break
		}
		h.seats[i] = h.seats[child]
		i = child
	}
	h.seats[i] = s
}

// assign gives every vnode of the table that is None to a bidder, none of whom takes more than its capacity; capacity[i] belongs to
// b.list[i]. What does not fit at all stays None.
//
// It is deferred acceptance: each vnode goes to the node it likes best among those that would have it; a full node then lets go of its
// costliest vnode, which looks for another place in turn. The classic form has a vnode ask the nodes one by one in its order; asking only
// those that would say yes skips refusals which cannot be withdrawn, so the outcome is the same, and the vnode's order need not be sorted.
func (b *bidders) assign(table []uint16, capacity []int) {
	holdings := make([]holding, len(b.list))
	for i := range holdings {
		holdings[i].capacity = capacity[i]
	}
	for v, owner := range table {
		if owner != None {
			continue
		}
		vnode, homeless := uint16(v), true
		for homeless {
			i, best := b.favourite(vnode, holdings)
			if i < 0 {
				break
			}
			vnode, homeless = holdings[i].take(seat{cost: best.cost, vnode: vnode})
		}
	}
	for i := range holdings {
		for _, s := range holdings[i].seats {
			table[s.vnode] = b.list[i].node
		}
	}
}

// favourite returns the best bid for the vnode among the nodes that would take it, and its place in b.list; -1 if nobody would.
func (b *bidders) favourite(vnode uint16, holdings []holding) (int, bid) {
	at, best := -1, bid{}
	mix := vnodeMix(vnode)
	var bestRank uint16
	for i := range b.list {
		n := &b.list[i]
		rank := n.rank.at(vnode)
		if at >= 0 && rank > bestRank && n.weight <= best.weight {
			continue // a higher draw and no more weight: it cannot win, and most bids end here
		}
		c := b.bid(n, rank, mix)
		if (at < 0 || c.before(best)) && holdings[i].accepts(c.cost) {
			at, best, bestRank = i, c, rank
		}
	}
	return at, best
}
