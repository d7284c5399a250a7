package evloop

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// whimsical echoes, but consumes, waits, pauses and writes as it pleases. Its peer must see an ordinary echo.
type whimsical struct {
	hooks
	rng *rand.Rand
}

func (h *whimsical) OnData(c *Conn, in []byte) int {
	n := h.rng.IntN(len(in) + 1)
	if h.rng.IntN(4) == 0 {
		n = len(in)
	}
	switch part := in[:n]; h.rng.IntN(3) {
	case 0:
		c.Write(part)
	case 1:
		c.WriteOwned(slices.Clone(part))
	default:
		c.SetOut(append(c.Out(h.rng.IntN(n+1)), part...))
	}
	if n < len(in) || c.Full() || h.rng.IntN(8) == 0 {
		c.PauseRead()
		if h.rng.IntN(2) == 0 {
			c.Want(h.rng.IntN(len(in) - n + 1)) // satisfied already
		}
		resume := func() {
			c.ResumeRead()
			if h.rng.IntN(4) == 0 {
				c.PauseRead()
				c.ResumeRead()
			}
		}
		switch h.rng.IntN(3) {
		case 0:
			resume()
		case 1:
			c.Loop().Submit(resume)
		default:
			c.Loop().AfterFunc(time.Duration(h.rng.IntN(2000))*time.Microsecond, resume)
		}
	}
	return n
}

func (h *whimsical) OnEOF(c *Conn) { c.CloseAfterFlush(patience) }

// TestRandomEcho (E3): many connections, random cuts, random use of the API; every stream comes back as it was.
func TestRandomEcho(t *testing.T) {
	l := startLoop(t, Config{ReadBuffer: 5000, LowWater: 2000, HighWater: 30_000, MaxEvents: 7})
	seed := uint64(0)
	addr := serve(t, l, func() Handler {
		seed++
		return &whimsical{rng: rand.New(rand.NewPCG(seed, 1))}
	})
	var wg sync.WaitGroup
	for id := range uint64(60) {
		c := dial(t, addr)
		wg.Go(func() {
			if err := echoRandom(c, id); err != nil {
				t.Errorf("connection %d: %v", id, err)
			}
		})
	}
	wg.Wait()
}

