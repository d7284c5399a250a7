package proxy

import (
	"fmt"

	"ringside/resp"
	"ringside/sidecar/topology"
)

// A command on plain keys is sent when the handshake of its connection is over, and stays in its client's input until then: nothing of it has
// run, so it is simply begun when its time has come, by the route of that moment. The ring may have changed meanwhile, and its keys may live
// elsewhere.
//
// A handshake may have to wait itself. Whoever changes the ring tells a cache server of it before he tells the sidecars, so a connection that
// is made in between reads an epoch that its worker has not heard of. It carries nothing then, and reads the marker again when the worker has
// the newer topology.

// opening is what one client's next command waits for: the end of a handshake.
type opening struct {
	since    int64     // worker.now when the command first waited for any
	upstream *upstream // nil: the ring has changed, and it is to be looked for anew
	err      error     // why there will be no connection
	// Of a command about many servers: the place of this one among them, and how many have been waited for.
	many        bool
	place, past int
}

// errOpening ends the wait of a command that has found no connection ready though none was lost.
const errOpening = resp.Refusal("TRYAGAIN the ring is changing, and no cache server could be asked in time; nothing has run")

// behindError says that a cache server knows of a newer ring than this sidecar.
type behindError struct{ theirs, ours uint64 }

func (e *behindError) Error() string {
	return fmt.Sprintf("is at epoch %d of the ring, and this sidecar still at %d", e.theirs, e.ours)
}

// await has a client's next command wait for the handshake of u. It returns what a handler does.
func (w *worker) await(cl *client, c *command, u *upstream) bool {
	o := w.opening[cl]
	switch {
	case o == nil:
		o = &opening{since: w.now}
		w.opening[cl] = o
	case w.now-o.since >= int64(settleFor):
		cl.restOwn()
		w.turnAway(cl, c, errOpening)
		return true
	}
	o.upstream = u
	return false
}

// whenOpen is the handler of a command about many cache servers. It waits until the handshakes are over of those that can be reached, once for
// each: what becomes of the command when others cannot be is for run to say.
func whenOpen(servers func(w *worker, proto int) ([]*upstream, error), run handler) handler {
	return func(w *worker, cl *client, c *command, cmd resp.Command) bool {
		all, err := servers(w, cl.proto)
		if err != nil {
			cl.refuse(w, err)
			return true
		}
		past := 0
		if o := w.opening[cl]; o != nil {
			past = o.past
		}
		for i := past; i < len(all); i++ {
			u := all[i]
			if u.room() != nil || u.ready {
				continue
			}
			if w.await(cl, c, u) {
				return true
			}
			o := w.opening[cl]
			o.many, o.place = true, i
			return false
		}
		return run(w, cl, c, cmd)
	}
}

// restOwn has the client's own connection closed in time if the command that it was opened for is refused.
func (cl *client) restOwn() {
	if cl.session != nil {
		cl.session.restOwn(cl.worker)
	}
}

// missed says why the next command of a client has waited in vain, and forgets the wait; nil: it has not.
func (w *worker) missed(cl *client) error {
	o := w.opening[cl]
	if o == nil || o.err == nil {
		return nil
	}
	delete(w.opening, cl)
	cl.restOwn()
	return o.err
}

// wakeOpening has the command of a client that waits looked at again.
func (w *worker) wakeOpening(cl *client) {
	if w.opening[cl] != nil {
		cl.ordering = false
		cl.goOn()
	}
}

// opened wakes what waits for a handshake that is over; err: without success. owner is the client whose own connection it is; nil: all may use it.
func (w *worker) opened(u *upstream, owner *client, err error) {
	wake := func(cl *client, o *opening) {
		if o != nil && o.upstream == u {
			o.upstream = nil
			if o.many && err != nil {
				o.past = o.place + 1
			} else {
				o.err = err
			}
			w.wakeOpening(cl)
		}
	}
	if owner != nil {
		wake(owner, w.opening[owner])
		return
	}
	for cl, o := range w.opening {
		wake(cl, o)
	}
}

// unsettle has no command wait for a connection any more: each looks for one anew when it is woken.
func (w *worker) unsettle() {
	for _, o := range w.opening {
		o.upstream = nil
	}
}

// reopen wakes what waits for any handshake.
func (w *worker) reopen() {
	for cl := range w.opening {
		w.wakeOpening(cl)
	}
}

// fallBehind has a connection wait until the worker has heard of a newer topology.
func (u *upstream) fallBehind(err *behindError) {
	u.behind = err
	if u.catchUp == nil {
		u.catchUp = u.worker.loop.AfterFunc(settleFor, u.leftBehind)
	}
}

// leftBehind ends a connection whose worker has not heard of a newer topology in time.
func (u *upstream) leftBehind() {
	u.worker.turn() // which may bring it after all
	if u.catchUp != nil && u.conn != nil && u.behind != nil && u.behind.theirs > u.worker.epoch() {
		u.conn.Close(u.behind)
	}
}

// caughtUp ends the wait for a newer topology, one way or the other.
func (u *upstream) caughtUp() {
	u.behind = nil
	if u.catchUp != nil {
		u.catchUp.Stop()
		u.catchUp = nil
	}
}

// lookAgain reads the marker again, with the newer topology.
func (u *upstream) lookAgain() {
	if u.behind != nil && u.conn != nil {
		u.ask(stepMarker, "GET", topology.MarkerName)
	}
}
