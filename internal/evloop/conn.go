package evloop

import (
	"net"
	"time"
)

// Conn is one connection on a loop. All its methods are called on the loop's goroutine; on a closed one they do nothing. It is
// never used again for another connection, so that a forgotten reference can do no harm.
type Conn struct {
	loop    *Loop
	handler Handler
	fd      int // -1 when there is none (yet)
	state   connState

	draining     bool // CloseAfterFlush was called
	muted        bool // output is thrown away
	deaf         bool // draining or muted
	shutdown     bool // our writing side is shut down
	paused       bool
	eofSeen      bool // the peer's writing side is shut down
	eofTold      bool
	blocked      bool // the kernel took less than was offered; wait until it says that it takes more
	above        bool // unread output passed the high-water mark
	registered   bool // with the poller
	detached     bool // taken out of the poller by a hang-up, see ready
	dirtyQueued  bool // in loop.dirty, and so on
	resumeQueued bool
	drainQueued  bool

	interest interest // as the poller knows it
	input    input
	output   output
	low      int
	high     int

	timer  *Timer // of the dial, then of the linger
	linger time.Duration
	err    error // for OnClose

	coupling *coupling // of a connection by DialFunc; else nil
	local    net.Addr
	remote   net.Addr
}

type connState uint8

const (
	connDialing connState = iota
	connOpen
	connClosed
)

func (l *Loop) newConn(h Handler) *Conn {
	c := &Conn{loop: l, handler: h, fd: -1, low: l.cfg.LowWater, high: l.cfg.HighWater}
	l.conns[c] = struct{}{}
	return c
}

// Loop returns the loop that the connection belongs to. It may be called on any goroutine.
func (c *Conn) Loop() *Loop { return c.loop }

// Closed says that nothing can be sent or received any more; OnClose comes or came.
func (c *Conn) Closed() bool { return c.state == connClosed }

// RemoteAddr is the peer's address: for a dialled connection the one dialled.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// LocalAddr is our address, or nil if the connection is not established or was closed before the first call.
func (c *Conn) LocalAddr() net.Addr {
	if c.local == nil && c.state == connOpen {
		c.local = localAddr(c.fd)
	}
	return c.local
}

// SetWatermarks sets the marks, in bytes of unread output, between which Full and OnDrain swing: Full from above high until at
// or below low. It wants 0 <= low <= high.
func (c *Conn) SetWatermarks(low, high int) {
	if low < 0 || high < low {
		panic(errUse("SetWatermarks wants 0 <= low <= high"))
	}
	c.low, c.high = low, high
	c.checkAbove()
}

// PauseRead stops reading from the peer, whose TCP then stops sending; nothing but OnDrain and OnClose is called while it lasts.
// Input that OnData left is kept.
func (c *Conn) PauseRead() {
	if c.state == connClosed || c.paused {
		return
	}
	c.paused = true
	c.markDirty()
}

// ResumeRead takes back PauseRead. Input that was left, and an EOF that was not reported, are presented after this call, in the
// same turn or the next.
func (c *Conn) ResumeRead() {
	if c.state == connClosed || !c.paused {
		return
	}
	c.paused = false
	c.markDirty()
	if (c.input.len() > 0 || c.eofSeen && !c.eofTold) && !c.resumeQueued {
		c.resumeQueued = true
		c.loop.resumed = append(c.loop.resumed, c)
	}
}

// Close closes the connection now and drops the output that has not been sent. err goes to OnClose, at the end of the turn.
func (c *Conn) Close(err error) {
	if c.state == connClosed {
		return
	}
	c.state = connClosed
	c.err = err
	c.stopTimer()
	c.loop.closing = append(c.loop.closing, c)
}

