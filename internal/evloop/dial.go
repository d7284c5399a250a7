package evloop

import (
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Dial begins to connect to a numeric "tcp" address or a "unix" path and returns at once. OnOpen comes when the connection is
// established, else OnClose with a *net.OpError; neither comes within this call. After timeout, if it is positive, the error's
// Timeout method says true. What is written before OnOpen is kept and sent after it.
func (l *Loop) Dial(network, addr string, timeout time.Duration, h Handler) *Conn {
	c := l.newConn(h)
	c.remote = dialAddr{network, addr}
	if l.stopping {
		c.Close(ErrLoopStopped)
		return c
	}
	to, err := parseEndpoint(network, addr)
	if err != nil {
		c.dialFailed(err)
		return c
	}
	c.remote = to.addr
	if err := c.connect(to); err != nil {
		c.dialFailed(err)
		return c
	}
	if timeout > 0 {
		c.timer = l.AfterFunc(timeout, func() { c.dialFailed(os.ErrDeadlineExceeded) })
	}
	return c
}

// dialAddr is the address of a connection that was never begun, as it was given.
type dialAddr struct{ network, addr string }

func (a dialAddr) Network() string { return a.network }
func (a dialAddr) String() string  { return a.addr }

func (c *Conn) dialFailed(err error) {
	c.Close(&net.OpError{Op: "dial", Net: c.remote.Network(), Addr: c.remote, Err: err})
}

// connect begins to connect. The poller tells when it is done, also if it is done at once: one way for OnOpen to come.
func (c *Conn) connect(to endpoint) error {
	fd, err := newSocket(to.family)
	if err != nil {
		return sysError("socket", err)
	}
	c.fd = fd
	if to.family != unix.AF_UNIX {
		if err := setStreamOptions(fd, c.loop.cfg.KeepAlive); err != nil {
			return sysError("setsockopt", err)
		}
	}
	// EINTR means the same as EINPROGRESS: the attempt goes on.
	if err := unix.Connect(fd, to.sock); err != nil && err != unix.EINPROGRESS && err != unix.EINTR {
		return sysError("connect", err)
	}
	if _, err := c.loop.register(fd, c, wantWrite); err != nil {
		return sysError("watching the socket", err)
	}
	c.registered, c.interest = true, wantWrite
	return nil
}

// dialed is called when the poller has something to say about a connection that is being established.
func (c *Conn) dialed() {
	if n, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil || n != 0 {
		if err == nil {
			err = errnoType(n)
		}
		c.dialFailed(sysError("connect", err))
		return
	}
	peer, err := unix.Getpeername(c.fd)
	if err != nil {
		return // not yet: the report was premature
	}
	// A dial to a local port that nobody listens on can be given this very port as its own, and TCP then connects the socket
	// to itself. It must not hold the port that a server is about to come back to.
	if self, err := unix.Getsockname(c.fd); err == nil && sameAddr(self, peer) {
		c.dialFailed(sysError("connect", unix.ECONNREFUSED))
		return
	}
	c.opened()
}

// opened begins the life of a connection that has been established.
func (c *Conn) opened() {
	c.stopTimer()
	c.state = connOpen
	c.markDirty()
	if c.draining {
		c.startLinger()
		return
	}
	c.handler.OnOpen(c)
}
