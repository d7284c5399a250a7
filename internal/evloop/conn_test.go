package evloop

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestEcho(t *testing.T) {
	l := startLoop(t, Config{})
	c := dial(t, serve(t, l, echo))
	for _, s := range []string{"a", "hello", strings.Repeat("0123456789", 5000)} {
		send(t, c, s)
		expect(t, c, s)
	}
}

// frames is a Handler for messages of one length byte and that many bytes, each answered by itself. It uses Want as a real one
// would, and checks that it is heeded.
type frames struct {
	hooks
	t      *testing.T
	useful int // what Want was told
	eofs   int
}

func (h *frames) OnData(c *Conn, in []byte) (consumed int) {
	if len(in) < h.useful && h.eofs == 0 && !h.atEOF(c) {
		h.t.Errorf("OnData was called with %d bytes, %d were wanted", len(in), h.useful)
	}
	h.useful = 0
	for len(in) > 0 {
		size := 1 + int(in[0])
		if len(in) < size {
			h.useful = size
			c.Want(size)
			break
		}
		c.Write(in[:size])
		in = in[size:]
		consumed += size
	}
	return consumed
}

func (h *frames) atEOF(c *Conn) bool { return c.eofSeen }

func (h *frames) OnEOF(c *Conn) {
	h.eofs++
	c.CloseAfterFlush(time.Second)
}

// frame makes one message of n bytes of content.
func frame(n int, fill byte) []byte {
	return append([]byte{byte(n)}, bytes.Repeat([]byte{fill}, n)...)
}

// TestEveryCut (E3): whatever the boundaries at which input arrives, the replies are the same.
func TestEveryCut(t *testing.T) {
	l := startLoop(t, Config{})
	addr := serve(t, l, func() Handler { return &frames{t: t} })
	all := slices.Concat(frame(3, 'a'), frame(0, 0), frame(40, 'b'), frame(1, 'c'), frame(200, 'd'), frame(2, 'e'))
	c := dial(t, addr)
	for cut := range len(all) {
		send(t, c, string(all[:cut]))
		if cut%16 == 0 {
			time.Sleep(time.Millisecond) // most cuts arrive as two reads in any case: TCP_NODELAY
		}
		send(t, c, string(all[cut:]))
		expect(t, c, string(all))
	}
	for _, b := range all { // one byte at a time
		send(t, c, string([]byte{b}))
	}
	expect(t, c, string(all))
}

// TestTinySocketBuffers (E3) has every write of the loop be a partial one, at many offsets, over all ways to write.
func TestTinySocketBuffers(t *testing.T) {
	l := startLoop(t, Config{})
	const size = 60_000
	want := make([]byte, size)
	for i := range want {
		want[i] = byte(i * 7 >> 3)
	}
	addr := serve(t, l, func() Handler {
		return &hooks{open: func(c *Conn) {
			_ = syscall.SetsockoptInt(c.fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF, 1)
			rng := rand.New(rand.NewPCG(1, 2))
			for rest := want; len(rest) > 0; {
				n := min(len(rest), 1+rng.IntN(9000))
				switch rng.IntN(3) {
				case 0:
					c.Write(rest[:n])
				case 1:
					c.WriteOwned(slices.Clone(rest[:n]))
				default:
					c.SetOut(append(c.Out(n), rest[:n]...))
				}
				rest = rest[n:]
			}
			if c.Buffered() != size {
				t.Errorf("%d bytes are buffered, %d were written", c.Buffered(), size)
			}
			c.CloseAfterFlush(patience)
		}}
	})
	c := dial(t, addr)
	_ = c.SetReadBuffer(1)
	rng := rand.New(rand.NewPCG(3, 4))
	var got []byte
	for buf := make([]byte, 7000); ; {
		n, err := c.Read(buf[:1+rng.IntN(len(buf)-1)])
		got = append(got, buf[:n]...)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("got %d bytes that differ from the %d written", len(got), size)
	}
}

