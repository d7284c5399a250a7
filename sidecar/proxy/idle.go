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

// watchIdle plans the next look. What is limited may change, so it looks now and then even if nothing is.
func (w *worker) watchIdle() {
	look := time.Duration(idleLookMax)
	for _, limit := range []time.Duration{w.server.live().ClientIdle, w.server.live().UpstreamIdle} {
		if limit > 0 {
			look = min(look, max(limit/4, idleLookMin))
		}
	}
	w.loop.AfterFunc(look, w.closeIdle)
}

func (w *worker) closeIdle() {
	w.turn()
	if limit := w.server.live().ClientIdle; limit > 0 {
		for _, cl := range w.clients {
			if cl.isIdle(limit) {
				w.stats.atLimit.clientsIdle++
				cl.noReply, cl.busy = true, false
				cl.closeWhenDone()
			}
		}
	}
	if limit := w.server.live().UpstreamIdle; limit > 0 {
		for _, u := range w.upstreams {
			if u.isIdle(limit) {
				w.stats.atLimit.upstreamsIdle++
				u.giveUp(errIdle)
			}
		}
	}
	w.watchIdle()
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
