package proxy

import (
	"math/bits"
	"slices"

	"ringside/ring"
)

// vnodeTable maps vnodes to values, packed as closely as the number of different values allows. Every request looks at a random place of one
// or more, and the smaller they are the more of them the processor's caches hold: the owners among three servers take 16 KiB, the topology's
// own table of them 128. Make one with packVnodes.
type vnodeTable[T comparable] struct {
	values []T
	// words hold the indexes of the values; empty if there is only one value.
	words   []uint64
	logBits uint8 // an index has 1<<logBits bits
	logPer  uint8 // a word has 1<<logPer of them
	// of is asked instead if there are more than mostValues.
	of func(vnode uint16) T
}

// mostValues bounds the time that packing takes, which is a loop's: some milliseconds.
const mostValues = 64

// packVnodes makes the table of what a function returns for each vnode. The function must go on returning the same.
func packVnodes[T comparable](of func(vnode uint16) T) vnodeTable[T] {
	t := vnodeTable[T]{values: []T{of(0)}}
	indexes := make([]uint8, ring.Vnodes)
	for v := range indexes {
		value := of(uint16(v))
		i := slices.Index(t.values, value)
		if i < 0 {
			if len(t.values) == mostValues {
				return vnodeTable[T]{of: of}
			}
			i = len(t.values)
			t.values = append(t.values, value)
		}
		indexes[v] = uint8(i)
	}
	if len(t.values) == 1 {
		return t
	}
	t.logBits = uint8(bits.Len(uint(bits.Len(uint(len(t.values)-1)) - 1)))
	t.logPer = 6 - t.logBits
	t.words = make([]uint64, ring.Vnodes>>t.logPer)
	for v, i := range indexes {
		t.words[v>>t.logPer] |= uint64(i) << t.shift(uint16(v))
	}
	return t
}

// at returns the value of a vnode.
func (t *vnodeTable[T]) at(vnode uint16) T {
	word := int(vnode >> (t.logPer & 7))
	if word >= len(t.words) {
		return t.only(vnode)
	}
	return t.values[t.words[word]>>t.shift(vnode)&(1<<(1<<(t.logBits&7))-1)]
}

// only is at for a table without words.
func (t *vnodeTable[T]) only(vnode uint16) T {
	if t.of != nil {
		return t.of(vnode)
	}
	return t.values[0]
}

// shift returns where in its word the index of a vnode begins.
func (t *vnodeTable[T]) shift(vnode uint16) uint64 {
	return uint64(vnode&(1<<(t.logPer&7)-1)) << (t.logBits & 7) & 63
}
