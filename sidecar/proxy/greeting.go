package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"ringside/internal/failpoint"
	"ringside/resp"
	"ringside/sidecar/topology"
)

// Before anything else a connection to a cache server says who it is and asks two questions: which process is at the other end, and what
// that knows of the ring. Only when both answers fit the topology, what waits for the connection is sent. So a plain key is never read from, or
// written to, a process that the ring does not name, nor by a sidecar that has not heard of a change which the server knows of already.
//
// The order matters. Whoever drives a change first raises the epoch in the server's marker and then waits for all connections that are named by
// an older one: a connection that the server has not heard the name of when it looks, reads the marker later and carries nothing before its worker
// has heard of the change too: see await.go.

// The steps of the handshake, as call.part.
const (
	stepHello int32 = iota
	stepName
	stepID
	stepInfo
	stepMarker
	stepPing // of a feed
	stepNone // not of the handshake, but nobody waits for the reply either
)

var (
	errNotNamed = errors.New("no process of it is part of the ring yet")
	errStranger = errors.New("was started anew, and that process is not part of the ring yet")
)

// dial connects. Names are resolved on a goroutine of their own: no loop waits for DNS.
func (u *upstream) dial() {
	u.dialing = true
	u.runID = ""
	u.taught = taught{}
	w := u.worker
	if host, _, err := net.SplitHostPort(u.addr); err == nil {
		if _, err := netip.ParseAddr(host); err == nil {
			u.connect(u.addr)
			return
		}
	}
	attempt := u.refusals
	w.server.goroutines.Add(1)
	go func() {
		defer w.server.goroutines.Done()
		addr, err := resolve(w.server.ctx, u.addr, w.server.live().ConnectTimeout, attempt)
		w.loop.Submit(func() {
			switch {
			case !u.dialing || u.conn != nil: // timed out meanwhile
			case err != nil:
				u.lost(err)
			default:
				u.connect(addr)
			}
		})
	}()
}

func (u *upstream) connect(numeric string) {
	w := u.worker
	u.scanner = resp.Scanner{}
	numeric = failpoint.Route(numeric)
	cred := w.server.deps.Credentials(u.name)
	if cred.TLS != nil {
		u.conn = u.dialTLS(numeric, cred.TLS)
	} else {
		u.conn = w.loop.Dial("tcp", numeric, w.server.live().ConnectTimeout, u)
	}
	u.conn.SetWatermarks(maxUnsent/2, maxUnsent)
	switch {
	case u.proto == 3:
		hello := []string{"HELLO", "3"}
		if cred.Password != "" {
			hello = append(hello, "AUTH", orDefault(cred.Username), cred.Password)
		}
		u.ask(stepHello, hello...)
	case cred.Password != "":
		u.ask(stepHello, "AUTH", orDefault(cred.Username), cred.Password)
	}
	u.rename()
	if u.bare {
		u.ask(stepInfo, "INFO", "server")
		return
	}
	if u.owner != nil {
		u.ask(stepID, "CLIENT", "ID")
	}
	u.ask(stepInfo, "INFO", "server")
	u.ask(stepMarker, "GET", topology.MarkerName)
}

func orDefault(user string) string {
	if user == "" {
		return "default"
	}
	return user
}

// ask sends a command whose reply shake takes, also before the handshake is over. The connection must have been begun.
func (u *upstream) ask(step int32, args ...string) {
	u.conn.SetOut(resp.AppendCommandString(u.conn.Out(128), args...))
	u.calls.push(call{nil, step, u.worker.now})
	u.watch()
}

// wait has a call wait for the end of the handshake.
func (u *upstream) wait(c call) {
	if u.waiting.len() == 0 && !u.bare {
		u.waitsBy = u.worker.callerAt(u.name).Name()
	}
	u.waiting.push(c)
}

// epoch is that of the worker's topology, 0 before it has one.
func (w *worker) epoch() uint64 {
	if t := w.route.topology; t != nil {
		return t.Epoch
	}
	return 0
}

// rename tells the server by which topology this connection sends plain keys, or listens, and which hand-overs the worker has seen held. What was
// sent before has been executed when the server takes the name.
func (u *upstream) rename() {
	var name string
	switch {
	case u.conn == nil:
		return
	case !u.bare:
		name = u.worker.callerAt(u.name).Name()
	case u.feed != nil && u.worker.hub.epoch > 0 && (u.ready || u.lastErr == nil):
		// One that was ended does not give the same name again: it may have been in the way because nobody told this sidecar of a change.
		name = u.worker.hub.callerAt(u.name).Name()
	}
	if name != u.called {
		u.called = name
		u.ask(stepName, "CLIENT", "SETNAME", name)
		if u.ready && u.owner != nil && u.owner.isBlocked() && u.worker.gate.handsOver(u.name) {
			u.worker.callOff(u.owner) // the server takes the name when it waits no more
		}
	}
}

