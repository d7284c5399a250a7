package evloop

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// through returns what DialFunc wants: a TCP connection to addr.
func through(addr string) func(context.Context) (io.ReadWriteCloser, error) {
	return func(ctx context.Context) (io.ReadWriteCloser, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	}
}

// stuckStream is a stream on which nothing moves until it is closed.
type stuckStream struct {
	ended  chan struct{}
	closes atomic.Int32
	end    error
}

func (s *stuckStream) Read([]byte) (int, error)    { <-s.ended; return 0, s.end }
func (s *stuckStream) Write(p []byte) (int, error) { <-s.ended; return 0, s.end }
func (s *stuckStream) Close() error {
	if s.closes.Add(1) == 1 {
		close(s.ended)
	}
	return nil
}

// scriptedStream brings in a text and then an error, and takes everything.
type scriptedStream struct {
	io.Reader
	io.Writer
}

func (*scriptedStream) Close() error { return nil }

func TestCoupledEcho(t *testing.T) {
	l := startLoop(t, Config{})
	addr := serve(t, l, echo)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 256<<10) // 4 MiB, more than all buffers between
	var got []byte
	done := make(chan struct{})
	on(t, l, func() {
		c := l.DialFunc(addr, patience, through(addr), &hooks{data: func(c *Conn, in []byte) int {
			if got = append(got, in...); len(got) == len(sent) {
				close(done)
				c.Close(nil)
			}
			return len(in)
		}})
		c.Write(sent)
		if c.RemoteAddr().String() != addr {
			t.Errorf("remote address %v", c.RemoteAddr())
		}
	})
	await(t, "the echo", done)
	if !bytes.Equal(got, sent) {
		t.Error("what came back is not what was sent")
	}
}