// CloseAfterFlush presents no more input, sends what was written before, shuts down our writing side, and closes when the peer
// has closed or after linger. Closing at once would destroy the last reply if the peer had sent something that nobody read. A
// peer that takes none of the output for linger is closed with ErrFlushTimeout. With linger <= 0 there is no limit for the
// output and no waiting after it. No more output is accepted.
func (c *Conn) CloseAfterFlush(linger time.Duration) {
	if c.state == connClosed || c.draining {
		return
	}
	c.draining, c.deaf = true, true
	c.linger = linger
	if c.state == connOpen {
		c.startLinger()
	}
	c.markDirty()
}

// startLinger bounds the wait for progress: of the output, then of the peer's close.
func (c *Conn) startLinger() {
	switch {
	case c.linger <= 0:
	case c.timer == nil:
		c.timer = c.loop.AfterFunc(c.linger, c.lingerOver)
	default:
		c.timer.Reset(c.linger)
	}
}

func (c *Conn) lingerOver() {
	if c.shutdown {
		c.Close(nil)
	} else {
		c.Close(ErrFlushTimeout)
	}
}

// finish goes on with CloseAfterFlush once all output has been taken by the kernel.
func (c *Conn) finish() {
	switch {
	case c.shutdown:
	case c.eofSeen, c.linger <= 0:
		c.Close(nil)
	default:
		c.shutdown = true
		if err := shutdownWrite(c.fd); err != nil {
			c.Close(nil) // the peer is gone already
			return
		}
		c.startLinger()
	}
}

func (c *Conn) stopTimer() {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

// release gives everything back once OnClose has been told. Only here are buffers returned, because a callback further up the
// stack may still look at its input when Close is called.
func (c *Conn) release() {
	if c.coupling != nil {
		c.coupling.cancel(errReleased)
	}
	if c.fd >= 0 {
		c.loop.closeFD(c.fd, c.registered, c.interest)
		c.fd = -1
		c.registered = false
	}
	c.input.reset(c.loop)
	c.output.reset(c.loop)
	delete(c.loop.conns, c)
}

// markDirty has the end of the turn flush output and bring the poller up to date, once, however often things changed until then.
func (c *Conn) markDirty() {
	if !c.dirtyQueued {
		c.dirtyQueued = true
		c.loop.dirty = append(c.loop.dirty, c)
	}
}

// reading says whether the peer's bytes are wanted: by the Handler, or to be thrown away before a close.
func (c *Conn) reading() bool {
	return c.state == connOpen && !c.eofSeen && (c.draining || !c.paused)
}

// updateInterest tells the poller what is wanted now, if that has changed.
func (c *Conn) updateInterest() {
	var want interest
	if c.state == connDialing || c.blocked {
		want |= wantWrite
	}
	if c.reading() {
		want |= wantRead
	}
	if c.fd < 0 || c.state == connClosed {
		return
	}
	var err error
	switch {
	case c.detached && want == 0:
		return
	case !c.registered:
		_, err = c.loop.register(c.fd, c, want)
		c.registered, c.detached = err == nil, false
	case want != c.interest:
		err = c.loop.poll.change(c.fd, c.loop.slots[c.fd].gen, c.interest, want)
	default:
		return
	}
	if err != nil {
		c.Close(sysError("watching the socket", err))
		return
	}
	c.interest = want
}

// ready implements source.
func (c *Conn) ready(ev readiness) {
	switch c.state {
	case connClosed: // earlier in this turn
		return
	case connDialing:
		c.dialed()
		return
	case connOpen:
	}
	if ev&(readyWrite|readyHangup|readyError) != 0 && c.blocked {
		c.blocked = false
		c.markDirty()
	}
	switch {
	case c.reading():
		if ev&(readyRead|readyHangup|readyError) != 0 {
			c.read()
		}
	case ev&readyError != 0:
		c.Close(c.reason(sysError("waiting on the socket", socketError(c.fd))))
	case ev&readyHangup != 0 && c.output.len() == 0:
		// Both directions have ended, and epoll says so again and again whether asked or not. Input may be left in the kernel
		// for when reading resumes. Until something is wanted the socket is out of the poller.
		if err := c.loop.poll.remove(c.fd, c.interest); err == nil {
			c.registered, c.detached = false, true
			c.interest = 0
		}
	}
}
