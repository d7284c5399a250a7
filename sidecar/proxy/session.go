package proxy

import (
	"errors"
	"fmt"

	"ringside/internal/evloop"
	"ringside/resp"
)

// session is what a connection has that goes beyond one request and its reply: a transaction, watched keys, a command that waits for
// data, subscriptions. Most clients never have one, and all that it costs them is to look whether they have.
type session struct {
	// blocked: the client waits for data, at this place, by this call. That may last, and is called off when the client leaves or the ring changes.
	blocked    bool
	place      place
	call       *ownCall
	unblocking bool // a cache server has been asked to end the wait, and has not answered
	unblocked  bool // the wait that it was asked to end has ended so, meanwhile

	tx    *transaction // between MULTI and EXEC
	watch *watch       // between WATCH and EXEC
	own   *upstream    // this client's own connection; see ownOf
	idle  *evloop.Timer
	subs  subscriptions
}

// place is where the plain keys of a vnode lived, and in which process.
type place struct {
	vnode             uint16
	name, addr, runID string
}

// needSession returns the client's session, a new one if it has none yet.
func (cl *client) needSession() *session {
	if cl.session == nil {
		cl.session = &session{}
	}
	return cl.session
}

// inMulti reports whether a transaction is being queued.
func (cl *client) inMulti() bool { return cl.session != nil && cl.session.tx != nil }

// isSubscribed reports whether the client listens to anything.
func (cl *client) isSubscribed() bool { return cl.session != nil && cl.session.subs.count() > 0 }

// onlyListens reports whether the client is subscribed and speaks RESP2, in which it can do little else then.
func (cl *client) onlyListens() bool { return cl.proto == 2 && cl.isSubscribed() }

// isBlocked reports whether the client waits for data. Its input is read on, and kept, so that its leaving is noticed.
func (cl *client) isBlocked() bool { return cl.session != nil && cl.session.blocked }

// inSession begins a request of a client that has a session.
func (w *worker) inSession(cl *client, c *command, cmd resp.Command) bool {
	if cl.onlyListens() {
		return w.subscribed(cl, c, cmd)
	}
	if cl.session.tx != nil && !c.immediate {
		return w.queue(cl, c, cmd)
	}
	return c.run(w, cl, c, cmd)
}

// isImmediate reports whether a command is run when it comes, also inside MULTI.
func isImmediate(name string) bool {
	switch name {
	case "multi", "exec", "discard", "watch", "quit", "reset":
		return true
	}
	return false
}

// sessionHandler returns the handler of a command that is about the session, or nil.
func sessionHandler(name string) handler {
	switch name {
	case "multi":
		return (*worker).multi
	case "exec":
		return (*worker).exec
	case "discard":
		return (*worker).discard
	case "watch":
		return (*worker).watchKeys
	case "unwatch":
		return answer(unwatch)
	}
	return nil
}

// ownCall is the task of a request that goes by the client's own connection. The client's later commands, which may go by another, wait
// for its reply.
type ownCall struct {
	request *request
	// opens: it is a WATCH, and none came before it.
	opens bool
	// sent: the connection owes a reply to it.
	sent bool

	// Of a command that may wait for data:
	blocking  *resp.CommandInfo
	args      [][]byte
	vnode     uint16
	deadline  int64 // worker.now; 0: it waits without end
	calledOff bool  // to be begun anew
}

// sendOwn sends a command by the client's own connection.
func (w *worker) sendOwn(cl *client, c *command, cmd resp.Command, u *upstream, t *ownCall) {
	t.request = w.begin(cl, c, t)
	cl.hold()
	t.sent = true
	u.sendCommand(t.request, 0, cmd.Args...)
}

// replied implements task.
func (t *ownCall) replied(w *worker, _ *upstream, _ int32, frame []byte) {
	t.sent = false
	if frame[0] == '-' {
		if t.wasCalledOff(frame) {
			t.again(w)
			return
		}
		w.stats.passedErrors++
		t.failed()
	}
	w.endHold(t.request.client)
	w.finish(t.request, frame)
}

// refused implements task.
func (t *ownCall) refused(w *worker, _ int32, err error) {
	t.sent = false
	if down, ok := errors.AsType[*CacheDownError](err); ok && t.blocking != nil && !down.Sent && errors.Is(err, errRingChanged) {
		t.again(w)
		return
	}
	t.failed()
	w.endHold(t.request.client)
	for _, reason := range []error{errRingChanged, errClosing} {
		if errors.Is(err, reason) {
			err = reason // it is not the server's doing
		}
	}
	w.fail(t.request, err)
}

