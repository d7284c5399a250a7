package evloop

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// dialOnce dials on l and returns what came first: an open connection or the error.
func dialOnce(t *testing.T, l *Loop, network, addr string, timeout time.Duration) (*Conn, error) {
	t.Helper()
	opened := make(chan *Conn, 1)
	closed := make(chan error, 1)
	on(t, l, func() {
		inside := true
		l.Dial(network, addr, timeout, &hooks{
			open: func(c *Conn) { opened <- c },
			close: func(_ *Conn, err error) {
				if inside {
					t.Error("OnClose from within Dial")
				}
				closed <- err
			},
		})
		inside = false
	})
	select {
	case c := <-opened:
		return c, nil
	case err := <-closed:
		return nil, err
	case <-time.After(patience):
		t.Fatal("neither OnOpen nor OnClose")
		return nil, nil
	}
}

// TestDialWritesBeforeOpen: what is written before OnOpen is sent after it, in order.
func TestDialWritesBeforeOpen(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		l := startLoop(t, Config{})
		cfg := ListenConfig{Network: "tcp", Addr: "127.0.0.1:0"}
		if network == "unix" {
			cfg = ListenConfig{Network: "unix", Addr: socketDir(t) + "/s"}
		}
		addr := serveAt(t, l, cfg, echo)
		got := make(chan string, 1)
		on(t, l, func() {
			c := l.Dial(network, addr, patience, &hooks{
				open: func(c *Conn) {
					c.Write([]byte("c"))
					if c.LocalAddr() == nil || c.RemoteAddr().String() != addr {
						t.Errorf("addresses %v, %v", c.LocalAddr(), c.RemoteAddr())
					}
				},
				data: func(c *Conn, in []byte) int {
					if len(in) < 3 {
						return 0
					}
					got <- string(in)
					return len(in)
				},
			})
			c.Write([]byte("a"))
			c.SetOut(append(c.Out(1), 'b'))
		})
		if s := await(t, "the echo", got); s != "abc" {
			t.Errorf("%s: got %q", network, s)
		}
	}
}

// TestDialCloseAfterFlush: a farewell that is given before the connection is there.
func TestDialCloseAfterFlush(t *testing.T) {
	l := startLoop(t, Config{})
	got := make(chan string, 1)
	closed := make(chan error, 1)
	addr := serve(t, l, func() Handler {
		return &hooks{data: func(_ *Conn, in []byte) int { got <- string(in); return len(in) },
			eof: func(c *Conn) { c.Close(nil) }}
	})
	on(t, l, func() {
		c := l.Dial("tcp", addr, patience, &hooks{
			open:  func(*Conn) { t.Error("OnOpen after CloseAfterFlush") },
			close: func(_ *Conn, err error) { closed <- err },
		})
		c.Write([]byte("QUIT"))
		c.CloseAfterFlush(patience)
	})
	if s := await(t, "the farewell", got); s != "QUIT" {
		t.Errorf("got %q", s)
	}
	if err := await(t, "OnClose", closed); err != nil {
		t.Errorf("OnClose got %v", err)
	}
}

func TestDialRefused(t *testing.T) {
	l := startLoop(t, Config{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	_ = ln.Close()
	_, err = dialOnce(t, l, "tcp", addr, patience)
	var op *net.OpError
	if !errors.Is(err, syscall.ECONNREFUSED) || !errors.As(err, &op) || op.Op != "dial" || !strings.Contains(err.Error(), addr) {
		t.Errorf("got %v", err)
	}
	if _, err := dialOnce(t, l, "unix", socketDir(t)+"/none", patience); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("got %v", err)
	}
}

// TestDialBlackHole: a peer that never answers is given up after the timeout. It is a listener whose backlog is full.
func TestDialBlackHole(t *testing.T) {
	l := startLoop(t, Config{})
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	addr := localAddr(fd).String()
	for range 20 {
		begun := time.Now()
		c, err := dialOnce(t, l, "tcp", addr, 100*time.Millisecond)
		if c != nil {
			continue // the backlog had room
		}
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Fatalf("got %v, want a timeout", err)
		}
		if took := time.Since(begun); took < 99*time.Millisecond || took > 5*time.Second {
			t.Fatalf("gave up after %v", took)
		}
		return
	}
	t.Fatal("every connection was established")
}