// echoRandom sends a random stream in random pieces and compares what comes back.
func echoRandom(c *net.TCPConn, id uint64) error {
	rng := rand.New(rand.NewPCG(id, 2))
	data := make([]byte, 1+rng.IntN(400_000))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	failed := make(chan error, 1)
	pieces := rand.New(rand.NewPCG(id, 3))
	go func() {
		for rest := data; len(rest) > 0; {
			n := min(len(rest), 1+pieces.IntN(1<<(1+pieces.IntN(16))))
			if _, err := c.Write(rest[:n]); err != nil {
				failed <- err
				return
			}
			rest = rest[n:]
		}
		failed <- c.CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil {
		return err
	}
	if err := <-failed; err != nil {
		return err
	}
	if !bytes.Equal(got, data) {
		return fmt.Errorf("%d bytes came back of %d, and not the same", len(got), len(data))
	}
	return nil
}

// TestLargeValuesAreLinear (E4): a value of 32 MiB that arrives in small pieces and is sent in small pieces costs memory in
// proportion to its size, is looked at twice, and leaves nothing behind.
func TestLargeValuesAreLinear(t *testing.T) {
	for _, size := range []int{1 << 20, 32 << 20} {
		l := startLoop(t, Config{})
		calls := 0
		addr := serve(t, l, func() Handler {
			return &hooks{data: func(c *Conn, in []byte) int {
				calls++
				if len(in) < size {
					c.Want(size)
					return 0
				}
				for rest := in; len(rest) > 0; rest = rest[min(len(rest), 1000):] {
					c.Write(rest[:min(len(rest), 1000)])
				}
				return size
			}}
		})
		c := dial(t, addr)
		piece := make([]byte, 16<<10)
		for i := range piece {
			piece[i] = byte(i)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		sent, got := sha256.New(), sha256.New()
		for range size / len(piece) {
			sent.Write(piece)
			send(t, c, string(piece))
		}
		if n, err := io.CopyN(got, c, int64(size)); err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
		runtime.ReadMemStats(&after)
		if !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
			t.Error("the value came back changed")
		}
		// The input's buffers double: two to four times the size, by where the steps fall; the output's: once; send's strings: once, and once more as bytes. What
		// does not depend on the size (pools, the runtime) is below 1 MiB. Anything quadratic would be 64 times the size and more.
		if n := after.TotalAlloc - before.TotalAlloc; n > 7*uint64(size)+1<<20 {
			t.Errorf("%d MiB were allocated for a value of %d MiB", n>>20, size>>20)
		}
		on(t, l, func() {
			if calls != 2 {
				t.Errorf("OnData was called %d times, want 2", calls)
			}
			if n := pooledBytes(&l.pool); n > bufferClasses*maxIdleBytes {
				t.Errorf("%d bytes are kept", n)
			}
		})
		if s := l.Stats(); s.InputBytes != 0 || s.OutputBytes != 0 {
			t.Errorf("still held: %+v", s)
		}
	}
}

func pooledBytes(p *bufferPool) (n int) {
	for _, list := range p.free {
		for _, b := range list {
			n += cap(b)
		}
	}
	return n
}

// TestLargeInputWithoutWant: a Handler that does not say what it wants sees all there is, and small rests of large input do not
// keep large buffers.
func TestLargeInputWithoutWant(t *testing.T) {
	l := startLoop(t, Config{})
	const size = 1 << 20
	var conn *Conn
	addr := serve(t, l, func() Handler {
		return &hooks{
			open: func(c *Conn) { conn = c },
			data: func(c *Conn, in []byte) int {
				if len(in) < size {
					return 0
				}
				c.Write([]byte("k"))
				return size
			},
		}
	})
	c := dial(t, addr)
	go func() { _, _ = c.Write(make([]byte, size+5)) }()
	expect(t, c, "k")
	waitFor(t, "the rest", func() bool { return l.Stats().InputBytes == 5 })
	on(t, l, func() {
		if n := cap(conn.input.buf); n > maxPooled {
			t.Errorf("5 bytes are kept in a buffer of %d", n)
		}
	})
}

// TestLongInputWithSmallWants: a Handler that says again and again that it needs a little more is not fed byte by byte.
func TestLongInputWithSmallWants(t *testing.T) {
	l := startLoop(t, Config{})
	const size = 1 << 20
	calls := 0
	addr := serve(t, l, func() Handler {
		return &hooks{data: func(c *Conn, in []byte) int {
			calls++
			if len(in) < size {
				c.Want(len(in) + 1)
				return 0
			}
			c.Write([]byte("k"))
			return size
		}}
	})
	c := dial(t, addr)
	go func() { _, _ = c.Write(make([]byte, size)) }()
	expect(t, c, "k")
	on(t, l, func() {
		// A few per read buffer at most: the sender may be slower than the loop.
		if most := 8 * size / l.cfg.ReadBuffer; calls > most {
			t.Errorf("OnData was called %d times for %d bytes, want at most %d", calls, size, most)
		}
	})
}

// TestWriteThroughKeepsOrder: what goes to the kernel at once and what waits come in the order in which they were written, with a peer that
// reads slowly and one that has gone.
func TestWriteThroughKeepsOrder(t *testing.T) {
	l := startLoop(t, Config{})
	const pieces, size = 200, 64 << 10
	var want []byte
	for i := range pieces {
		want = append(append(want, bytes.Repeat([]byte{byte(i)}, size)...), "small"...)
	}
	addr := serve(t, l, func() Handler {
		return &hooks{data: func(c *Conn, in []byte) int {
			for rest := want; len(rest) > 0; rest = rest[size+5:] {
				piece := bytes.Clone(rest[:size])
				c.WriteThrough(piece)
				clear(piece) // it is the caller's again
				c.WriteThrough(rest[size : size+5])
			}
			return len(in)
		}}
	})
	c := dial(t, addr)
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "output that waits", func() bool { return l.Stats().OutputBytes > 0 })
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("what came is not what was written (%v)", err)
	}
	gone := dial(t, addr)
	if _, err := gone.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the end of the one that has gone", func() bool { return l.Stats().Conns == 1 })
}

// TestIdleConnectionsAreSmall (E4): after use, a connection holds no buffer and little else.
func TestIdleConnectionsAreSmall(t *testing.T) {
	server, client := startLoop(t, Config{}), startLoop(t, Config{})
	addr := serve(t, server, echo)
	const n = 1000
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	replies := make(chan bool, n)
	h := &hooks{ // shared: the handlers are not what is measured
		open: func(c *Conn) { c.Write([]byte("x")) },
		data: func(_ *Conn, in []byte) int { replies <- true; return len(in) },
	}
	on(t, client, func() {
		for range n {
			client.Dial("tcp", addr, 0, h)
		}
	})
	for range n {
		await(t, "a reply", replies)
	}
	on(t, client, func() {
		for c := range client.conns {
			if c.input.buf != nil || c.output.tail != nil {
				t.Error("an idle connection holds a buffer")
				break
			}
		}
	})
	used := int64(heap()) - int64(before)
	if each := used / (2 * n); each > 1024 {
		t.Errorf("an idle connection takes %d bytes", each)
	} else {
		t.Logf("an idle connection takes %d bytes", each)
	}
}
