package proxy

import (
	"bytes"
	"strconv"

	"ringside/resp"
	"ringside/ring"
	"ringside/sidecar/topology"
)

// sweep is KEYS, DBSIZE, FLUSHDB or FLUSHALL: it scans all servers at the same time, each in slices, so that none is kept from its other
// callers for longer than a slice takes. While keys are handed over it begins with their former owners: a key that moves meanwhile is met
// there or, later, on its new owner.
//
// DBSIZE counts names and does not ask the servers for their own DBSIZE: those count the entries of rows too, and what has been left
// behind by changes of the topology, and the number of either cannot be had for less than going through all names. So it is exact, as far as
// SCAN is (a server that shrinks its table meanwhile may show a name twice), and costs as much as KEYS without the names.
type sweep struct {
	r        *request
	kind     sweepKind
	pattern  []byte
	proto    int
	deadline int64
	change   uint64       // lastChange when it was begun
	rounds   []sweepRound // still to come, the present one included
	parts    []sweepPart  // of the present one
	open     int          // scans and deletions under way
	err      error

	count int64
	names map[string]struct{} // KEYS: a scan may show a name twice. DBSIZE: what former owners have shown
	reply []byte              // KEYS: room for the header, then the names as they come
}

const (
	headerRoom   = 24
	maxKeysReply = 64 << 20
)

type sweepKind uint8

const (
	sweepKeys sweepKind = iota
	sweepCount
	sweepFlush
)

// sweepRound is what of which servers is gone through at the same time.
type sweepRound uint8

const (
	roundFormer sweepRound = iota // what former owners still have to hand over; of FLUSHALL, all that they have
	roundLeases                   // of FLUSHALL: what lets carriers put on new owners what they have read on former ones
	roundOwners
)

// maxRemembered bounds how many names DBSIZE remembers. More are counted twice if they move meanwhile.
const maxRemembered = 1 << 20

// sweepPart is what is done on one server. It has one SCAN under way until the last slice has come.
type sweepPart struct {
	server string
	proto  int
}

// As call.part: the part, and the step in the lowest bit.
const (
	stepScan int32 = iota
	stepUnlink
	sweepSteps
)

func (w *worker) keys(cl *client, c *command, cmd resp.Command) bool {
	return w.sweep(cl, c, &sweep{kind: sweepKeys, pattern: bytes.Clone(cmd.Args[1]), names: map[string]struct{}{}, reply: make([]byte, headerRoom)})
}

func (w *worker) dbSize(cl *client, c *command, _ resp.Command) bool {
	return w.sweep(cl, c, &sweep{kind: sweepCount})
}

// flush is FLUSHDB and FLUSHALL [ASYNC|SYNC]: it deletes all names but those of rows' entries, which are ringside's own. Its reply comes when
// the last is gone, whichever way was asked for: UNLINK frees memory in the background. Keys that are set meanwhile by others
// may or may not be deleted. While keys are handed over, their former owners come first, then the leases of those who carry them, then all
// others: what a carrier has read on a former owner before it was flushed is not put on a new one any more.
func (w *worker) flush(cl *client, c *command, cmd resp.Command) bool {
	if len(cmd.Args) > 2 || len(cmd.Args) == 2 && !bytes.EqualFold(cmd.Args[1], []byte("async")) && !bytes.EqualFold(cmd.Args[1], []byte("sync")) {
		cl.refuse(w, errSyntax)
		return true
	}
	return w.sweep(cl, c, &sweep{kind: sweepFlush})
}

func (w *worker) sweep(cl *client, c *command, s *sweep) bool {
	t := w.route.topology
	if t == nil {
		cl.refuse(w, errNoTopology)
		return true
	}
	if !w.beginSweep(cl) {
		return true
	}
	s.deadline = w.sweepDeadline()
	s.r, s.proto = w.begin(cl, c, s), cl.proto
	if len(w.route.owners) == 0 {
		s.fail(errNoCacheServer)
		s.end(w)
		return true
	}
	s.plan(w)
	return true
}

// plan begins the sweep, or begins it anew because keys are being handed over that were not when it was begun.
func (s *sweep) plan(w *worker) {
	s.change, s.count = lastChange(w.route.topology), 0
	switch {
	case s.change == 0:
		s.rounds = []sweepRound{roundOwners}
	case s.kind == sweepFlush:
		s.rounds = []sweepRound{roundFormer, roundLeases, roundOwners}
	default:
		s.rounds = []sweepRound{roundFormer, roundOwners}
		if s.names == nil {
			s.names = map[string]struct{}{}
		}
	}
	if s.kind == sweepCount {
		clear(s.names)
	}
	s.start(w)
}

// lastChange returns the epoch in which the last hand-over that is not over began; 0 when all are.
func lastChange(t *topology.Topology) (since uint64) {
	for _, h := range t.Handovers {
		since = max(since, h.Since)
	}
	return since
}

// start begins the present round.
func (s *sweep) start(w *worker) {
	t := w.route.topology
	s.parts = s.parts[:0]
	owned := ring.Counts(t.CacheTable(), len(t.Caches))
	for i := range t.Caches {
		c := &t.Caches[i]
		takesPart := owned[i] > 0
		switch {
		case s.rounds[0] == roundFormer:
			takesPart = w.gate.handsOver(c.Name)
		case s.kind == sweepFlush:
			// Only owners can show something, but what the others hold could come back with them. Those without a process that may be used are
			// emptied before they own anything.
			takesPart = takesPart || c.RunID != "" && c.State != topology.Down
		}
		if takesPart {
			s.parts = append(s.parts, sweepPart{c.Name, s.proto})
		}
	}
	// The extra one keeps the round from being over before the last part has begun.
	s.open = len(s.parts) + 1
	for i := range s.parts {
		s.scan(w, i, 0)
	}
	s.over(w)
}

