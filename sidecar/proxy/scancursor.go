package proxy

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"ringside/ring"
)

// A cursor of SCAN says where on which server a scan goes on: the low 22 bits are the server's tag, 3 bits say by which plan and in which
// pass, the rest is that server's own cursor.
//
// The tag comes from the server's name, not from its place in a list, and the servers are scanned in the order of their tags. So a
// cursor means the same after any change of the topology, and to every sidecar: a server that stays is scanned to its end and none is
// passed over; the scan goes on behind one that has left. The exception are names whose hashes are equal (one in 93,000 fleets of ten
// has such a pair): there the second tag depends on whether the first name is there.
//
// While keys are handed over a scan has two passes: first what the former owners still have, then what the owners have. A key that moves
// meanwhile is met in one of them, or in both. A scan that was begun before the keys began to move begins anew: it may have been through with the server
// that gets a key, and not yet have come to the one that has it.
//
// Redis's cursors are less than the number of buckets of its table. With fewer than 2^28 of them the whole fits into the 53 bits
// that a client has which takes numbers for floating point, and it cannot be above 63 bits.
const (
	tagBits    = 22
	changeBits = 2
	ownShift   = tagBits + changeBits + 1
	tagMask    = 1<<tagBits - 1
	changeMask = 1<<changeBits - 1
	formerBit  = 1 << (tagBits + changeBits)
	tagSpace   = 1<<tagBits - ring.Vnodes - 1 // leaves room for names with equal hashes, and for never being 0
	cursorMax  = 1<<(63-ownShift) - 1
)

var errScanCursor = errors.New("the cache server's cursor is too large to be passed on")

// scanServer is one server in the order of a scan.
type scanServer struct {
	tag   uint32
	index int // in the names given
}

// scanPlan is how a scan goes through the servers.
type scanPlan struct {
	change uint64 // tells the hand-overs of one change from those of others; 0: there are none
	passes [2][]scanServer
}

// The passes of a scan.
const (
	passFormer = iota
	passOwners
)

// changeOf returns scanPlan.change for the epoch in which the last hand-over began.
func changeOf(since uint64) uint64 { return 1 + since%changeMask }

// spot is where a scan is.
type spot struct {
	pass, place int
	own         uint64 // the server's own cursor
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

// resume returns where a scan goes on; false when nothing is left.
func (p *scanPlan) resume(cursor uint64) (spot, bool) {
	var at spot
	switch former := cursor&formerBit != 0; {
	case p.change != 0 && cursor>>tagBits&changeMask != p.change: // it begins, perhaps anew
	case p.change == 0 && former: // what the former owners had is with the owners now
		at.pass = passOwners
	default:
		if !former {
			at.pass = passOwners
		}
		tag := uint32(cursor & tagMask)
		place, found := slices.BinarySearchFunc(p.passes[at.pass], tag, func(s scanServer, tag uint32) int { return int(s.tag) - int(tag) })
		if at.place = place; found {
			at.own = cursor >> ownShift
		}
	}
	if at.pass == passFormer && at.place == len(p.passes[passFormer]) {
		at = spot{pass: passOwners}
	}
	return at, at.place < len(p.passes[at.pass])
}

// next returns the cursor to give out after a page, when the server's own cursor is now own; 0: it was the last page.
func (p *scanPlan) next(at spot, own uint64) (uint64, error) {
	if own > cursorMax {
		return 0, errScanCursor
	}
	if own == 0 {
		if at.place++; at.place == len(p.passes[at.pass]) {
			at = spot{pass: at.pass + 1}
		}
		if at.pass > passOwners || len(p.passes[at.pass]) == 0 {
			return 0, nil
		}
	}
	cursor := own<<ownShift | p.change<<tagBits | uint64(p.passes[at.pass][at.place].tag)
	if at.pass == passFormer {
		cursor |= formerBit
	}
	return cursor, nil
}

// parseCursor reads a cursor as Redis does, except that it takes no sign.
func parseCursor(b []byte) (uint64, bool) {
	n, err := strconv.ParseUint(string(b), 10, 64)
	return n, err == nil
}
