package proxy

import (
	"bytes"
	"errors"
	"time"

	"ringside/internal/evloop"
	"ringside/resp"
)

// client is one connection of the application. All of it is touched on its worker's loop only.
type client struct {
	worker *worker
	conn   *evloop.Conn
	id     int64
	parser resp.Parser
	opened time.Time

	head, tail *request // what is owed, oldest first
	owed       int
	window     int // how much may be owed before input is left unread: Config.InFlight, 0 while holds are in force
	holds      int
	held       int // bytes of replies that wait for their turn
	writes     int // row writes under way

	session  *session // nil for most: see there
	proto    int
	authed   bool
	noReply  bool // after QUIT, broken framing or EOF: nothing more is read
	leaving  bool // the server is stopping: closes as soon as it is owed nothing
	stopped  bool // reading is paused
	cut      bool // its connection was closed because it does not read; that comes once
	ordering bool // the next command waits for earlier ones: see handler
	busy     bool // input is still to be parsed, or may be: it was received while reading was paused
	silent   bool // CLIENT REPLY OFF
	skip     skipState
	heard    int64 // worker.now when input came last, or when reading went on

	name, libName, libVersion string
}

// linger is how long a connection that we close waits for the peer to take its last reply.
const linger = time.Second

var errOutput = errors.New("client does not read its replies")

// OnOpen implements evloop.Handler.
func (cl *client) OnOpen(c *evloop.Conn) {
	cl.conn = c
	c.SetWatermarks(cl.worker.server.live().OutputSoft/2, cl.worker.server.live().OutputSoft)
}

// OnData implements evloop.Handler.
func (cl *client) OnData(c *evloop.Conn, in []byte) int {
	cl.worker.turn()
	cl.heard = cl.worker.now
	cl.busy = true
	consumed := cl.parse(c, in)
	cl.busy = cl.stopped && consumed < len(in)
	cl.maybeClose()
	return consumed
}

// parse begins the requests in the client's input and returns how much of that is done with.
func (cl *client) parse(c *evloop.Conn, in []byte) int {
	consumed := 0
	for !cl.noReply {
		if cl.full() {
			n, then := cl.parseHeld(in[consumed:])
			consumed += n
			switch then {
			case parseStop:
				cl.stop(len(in) - consumed)
				return consumed
			case parseWait:
				return consumed
			}
			continue
		}
		cmd, n, err := cl.parser.Next(in[consumed:])
		if err != nil {
			cl.protocolError(err)
			break
		}
		if n == 0 {
			c.Want(cl.parser.Want())
			return consumed
		}
		if len(cmd.Args) > 0 && !cl.worker.dispatch(cl, cmd) {
			cl.ordering = true
			cl.stop(len(in) - consumed)
			return consumed
		}
		consumed += n
	}
	// Input behind QUIT or broken framing is thrown away, so that closing does not reset the connection under the last reply.
	return len(in)
}

// OnDrain implements evloop.Handler.
func (cl *client) OnDrain(*evloop.Conn) {
	cl.worker.turn()
	cl.goOn()
}

// OnEOF implements evloop.Handler: a client that has shut down its writing side still gets what it is owed.
func (cl *client) OnEOF(*evloop.Conn) {
	cl.noReply, cl.busy = true, false
	if cl.isBlocked() {
		cl.conn.Close(errClientLeft) // what it waits for is not to be taken for nobody
		return
	}
	cl.closeWhenDone()
}

// OnClose implements evloop.Handler.
func (cl *client) OnClose(_ *evloop.Conn, _ error) {
	w := cl.worker
	for r := cl.head; r != nil; {
		next := r.next
		r.client, r.next = nil, nil
		if r.done {
			w.release(r)
		}
		r = next
	}
	cl.head, cl.tail = nil, nil
	w.forgetHold(cl)
	cl.endSession(errClientLeft)
	delete(w.clients, cl.id)
	w.server.clients.Add(-1)
}

// full reports whether the client must be answered before more of its requests are read.
func (cl *client) full() bool {
	return cl.owed >= cl.window || cl.conn.Full() || cl.held > 0 && cl.held > cl.worker.server.live().OutputSoft
}

// readAhead is how much of the input of a client that waits for data is read before its turn, so that its leaving is seen.
const readAhead = 64 << 10

// stop leaves the client's input unread for now; unparsed is how much of it is here.
func (cl *client) stop(unparsed int) {
	cl.stopped = true
	if !cl.isBlocked() || unparsed > readAhead {
		cl.conn.PauseRead()
	}
}