// scan asks for the next slice of a part, or ends the part when that cannot be.
func (s *sweep) scan(w *worker, part int, cursor uint64) {
	p := &s.parts[part]
	u, err := w.upstreamOf(p.server, p.proto)
	if err != nil {
		s.fail(err)
		s.over(w)
		return
	}
	args := [][]byte{[]byte("SCAN"), strconv.AppendUint(nil, cursor, 10), []byte("COUNT"), []byte(sliceCount)}
	if s.rounds[0] == roundLeases {
		args = append(args, []byte("MATCH"), []byte(topology.CarryPrefix+"*"))
	} else if s.pattern != nil {
		args = append(args, []byte("MATCH"), s.pattern)
	}
	u.sendCommand(s.r, int32(part)*sweepSteps+stepScan, args...)
}

func (s *sweep) replied(w *worker, u *upstream, part int32, frame []byte) {
	i, step := int(part/sweepSteps), part%sweepSteps
	if frame[0] == '-' {
		w.stats.passedErrors++
		s.fail(resp.Refusal(resp.ErrorText(frame)))
	}
	if step == stepUnlink {
		s.over(w)
		return
	}
	var cursor uint64
	if s.err == nil || s.kind == sweepFlush && frame[0] != '-' {
		var names resp.Elements
		var ok bool
		if cursor, names, ok = pageOf(frame); ok {
			s.take(w, u, i, names)
		} else {
			s.fail(errStrangeReply)
		}
	}
	switch {
	case cursor == 0, s.err != nil && s.kind != sweepFlush:
		s.over(w)
	case s.kind != sweepFlush && s.r.client == nil:
		s.over(w) // nobody waits for it any more
	case w.route.topology.CacheIndex(s.parts[i].server) < 0:
		s.over(w) // it owns nothing any more
	case w.now > s.deadline:
		s.fail(s.late(w))
		s.over(w)
	default:
		s.scan(w, i, cursor)
	}
}

func (s *sweep) refused(w *worker, _ int32, err error) {
	s.fail(err)
	s.over(w)
}

// take does what the sweep is for with the names of a slice.
func (s *sweep) take(w *worker, u *upstream, part int, names resp.Elements) {
	index := w.route.topology.CacheIndex(s.parts[part].server)
	var doomed [][]byte
	for {
		element, more := names.Next()
		if !more {
			break
		}
		name, ok := resp.BulkOf(element)
		switch {
		case !ok:
		case s.kind == sweepFlush:
			if s.dooms(name) {
				doomed = append(doomed, name)
			}
		case !w.lists(name, index, s.rounds[0] == roundFormer):
		case s.kind == sweepCount:
			s.tally(name)
		default:
			s.keep(w, name)
		}
	}
	if doomed == nil {
		return
	}
	if err := u.room(); err != nil {
		s.fail(err)
		return
	}
	s.open++
	u.sendCommand(s.r, int32(part)*sweepSteps+stepUnlink, append([][]byte{[]byte("UNLINK")}, doomed...)...)
}

// dooms reports whether a flush deletes a name in the present round.
func (s *sweep) dooms(name []byte) bool {
	if s.rounds[0] == roundLeases {
		return bytes.HasPrefix(name, []byte(topology.CarryPrefix))
	}
	return checkPlain(name) == nil
}

// tally counts a name. One that was met on its former owner is not counted again.
func (s *sweep) tally(name []byte) {
	if s.names != nil {
		if _, known := s.names[string(name)]; known {
			return
		}
		if s.rounds[0] == roundFormer && len(s.names) < maxRemembered {
			s.names[string(name)] = struct{}{}
		}
	}
	s.count++
}

// keep adds a name to the answer of KEYS.
func (s *sweep) keep(w *worker, name []byte) {
	if s.err != nil {
		return
	}
	if _, known := s.names[string(name)]; known {
		return
	}
	if len(s.reply)+len(name)+bulkFraming > min(maxKeysReply, w.server.live().OutputHard) {
		s.fail(resp.Refusal("ERR the keys are too many for one reply: use SCAN"))
		return
	}
	s.names[string(name)] = struct{}{}
	s.reply = resp.AppendBulk(s.reply, name)
}

func (s *sweep) late(w *worker) error {
	switch limit := w.server.live().SweepTimeout; s.kind {
	case sweepFlush:
		return tooLong(limit, ": many keys have been deleted, the rest is still there")
	case sweepCount:
		return tooLong(limit, ": the names are counted one by one, and there are too many")
	default:
		return tooLong(limit, ": use SCAN")
	}
}

// fail keeps the first error. A flush goes on with the other servers.
func (s *sweep) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// over ends a scan or a deletion, with the last one the round, and with the last round the sweep.
func (s *sweep) over(w *worker) {
	switch s.open--; {
	case s.open > 0:
	case s.err == nil && lastChange(w.route.topology) > s.change:
		s.plan(w)
	case len(s.rounds) == 1 || s.err != nil:
		s.end(w)
	default:
		s.rounds = s.rounds[1:]
		s.start(w)
	}
}

func (s *sweep) end(w *worker) {
	if s.err != nil {
		w.endSweep(s.r, nil, s.err)
		return
	}
	var reply []byte
	switch s.kind {
	case sweepFlush:
		reply = resp.AppendSimple(nil, "OK")
	case sweepCount:
		reply = resp.AppendInt(nil, s.count)
	default:
		var room [headerRoom]byte
		header := resp.AppendArray(room[:0], len(s.names))
		reply = s.reply[headerRoom-len(header):]
		copy(reply, header)
	}
	w.endSweep(s.r, reply, nil)
}
