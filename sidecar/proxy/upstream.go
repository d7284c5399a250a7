package proxy

import (
	"errors"
	"math/rand/v2"
	"net"
	"time"

	"ringside/internal/evloop"
	"ringside/resp"
)

// upstream is one worker's connection to one cache server in one protocol version. It is opened on first use and again, after a pause that
// grows, when it was lost. Requests are appended to its output during a turn and leave in one write at the turn's end.
//
// A connection whose oldest call is not answered in time is closed and everything that waits on it fails: a reply that comes later has no
// connection to come by, so it can never be given to another caller. Nothing is sent before the handshake is over: see greeting.go.
type upstream struct {
	worker *worker
	name   string
	addr   string
	proto  int

	conn    *evloop.Conn // nil: not connected, not connecting
	dialing bool         // resolving or connecting
	calls   callQueue
	scanner resp.Scanner
	// ready: the handshake is over. What comes before that waits: the requests in early, their calls in waiting.
	ready   bool
	early   []byte
	waiting callQueue
	waitsBy string // what the connection would have said of itself when the first of them came
	// behind: the server knows of a newer topology than the worker, which the handshake waits for until catchUp ends it; see await.go.
	behind  *behindError
	catchUp *evloop.Timer
	// bare: it carries no plain keys, so it needs not be known to the server, nor know its marker.
	bare     bool
	called   string // the name that it has given the server
	polling  bool   // it has been asked for the marker
	clientID int64  // of a client's own connection: what the server calls it
	// relayLeft is how much is still to come of the value that is being passed on in pieces, to the request of the oldest call.
	relayLeft int
	// gathering: the reply to the oldest call, a part of an MGET's, is being taken apart as it comes.
	gathering bool
	timer     *evloop.Timer // runs while calls wait
	runID     string        // of the server at the other end; empty until it has said
	pause     time.Duration // before the next attempt to connect
	retryAt   time.Time
	lastErr   error
	taught    taught
	heard     int64 // worker.now when it last sent something
	doubted   bool  // it timed out: rows do not wait for it again before it has answered a handshake
	retired   bool  // no longer in the topology: closes when it owes nothing

	// owner is the client whose own connection this is, which is used once: when it is lost it stays lost. nil: shared by all clients.
	owner *client
	// grace is how much longer than others the command on an own connection may wait for its reply; negative: as long as it takes.
	grace time.Duration
	// feed is what hears the messages that come by this connection; nil: none are asked for.
	feed *feed

	refusals int // attempts to connect that failed: a name's next address is tried after each
}

const (
	pauseMin = 20 * time.Millisecond
	pauseMax = 2 * time.Second
	// maxUnsent bounds what waits for a server that does not read.
	maxUnsent = 64 << 20
)

// room says why nothing can be sent now; nil if something can.
func (u *upstream) room() error {
	w := u.worker
	if u.conn == nil && !u.dialing {
		if w.loop.Now().Before(u.retryAt) {
			return &CacheDownError{Server: u.name, Err: u.lastErr}
		}
		u.dial()
	}
	unsent := len(u.early)
	if u.ready {
		unsent = u.conn.Buffered()
	}
	if u.owes() >= w.server.live().UpstreamCalls || unsent > maxUnsent {
		w.stats.atLimit.upstreamFull++
		return errManyRequests
	}
	return nil
}

// send hands a request over whose reply goes to r. raw is copied. Call room first.
func (u *upstream) send(raw []byte, r *request, part int32) {
	u.expect(r, part)
	if u.ready {
		u.conn.Write(raw)
	} else {
		u.early = append(u.early, raw...)
	}
}

// sendCommand is send for a command that is put together here.
func (u *upstream) sendCommand(r *request, part int32, args ...[]byte) {
	u.expect(r, part)
	u.post(args...)
}

// post sends a command that has no reply.
func (u *upstream) post(args ...[]byte) {
	if u.ready {
		u.conn.SetOut(resp.AppendCommand(u.conn.Out(commandSize(args)), args...))
	} else {
		u.early = resp.AppendCommand(u.early, args...)
	}
}