func (t *ownCall) failed() {
	if cl := t.request.client; t.opens && cl != nil && cl.session != nil {
		cl.session.watch = nil // nothing is watched
	}
}

// endHold lets the client's later commands begin: what they waited for has its reply.
func (w *worker) endHold(cl *client) {
	if cl == nil {
		return
	}
	if s := cl.session; s != nil {
		s.blocked, s.call = false, nil
		if s.own != nil {
			s.own.grace = 0
		}
		s.restOwn(w)
	}
	cl.release()
}

// endSession drops all that belongs to the session: the client has left or sent RESET.
func (cl *client) endSession(reason error) {
	s := cl.session
	if s == nil {
		return
	}
	cl.endSubscriptions(s)
	cl.session = nil
	if s.idle != nil {
		s.idle.Stop()
	}
	if s.own != nil {
		s.own.end(reason)
	}
}

// placeOf returns where a vnode lives now.
func (w *worker) placeOf(vnode uint16) (place, uint16, error) {
	i, err := w.ownerOf(vnode)
	if err != nil {
		return place{}, 0, err
	}
	c := &w.route.topology.Caches[i]
	return place{vnode: vnode, name: c.Name, addr: c.Addr, runID: c.RunID}, i, nil
}

// stillAt reports whether a vnode lives at a place now.
func (w *worker) stillAt(p place) bool {
	now, _, err := w.placeOf(p.vnode)
	return err == nil && now == p
}

// keysMoved has the clients follow that have to do with vnodes which live elsewhere now: what is watched counts as changed, and what is waited
// for comes elsewhere.
func (w *worker) keysMoved() {
	for _, cl := range w.clients {
		s := cl.session
		if s == nil {
			continue
		}
		if s.watch != nil && !w.stillAt(s.watch.place) {
			s.watch.moved = true
		}
		if s.blocked && !w.stillAt(s.place) {
			w.callOff(cl)
		}
	}
}

// ownOf returns the client's own connection to the server of this index, in the protocol that the client speaks. It is opened on first
// use, at most one for each client, and closed with the client, after a while without use, or when another server is wanted.
func (w *worker) ownOf(cl *client, server uint16) (*upstream, error) {
	s := cl.needSession()
	c := &w.route.topology.Caches[server]
	if u := s.own; u != nil {
		if u.name == c.Name && u.addr == c.Addr && u.proto == cl.proto {
			return u, u.room()
		}
		s.own = nil
		if o := w.opening[cl]; o != nil {
			o.upstream = nil // what has waited for it waits for the next one
		}
		u.end(errNotNeeded)
	}
	limit := w.server.live().PrivateUpstreams
	if w.server.privates.Add(1) > int64(limit) {
		w.server.privates.Add(-1)
		w.stats.privatesRefused++
		return nil, fmt.Errorf("%w: this sidecar may have %d", errManyPrivate, limit)
	}
	s.own = w.newUpstream(upstreamKey{c.Name, c.Addr, cl.proto})
	s.own.owner = cl
	return s.own, s.own.room()
}

// restOwn has the client's own connection closed if it is not needed for a while.
func (s *session) restOwn(w *worker) {
	if s.own == nil {
		return
	}
	idle := w.server.cfg.PrivateIdle
	if s.idle != nil {
		s.idle.Reset(idle)
		return
	}
	s.idle = w.loop.AfterFunc(idle, func() {
		if u := s.own; u != nil && u.owes() == 0 && s.watch == nil && w.opening[u.owner] == nil {
			s.own = nil // the next command must not be sent to its end
			u.end(errNotNeeded)
		}
	})
}

// end closes a connection for good. What waits on it fails with the reason.
func (u *upstream) end(reason error) {
	if u.conn != nil {
		u.conn.Close(reason)
		return
	}
	u.lost(reason) // still resolving, or ended already
}

// ownLost is told that a client's own connection has ended.
func (w *worker) ownLost(u *upstream, err error) {
	w.server.privates.Add(-1)
	s := u.owner.session
	u.owner = nil
	if s == nil || s.own != u {
		return
	}
	s.own = nil
	if s.watch != nil {
		s.watch.lost = err
	}
}
