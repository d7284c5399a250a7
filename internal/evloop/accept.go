package evloop

import (
	"net"
	"sync/atomic"
)

// Accepted is a connection that a Listener took and that no loop owns yet. Whoever has it gives it to Adopt on some loop,
// through that loop's Submit if it is another one, or calls Close.
type Accepted struct {
	fd     atomic.Int64 // -1 once taken
	stream bool         // TCP: its options are to be set
	remote net.Addr
}

func newAccepted(fd int, stream bool, remote net.Addr) *Accepted {
	a := &Accepted{stream: stream, remote: remote}
	a.fd.Store(int64(fd))
	return a
}

// RemoteAddr is the peer's address. Any goroutine.
func (a *Accepted) RemoteAddr() net.Addr { return a.remote }

// Close closes the connection unless it has been adopted or closed. Any goroutine.
func (a *Accepted) Close() {
	if fd, ok := a.take(); ok {
		closeDescriptor(fd)
	}
}

// take makes the caller the descriptor's one owner.
func (a *Accepted) take() (int, bool) {
	fd := a.fd.Swap(-1)
	return int(fd), fd >= 0
}

// Adopt makes an accepted connection this loop's, and calls OnOpen before it returns. If it fails the descriptor is closed and
// the Handler hears nothing.
func (l *Loop) Adopt(a *Accepted, h Handler) (*Conn, error) {
	fd, ok := a.take()
	if !ok {
		return nil, ErrTaken
	}
	if l.stopping {
		closeDescriptor(fd)
		return nil, ErrLoopStopped
	}
	if a.stream {
		if err := setStreamOptions(fd, l.cfg.KeepAlive); err != nil {
			closeDescriptor(fd) // the peer is gone already
			return nil, sysError("setsockopt", err)
		}
	}
	c := l.newConn(h)
	c.fd = fd
	c.remote = a.remote
	c.state = connOpen
	c.markDirty() // registers it, with what OnOpen leaves to be wanted
	h.OnOpen(c)
	return c, nil
}