// shake takes a reply of the handshake.
func (u *upstream) shake(step int32, frame []byte) error {
	refused := func(what string) error {
		return fmt.Errorf("%s refused: %s", what, bytes.TrimRight(frame[1:], "\r\n"))
	}
	isError := frame[0] == '-'
	switch {
	case step == stepNone:
	case step == stepPing && isError: // of a subscription, most likely: see unasked
		return errors.New(string(resp.ErrorText(frame)))
	case step == stepHello && isError, isError && bytes.HasPrefix(frame, []byte("-NOAUTH")):
		// Passed on, the refusal of every request would look to the application like our own.
		return refused("handshake")
	case isError && u.bare: // a server that runs a script does not say who it is, and is asked to kill that
	case step == stepName && isError:
		return refused("CLIENT SETNAME")
	case step == stepID:
		if isError {
			return refused("CLIENT ID")
		}
		u.clientID, _ = resp.IntOf(frame)
	case step == stepInfo && isError:
		return refused("INFO server")
	case step == stepInfo:
		if u.runID = runIDOf(frame); u.runID != "" {
			u.worker.server.deps.OnIncarnation(u.name, u.runID)
		}
	case step == stepMarker && isError && u.ready: // busy; it will be asked again
		u.polling = false
	case step == stepMarker && isError:
		return refused("GET " + topology.MarkerName)
	case step == stepMarker:
		m, err := markerIn(frame)
		if err != nil {
			return err
		}
		if err := u.worker.names(u); err != nil {
			return err
		}
		u.polling = false
		if epoch := u.worker.epoch(); m.Epoch > epoch && !u.ready {
			u.fallBehind(&behindError{m.Epoch, epoch})
			u.worker.server.newerEpoch(m.Epoch)
			return nil
		}
		if u.worker.heard(u.name, m); u.conn != nil && !u.ready {
			u.begin()
			u.worker.reached(u.name)
		}
		return nil
	}
	if step == stepInfo && u.bare {
		u.begin()
	}
	return nil
}

// runIDOf finds the run_id in the reply to INFO server; empty if there is none.
func runIDOf(frame []byte) string {
	_, rest, found := bytes.Cut(frame, []byte("\nrun_id:"))
	if !found {
		return ""
	}
	id, _, _ := bytes.Cut(rest, []byte("\r"))
	return string(id)
}

// markerIn reads the reply to GET rs:ring.
func markerIn(frame []byte) (topology.Marker, error) {
	text, ok := resp.BulkOf(frame)
	if !ok && !resp.IsNull(frame) {
		return topology.Marker{}, errStrangeReply
	}
	return topology.ParseMarker(string(text))
}

// names says why the process at the other end of a connection is not the one that the topology names; nil: it is.
func (w *worker) names(u *upstream) error {
	i := -1
	if t := w.route.topology; t != nil {
		i = t.CacheIndex(u.name)
	}
	switch {
	case i < 0:
		return errGone
	case w.route.topology.Caches[i].RunID == "":
		return errNotNamed
	case w.route.topology.Caches[i].RunID != u.runID:
		return errStranger
	}
	return nil
}

func (s *Server) newerEpoch(epoch uint64) {
	if s.deps.OnNewerEpoch != nil {
		s.deps.OnNewerEpoch(epoch)
	}
}

// begin ends the handshake: what has waited for it is sent, unless the ring has changed meanwhile, or the server holds keys now that it did not,
// so that it may have to go elsewhere.
func (u *upstream) begin() {
	u.caughtUp()
	u.ready, u.pause, u.doubted = true, 0, false
	early, waiting := u.early, u.waiting
	u.early, u.waiting = nil, callQueue{}
	if waiting.len() > 0 && !u.bare && u.waitsBy != u.called {
		u.taught = taught{}
		u.fail(&waiting, errRingChanged, false)
		u.worker.opened(u, u.owner, nil)
		return
	}
	if len(early) > 0 {
		u.conn.WriteOwned(early)
	}
	for waiting.len() > 0 {
		u.calls.push(waiting.pop())
	}
	if !u.bare {
		u.worker.opened(u, u.owner, nil)
	}
}

// review brings a connection in line with a new topology: it ends if the process at its other end is not the one named any more.
func (u *upstream) review() {
	if u.conn != nil && u.runID != "" && !u.bare {
		if err := u.worker.names(u); err != nil {
			u.giveUp(err)
		}
	}
	u.retryAt, u.pause = u.worker.loop.Now(), 0
	u.rename()
	u.lookAgain()
}
