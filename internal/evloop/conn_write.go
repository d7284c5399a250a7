package evloop

// output is what was written and not yet taken by the kernel: a list of full or owned pieces, and a buffer at the end that small
// writes are appended to. It holds buffers only while there is something.
type output struct {
	pieces  []piece // in order; those before head are done
	head    int
	tail    []byte
	tailOff int
	total   int   // bytes in all of it
	class   uint8 // of the buffer to begin with: the size that the last one had when it was sent
}

// piece is one part of the output: buf[off:]. An owned one is not returned to the pool.
type piece struct {
	buf   []byte
	off   int
	owned bool
}

// minOwned is the size from which a buffer is worth an entry of its own in the system call; below, copying it is cheaper.
const minOwned = 4 << 10

func (o *output) len() int { return o.total }

// Buffered returns how many bytes of output the kernel has not taken yet.
func (c *Conn) Buffered() int { return c.output.total }

// Full says that unread output went above the high-water mark and has not been back at the low one since. OnDrain will come.
func (c *Conn) Full() bool { return c.above }

// writable says whether output is accepted.
func (c *Conn) writable() bool { return c.state != connClosed && !c.deaf }

// Mute has output thrown away from now on, or taken again. What was written before is still sent.
func (c *Conn) Mute(on bool) {
	c.muted = on
	c.deaf = on || c.draining
}

// Write copies p to the output, which is sent at the end of the turn. It never blocks and never fails: what happens to the
// connection is told by OnClose. How much is unread is told by Full and Buffered.
func (c *Conn) Write(p []byte) {
	if !c.writable() {
		return
	}
	c.wrote(len(p))
	o := &c.output
	for len(p) > 0 {
		free := cap(o.tail) - len(o.tail)
		if free == 0 || free < len(p) && cap(o.tail) < maxPooled {
			o.reserve(c.loop, min(len(p), maxPooled))
			free = cap(o.tail) - len(o.tail)
		}
		n := min(len(p), free)
		o.tail = append(o.tail, p[:n]...)
		p = p[n:]
	}
}

// Out returns the output's last buffer, with room for n bytes, to append to in place; SetOut takes it back, and must be the next
// call for this connection. More than n bytes may be appended; that only costs a copy.
//
//	out := c.Out(32)
//	out = append(out, ':')
//	out = strconv.AppendInt(out, v, 10)
//	c.SetOut(append(out, "\r\n"...))
func (c *Conn) Out(n int) []byte {
	if !c.writable() {
		return nil
	}
	c.output.reserve(c.loop, n)
	return c.output.tail
}

// SetOut takes back what Out returned, with something appended.
func (c *Conn) SetOut(b []byte) {
	if !c.writable() {
		return
	}
	o := &c.output
	added := len(b) - len(o.tail)
	if added < 0 {
		panic(errUse("SetOut was given less than Out returned"))
	}
	if cap(b) != cap(o.tail) { // append has moved it
		c.loop.pool.put(o.tail)
	}
	o.tail = b
	c.wrote(added)
}

// WriteOwned queues p without copying it. From now on it belongs to the connection: nobody may change it. It is meant for large
// values; small ones are copied.
func (c *Conn) WriteOwned(p []byte) {
	if len(p) < minOwned {
		c.Write(p)
		return
	}
	if !c.writable() {
		return
	}
	c.output.pushTail()
	c.output.pieces = append(c.output.pieces, piece{buf: p, owned: true})
	c.wrote(len(p))
}

// WriteThrough is Write for a large piece that the caller keeps, such as a part of the input that is passed on: what the kernel takes
// at once is not copied. It costs a system call of its own, now rather than at the end of the turn.
func (c *Conn) WriteThrough(p []byte) {
	if c.state == connOpen && !c.deaf && !c.blocked && c.output.total == 0 && len(p) >= minOwned {
		n, errno := sysWrite(c.fd, p)
		switch errno {
		case 0:
			p = p[n:]
		case errAgain:
		default:
			c.Close(c.reason(sysError("write", errno)))
			return
		}
	}
	if len(p) > 0 {
		c.Write(p)
	}
}

