package evloop

// input is what was read and not consumed: buf[off:]. It holds a buffer only while there is something.
type input struct {
	buf  []byte
	off  int
	want int // OnData is not called with less, unless the peer has shut down
	// until is where readBehind stops reading: at want, if that was far away when it was said; else 0, as far as it can.
	until int
}

// minUntil is how much must be missing for a Want to say where a value ends. A Handler that only says that it needs a little more, as
// one that is in the middle of a long list does, must not be fed byte by byte.
const minUntil = 4 << 10

func (in *input) len() int { return len(in.buf) - in.off }

func (in *input) bytes() []byte { return in.buf[in.off:] }

func (in *input) reset(l *Loop) {
	if in.buf != nil {
		l.held.in -= in.len()
		l.pool.put(in.buf)
		in.buf, in.off = nil, 0
	}
}

// Want says that OnData has no use for less than n bytes of unconsumed input, counted from what the present call leaves. It holds
// for one call of OnData. Without it a large value that arrives in small pieces would be looked at again with each of them. At
// EOF OnData is called with what there is.
func (c *Conn) Want(n int) { c.input.want = n }

// read reads once and presents what there is. One read per turn is fair to the others, and the poller says it again if there is
// more.
func (c *Conn) read() {
	l := c.loop
	if c.draining {
		c.discard()
		return
	}
	held := c.input.len()
	if held > headroom || c.input.want > headroom {
		c.readBehind(held)
		return
	}
	n, ok := c.readInto(l.readBuffer[headroom:])
	if !ok {
		return
	}
	fresh := l.readBuffer[headroom : headroom+n]
	if held+n < c.input.want {
		c.keep(fresh)
		return
	}
	if held > 0 {
		fresh = l.readBuffer[headroom-held : headroom+n]
		copy(fresh, c.input.bytes())
	}
	consumed := c.deliver(fresh)
	// What was held is in fresh too, so it is replaced.
	if rest := fresh[consumed:]; len(rest) == 0 || c.state == connClosed {
		c.input.reset(l)
	} else {
		l.held.in -= held
		c.input.buf, c.input.off = c.input.buf[:0], 0
		c.keep(rest)
	}
}

// readBehind reads behind the input that is held, for large values. It reads no further than the value that is wanted, so that
// its buffer is free, rather than carrying the beginning of the next, when it has been consumed.
func (c *Conn) readBehind(held int) {
	l := c.loop
	in := &c.input
	room := l.cfg.ReadBuffer
	if in.until > held {
		room = min(room, in.until-held)
	}
	in.reserve(l, room)
	n, ok := c.readInto(in.buf[len(in.buf) : len(in.buf)+room])
	if !ok {
		return
	}
	in.buf = in.buf[:len(in.buf)+n]
	l.held.in += n
	if in.len() < in.want {
		return
	}
	c.deliverHeld()
}

// deliverHeld presents the input where it is kept.
func (c *Conn) deliverHeld() {
	l := c.loop
	in := &c.input
	consumed := c.deliver(in.bytes())
	in.off += consumed
	l.held.in -= consumed
	switch {
	case in.len() == 0 || c.state == connClosed:
		in.reset(l)
	case cap(in.buf) > maxPooled && in.len() <= headroom:
		// A short rest must not keep a large buffer alive.
		rest := append(l.pool.get(in.len()), in.bytes()...)
		in.buf, in.off = rest, 0
	}
}

// deliver calls OnData and checks its answer.
func (c *Conn) deliver(p []byte) int {
	in := &c.input
	in.want, in.until = 0, 0
	consumed := c.handler.OnData(c, p)
	if consumed < 0 || consumed > len(p) {
		panic(errUse("OnData consumed less than nothing or more than it was given"))
	}
	if in.want >= len(p)-consumed+minUntil {
		in.until = in.want
	}
	return consumed
}

// keep appends p to the input that is held.
func (c *Conn) keep(p []byte) {
	c.input.reserve(c.loop, len(p))
	c.input.buf = append(c.input.buf, p...)
	c.loop.held.in += len(p)
}

// reserve makes room for n bytes behind the input that is held. What is held is moved only when at least as much has been
// consumed before it, or into a buffer at least twice the size, so that the moving is linear in the input.
func (in *input) reserve(l *Loop, n int) {
	if cap(in.buf)-len(in.buf) >= n {
		return
	}
	held := in.len()
	if in.off >= held && cap(in.buf) >= held+n {
		copy(in.buf, in.bytes())
		in.buf, in.off = in.buf[:held], 0
		return
	}
	size := held + n
	if size > maxPooled {
		// Not at once all that is wanted: the mere promise of a large value allocates nothing.
		most := 2 * held
		if in.until > held {
			most = min(most, in.until)
		}
		size = max(size, most)
	}
	buf := append(l.pool.get(size), in.bytes()...)
	l.pool.put(in.buf)
	in.buf, in.off = buf, 0
}

// readInto reads once into p. It returns false when there is nothing to present: the peer would block, has shut down or is gone;
// it has seen to that then.
func (c *Conn) readInto(p []byte) (int, bool) {
	n, errno := sysRead(c.fd, p)
	switch {
	case errno == errAgain:
		return 0, false
	case errno != 0:
		c.Close(c.reason(sysError("read", errno)))
		return 0, false
	case n == 0:
		if err := c.reason(nil); err != nil {
			c.Close(err) // a coupled stream has failed, which the socket pair cannot say
			return 0, false
		}
		c.eofSeen = true
		c.markDirty() // no more interest in reading
		c.present()
		return 0, false
	}
	return n, true
}

// present shows the Handler input that it has left, and then the EOF if that was seen. It comes with ResumeRead and with EOF.
func (c *Conn) present() {
	if !c.presentable() {
		return
	}
	if n := c.input.len(); n > 0 && (n >= c.input.want || c.eofSeen) {
		c.deliverHeld()
	}
	if c.eofSeen && !c.eofTold && c.presentable() && !c.resumeQueued {
		c.eofTold = true
		c.handler.OnEOF(c)
	}
}

func (c *Conn) presentable() bool { return c.state == connOpen && !c.draining && !c.paused }

// discard reads what nobody wants any more, until the peer closes: see CloseAfterFlush.
func (c *Conn) discard() {
	n, errno := sysRead(c.fd, c.loop.readBuffer)
	switch {
	case errno == errAgain:
	case errno != 0:
		c.Close(nil) // the peer is gone: what it did not take it does not want
	case n == 0:
		c.eofSeen = true
		if c.shutdown {
			c.Close(nil)
		}
		c.markDirty()
	}
}
