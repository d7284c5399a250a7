package proxy

import (
	"errors"
	"time"
)

// Connections that nobody uses are looked for now and then, by one timer for each worker: no request pays for it. They are closed within
// the limit and one look more.

var errIdle = errors.New("not used for a while")

// The time between two looks is a quarter of the shortest limit, within these bounds.
const (
	idleLookMin = 5 * time.Millisecond
	idleLookMax = 30 * time.Second
)

// watchIdle begins to look, if anything is limited.
func (w *worker) watchIdle() {
	look := time.Duration(0)
	for _, limit := range []time.Duration{w.server.cfg.ClientIdle, w.server.cfg.UpstreamIdle} {
		if limit > 0 && (look == 0 || limit/4 < look) {
			look = limit / 4
		}
	}
	if look > 0 {
		look = min(max(look, idleLookMin), idleLookMax)
		w.loop.AfterFunc(look, func() { w.closeIdle(look) })
	}
}

func (w *worker) closeIdle(look time.Duration) {
	w.turn()
	if limit := w.server.cfg.ClientIdle; limit > 0 {
		for _, cl := range w.clients {
			if cl.isIdle(limit) {
				w.stats.atLimit.clientsIdle++
				cl.noReply, cl.busy = true, false
				cl.closeWhenDone()
			}
		}
	}
	if limit := w.server.cfg.UpstreamIdle; limit > 0 {
		for _, u := range w.upstreams {
			if u.isIdle(limit) {
				w.stats.atLimit.upstreamsIdle++
				u.giveUp(errIdle)
			}
		}
	}
	w.loop.AfterFunc(look, func() { w.closeIdle(look) })
}

// isIdle reports whether a client has sent nothing for so long. One that waits, for a reply, for messages or for the end of a pause, is not
// idle; one that does not read its replies is, and is sent what it takes within linger.
func (cl *client) isIdle(limit time.Duration) bool {
	waits := cl.owed > 0 || cl.holds > 0 || cl.ordering || cl.isSubscribed()
	return !waits && !cl.noReply && time.Duration(cl.worker.now-cl.heard) >= limit
}

// isIdle reports whether a connection was not used for so long. It is used when a reply comes.
func (u *upstream) isIdle(limit time.Duration) bool {
	return u.conn != nil && !u.dialing && u.calls.len() == 0 && time.Duration(u.worker.now-u.heard) >= limit
}

// giveUp closes a connection on which nothing waits, and forgets it at once: what comes later in this turn needs a new one.
func (u *upstream) giveUp(reason error) {
	u.conn.Close(reason)
	u.lost(reason)
}