// wrote accounts for n bytes of new output and has them sent at the end of the turn.
func (c *Conn) wrote(n int) {
	c.output.total += n
	c.loop.held.out += n
	c.checkAbove()
	if !c.blocked {
		c.markDirty()
	}
}

func (c *Conn) checkAbove() {
	if c.output.total > c.high {
		c.above = true
	}
}

// reserve makes room for n bytes in the tail: in a larger buffer while it is small, else in a new one behind it, so that no byte
// is moved more than a few times however much is written.
func (o *output) reserve(l *Loop, n int) {
	if cap(o.tail)-len(o.tail) >= n {
		return
	}
	unread := len(o.tail) - o.tailOff
	switch {
	case cap(o.tail) == 0:
		o.tail = l.pool.get(max(n, classSize(int(o.class))))
	case cap(o.tail) < maxPooled && unread+n <= maxPooled:
		buf := append(l.pool.get(unread+n), o.tail[o.tailOff:]...)
		l.pool.put(o.tail)
		o.tail = buf
	default:
		o.pushTail()
		o.tail = l.pool.get(max(n, maxPooled))
	}
	o.tailOff = 0
}

// pushTail makes the tail a piece.
func (o *output) pushTail() {
	if len(o.tail) > o.tailOff {
		o.pieces = append(o.pieces, piece{buf: o.tail, off: o.tailOff})
		o.tail, o.tailOff = nil, 0
	}
}

// flush offers the output to the kernel, in one system call, and then tells the poller what is to be waited for.
func (c *Conn) flush() {
	if c.state == connOpen {
		if c.output.total > 0 && !c.blocked && !c.send() {
			return
		}
		if c.draining && c.output.total == 0 {
			c.finish()
		}
	}
	c.updateInterest()
}

// send writes once. It returns false if the connection has ended by it.
func (c *Conn) send() bool {
	o := &c.output
	n, errno := o.write(c.loop, c.fd)
	if errno != 0 && errno != errAgain {
		c.Close(c.reason(sysError("write", errno)))
		return false
	}
	if n > 0 {
		o.advance(c.loop, n)
		c.loop.held.out -= n
		if c.draining {
			c.startLinger()
		}
	}
	// What is left waits for the poller, even if it is left only because one call takes no more pieces.
	c.blocked = o.total > 0
	if c.above && o.total <= c.low {
		c.above = false
		if !c.drainQueued {
			c.drainQueued = true
			c.loop.drained = append(c.loop.drained, c)
		}
	}
	return true
}

func (o *output) write(l *Loop, fd int) (int, errnoType) {
	if o.head == len(o.pieces) {
		return sysWrite(fd, o.tail[o.tailOff:])
	}
	v := l.iovecs.start()
	for i := o.head; i < len(o.pieces) && v.add(o.pieces[i].buf[o.pieces[i].off:]); i++ {
	}
	if len(o.tail) > o.tailOff {
		v.add(o.tail[o.tailOff:])
	}
	return v.write(fd)
}

// advance drops the first n bytes, which have been sent.
func (o *output) advance(l *Loop, n int) {
	o.total -= n
	for o.head < len(o.pieces) {
		p := &o.pieces[o.head]
		if left := len(p.buf) - p.off; n < left {
			p.off += n
			return
		} else {
			n -= left
		}
		if !p.owned {
			l.pool.put(p.buf)
		}
		*p = piece{}
		o.head++
	}
	o.pieces, o.head = recycled(o.pieces), 0
	o.tailOff += n
	if o.tailOff == len(o.tail) && o.tail != nil {
		o.class = uint8(bufferClass(min(len(o.tail), maxPooled)))
		l.pool.put(o.tail)
		o.tail, o.tailOff = nil, 0
	}
}

// recycled empties the list of pieces and keeps it if it is small.
func recycled(list []piece) []piece {
	if cap(list) > 16 {
		return nil
	}
	return list[:0]
}

func (o *output) reset(l *Loop) {
	l.held.out -= o.total
	for _, p := range o.pieces[o.head:] {
		if !p.owned {
			l.pool.put(p.buf)
		}
	}
	l.pool.put(o.tail)
	*o = output{}
}
