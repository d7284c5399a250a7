package proxy

import (
	"errors"
	"slices"

	"ringside/resp"
	"ringside/ring"
	"ringside/sidecar/topology"
)

// hold is what one client's command waits for while keys are handed over. The client's later commands wait behind it.
type hold struct {
	since   int64 // worker.now
	missing int   // keys of which it is being found out whether they are settled
	failed  bool  // it could not be found out of some
	settled bool  // all keys of the command are that were asked for: those of the hand-overs in asked
	asked   []*handover
	opening bool // nothing is held as far as is known: it waits for the handshake with a former owner
	err     error
	// call is what begins the command anew that had begun already and was called off; nil: the command is still in the client's input.
	call *ownCall
}

const (
	errHeld        = resp.Refusal("TRYAGAIN the keys are being handed over to another cache server; nothing has run")
	errSortCarried = resp.Refusal("TRYAGAIN keys are being carried over from another cache server, and which of them BY and GET of SORT read is not known; nothing has run")
)

var errKeysLost = errors.New("takes the place of a server that was lost with its keys, and begins in a moment")

// late reports whether a command has waited as long as it may. One that had begun already waits as long as its own words say, if that is longer.
func (h *hold) late(now int64) bool {
	limit := holdFor
	if h.missing > 0 || h.opening {
		limit = settleFor
	}
	until := h.since + int64(limit)
	if h.call != nil {
		if h.call.deadline == 0 {
			return false
		}
		until = max(until, h.call.deadline)
	}
	return now >= until
}

// hasSettled reports whether all keys of the command are settled that this hand-over is about. They were asked for together; what was still open then, so
// that nothing had to be asked, may have been handed since.
func (h *hold) hasSettled(from *handover) bool {
	return h != nil && h.settled && slices.Contains(h.asked, from)
}

// wake has the command looked at again.
func (h *hold) wake(cl *client) {
	if h.call != nil {
		h.call.again(cl.worker)
		return
	}
	cl.ordering = false
	cl.goOn()
}

// admit reports whether a command may go on by the worker's route, as far as its plain keys are concerned. If not, the client waits, and the
// command is to be begun again as after any wait; or there is an error with which to refuse it.
func (g *gate) admit(cl *client, c *command, cmd resp.Command) (bool, error) {
	g.keys = g.keys[:0]
	switch {
	case c.info.Name == "exec":
		if !cl.inMulti() || cl.session.tx.aborted || cl.session.watch != nil && cl.session.watch.moved {
			return true, nil
		}
		if err := g.transactionKeys(cl.session.tx); err != nil {
			return false, err
		}
	case cl.inMulti() && !c.immediate: // looked at when EXEC comes
		return true, nil
	default:
		if !g.commandKeys(c.info, cmd.Args) {
			return false, errSortCarried
		}
	}
	ok, err := g.admitKeys(cl, g.keys, nil)
	clear(g.keys) // they alias the client's input
	return ok, err
}

// commandKeys adds the keys of a command; false when one that is being carried over may read keys that cannot be told.
func (g *gate) commandKeys(info *resp.CommandInfo, args [][]byte) bool {
	w := g.worker
	positions, err := info.Keys(args, w.positions[:0])
	w.positions = positions
	if err != nil {
		// The handler refuses it, or the server that the first key leads to.
		if info.First > 0 && info.First < len(args) {
			g.keys = append(g.keys, args[info.First])
		}
		return true
	}
	for _, p := range positions {
		g.keys = append(g.keys, args[p])
	}
	return len(positions) == 0 || !info.ReadsByPattern(args) || !g.carries(args[positions[0]])
}

// carries reports whether a key may still be on a former owner that does not serve it any more.
func (g *gate) carries(key []byte) bool {
	n := g.worker.route.topology.HandoverOf(g.worker.hasher.Vnode(ring.CacheKey(key)))
	return n >= 0 && g.handovers[n].step == topology.Handed
}

// transactionKeys adds the keys of all commands of a transaction.
func (g *gate) transactionKeys(tx *transaction) error {
	all, err := tx.commands(&g.worker.server.live().Limits)
	if err != nil {
		return err
	}
	for _, cmd := range all {
		if info, err := resp.Resolve(cmd.Args); err == nil && !g.commandKeys(info, cmd.Args) {
			return errSortCarried
		}
	}
	return nil
}

// admitKeys is admit for keys. call is the command if it is not in the client's input any more.
func (g *gate) admitKeys(cl *client, keys [][]byte, call *ownCall) (bool, error) {
	w := g.worker
	h := g.waiting[cl]
	wait, held, err := g.look(cl, keys, h)
	switch {
	case err != nil:
	case h != nil && h.err != nil:
		err = h.err
	case !wait && len(g.unsettled) == 0:
		delete(g.waiting, cl)
		return true, nil
	case h != nil && h.late(w.now) && (!h.opening || !held):
		err = errHeld
	}
	if err != nil {
		delete(g.waiting, cl)
		return false, err
	}
	if h == nil {
		w.stats.held++
		h = &hold{since: w.now, call: call}
		g.waiting[cl] = h
	}
	if h.opening && held {
		h.since = w.now // what it waits for now is something else
	}
	h.opening = wait && !held
	if !wait && h.missing == 0 {
		g.settle(cl, h)
		clear(g.unsettled)
		if h.missing == 0 && h.err != nil {
			delete(g.waiting, cl)
			return false, h.err
		}
	}
	return false, nil
}

// look finds out what stands in the way of these keys: a hand-over that has to go on first, or keys that are not settled, which
// it leaves in g.unsettled; held: that is known to be more than a handshake. An error says that there is no use in waiting.
func (g *gate) look(cl *client, keys [][]byte, h *hold) (wait, held bool, err error) {
	w := g.worker
	t := w.route.topology
	g.unsettled = g.unsettled[:0]
	for _, key := range keys {
		if isRow, err := w.server.keyspaces.Match(w.hasher, key, &w.key); isRow || err != nil || checkPlain(key) != nil {
			continue
		}
		vnode := w.hasher.Vnode(ring.CacheKey(key))
		n := t.HandoverOf(vnode)
		if n < 0 {
			if i := t.CacheOf(vnode); w.now < w.lost.until && i != ring.None && t.Lost(vnode) {
				return false, false, &CacheDownError{Server: t.Caches[i].Name, Err: errKeysLost}
			}
			continue
		}
		from := g.handovers[n]
		if from.step == topology.Handed {
			if !h.hasSettled(from) && !from.isSettled(key) {
				g.unsettled = append(g.unsettled, unsettled{from, key})
			}
			continue
		}
		u := w.route.upstreams[from.server][cl.proto-2]
		if err := u.room(); err != nil {
			return false, false, err
		}
		held = held || from.step == topology.Held
		wait = wait || held || !u.ready
	}
	return wait, held, nil
}

// forgetHold is for a client that has left.
func (w *worker) forgetHold(cl *client) {
	delete(w.callingOff, cl)
	delete(w.opening, cl)
	if w.gate != nil {
		delete(w.gate.waiting, cl)
	}
}

// turnAway refuses a command that could not be admitted. A transaction is over with it.
func (w *worker) turnAway(cl *client, c *command, err error) {
	if c.info.Name == "exec" {
		w.drop(cl)
	}
	cl.refuse(w, err)
}