// TestOutOverrun appends more to Out than was announced.
func TestOutOverrun(t *testing.T) {
	l := startLoop(t, Config{})
	var want []byte
	for i := range 3000 {
		want = append(want, byte(i))
	}
	addr := serve(t, l, func() Handler {
		return &hooks{open: func(c *Conn) {
			for rest := want; len(rest) > 0; rest = rest[min(len(rest), 700):] {
				c.SetOut(append(c.Out(1), rest[:min(len(rest), 700)]...))
			}
		}}
	})
	expect(t, dial(t, addr), string(want))
}

// TestBackPressure (E4): a peer that does not read is not read from, memory stays bounded, and OnDrain lets it go on.
func TestBackPressure(t *testing.T) {
	l := startLoop(t, Config{LowWater: 10_000, HighWater: 100_000})
	drains := make(chan int, 10_000)
	addr := serve(t, l, func() Handler {
		return &hooks{
			data: func(c *Conn, in []byte) int {
				c.Write(in)
				if c.Full() {
					c.PauseRead()
				}
				return len(in)
			},
			drain: func(c *Conn) {
				if c.Full() || c.Buffered() > 10_000 {
					t.Errorf("OnDrain with %d bytes unread", c.Buffered())
				}
				drains <- c.Buffered()
				c.ResumeRead()
			},
		}
	})
	c := dial(t, addr)
	const size = 64 << 20
	written := make(chan error, 1)
	go func() {
		chunk := make([]byte, 1<<20)
		for range size / len(chunk) {
			if _, err := c.Write(chunk); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	select {
	case err := <-written:
		t.Fatalf("all 64 MiB were taken (%v) though nobody reads the replies", err)
	case <-time.After(200 * time.Millisecond):
	}
	if s := l.Stats(); s.OutputBytes > 100_000+defaultReadBuffer || s.InputBytes > 0 {
		t.Errorf("held for a peer that does not read: %+v", s)
	}
	if n, err := io.CopyN(io.Discard, c, size); err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if err := await(t, "the writer", written); err != nil {
		t.Fatal(err)
	}
	if len(drains) == 0 {
		t.Error("OnDrain was never called")
	}
}

// TestPauseRead: input that OnData leaves is presented again by ResumeRead, without anything new having come.
func TestPauseRead(t *testing.T) {
	l := startLoop(t, Config{})
	got := make(chan string, 10)
	conns := make(chan *Conn, 1)
	addr := serve(t, l, func() Handler {
		return &hooks{
			open: func(c *Conn) { conns <- c },
			data: func(c *Conn, in []byte) int {
				got <- string(in)
				c.PauseRead()
				return min(3, len(in))
			},
			eof: func(c *Conn) { got <- "eof"; c.Close(nil) },
		}
	})
	peer := dial(t, addr)
	send(t, peer, "abcdefgh")
	c := await(t, "the connection", conns)
	resume := func() { on(t, l, c.ResumeRead) }
	if s := await(t, "data", got); s != "abcdefgh" {
		t.Fatalf("got %q", s)
	}
	send(t, peer, "ij")
	_ = peer.CloseWrite()
	select {
	case s := <-got:
		t.Fatalf("%q was presented while reading was paused", s)
	case <-time.After(50 * time.Millisecond):
	}
	for rest := "defghij"; rest != ""; {
		resume()
		s := await(t, "the rest", got)
		if s == "" || !strings.HasPrefix(rest, s) {
			t.Fatalf("got %q of %q", s, rest)
		}
		rest = rest[min(3, len(s)):]
		select {
		case s := <-got:
			t.Fatalf("%q came while reading was paused", s)
		case <-time.After(20 * time.Millisecond):
		}
	}
	resume()
	if s := await(t, "the EOF", got); s != "eof" {
		t.Fatalf("got %q", s)
	}
}

// TestWantAtEOF: what is there is presented at EOF though more was wanted.
func TestWantAtEOF(t *testing.T) {
	l := startLoop(t, Config{})
	got := make(chan string, 10)
	addr := serve(t, l, func() Handler {
		return &hooks{
			data: func(c *Conn, in []byte) int { got <- string(in); c.Want(100); return 0 },
			eof:  func(c *Conn) { got <- "eof"; c.Close(nil) },
		}
	})
	peer := dial(t, addr)
	send(t, peer, "ab")
	await(t, "data", got)
	send(t, peer, "cd")
	time.Sleep(10 * time.Millisecond)
	_ = peer.CloseWrite()
	if s := await(t, "the rest", got); s != "abcd" {
		t.Errorf("got %q at EOF", s)
	}
	if s := await(t, "the EOF", got); s != "eof" {
		t.Errorf("got %q", s)
	}
}

// TestHalfClose (E5): a peer that sends and shuts down its writing side gets replies that come later.
func TestHalfClose(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			l := startLoop(t, Config{})
			cfg := ListenConfig{Network: "tcp", Addr: "127.0.0.1:0"}
			if network == "unix" {
				cfg = ListenConfig{Network: "unix", Addr: socketDir(t) + "/s"}
			}
			addr := serveAt(t, l, cfg, func() Handler {
				var asked []byte
				return &hooks{
					data: func(_ *Conn, in []byte) int { asked = append(asked, in...); return len(in) },
					eof: func(c *Conn) {
						l.AfterFunc(30*time.Millisecond, func() {
							c.Write(asked)
							c.CloseAfterFlush(time.Second)
						})
					},
				}
			})
			c := dialNet(t, network, addr)
			send(t, c, "question")
			_ = c.(interface{ CloseWrite() error }).CloseWrite()
			expect(t, c, "question")
			expectEnd(t, c)
		})
	}
}

