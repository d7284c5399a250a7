package proxy

import (
	"bytes"
	"strconv"
	"time"

	"ringside/resp"
)

// A command that waits for data on a server that hands keys over is called off and begun anew, where its keys are by then: as long as it
// waits the server hears nothing else by its connection, not even that the worker has heard of the hand-over. Only the server can call it
// off without losing what it may be about to give: it is asked to unblock the connection with an error, and what comes first counts.

// callOff calls off what a client waits for. Where the server cannot be asked to, whatever the command has got is lost with its connection.
func (w *worker) callOff(cl *client) {
	t, u := cl.session.call, cl.session.own
	switch {
	case !t.sent, t.calledOff: // it is to be begun anew as it is
	case !u.ready, !w.gate.handsOver(u.name):
		u.end(errRingChanged)
	default:
		t.calledOff = true
		w.callingOff[cl] = true
		w.unblock(cl)
	}
}

// unblock asks the server to end the wait of a client that is being called off. It is asked again when it says that the client does not wait:
// the command may not have come to it yet.
func (w *worker) unblock(cl *client) {
	s := cl.session
	if s == nil || s.call == nil || !s.call.sent || !s.call.calledOff {
		delete(w.callingOff, cl)
		return
	}
	if s.unblocking {
		return
	}
	if u, err := w.upstreamOf(s.own.name, s.own.proto); err == nil {
		s.unblocking, s.unblocked = true, false
		u.sendCommand(errand(&unblocking{s}), 0, []byte("CLIENT"), []byte("UNBLOCK"), strconv.AppendInt(nil, s.own.clientID, 10), []byte("ERROR"))
	}
}

// unblocking is the question of unblock.
type unblocking struct{ session *session }

// replied implements task.
func (t *unblocking) replied(_ *worker, _ *upstream, _ int32, frame []byte) {
	s := t.session
	s.unblocking = false
	if n, _ := resp.IntOf(frame); n == 1 && !s.unblocked && s.call != nil {
		s.call.calledOff = true // it may be another one by now, which the server has unblocked then
	}
}

// refused implements task.
func (t *unblocking) refused(*worker, int32, error) { t.session.unblocking = false }

// wasCalledOff reports whether an error says that the command was called off here, rather than by a client.
func (t *ownCall) wasCalledOff(frame []byte) bool {
	cl := t.request.client
	if t.blocking == nil || cl == nil || !t.calledOff && !cl.session.unblocking || !bytes.HasPrefix(frame, []byte("-UNBLOCKED")) {
		return false
	}
	cl.session.unblocked = true
	return true
}

// again begins a command anew that has got nothing yet, wherever its keys are now, for the rest of its time.
func (t *ownCall) again(w *worker) {
	cl := t.request.client
	if cl == nil {
		w.finish(t.request, nil) // nobody waits for it any more
		return
	}
	t.calledOff = false
	delete(w.callingOff, cl)
	u, err := t.reroute(w, cl)
	switch {
	case err != nil:
		t.give(w, err)
	case u != nil:
		args := t.remaining(w.now)
		u.grace = patience(t.blocking.Name, args)
		t.sent = true
		u.sendCommand(t.request, 0, args...)
	}
}

// reroute returns the connection by which to go on; nil without an error: it waits at the gate.
func (t *ownCall) reroute(w *worker, cl *client) (*upstream, error) {
	if t.wouldSkip() {
		return nil, errRingChanged
	}
	if w.gate != nil {
		w.gate.keys = w.gate.keys[:0]
		w.gate.commandKeys(t.blocking, t.args)
		if ok, err := w.gate.admitKeys(cl, w.gate.keys, t); err != nil || !ok {
			return nil, err
		}
	}
	p, server, err := w.placeOf(t.vnode)
	if err != nil {
		return nil, err
	}
	cl.session.place = p
	return w.ownOf(cl, server)
}

// wouldSkip reports whether a command means by $ what comes from now on: begun anew it could miss something.
func (t *ownCall) wouldSkip() bool {
	if t.blocking.Name != "xread" {
		return false
	}
	for _, arg := range t.args {
		if string(arg) == "$" {
			return true
		}
	}
	return false
}

// remaining returns the command for the time that is left of it.
func (t *ownCall) remaining(now int64) [][]byte {
	if t.deadline == 0 {
		return t.args
	}
	at, unit := patienceAt(t.blocking.Name, t.args)
	left := max(time.Duration(t.deadline-now), time.Millisecond)
	args := append([][]byte(nil), t.args...)
	if unit == time.Millisecond {
		args[at] = strconv.AppendInt(nil, left.Milliseconds(), 10)
	} else {
		args[at] = strconv.AppendFloat(nil, left.Seconds(), 'f', 3, 64)
	}
	return args
}

// give ends the command with an error.
func (t *ownCall) give(w *worker, err error) {
	w.endHold(t.request.client)
	w.fail(t.request, err)
}

// end ends the wait of a client, for a reason.
func (t *ownCall) end(reason error) {
	cl := t.request.client
	if t.sent {
		cl.session.own.end(reason)
		return
	}
	cl.worker.forgetHold(cl)
	t.give(cl.worker, reason)
}
