package proxy

import (
	"errors"

	"ringside/resp"
)

// A large value is passed on in the pieces in which it comes, if it is its client's turn: gathered first it would be copied into ever
// larger buffers, which have to be allocated, cleared and collected. The price is that a server which fails in the middle costs the
// client its connection, because what it was sent of the value cannot be taken back.

// relayFrom is the length of the smallest reply that is passed on in pieces.
const relayFrom = 128 << 10

// readAtOnce is how much a loop reads from one connection at a time. A value of a megabyte in pieces of 64 KiB costs a third more
// processor time, for the wake-ups of whoever waits at the other end; pieces of a megabyte cost more again, for the cache that they miss.
const readAtOnce = 256 << 10

var (
	errCutReply = errors.New("the cache server failed in the middle of a value")
	errFraming  = errors.New("a value is longer than the cache server announced")
)

// beginRelay begins to pass on the bulk string whose first bytes are head and which is total bytes long, framing included. False: it is
// to be gathered, because it is short or its client is owed something else first. The call stays in the queue until relay is done.
func (u *upstream) beginRelay(head []byte, total int) bool {
	if total < relayFrom || head[0] != '$' || u.calls.len() == 0 {
		return false
	}
	r := u.calls.front().request
	// To a client that is subscribed a message might come in the middle.
	if r == nil || r.kind != kindPass || r.client != nil && (r.client.head != r || r.client.isSubscribed()) {
		return false
	}
	u.relayLeft = total
	u.scanner = resp.Scanner{} // it has seen this reply's header
	return true
}

// relay passes on what has come of the value and returns how much of in that is; false if it does not end as announced. A client that
// has gone meanwhile is sent nothing.
func (u *upstream) relay(in []byte) (int, bool) {
	n := min(len(in), u.relayLeft)
	if !endsAsAnnounced(in[:n], u.relayLeft) {
		return n, false
	}
	u.relayLeft -= n
	w := u.worker
	r := u.calls.front().request
	cl := r.client
	if cl != nil {
		cl.conn.WriteThrough(in[:n])
	}
	switch {
	case u.relayLeft == 0:
		u.calls.pop()
		w.finishRelayed(r)
	case cl != nil:
		cl.checkOutput()
	}
	return n, true
}

// endsAsAnnounced checks those of a value's last two bytes that are in its piece; left is what was to come before it.
func endsAsAnnounced(piece []byte, left int) bool {
	const end = "\r\n"
	for i := max(0, left-len(end)); i < len(piece); i++ {
		if piece[i] != end[i-(left-len(end))] {
			return false
		}
	}
	return true
}

// finishRelayed completes a request whose reply has been written already.
func (w *worker) finishRelayed(r *request) {
	if r.client == nil {
		w.release(r)
		return
	}
	w.stats.observe(r, w.now)
	r.client.advance()
}

// cutRelayed completes a request of whose reply only a part could be written: nothing else may follow that.
func (w *worker) cutRelayed(r *request) {
	if r.client == nil {
		w.release(r)
		return
	}
	r.done = true // for the end of the connection, which releases what is done
	r.client.conn.Close(errCutReply)
}
