package cdc

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// snapshot is which transactions the next reader of the shard sees, as pg_current_snapshot() says. Ids are whole, with the epoch.
type snapshot struct {
	xmin    uint64   // all before have ended
	xmax    uint64   // none from here on has
	running []uint64 // those in between that have not, ascending
}

// parseSnapshot reads the text xmin:xmax:running,... of a pg_snapshot.
func parseSnapshot(text string) (snapshot, error) {
	bad := func() (snapshot, error) { return snapshot{}, fmt.Errorf("%.80q is no snapshot", text) }
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return bad()
	}
	var s snapshot
	var err error
	if s.xmin, err = strconv.ParseUint(parts[0], 10, 64); err != nil {
		return bad()
	}
	if s.xmax, err = strconv.ParseUint(parts[1], 10, 64); err != nil || s.xmax < s.xmin {
		return bad()
	}
	if parts[2] == "" {
		return s, nil
	}
	for part := range strings.SplitSeq(parts[2], ",") {
		id, err := strconv.ParseUint(part, 10, 64)
		if err != nil {
			return bad()
		}
		s.running = append(s.running, id)
	}
	slices.Sort(s.running)
	return s, nil
}

// sees reports whether a transaction that has committed, given by the low 32 bits of its id, is visible to readers (the invariant I2). A commit is
// in the log before it is visible: for a moment always, and for as long as a synchronous standby does not answer.
func (s snapshot) sees(xid uint32) bool {
	id := s.whole(xid)
	if id < s.xmin {
		return true
	}
	_, running := slices.BinarySearch(s.running, id)
	return id < s.xmax && !running
}

// whole completes an id by its epoch. A transaction in the log began before the snapshot was taken or at the same time, and within the last 2^31 ids: its id is
// the one nearest to xmax.
func (s snapshot) whole(xid uint32) uint64 {
	return s.xmax + uint64(int64(int32(xid-uint32(s.xmax))))
}
