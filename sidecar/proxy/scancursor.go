package proxy

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"ringside/ring"
)

// A cursor of SCAN says where on which server a scan goes on: the low 22 bits are the server's tag, the rest is that server's own cursor.
//
// The tag comes from the server's name, not from its place in a list, and the servers are scanned in the order of their tags. So a
// cursor means the same after any change of the topology, and to every sidecar: a server that stays is scanned to its end and none is
// passed over; the scan goes on behind one that has left. The exception are names whose hashes are equal (one in 93,000 fleets of ten
// has such a pair): there the second tag depends on whether the first name is there.
//
// Redis's cursors are less than the number of buckets of its table. With fewer than 2^31 of them the whole fits into the 53 bits
// that a client has which takes numbers for floating point, and it cannot be above 63 bits.
const (
	tagBits   = 22
	tagMask   = 1<<tagBits - 1
	tagSpace  = 1<<tagBits - ring.Vnodes - 1 // leaves room for names with equal hashes, and for never being 0
	cursorMax = 1<<(63-tagBits) - 1
)

var errScanCursor = errors.New("the cache server's cursor is too large to be passed on")

// scanServer is one server in the order of a scan.
type scanServer struct {
	tag   uint32
	index int // in the names given
}

// scanOrder returns the order in which servers of these names are scanned.
func scanOrder(names []string) []scanServer {
	order := make([]scanServer, len(names))
	for i, name := range names {
		order[i] = scanServer{1 + ring.Hash([]byte(name))%tagSpace, i}
	}
	slices.SortFunc(order, func(a, b scanServer) int {
		if a.tag != b.tag {
			return int(a.tag) - int(b.tag)
		}
		return strings.Compare(names[a.index], names[b.index])
	})
	for i := 1; i < len(order); i++ {
		order[i].tag = max(order[i].tag, order[i-1].tag+1)
	}
	return order
}

// resume returns the place in the order where a scan goes on, and the server's own cursor; len(order) when nothing is left.
func resume(order []scanServer, cursor uint64) (place int, own uint64) {
	tag := uint32(cursor & tagMask)
	place, found := slices.BinarySearchFunc(order, tag, func(s scanServer, tag uint32) int { return int(s.tag) - int(tag) })
	if found {
		return place, cursor >> tagBits
	}
	return place, 0
}

// next returns the cursor to give out after a page of the server at place, whose own cursor is now own; 0: it was the last page.
func next(order []scanServer, place int, own uint64) (uint64, error) {
	switch {
	case own > cursorMax:
		return 0, errScanCursor
	case own > 0:
		return own<<tagBits | uint64(order[place].tag), nil
	case place+1 < len(order):
		return uint64(order[place+1].tag), nil
	}
	return 0, nil
}

// parseCursor reads a cursor as Redis does, except that it takes no sign.
func parseCursor(b []byte) (uint64, bool) {
	n, err := strconv.ParseUint(string(b), 10, 64)
	return n, err == nil
}
