package proxy

import (
	"bytes"
	"errors"
	"strconv"

	"ringside/resp"
	"ringside/ring"
	"ringside/sidecar/topology"
)

// sweep is KEYS, DBSIZE, FLUSHDB or FLUSHALL: it scans all servers at the same time, each in slices, so that none is kept from its other
// callers for longer than a slice takes.
//
// DBSIZE counts names and does not ask the servers for their own DBSIZE: those count the entries of rows too, and what has been left
// behind by changes of the topology, and the number of either cannot be had for less than going through all names. So it is exact, as far as
// SCAN is (a server that shrinks its table meanwhile may show a name twice), and costs as much as KEYS without the names.
type sweep struct {
	r        *request
	kind     sweepKind
	pattern  []byte
	deadline int64
	parts    []sweepPart
	open     int // scans and deletions under way
	err      error

	count int64
	names map[string]struct{} // KEYS: a scan may show a name twice
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
// may or may not be deleted.
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
	shares := ring.Counts(t.CacheTable(), len(t.Caches))
	for i := range t.Caches {
		// Only owners can show something, but what the others hold would come back with them.
		if shares[i] > 0 || s.kind == sweepFlush {
			s.parts = append(s.parts, sweepPart{t.Caches[i].Name, cl.proto})
		}
	}
	s.open = len(s.parts)
	s.r = w.begin(cl, c, s)
	if s.open == 0 {
		s.fail(errNoCacheServer)
		s.end(w)
		return true
	}
	// The extra one keeps the request from being completed before the last part has begun.
	s.open++
	for i := range s.parts {
		if s.kind == sweepFlush && t.Caches[i].State == topology.Down {
			s.fail(&CacheDownError{Server: s.parts[i].server, Err: errStaysFull})
			s.over(w)
			continue
		}
		s.scan(w, i, 0)
	}
	s.over(w)
	return true
}

var errStaysFull = errors.New("is down, and its keys will be there again when it comes back; the other servers were flushed")

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
	if s.pattern != nil {
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
			if checkPlain(name) == nil {
				doomed = append(doomed, name)
			}
		case !w.lists(name, index):
		case s.kind == sweepCount:
			s.count++
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

// keep adds a name to the answer of KEYS.
func (s *sweep) keep(w *worker, name []byte) {
	if s.err != nil {
		return
	}
	if _, known := s.names[string(name)]; known {
		return
	}
	if len(s.reply)+len(name)+bulkFraming > min(maxKeysReply, w.server.cfg.OutputHard) {
		s.fail(resp.Refusal("ERR the keys are too many for one reply: use SCAN"))
		return
	}
	s.names[string(name)] = struct{}{}
	s.reply = resp.AppendBulk(s.reply, name)
}

func (s *sweep) late(w *worker) error {
	switch limit := w.server.cfg.SweepTimeout; s.kind {
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

// over ends a scan or a deletion, and the sweep with the last one.
func (s *sweep) over(w *worker) {
	if s.open--; s.open == 0 {
		s.end(w)
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
