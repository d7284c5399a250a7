package evloop

import (
	"errors"
	"io"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestStaleHandle (E1): a closed Conn does not reach the connection that has its descriptor number now.
func TestStaleHandle(t *testing.T) {
	l := startLoop(t, Config{})
	conns := make(chan *Conn, 1)
	addr := serve(t, l, func() Handler { return &hooks{open: func(c *Conn) { conns <- c }} })
	first := dial(t, addr)
	old := await(t, "the first", conns)
	var number int
	var peer *net.TCPConn
	on(t, l, func() {
		peer = dial(t, addr) // waits in the backlog, and is accepted when the number is free
		number = old.fd
		old.Close(nil)
	})
	expectEnd(t, first)
	now := await(t, "the next", conns)
	if now.fd != number {
		t.Fatalf("descriptor %d was not used again, but %d: the test shows nothing", number, now.fd)
	}
	on(t, l, func() {
		if !old.Closed() || now.Closed() {
			t.Error("which one is closed?")
		}
		old.Write([]byte("wrong"))
		old.WriteOwned(make([]byte, 100_000))
		old.SetOut(append(old.Out(10), "wrong"...))
		old.PauseRead()
		old.ResumeRead()
		old.CloseAfterFlush(time.Second)
		old.Close(io.EOF)
		if old.Buffered() != 0 || old.LocalAddr() != nil {
			t.Error("the closed one took something")
		}
	})
	on(t, l, func() { now.Write([]byte("right")) })
	expect(t, peer, "right")
}

// TestStaleEvent (E1): what the poller reported for a descriptor is not given to the next owner of its number.
func TestStaleEvent(t *testing.T) {
	l, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Stop()
	pair := func() (int, int) {
		p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		return p[0], p[1]
	}
	a, b := pair()
	first, second := &countingSource{}, &countingSource{}
	if _, err := l.register(a, first, wantRead); err != nil {
		t.Fatal(err)
	}
	_, _ = unix.Write(b, []byte("x"))
	if n, err := l.poll.poll(); n != 1 || err != nil {
		t.Fatalf("%d events, %v", n, err)
	}
	stale := l.poll.event(0)
	l.closeFD(a, true, wantRead)
	l.dispatch(stale)
	c, d := pair()
	if c != a {
		c, d = d, c
	}
	if c != a {
		t.Fatalf("descriptor %d was not used again", a)
	}
	if _, err := l.register(c, second, wantRead); err != nil {
		t.Fatal(err)
	}
	l.dispatch(stale)
	if first.n+second.n != 0 {
		t.Errorf("the stale report reached somebody: %d, %d", first.n, second.n)
	}
	_, _ = unix.Write(d, []byte("x"))
	if n, err := l.poll.poll(); n != 1 || err != nil {
		t.Fatalf("%d events, %v", n, err)
	}
	l.dispatch(l.poll.event(0))
	if second.n != 1 {
		t.Error("a report of its own did not reach the new owner")
	}
	l.closeFD(c, true, wantRead)
	_ = unix.Close(b)
	_ = unix.Close(d)
}

type countingSource struct{ n int }

func (s *countingSource) ready(readiness) { s.n++ }

// TestCloseOthersInOneTurn (E1, E2): connections that are all ready close each other and open new ones; nobody hears from a
// connection that is closed, each OnClose comes once, and none from within another call.
func TestCloseOthersInOneTurn(t *testing.T) {
	l := startLoop(t, Config{})
	target := serve(t, l, echo)
	const n = 40
	var conns []*Conn
	closes := make(map[*Conn]int)
	inside := false
	closed := make(chan bool, 10*n)
	handler := func() Handler {
		return &hooks{
			open: func(c *Conn) { conns = append(conns, c) },
			data: func(c *Conn, in []byte) int {
				if c.Closed() || closes[c] > 0 {
					t.Error("OnData on a closed connection")
				}
				inside = true
				defer func() { inside = false }()
				for _, other := range conns {
					if other != c {
						other.Write([]byte("x"))
						other.Close(nil)
					}
				}
				l.Dial("tcp", target, patience, &hooks{open: func(c *Conn) { c.Close(nil) }})
				return len(in)
			},
			close: func(c *Conn, _ error) {
				if inside {
					t.Error("OnClose from within OnData")
				}
				closes[c]++
				closed <- true
			},
		}
	}
	addr := serve(t, l, handler)
	var peers []net.Conn
	for range n {
		peers = append(peers, dial(t, addr))
	}
	waitFor(t, "all to be open", func() bool {
		var open int
		on(t, l, func() { open = len(conns) })
		return open == n
	})
	hold := make(chan bool)
	l.Submit(func() { <-hold }) // so that all are ready in one turn
	for _, p := range peers {
		send(t, p, "now")
	}
	close(hold)
	for range n - 1 {
		await(t, "OnClose", closed)
	}
	on(t, l, func() {
		if len(closes) != n-1 {
			t.Errorf("%d were closed, want %d", len(closes), n-1)
		}
		for _, k := range closes {
			if k != 1 {
				t.Errorf("OnClose came %d times", k)
			}
		}
	})
}

// TestWriteFailureIsDeferred (E2): a write to a peer that has gone reports by OnClose, never from within a call.
func TestWriteFailureIsDeferred(t *testing.T) {
	l := startLoop(t, Config{})
	opened := make(chan *Conn, 1)
	closed := make(chan error, 2)
	inCall := false
	addr := serve(t, l, func() Handler {
		return &hooks{
			open: func(c *Conn) { c.PauseRead(); opened <- c },
			close: func(_ *Conn, err error) {
				if inCall {
					t.Error("OnClose from within Write")
				}
				closed <- err
			},
		}
	})
	peer := dial(t, addr)
	c := await(t, "OnOpen", opened)
	_ = peer.Close()
	for range 1000 {
		on(t, l, func() {
			inCall = true
			c.Write(make([]byte, 10_000))
			inCall = false
		})
		if len(closed) > 0 {
			break
		}
	}
	if err := await(t, "OnClose", closed); !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("OnClose got %v", err)
	}
}

