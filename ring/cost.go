package ring

import "math/bits"

const (
	fillBits = 32
	drawBits = Bits + fillBits + 1 // rank, fill and a last bit that is always 1
)

// bidder is a node that takes part in an assignment.
type bidder struct {
	node     uint16 // index in the list sorted by name
	weight   uint64 // above 0
	identity uint64
	rank     *permutation
}

// bid is what one vnode costs one node.
type bid struct {
	// cost is -log2(1-u) in fixed point, not yet divided by weight. Above 0. No two vnodes cost a node the same.
	cost   uint64
	weight uint64
	node   uint16
}

// before reports whether the vnode prefers bid a to bid b: cost/weight, compared by cross-multiplication, then the name.
func (a bid) before(b bid) bool {
	aHigh, aLow := bits.Mul64(a.cost, b.weight)
	bHigh, bLow := bits.Mul64(b.cost, a.weight)
	if aHigh != bHigh {
		return aHigh < bHigh
	}
	if aLow != bLow {
		return aLow < bLow
	}
	return a.node < b.node
}

// bidders are all nodes of a fleet that can own something, in the order of their names. Immutable.
type bidders struct {
	log  *logTable
	list []bidder
}

// newBidders takes the nodes of weight above 0 out of a sorted list.
func newBidders(nodes []Node, salt string) *bidders {
	b := &bidders{log: newLogTable()}
	for i, n := range nodes {
		if n.Weight == 0 {
			continue
		}
		id := identity(salt, n.Name)
		b.list = append(b.list, bidder{
			node:     uint16(i),
			weight:   uint64(n.Weight),
			identity: id,
			rank:     newPermutation(id),
		})
	}
	return b
}

// vnodeMix spreads the vnode's number over 64 bits; bids of one vnode share it.
func vnodeMix(vnode uint16) uint64 { return mix64((uint64(vnode) + 1) * golden) }

// bid returns what a vnode costs the node. rank is n.rank.at(vnode) and mix is vnodeMix(vnode).
//
// The draw u lies in (0,1): its first 16 bits are the node's rank of the vnode, the rest is filled by a hash, so that two nodes of
// equal rank do not always meet in a tie. With u uniform, -ln(1-u)/weight is exponential with rate weight, hence the least of them is
// the node's with probability weight / sum.
func (b *bidders) bid(n *bidder, rank uint16, mix uint64) bid {
	fill := mix64(n.identity^mix) >> (64 - fillBits)
	draw := uint64(rank)<<(fillBits+1) | fill<<1 | 1
	cost := drawBits<<logFraction - b.log.log2(1<<drawBits-draw)
	return bid{cost: cost, weight: n.weight, node: n.node}
}