func commandSize(args [][]byte) int {
	n := 16
	for _, a := range args {
		n += len(a) + 16
	}
	return n
}

// owes is how many replies are still to come.
func (u *upstream) owes() int { return u.calls.len() + u.waiting.len() }

func (u *upstream) expect(r *request, part int32) {
	if u.ready {
		u.calls.push(call{r, part, u.worker.now})
	} else {
		u.wait(call{r, part, u.worker.now})
	}
	u.watch()
}

// watch makes sure that silence is noticed.
func (u *upstream) watch() {
	if u.timer == nil {
		u.timer = u.worker.loop.AfterFunc(u.worker.server.live().ReplyTimeout, u.checkTimeout)
	}
}

// checkTimeout closes the connection if its oldest call has waited too long.
func (u *upstream) checkTimeout() {
	u.timer = nil
	if u.owes() == 0 {
		return
	}
	u.worker.turn()
	oldest := &u.calls
	if oldest.len() == 0 {
		if oldest = &u.waiting; oldest.len() == 0 {
			return // they have failed just now
		}
	}
	limit := u.worker.server.live().ReplyTimeout
	if u.grace != 0 && oldest.front().request != nil {
		if u.grace < 0 {
			return
		}
		limit += u.grace
	}
	// What counts is the time without progress: a large reply over a slow network, or a long queue before a busy server, is no silence.
	waited := time.Duration(u.worker.now - max(oldest.front().sent, u.heard))
	if waited < limit {
		u.timer = u.worker.loop.AfterFunc(limit-waited, u.checkTimeout)
		return
	}
	u.worker.stats.upstreamTimeouts++
	if u.conn != nil {
		u.conn.Close(errReplyTimeout)
		return
	}
	u.lost(errReplyTimeout) // still resolving
}

// OnOpen implements evloop.Handler.
func (u *upstream) OnOpen(*evloop.Conn) {
	u.dialing = false
	u.worker.stats.upstreamConnects++
}

// OnData implements evloop.Handler.
func (u *upstream) OnData(c *evloop.Conn, in []byte) int {
	w := u.worker
	w.turn()
	if c != u.conn {
		return len(in) // a new topology has no use for it
	}
	u.heard = w.now
	consumed := 0
	for consumed < len(in) {
		if u.relayLeft > 0 {
			n, ok := u.relay(in[consumed:])
			consumed += n
			if !ok {
				c.Close(errFraming)
				return consumed
			}
			continue
		}
		if u.gathering {
			n, err := u.gather(in[consumed:])
			consumed += n
			if err != nil {
				c.Close(err)
				return consumed
			}
			if u.gathering {
				c.Want(u.scanner.Want())
				return consumed
			}
			continue
		}
		if in[consumed] == '*' {
			if n := u.beginGather(in[consumed:]); n > 0 {
				consumed += n
				continue
			}
		}
		n, err := u.scanner.Next(in[consumed:])
		if err != nil {
			c.Close(err)
			return consumed
		}
		if n == 0 {
			if u.beginRelay(in[consumed:], u.scanner.Want()) {
				continue
			}
			c.Want(u.scanner.Want())
			return consumed
		}
		frame := in[consumed : consumed+n : consumed+n]
		consumed += n
		if frame[0] == '>' {
			if u.feed != nil {
				u.feed.pushed(frame)
			}
			continue
		}
		if u.calls.len() == 0 {
			c.Close(unasked(frame))
			return consumed
		}
		next := u.calls.pop()
		if next.request == nil {
			if err := u.shake(next.part, frame); err != nil {
				c.Close(err)
				return consumed
			}
			continue
		}
		w.replied(u, next, frame)
	}
	if u.retired && u.calls.len() == 0 {
		c.Close(errClosing)
	}
	return consumed
}

