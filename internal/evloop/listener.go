package evloop

import (
	"fmt"
	"io/fs"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// ListenConfig says where to listen.
type ListenConfig struct {
	Network string      // "tcp" or "unix"
	Addr    string      // numeric host:port (port 0: a free one), or a path
	Mode    fs.FileMode // permissions of a unix socket; default 0600, this user only
	Backlog int         // connections that may wait to be accepted; default 4096, and the system has a limit of its own
}

const (
	defaultSocketMode = 0o600
	defaultBacklog    = 4096
	acceptsPerTurn    = 64
	minAcceptPause    = 10 * time.Millisecond
	maxAcceptPause    = time.Second
)

// Listener accepts connections for a loop, which may give them to other loops.
type Listener struct {
	loop   *Loop
	fd     int // -1 when closed
	stream bool
	addr   net.Addr
	accept func(*Accepted)
	path   *socketPath // of a unix socket

	resume *Timer        // set while accepting is suspended
	pause  time.Duration // the next suspension
}

// Listen listens and has accept called, on this loop, for each connection. When descriptors or memory run out, connections wait
// in the backlog while accepting is suspended for 10 ms, then 20, up to a second; Stats counts it. For a unix socket the path
// must be free or that of a socket on which nobody listens any more; anything else there is left alone and refused.
func (l *Loop) Listen(cfg ListenConfig, accept func(*Accepted)) (*Listener, error) {
	n, err := l.listen(cfg, accept)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: cfg.Network, Addr: dialAddr{cfg.Network, cfg.Addr}, Err: err}
	}
	return n, nil
}

func (l *Loop) listen(cfg ListenConfig, accept func(*Accepted)) (_ *Listener, err error) {
	if l.stopping {
		return nil, ErrLoopStopped
	}
	if cfg.Mode == 0 {
		cfg.Mode = defaultSocketMode
	}
	if cfg.Backlog == 0 {
		cfg.Backlog = defaultBacklog
	}
	if cfg.Mode&^fs.ModePerm != 0 || cfg.Backlog < 0 {
		return nil, fmt.Errorf("mode is %v and backlog %d; allowed are permission bits, and a backlog that is not negative",
			cfg.Mode, cfg.Backlog)
	}
	at, err := parseEndpoint(cfg.Network, cfg.Addr)
	if err != nil {
		return nil, err
	}
	n := &Listener{loop: l, fd: -1, stream: at.family != unix.AF_UNIX, addr: at.addr, accept: accept, pause: minAcceptPause}
	defer func() {
		if err != nil {
			n.release(false)
		}
	}()
	if n.fd, err = newSocket(at.family); err != nil {
		n.fd = -1
		return nil, sysError("socket", err)
	}
	if n.stream {
		err = n.bindTCP(at)
	} else {
		n.path, err = bindSocketPath(n.fd, cfg.Addr, cfg.Mode)
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Listen(n.fd, cfg.Backlog); err != nil {
		return nil, sysError("listen", err)
	}
	if _, err := l.register(n.fd, n, wantRead); err != nil {
		return nil, sysError("watching the socket", err)
	}
	l.listeners[n] = struct{}{}
	return n, nil
}

func (n *Listener) bindTCP(at endpoint) error {
	if err := unix.SetsockoptInt(n.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return sysError("setsockopt", err)
	}
	if at.family == unix.AF_INET6 {
		// [::] means IPv6 only, whatever the system's default: who wants both listens on both.
		if err := unix.SetsockoptInt(n.fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return sysError("setsockopt", err)
		}
	}
	if err := unix.Bind(n.fd, at.sock); err != nil {
		return sysError("bind", err)
	}
	n.addr = localAddr(n.fd)
	return nil
}

// Addr is where it listens, with the port that the system chose if 0 was asked for.
func (n *Listener) Addr() net.Addr { return n.addr }

// Close stops listening and removes the path of a unix socket. Accepted connections are not touched; those that nobody accepted
// are refused by the system.
func (n *Listener) Close() {
	if n.fd >= 0 {
		n.release(true)
	}
}

func (n *Listener) release(registered bool) {
	delete(n.loop.listeners, n)
	if n.resume != nil {
		n.resume.Stop()
		n.resume = nil
		registered = false
	}
	if n.path != nil {
		n.path.remove() // first: the path must not lead to a socket that is closed
		n.path = nil
	}
	if n.fd >= 0 {
		n.loop.closeFD(n.fd, registered, wantRead)
		n.fd = -1
	}
}

// ready implements source.
func (n *Listener) ready(readiness) {
	for range acceptsPerTurn {
		if n.fd < 0 || n.resume != nil { // closed by what accept called
			return
		}
		fd, sa, err := accept(n.fd)
		switch err {
		case nil:
			n.pause = minAcceptPause
			n.loop.stats.accepted.Add(1)
			n.accept(newAccepted(fd, n.stream, netAddr(sa)))
		case unix.EAGAIN:
			return
		case unix.EINTR, unix.ECONNABORTED, unix.EPROTO, unix.ENETDOWN, unix.EHOSTDOWN, unix.EHOSTUNREACH, unix.ENETUNREACH,
			unix.EPERM:
			// Errors of the one connection, which is gone. EPERM is a firewall's.
		default:
			n.suspend()
			return
		}
	}
}

// suspend stops accepting for a while. Whatever the reason, neither spinning nor giving up would help.
func (n *Listener) suspend() {
	if err := n.loop.poll.remove(n.fd, wantRead); err != nil {
		return // still watched: the next turn tries again
	}
	n.loop.stats.acceptPauses.Add(1)
	n.resume = n.loop.AfterFunc(n.pause, n.watchAgain)
	n.pause = min(2*n.pause, maxAcceptPause)
}

func (n *Listener) watchAgain() {
	if _, err := n.loop.register(n.fd, n, wantRead); err != nil {
		n.resume.Reset(n.pause)
		return
	}
	n.resume = nil
}
