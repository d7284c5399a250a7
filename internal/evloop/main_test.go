package evloop

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(runChild(os.Getenv(childEnv)))
	}
	before := openDescriptors()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if after := openDescriptors(); code == 0 && after != before {
			fmt.Fprintf(os.Stderr, "%d descriptors were open before the tests and %d after\n", before, after)
			code = 1
		}
		os.Exit(code)
	}))
}

// patience bounds every wait of these tests; what they wait for takes milliseconds.
const patience = 20 * time.Second

// hooks is a Handler made of functions; those that are nil do nothing, and a nil data consumes everything.
type hooks struct {
	open  func(c *Conn)
	data  func(c *Conn, in []byte) int
	drain func(c *Conn)
	eof   func(c *Conn)
	close func(c *Conn, err error)
}

func (h *hooks) OnOpen(c *Conn) {
	if h.open != nil {
		h.open(c)
	}
}

func (h *hooks) OnData(c *Conn, in []byte) int {
	if h.data != nil {
		return h.data(c, in)
	}
	return len(in)
}

func (h *hooks) OnDrain(c *Conn) {
	if h.drain != nil {
		h.drain(c)
	}
}

func (h *hooks) OnEOF(c *Conn) {
	if h.eof != nil {
		h.eof(c)
	}
}

func (h *hooks) OnClose(c *Conn, err error) {
	if h.close != nil {
		h.close(c, err)
	}
}

// startLoop runs a loop until the test ends, and then checks that it ended well.
func startLoop(t testing.TB, cfg Config) *Loop {
	t.Helper()
	l, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- l.Run() }()
	t.Cleanup(func() {
		l.Stop()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run returned %v", err)
			}
		case <-time.After(patience):
			t.Fatal("Run does not return after Stop")
		}
		if s := l.Stats(); s.Conns != 0 || s.InputBytes != 0 || s.OutputBytes != 0 {
			t.Errorf("the ended loop still holds something: %+v", s)
		}
	})
	return l
}

// on runs fn on the loop and waits for it.
func on(t testing.TB, l *Loop, fn func()) {
	t.Helper()
	done := make(chan struct{})
	if !l.Submit(func() { fn(); close(done) }) {
		t.Fatal("the loop takes no task")
	}
	await(t, "a task", done)
}

// serve listens on 127.0.0.1 and adopts every connection with a handler of its own.
func serve(t testing.TB, l *Loop, handler func() Handler) string {
	t.Helper()
	return serveAt(t, l, ListenConfig{Network: "tcp", Addr: "127.0.0.1:0"}, handler)
}

func serveAt(t testing.TB, l *Loop, cfg ListenConfig, handler func() Handler) string {
	t.Helper()
	var addr string
	on(t, l, func() {
		n, err := l.Listen(cfg, func(a *Accepted) {
			if _, err := l.Adopt(a, handler()); err != nil {
				t.Errorf("Adopt: %v", err)
			}
		})
		if err != nil {
			t.Errorf("Listen: %v", err)
			return
		}
		addr = n.Addr().String()
	})
	if addr == "" {
		t.FailNow()
	}
	return addr
}

// dial connects as an ordinary client, for at most patience.
func dial(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	return dialNet(t, "tcp", addr).(*net.TCPConn)
}

func dialNet(t testing.TB, network, addr string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout(network, addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

func send(t testing.TB, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

func expect(t testing.TB, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("got %.100q, %v; want %.100q", got[:n], err, want)
	}
}

// expectEnd wants the peer to have closed in order, without more data.
func expectEnd(t testing.TB, c net.Conn) {
	t.Helper()
	if n, err := c.Read(make([]byte, 100)); n != 0 || !errors.Is(err, io.EOF) {
		t.Fatalf("got %d bytes, %v; want the end", n, err)
	}
}

func await[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("waited too long for %s", what)
		panic("unreachable")
	}
}

func waitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited too long for %s", what)
		}
	}
}

// openDescriptors counts this process's descriptors, or returns -1. The runtime's own poller is among them from the start.
func openDescriptors() int {
	if ln, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		_ = ln.Close()
	}
	list, err := os.ReadDir("/dev/fd") // on Linux and macOS alike
	if err != nil {
		return -1
	}
	return len(list)
}

// echo answers what it gets, and stops reading while the peer does not.
func echo() Handler {
	return &hooks{
		data: func(c *Conn, in []byte) int {
			c.Write(in)
			if c.Full() {
				c.PauseRead()
			}
			return len(in)
		},
		drain: func(c *Conn) { c.ResumeRead() },
		eof:   func(c *Conn) { c.CloseAfterFlush(time.Second) },
	}
}