// unasked is the error of a reply that belongs to no call. A feed's subscriptions are not calls, as they are confirmed by pushes, but a
// server that refuses one says so by a reply.
func unasked(frame []byte) error {
	if text := resp.ErrorText(frame); text != nil {
		return errors.New(string(text))
	}
	return errors.New("a reply that nobody asked for")
}

// OnDrain implements evloop.Handler.
func (u *upstream) OnDrain(*evloop.Conn) {}

// OnEOF implements evloop.Handler.
func (u *upstream) OnEOF(c *evloop.Conn) { c.Close(errConnectionLost) }

// OnClose implements evloop.Handler.
func (u *upstream) OnClose(c *evloop.Conn, err error) {
	if c != u.conn {
		return // it was given up before
	}
	if err == nil {
		err = errConnectionLost
	}
	u.worker.turn()
	u.lost(err)
}

// lost fails everything that waits and sets the time of the next attempt, which is at once when nothing was lost with it: a server that
// closes idle connections is not down. What is failed may send again at once, so the queue is taken away first.
func (u *upstream) lost(err error) {
	failed, waiting := u.calls, u.waiting
	wasOpen, wasReady, owner := !u.dialing, u.ready, u.owner
	if u.behind != nil && err != evloop.ErrLoopStopped {
		err = u.behind // that is why nothing was sent, whatever ended it
	}
	u.caughtUp()
	if u.relayLeft > 0 {
		u.relayLeft = 0
		u.worker.cutRelayed(failed.pop().request)
	}
	u.gathering = false
	u.conn, u.dialing, u.runID, u.calls, u.lastErr = nil, false, "", callQueue{}, err
	u.ready, u.early, u.waiting, u.called, u.clientID, u.polling = false, nil, callQueue{}, "", 0, false
	if u.timer != nil {
		u.timer.Stop()
		u.timer = nil
	}
	if !wasOpen {
		u.refusals++
		u.worker.stats.atLimit.connects++
	}
	if isTimeout(err) {
		u.doubted = true
	}
	if u.owner != nil {
		u.worker.ownLost(u, err)
	} else if !u.retired && (failed.len() > 0 || !wasReady) {
		if u.pause == 0 && err != evloop.ErrLoopStopped {
			u.worker.server.log.Warn("cache server is lost", "server", u.name, "addr", u.addr, "requests", failed.len()+waiting.len(), "error", err)
		}
		u.pause = min(max(2*u.pause, pauseMin), pauseMax)
		// Spread by a quarter, so that the loops of many sidecars do not all come back in the same moment.
		u.retryAt = u.worker.loop.Now().Add(u.pause*3/4 + rand.N(u.pause/4))
	}
	u.fail(&failed, err, true)
	u.fail(&waiting, err, false)
	if u.feed != nil {
		u.feed.lost(err)
	}
	if !u.bare {
		u.worker.opened(u, owner, &CacheDownError{Server: u.name, Err: err})
	}
	if u.owner == nil && !u.bare {
		u.worker.reached(u.name)
	}
}

// fail fails calls. What it fails may send again at once.
func (u *upstream) fail(calls *callQueue, err error, sent bool) {
	for calls.len() > 0 {
		if c := calls.pop(); c.request != nil {
			u.worker.refused(c, &CacheDownError{Server: u.name, Err: err, Sent: sent})
		}
	}
}

// isTimeout reports whether a server failed by not answering, rather than by ending the connection.
func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return err == errReplyTimeout || ok && timeout.Timeout()
}

// retire lets go of a server that is no longer in the topology, after it has answered.
func (u *upstream) retire() {
	u.retired = true
	if u.conn != nil && u.calls.len() == 0 {
		u.conn.Close(errClosing)
	}
}

// entryUsable reports whether what comes by this connection may be taken for the server that the topology names.
func (u *upstream) entryUsable(runID string) bool {
	if runID == "" || u.runID != runID {
		return false
	}
	u.runID = runID // the very same string, which is quicker to compare the next time
	return true
}
