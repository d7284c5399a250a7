package ring

// Heirs returns up to n servers, best first, that come next in the vnode's own order of servers, its owner left out: those that would take
// the vnode over if the owner went away. There are fewer when the fleet is smaller.
//
// The first is the new owner after the owner's death, except where a full server stands in the way (at 100 servers and a cap of 5 %: 0.2 % of
// the vnodes). It asks every server, some 10 ns each, so keep the answer where it is wanted for every request.
func (p *Placement) Heirs(vnode uint16, n int) []uint16 {
	n = min(n, len(p.bidders.list))
	if n <= 0 {
		return nil
	}
	owner := p.table[vnode]
	best := make([]bid, 0, n)
	mix := vnodeMix(vnode)
	for i := range p.bidders.list {
		n := &p.bidders.list[i]
		b := p.bidders.bid(n, n.rank.at(vnode), mix)
		if b.node == owner {
			continue
		}
		best = insert(best, b)
	}
	heirs := make([]uint16, len(best))
	for i, b := range best {
		heirs[i] = b.node
	}
	return heirs
}

// insert keeps the first cap(best) bids in order.
func insert(best []bid, b bid) []bid {
	i := len(best)
	if i < cap(best) {
		best = append(best, b)
	} else if i--; !b.before(best[i]) {
		return best
	}
	for ; i > 0 && b.before(best[i-1]); i-- {
		best[i] = best[i-1]
	}
	best[i] = b
	return best
}
