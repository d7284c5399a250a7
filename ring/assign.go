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
	var first [blockSize]choice
	for v, owner := range table {
		if v%blockSize == 0 {
			b.firstChoices(uint16(v), &first)
		}
		if owner != None {
			continue
		}
		// Refused by the favourite of all, it takes the best of those who would have it.
		vnode, c := uint16(v), first[v%blockSize]
		if c.at >= 0 && !holdings[c.at].accepts(c.cost) {
			c = b.favourite(vnode, holdings)
		}
		for c.at >= 0 {
			evicted, full := holdings[c.at].take(seat{cost: c.cost, vnode: vnode})
			if !full {
				break
			}
			vnode, c = evicted, b.favourite(evicted, holdings)
		}
	}
	for i := range holdings {
		for _, s := range holdings[i].seats {
			table[s.vnode] = b.list[i].node
		}
	}
}

// choice is the best bid for a vnode so far.
type choice struct {
	bid
	at   int // the bidder's place in the list; -1 before the first bid
	rank uint16
}

// beats reports that no bid of this rank and weight can be better: the draw is higher and the weight is no more. Most bids end here.
func (c *choice) beats(n *bidder, rank uint16) bool { return rank > c.rank && n.weight <= c.weight }

const blockSize = 256

// firstChoices finds the favourites of the block of vnodes that begins at vnode, with room everywhere. It goes node by node, so that a
// node's tables stay in the processor's nearest cache; that is why it exists beside favourite.
func (b *bidders) firstChoices(vnode uint16, first *[blockSize]choice) {
	var mix [blockSize]uint64
	for i := range first {
		mix[i] = vnodeMix(vnode + uint16(i))
		first[i] = choice{at: -1}
	}
	for at := range b.list {
		n := &b.list[at]
		p := n.rank
		for i := range first {
			c := &first[i]
			rank := p.at(vnode + uint16(i))
			if c.beats(n, rank) {
				continue
			}
			if d := b.bid(n, rank, mix[i]); c.at < 0 || d.before(c.bid) {
				*c = choice{bid: d, at: at, rank: rank}
			}
		}
	}
}

// favourite returns the best bid for the vnode among the nodes that would take it; at is -1 if nobody would.
func (b *bidders) favourite(vnode uint16, holdings []holding) choice {
	c := choice{at: -1}
	mix := vnodeMix(vnode)
	for at := range b.list {
		n := &b.list[at]
		rank := n.rank.at(vnode)
		if c.beats(n, rank) {
			continue
		}
		if d := b.bid(n, rank, mix); (c.at < 0 || d.before(c.bid)) && holdings[at].accepts(d.cost) {
			c = choice{bid: d, at: at, rank: rank}
		}
	}
	return c
}