func TestDialBadAddress(t *testing.T) {
	l := startLoop(t, Config{})
	for _, test := range []struct{ network, addr, want string }{
		{"tcp", "localhost:80", "numeric"},
		{"tcp", "127.0.0.1", "numeric"},
		{"udp", "127.0.0.1:80", "network"},
		{"unix", "", "empty"},
		{"unix", "@abstract", "abstract"},
		{"unix", "/" + strings.Repeat("x", 200), "103"},
		{"tcp", "[fe80::1%nonexistent0]:80", "zone"},
	} {
		_, err := dialOnce(t, l, test.network, test.addr, time.Second)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s %q: got %v, want something about %q", test.network, test.addr, err, test.want)
		}
	}
}

func TestDialIPv6(t *testing.T) {
	l := startLoop(t, Config{})
	if ln, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Logf("no IPv6 here (%v): only parsing is tested", err)
		if _, err := parseEndpoint("tcp", "[::1]:80"); err != nil {
			t.Error(err)
		}
		return
	} else {
		_ = ln.Close()
	}
	addr := serveAt(t, l, ListenConfig{Network: "tcp", Addr: "[::1]:0"}, echo)
	c, err := dialOnce(t, l, "tcp", addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	on(t, l, func() {
		if got := c.RemoteAddr().String(); got != addr {
			t.Errorf("remote address %s, want %s", got, addr)
		}
	})
}

// TestDialSelf: a port in the ephemeral range on which nobody listens is dialled until the system picks this very port for our
// end. Such a connection is to oneself, and must not come to be.
func TestDialSelf(t *testing.T) {
	fd, err := newSocket(unix.AF_INET)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	self, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(fd, self); err != nil && err != unix.EINPROGRESS {
		t.Fatal(err)
	}
	l := startLoop(t, Config{})
	closed := make(chan error, 1)
	on(t, l, func() {
		c := l.newConn(&hooks{
			open:  func(*Conn) { t.Error("connected to itself") },
			close: func(_ *Conn, err error) { closed <- err },
		})
		c.fd, c.remote = fd, netAddr(self)
		c.markDirty() // as Dial leaves it
	})
	if err := await(t, "OnClose", closed); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v", err)
	}
}

// TestStreamOptions: both ends have no delay and keep-alive, and children do not inherit them.
func TestStreamOptions(t *testing.T) {
	l := startLoop(t, Config{KeepAlive: 7 * time.Second})
	conns := make(chan *Conn, 2)
	addr := serve(t, l, func() Handler { return &hooks{open: func(c *Conn) { conns <- c }} })
	on(t, l, func() { l.Dial("tcp", addr, patience, &hooks{open: func(c *Conn) { conns <- c }}) })
	for range 2 {
		c := await(t, "OnOpen", conns)
		on(t, l, func() {
			for _, o := range []struct{ level, name int }{{unix.IPPROTO_TCP, unix.TCP_NODELAY}, {unix.SOL_SOCKET, unix.SO_KEEPALIVE}} {
				if v, err := unix.GetsockoptInt(c.fd, o.level, o.name); err != nil || v == 0 {
					t.Errorf("option %v is %d, %v", o, v, err)
				}
			}
			if v, err := unix.GetsockoptInt(c.fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL); err != nil || v != 7 {
				t.Errorf("keep-alive interval is %d s, %v", v, err)
			}
			if v, err := unix.FcntlInt(uintptr(c.fd), unix.F_GETFD, 0); err != nil || v&unix.FD_CLOEXEC == 0 {
				t.Errorf("descriptor flags are %x, %v", v, err)
			}
		})
	}
}
