package proxy

import (
	"math/bits"

	"ringside/ring"
)

// ownerTable says which cache server owns each vnode, packed as closely as the number of servers allows. Every request looks at a random
// place of it, and the smaller it is the more of it the processor's caches hold: three servers take 16 KiB, the topology's own table 128.
// The zero table knows no owners.
type ownerTable struct {
	words   []uint64
	logBits uint8  // an entry has 1<<logBits bits
	logPer  uint8  // a word has 1<<logPer entries
	nobody  uint16 // what an entry without an owner holds: all bits set
}

// packOwners makes the table of vnodes that are owned by the first servers of a topology.
func packOwners(owners []uint16, servers int) ownerTable {
	logBits := bits.Len(uint(bits.Len(uint(servers)) - 1)) // entries below servers, and one more for nobody
	if servers == 0 {
		logBits = 0
	}
	t := ownerTable{logBits: uint8(logBits), logPer: uint8(6 - logBits), nobody: uint16(1<<(1<<logBits) - 1)}
	t.words = make([]uint64, (len(owners)+1<<t.logPer-1)>>t.logPer)
	for vnode, owner := range owners {
		if owner == ring.None {
			owner = t.nobody
		}
		t.words[vnode>>t.logPer] |= uint64(owner) << t.shift(uint16(vnode))
	}
	return t
}

// owner returns the index of the server that owns a vnode, or ring.None.
func (t *ownerTable) owner(vnode uint16) uint16 {
	word := int(vnode >> (t.logPer & 7))
	if word >= len(t.words) {
		return ring.None
	}
	owner := uint16(t.words[word]>>t.shift(vnode)) & t.nobody
	if owner == t.nobody {
		return ring.None
	}
	return owner
}

// shift returns where in its word the entry of a vnode begins.
func (t *ownerTable) shift(vnode uint16) uint64 {
	return uint64(vnode&(1<<(t.logPer&7)-1)) << (t.logBits & 7) & 63
}
