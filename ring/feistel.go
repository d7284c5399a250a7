package ring

const (
	feistelRounds = 4
	halfBits      = Bits / 2
	golden        = 0x9e3779b97f4a7c15 // 2^64 / golden ratio: spreads small counters over all bits
)

// permutation is a node's keyed permutation of the vnodes: a Feistel network of four rounds on two halves of eight bits. A half is so
// narrow that each round's function is a table.
//
// A permutation rather than independent draws: a node's ranks are then spread evenly by construction, which nearly halves the spread of
// the loads and leaves the movement at its least.
type permutation [feistelRounds][1 << halfBits]uint8

func newPermutation(identity uint64) *permutation {
	p := new(permutation)
	for round := range p {
		for x := range p[round] {
			counter := uint64(round)<<halfBits | uint64(x)
			p[round][x] = uint8(mix64(identity+counter*golden) >> 56)
		}
	}
	return p
}

// at returns the rank of the vnode: every rank from 0 to 65535 belongs to exactly one vnode.
func (p *permutation) at(vnode uint16) uint16 {
	left, right := uint8(vnode>>halfBits), uint8(vnode)
	left, right = right, left^p[0][right]
	left, right = right, left^p[1][right]
	left, right = right, left^p[2][right]
	left, right = right, left^p[3][right]
	return uint16(left)<<halfBits | uint16(right)
}

// mix64 is the finalizer of murmur3's 64-bit variant: a bijection in which each bit of x changes each bit of the result half the time.
func mix64(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return x
}