// goOn reads on if nothing stands in the way any more.
func (cl *client) goOn() {
	if !cl.stopped {
		return
	}
	if cl.skip == skipBegun && cl.owed == 0 {
		cl.endSkip() // which comes back here
		return
	}
	// Half the window, so that a client at its limit is not paused and resumed with every reply.
	if !cl.ordering && (!cl.full() || cl.mayBeginSkipped()) && cl.owed <= cl.worker.server.live().InFlight/2 {
		cl.stopped = false
		cl.busy, cl.heard = true, cl.worker.now
		cl.conn.PauseRead() // it may be blocked and not paused: so that what was left is presented again
		cl.conn.ResumeRead()
	}
}

// hold leaves the client's next requests unread until release has been called as often: a command that takes several steps must be over
// before those that the client sent after it begin.
func (cl *client) hold() {
	cl.holds++
	cl.window = 0
}

// release takes back one hold.
func (cl *client) release() {
	cl.holds--
	if cl.holds == 0 {
		cl.window = cl.worker.server.live().InFlight
	}
	cl.goOn()
}

// checkOutput ends the connection of a client that lets its replies pile up.
func (cl *client) checkOutput() {
	if !cl.cut && cl.held+cl.conn.Buffered() > cl.worker.server.live().OutputHard {
		cl.cut = true
		cl.worker.stats.cutOutput++
		cl.conn.Close(errOutput)
	}
}

// advance takes the answered request at the head away and writes the replies behind it that have waited for it.
func (cl *client) advance() {
	cl.pop()
	for cl.head != nil && cl.head.done {
		r := cl.head
		cl.held -= len(r.reply)
		if len(r.reply) > keepReply {
			cl.conn.WriteOwned(r.reply)
			r.reply = nil
		} else {
			cl.conn.Write(r.reply)
		}
		cl.pop()
	}
	cl.checkOutput()
	if cl.owed == 0 {
		cl.ordering = false // there is nothing left to wait for
	}
	cl.goOn()
	cl.maybeClose()
}

func (cl *client) pop() {
	r := cl.head
	cl.head = r.next
	if cl.head == nil {
		cl.tail = nil
	}
	cl.owed--
	cl.worker.release(r)
}

// writeBulk appends a bulk string to the client's output.
func (cl *client) writeBulk(body []byte) {
	cl.conn.SetOut(resp.AppendBulk(cl.conn.Out(len(body)+bulkFraming), body))
}

// bulkFraming is the most that a bulk string has around it.
const bulkFraming = 32

// closeWhenDone closes the connection once nothing is owed any more.
func (cl *client) closeWhenDone() {
	if cl.owed == 0 && !cl.busy {
		cl.conn.CloseAfterFlush(linger)
	}
}

// maybeClose closes the connection of a client that is not to be served any longer, once nothing is owed to it.
func (cl *client) maybeClose() {
	switch {
	case cl.noReply:
		cl.closeWhenDone()
	case cl.leaving && cl.owed == 0:
		cl.worker.loop.AfterFunc(0, cl.closeWhenDone) // by then what the kernel holds has been read
	}
}

// leave closes the connection of a client that has sent nothing lately and is owed nothing. When the server's patience is over,
// the moment at which it is owed nothing will do.
func (cl *client) leave(patient bool) {
	cl.leaving = !patient
	if cl.leaving && cl.isBlocked() {
		cl.session.call.end(errClosing)
	}
	if !cl.stopped && time.Duration(cl.worker.now-cl.heard) >= drainLook {
		cl.busy = false // nothing came
		cl.closeWhenDone()
	}
}

// endAfterReplies reads no more requests and closes when those read have been answered.
func (cl *client) endAfterReplies() {
	cl.noReply = true
	cl.closeWhenDone()
}

func (cl *client) protocolError(err error) {
	cl.worker.stats.protocolErrors++
	if broken, ok := errors.AsType[*resp.ProtocolError](err); ok && broken.Limit != resp.NoLimit {
		cl.worker.stats.atLimit.requests[broken.Limit]++
	}
	cl.refuse(cl.worker, resp.Refusal("ERR "+err.Error()))
	cl.endAfterReplies()
}

// holdsWrite reports whether a write to the row of this key is under way on this connection.
func (cl *client) holdsWrite(key []byte) bool {
	if cl.writes == 0 {
		return false
	}
	for r := cl.head; r != nil; r = r.next {
		if r.done {
			continue
		}
		if r.kind == kindWrite && bytes.Equal(r.key, key) || r.kind == kindJoin && r.join.write && r.join.names(key) {
			return true
		}
	}
	return false
}

// holdsRead reports whether a read of the row of this key is under way on this connection: a miss would see what is written meanwhile.
func (cl *client) holdsRead(key []byte) bool {
	for r := cl.head; r != nil; r = r.next {
		if r.done {
			continue
		}
		if r.kind == kindRow && bytes.Equal(r.key, key) || r.kind == kindJoin && !r.join.write && r.join.names(key) {
			return true
		}
	}
	return false
}

// wrote ends a write; what waited for it may be read now.
func (cl *client) wrote() {
	cl.writes--
	cl.ordering = false
	cl.goOn()
}
