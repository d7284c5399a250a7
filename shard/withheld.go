package shard

import "slices"

// Withheld are the cache vnodes of those rows of one shard whose cached copies must not be used: a committed write could not put one of them out of
// reach, and the shard remembers that this is still to be done (its outbox). Nil: none. It does not change.
type Withheld struct{ vnodes []uint16 }

// Withhold returns the set of these vnodes, in any order; nil if there are none.
func Withhold(vnodes []uint16) *Withheld {
	if len(vnodes) == 0 {
		return nil
	}
	sorted := slices.Clone(vnodes)
	slices.Sort(sorted)
	return &Withheld{slices.Compact(sorted)}
}

// Has reports whether rows of that vnode are withheld. No allocation.
func (w *Withheld) Has(vnode uint16) bool {
	if w == nil {
		return false
	}
	_, found := slices.BinarySearch(w.vnodes, vnode)
	return found
}

// Len is the number of vnodes.
func (w *Withheld) Len() int {
	if w == nil {
		return 0
	}
	return len(w.vnodes)
}
