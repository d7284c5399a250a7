package proxy

import (
	"bytes"

	"ringside/resp"
	"ringside/ring"
)

const errSortPattern = resp.Refusal("CROSSSLOT BY and GET of SORT read keys that may lie elsewhere: put the key's {tag} before the * of the pattern")

// sortsElsewhere reports whether a SORT reads keys, made from the patterns of BY and GET, that need not be in the vnode. The server
// would take those that lie elsewhere for missing and sort wrongly without a word.
func (w *worker) sortsElsewhere(args [][]byte, vnode uint16) bool {
	for i := 2; i+1 < len(args); i++ {
		switch {
		case bytes.EqualFold(args[i], []byte("limit")):
			i += 2
		case bytes.EqualFold(args[i], []byte("store")):
			i++
		case bytes.EqualFold(args[i], []byte("by")), bytes.EqualFold(args[i], []byte("get")):
			i++
			if !w.patternStays(args[i], vnode) {
				return true
			}
		}
	}
	return false
}

// patternStays reports whether all keys that a pattern makes are in the vnode: its {tag} is closed before the element is put in. A
// pattern without a star makes no key.
func (w *worker) patternStays(pattern []byte, vnode uint16) bool {
	star := bytes.IndexByte(pattern, '*')
	if star < 0 {
		return true
	}
	tag := ring.CacheKey(pattern[:star])
	return len(tag) < star && w.hasher.Vnode(tag) == vnode
}