// A peer that does not read stops the Handler, by its watermarks, after a bounded number of bytes; nothing is lost when it reads on.
func TestCoupledBackPressure(t *testing.T) {
	l := startLoop(t, Config{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var c *Conn
	drained := make(chan struct{})
	opened := make(chan struct{})
	on(t, l, func() {
		c = l.DialFunc("peer", patience, through(ln.Addr().String()), &hooks{
			open:  func(*Conn) { close(opened) },
			drain: func(*Conn) { close(drained) },
		})
		c.SetWatermarks(1<<20, 4<<20)
	})
	peer, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	await(t, "OnOpen", opened)
	const size = 64 << 20
	on(t, l, func() { c.Write(make([]byte, size)) })
	time.Sleep(100 * time.Millisecond)
	on(t, l, func() {
		if taken := size - c.Buffered(); !c.Full() || taken > 32<<20 {
			t.Errorf("%d bytes were taken for a peer that does not read", taken)
		}
	})
	if n, err := io.CopyN(io.Discard, peer, size); err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	await(t, "OnDrain", drained)
}

func TestCoupledDialFails(t *testing.T) {
	l := startLoop(t, Config{})
	wrong := errors.New("wrong certificate")
	for name, test := range map[string]struct {
		dial func(context.Context) (io.ReadWriteCloser, error)
		want error
	}{
		"its own error": {func(context.Context) (io.ReadWriteCloser, error) { return nil, wrong }, wrong},
		"too slow":      {func(ctx context.Context) (io.ReadWriteCloser, error) { <-ctx.Done(); return nil, ctx.Err() }, context.DeadlineExceeded},
	} {
		closed := make(chan error, 1)
		on(t, l, func() {
			l.DialFunc("peer", 20*time.Millisecond, test.dial, &hooks{
				open:  func(*Conn) { t.Errorf("%s: opened", name) },
				close: func(_ *Conn, err error) { closed <- err },
			})
		})
		if err := await(t, "OnClose", closed); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}

// What the stream brought before it failed is presented, and then why it failed, not what that made of the socket pair.
func TestCoupledStreamEnds(t *testing.T) {
	l := startLoop(t, Config{})
	broken := errors.New("certificate required")
	for name, test := range map[string]struct {
		end  error
		eofs int
	}{"in order": {io.EOF, 1}, "by an error": {broken, 0}} {
		var got []byte
		eofs := 0
		closed := make(chan error, 1)
		on(t, l, func() {
			l.DialFunc("peer", patience, func(context.Context) (io.ReadWriteCloser, error) {
				end := readerFunc(func([]byte) (int, error) { return 0, test.end })
				return &scriptedStream{Reader: io.MultiReader(bytes.NewReader([]byte("last words")), end), Writer: io.Discard}, nil
			}, &hooks{
				data:  func(_ *Conn, in []byte) int { got = append(got, in...); return len(in) },
				eof:   func(c *Conn) { eofs++; c.Close(nil) },
				close: func(_ *Conn, err error) { closed <- err },
			})
		})
		err := await(t, "OnClose", closed)
		if string(got) != "last words" || eofs != test.eofs || test.eofs == 0 && err != broken {
			t.Errorf("%s: %q, %d EOFs, %v", name, got, eofs, err)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// However it ends, the stream is closed once and all goroutines return (TestMain looks for them and for descriptors).
func TestCoupledClose(t *testing.T) {
	l := startLoop(t, Config{})
	t.Run("while open", func(t *testing.T) {
		s := &stuckStream{ended: make(chan struct{}), end: io.ErrClosedPipe}
		opened := make(chan *Conn, 1)
		on(t, l, func() {
			l.DialFunc("peer", patience, func(context.Context) (io.ReadWriteCloser, error) { return s, nil },
				&hooks{open: func(c *Conn) { opened <- c }})
		})
		c := await(t, "OnOpen", opened)
		on(t, l, func() { c.Write(make([]byte, 1<<20)) })
		on(t, l, func() { c.Close(nil) })
		await(t, "the stream's end", s.ended)
		time.Sleep(10 * time.Millisecond)
		if n := s.closes.Load(); n != 1 {
			t.Errorf("closed %d times", n)
		}
	})
	t.Run("while dialling", func(t *testing.T) {
		cancelled := make(chan struct{})
		s := &stuckStream{ended: make(chan struct{}), end: io.ErrClosedPipe}
		on(t, l, func() {
			c := l.DialFunc("peer", patience, func(ctx context.Context) (io.ReadWriteCloser, error) {
				<-ctx.Done()
				close(cancelled)
				return s, nil // made it nevertheless
			}, &hooks{open: func(*Conn) { t.Error("opened after it was closed") }})
			c.Close(nil)
		})
		await(t, "the end of the context", cancelled)
		await(t, "the stream's end", s.ended)
	})
}

// A loop that stops waits for its couplings, whatever they are doing.
func TestCoupledLoopStops(t *testing.T) {
	l, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	open := &stuckStream{ended: make(chan struct{}), end: io.ErrClosedPipe}
	opened := make(chan struct{})
	var returned atomic.Bool
	closes := 0
	note := func(_ *Conn, err error) {
		if closes++; err != ErrLoopStopped {
			t.Errorf("OnClose: %v", err)
		}
	}
	l.DialFunc("peer", patience, func(context.Context) (io.ReadWriteCloser, error) { return open, nil },
		&hooks{open: func(*Conn) { close(opened) }, close: note})
	l.DialFunc("peer", patience, func(ctx context.Context) (io.ReadWriteCloser, error) {
		<-ctx.Done()
		returned.Store(true)
		return nil, ctx.Err()
	}, &hooks{close: note})
	done := make(chan error, 1)
	go func() { done <- l.Run() }()
	await(t, "OnOpen", opened)
	l.Stop()
	if err := await(t, "Run", done); err != nil {
		t.Error(err)
	}
	if !returned.Load() || open.closes.Load() != 1 || closes != 2 {
		t.Errorf("dial returned: %v; stream closed %d times; OnClose %d times", returned.Load(), open.closes.Load(), closes)
	}
}