// TestStopWithOpenConnections: everything is told and released.
func TestStopWithOpenConnections(t *testing.T) {
	before := openDescriptors()
	l, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 100)
	var redialed int
	handler := func() Handler {
		return &hooks{close: func(_ *Conn, err error) {
			closed <- err
			// A handler that dials again whatever the reason must not keep the loop from ending.
			redialed++
			l.Dial("tcp", "127.0.0.1:1", time.Second, &hooks{close: func(*Conn, error) { redialed++ }})
		}}
	}
	ln, err := l.Listen(ListenConfig{Network: "tcp", Addr: "127.0.0.1:0"}, func(a *Accepted) {
		if _, err := l.Adopt(a, handler()); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- l.Run() }()
	var peers []net.Conn
	for range 5 {
		peers = append(peers, dial(t, ln.Addr().String()))
	}
	waitFor(t, "connections", func() bool { return l.Stats().Conns == 5 })
	on(t, l, func() { l.AfterFunc(time.Hour, func() { t.Error("fired") }) })
	l.Stop()
	l.Stop()
	if err := await(t, "Run", ended); err != nil {
		t.Errorf("Run returned %v", err)
	}
	l.Stop()
	for range 5 {
		if err := await(t, "OnClose", closed); !errors.Is(err, ErrLoopStopped) {
			t.Errorf("OnClose got %v", err)
		}
	}
	if redialed != 10 {
		t.Errorf("%d closings were told of, want 10", redialed)
	}
	if l.Submit(func() { t.Error("a task ran after the end") }) {
		t.Error("Submit returned true after the end")
	}
	if err := l.Run(); !errors.Is(err, ErrLoopStopped) {
		t.Errorf("a second Run returned %v", err)
	}
	for _, p := range peers {
		expectEnd(t, p)
		_ = p.Close()
	}
	if after := openDescriptors(); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// TestStopWithoutRun releases what New and Listen took, and runs the tasks that were taken.
func TestStopWithoutRun(t *testing.T) {
	before := openDescriptors()
	l, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Listen(ListenConfig{Network: "tcp", Addr: "127.0.0.1:0"}, func(a *Accepted) { a.Close() }); err != nil {
		t.Fatal(err)
	}
	ran, told := false, error(nil)
	l.Submit(func() { ran = true })
	l.Dial("tcp", "127.0.0.1:1", time.Second, &hooks{close: func(_ *Conn, err error) { told = err }})
	l.Stop()
	if !ran || !errors.Is(told, ErrLoopStopped) {
		t.Errorf("ran %v, told %v", ran, told)
	}
	if err := l.Run(); !errors.Is(err, ErrLoopStopped) {
		t.Errorf("Run after Stop returned %v", err)
	}
	if after := openDescriptors(); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// TestHangupDoesNotSpin: a peer that is gone while reading is paused must not keep the loop busy, and what it sent is not lost.
func TestHangupDoesNotSpin(t *testing.T) {
	l := startLoop(t, Config{})
	opened := make(chan *Conn, 1)
	got := make(chan string, 2)
	addr := serveAt(t, l, ListenConfig{Network: "unix", Addr: socketDir(t) + "/s"}, func() Handler {
		return &hooks{
			open: func(c *Conn) { c.PauseRead(); opened <- c },
			data: func(_ *Conn, in []byte) int { got <- string(in); return len(in) },
			eof:  func(c *Conn) { got <- "eof" },
		}
	})
	peer := dialNet(t, "unix", addr)
	c := await(t, "OnOpen", opened)
	send(t, peer, "bye")
	_ = peer.Close()
	quiet := func(when string) {
		t.Helper()
		time.Sleep(20 * time.Millisecond)
		before := l.Stats().Turns
		time.Sleep(50 * time.Millisecond)
		if n := l.Stats().Turns - before; n > 5 {
			t.Errorf("%d turns in 50 ms with nothing to do %s", n, when)
		}
	}
	quiet("while paused")
	on(t, l, c.ResumeRead)
	if s := await(t, "data", got); s != "bye" {
		t.Errorf("got %q", s)
	}
	if s := await(t, "EOF", got); s != "eof" {
		t.Errorf("got %q", s)
	}
	quiet("after EOF")
	on(t, l, func() { c.Write([]byte("x")) })
	on(t, l, func() {
		if !c.Closed() {
			t.Error("writing to a peer that is gone did not close")
		}
	})
}

// TestConnIsFreed: nothing in the loop keeps a closed connection, or its handler's state, alive.
func TestConnIsFreed(t *testing.T) {
	l := startLoop(t, Config{})
	addr := serve(t, l, echo)
	freed := make(chan bool, 1)
	closed := make(chan bool, 1)
	on(t, l, func() {
		h := &hooks{open: func(c *Conn) { c.Close(nil) }, close: func(*Conn, error) { closed <- true }}
		runtime.AddCleanup(h, func(int) { freed <- true }, 0)
		l.Dial("tcp", addr, time.Hour, h)
	})
	await(t, "OnClose", closed)
	waitFor(t, "the handler to be freed", func() bool {
		runtime.GC()
		return len(freed) > 0
	})
}