// TestLastReply (E5): the last reply arrives though input was never read. A close without lingering would send a reset, which
// destroys what the peer has not read yet.
func TestLastReply(t *testing.T) {
	l := startLoop(t, Config{})
	reply := "-ERR Protocol error\r\n" + strings.Repeat("x", 300_000)
	closed := make(chan error, 1)
	addr := serve(t, l, func() Handler {
		return &hooks{
			data: func(c *Conn, in []byte) int {
				c.SetWatermarks(0, 1<<20)
				c.Write([]byte(reply))
				c.CloseAfterFlush(time.Second)
				c.Write([]byte("too late"))
				return 1
			},
			close: func(_ *Conn, err error) { closed <- err },
		}
	})
	c := dial(t, addr)
	go func() { _, _ = c.Write(make([]byte, 2<<20)) }()
	time.Sleep(20 * time.Millisecond)
	expect(t, c, reply)
	expectEnd(t, c)
	_ = c.Close()
	if err := await(t, "OnClose", closed); err != nil {
		t.Errorf("OnClose got %v", err)
	}
}

// TestLingerEnds: a peer that neither reads nor closes is not waited for for ever.
func TestLingerEnds(t *testing.T) {
	l := startLoop(t, Config{})
	for _, test := range []struct {
		size int
		want error
	}{{10, nil}, {32 << 20, ErrFlushTimeout}} {
		closed := make(chan error, 1)
		addr := serve(t, l, func() Handler {
			return &hooks{
				open: func(c *Conn) {
					c.Write(make([]byte, test.size))
					c.CloseAfterFlush(30 * time.Millisecond)
				},
				close: func(_ *Conn, err error) { closed <- err },
			}
		})
		dial(t, addr)
		if err := await(t, "OnClose", closed); !errors.Is(err, test.want) {
			t.Errorf("%d bytes: OnClose got %v, want %v", test.size, err, test.want)
		}
	}
}

// TestPeerReset: a peer that goes away with a reset is told of once, also while reading is paused.
func TestPeerReset(t *testing.T) {
	for _, paused := range []bool{false, true} {
		l := startLoop(t, Config{})
		closed := make(chan error, 2)
		opened := make(chan bool, 1)
		addr := serve(t, l, func() Handler {
			return &hooks{
				open: func(c *Conn) {
					if paused {
						c.PauseRead()
					}
					opened <- true
				},
				close: func(_ *Conn, err error) { closed <- err },
			}
		})
		c := dial(t, addr)
		await(t, "OnOpen", opened)
		if paused {
			on(t, l, func() {}) // registered by now
		}
		_ = c.SetLinger(0)
		_ = c.Close()
		if paused && !hangupsReported {
			continue
		}
		if err := await(t, "OnClose", closed); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("paused %v: OnClose got %v", paused, err)
		}
	}
}

func socketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ev") // t.TempDir's names are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
