package proxy

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ringside/internal/evloop"
	"ringside/resp"
	"ringside/shard"
)

// eventually fails unless ok holds within ten seconds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// held sums what the loops hold for their connections.
func (b *bench) held() (sum evloop.Stats) {
	for _, w := range b.server.workers {
		s := w.loop.Stats()
		sum.InputBytes += s.InputBytes
		sum.OutputBytes += s.OutputBytes
		sum.Conns += s.Conns
	}
	return sum
}

func TestMaxClients(t *testing.T) {
	b := start(t, 1, func(c *Config) { c.MaxClients = 3 })
	var in []*wire
	for range 3 {
		w := b.dial()
		w.want("PING", "+PONG\r\n")
		in = append(in, w)
	}
	for range 5 {
		out := b.dial()
		if got := out.rest(); got != "-ERR max number of clients reached\r\n" {
			t.Errorf("%q", got)
		}
	}
	for _, w := range in {
		w.want("PING", "+PONG\r\n")
	}
	_ = in[0].conn.Close() // makes room
	eventually(t, "the slot comes back", func() bool { return b.server.clients.Load() == 2 })
	b.dial().want("PING", "+PONG\r\n")
	if n := b.server.refusedClients.Load(); n != 5 {
		t.Errorf("%d clients refused, want 5", n)
	}
}

func TestRequestLimits(t *testing.T) {
	b := start(t, 1, func(c *Config) {
		c.Limits = resp.Limits{MaxBulk: 1000, MaxElements: 20, MaxInline: 100, MaxRequest: 3000}
	})
	big := strings.Repeat("x", 1000)
	for request, want := range map[string]string{
		"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000\r\n" + big + "\r\nQUIT\r\n": "+OK\r\n+OK\r\n",
		"*2\r\n$3\r\nGET\r\n$1001\r\n":                                   "-ERR Protocol error: invalid bulk length\r\n",
		"*21\r\n":                                                        "-ERR Protocol error: invalid multibulk length\r\n",
		"*-1\r\n*0\r\n\r\nQUIT\r\n":                                      "+OK\r\n",
		strings.Repeat("x", 101):                                         "-ERR Protocol error: too big inline request\r\n",
		"GET \"k\r\n":                                                    "-ERR Protocol error: unbalanced quotes in request\r\n",
		"*1\r\n$" + strings.Repeat("1", 200):                             "-ERR Protocol error: too big bulk count string\r\n",
		"*" + strings.Repeat("1", 200):                                   "-ERR Protocol error: too big mbulk count string\r\n",
		"*4\r\n" + bulk(big) + bulk(big) + bulk(big[:900]) + "$200\r\n": "-ERR Protocol error: too big request\r\n",
	} {
		w := b.dial()
		w.write(request)
		if got := w.rest(); got != want {
			t.Errorf("%.40q: %q, want %q", request, got, want)
		}
	}
}

// A client that sends without reading is slowed down: what the proxy holds for it is bounded. When it reads it gets all, in order.
func TestPipelineWithoutReading(t *testing.T) {
	b := start(t, 2, nil)
	w := b.dial()
	w.want("SET big "+strings.Repeat("b", 8<<10), "+OK\r\n")
	const n = 100_000
	const every = 20 // each so often a large reply
	var out []byte
	for i := range n {
		if i%every == 0 {
			out = resp.AppendCommandString(out, "GET", "big")
		} else {
			out = resp.AppendCommandString(out, "INCR", "n")
		}
	}
	sent := make(chan error, 1)
	go func() {
		_, err := w.conn.Write(out)
		sent <- err
	}()
	bound := b.server.cfg.OutputSoft + (b.server.cfg.InFlight/every+1)*(8<<10+100) + (1 << 20)
	most := 0
	for until := time.Now().Add(700 * time.Millisecond); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		s := b.held()
		most = max(most, s.InputBytes+s.OutputBytes)
	}
	if most > bound || most == 0 {
		t.Errorf("the loops held %d bytes for a client that does not read, want at most %d", most, bound)
	}
	count := 0
	for i := range n {
		want := ""
		if i%every == 0 {
			want = "$8192\r\n"
		} else {
			count++
			want = fmt.Sprintf(":%d\r\n", count)
		}
		if got := w.reply(); !strings.HasPrefix(got, want) {
			t.Fatalf("reply %d: %.40q, want %q", i, got, want)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

func TestOutputLimitCuts(t *testing.T) {
	b := start(t, 1, func(c *Config) { c.OutputSoft, c.OutputHard = 128<<10, 1<<20 })
	w := b.dial()
	w.want("SET big "+strings.Repeat("b", 256<<10), "+OK\r\n")
	other := b.dial()
	// At once, so that all are asked for before the first reply is there: 50 MiB, more than the kernel's buffers take.
	w.write(strings.Repeat(string(resp.AppendCommandString(nil, "GET", "big")), 200))
	eventually(t, "the client is cut", func() bool { return b.server.gather().cutOutput == 1 })
	other.want("PING", "+PONG\r\n")
	eventually(t, "nothing is held", func() bool { return b.held().OutputBytes == 0 && b.server.clients.Load() == 1 })
}

func TestLargeValuesAndMemoryAfterThem(t *testing.T) {
	b := start(t, 2, func(c *Config) { c.ReplyTimeout = 20 * time.Second }) // what counts is memory, also on a machine that takes its time
	w := b.dial()
	w.want("SET warm up", "+OK\r\n")
	before := heap()
	for _, size := range []int{16306, 16<<10 - 1, 16 << 10, 16<<10 + 1, 32642, 64 << 10, 1 << 20, 32 << 20} {
		value := strings.Repeat("0123456789abcdef", size/16+1)[:size]
		w.write(string(resp.AppendCommandString(nil, "SET", "v", value)))
		w.send("GET v", "STRLEN v", "MGET v other")
		framed := bulk(value)
		for _, want := range []string{"+OK\r\n", framed, fmt.Sprintf(":%d\r\n", size), "*2\r\n" + framed + "$-1\r\n"} {
			if got := w.reply(); got != want {
				t.Fatalf("%d bytes: %.60q (%d bytes), want %.60q (%d)", size, got, len(got), want, len(want))
			}
		}
		w.want("DEL v", ":1\r\n")
	}
	w.in = nil
	var after uint64
	eventually(t, "memory comes back", func() bool {
		after = heap()
		return after < before+(8<<20)
	})
	if s := b.held(); s.InputBytes+s.OutputBytes != 0 {
		t.Errorf("%d bytes of input and %d of output are still held", s.InputBytes, s.OutputBytes)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Ten times the keys take about ten times as long.
func TestMGETIsLinear(t *testing.T) {
	b := start(t, 3, nil)
	w := b.dial()
	command := func(n int) string {
		args := []string{"MGET"}
		for i := range n {
			args = append(args, fmt.Sprintf("key:%d", i))
		}
		return string(resp.AppendCommandString(nil, args...))
	}
	for i := range 10_000 {
		w.send(fmt.Sprintf("SET key:%d value:%d", i, i))
		if i%500 == 499 {
			for range 500 {
				w.reply()
			}
		}
	}
	var want []byte
	want = resp.AppendArray(want, 10_000)
	for i := range 10_000 {
		want = resp.AppendBulk(want, fmt.Sprintf("value:%d", i))
	}
	thousand, ten := command(1000), command(10_000)
	ask := func(out string) (string, time.Duration) {
		at := time.Now()
		w.write(out)
		got := w.reply()
		return got, time.Since(at)
	}
	// The least of several, as something else may run meanwhile; of more, if it does so all the time.
	small, large := time.Hour, time.Hour
	for n := 0; n < 8 || large > 30*small && n < 100; n++ {
		_, took := ask(thousand)
		small = min(small, took)
		got, took := ask(ten)
		large = min(large, took)
		if got != string(want) {
			t.Fatal("MGET of 10,000 keys: wrong values")
		}
	}
	t.Logf("1,000 keys %v, 10,000 keys %v", small, large)
	if large > 30*small {
		t.Errorf("10,000 keys took %v, 1,000 %v", large, small)
	}
}

// Clients that are connected and silent cost little: most applications have many.
func TestIdleClientsAreCheap(t *testing.T) {
	b := start(t, 1, nil)
	const n = 3000
	addr := b.server.Addr()
	to := sockaddr(t, addr.String())
	fds := make([]int, 0, n)
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	b.dial().want("MGET "+strings.Repeat("k ", 300), "*300\r\n"+strings.Repeat("$-1\r\n", 300))
	before := heap()
	buf := make([]byte, 64)
	request := []byte("*2\r\n$3\r\nGET\r\n$4\r\nnone\r\n")
	for len(fds) < n {
		var some []int // at a time: one after another would cost several changes of processes each
		for range 100 {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
			if err != nil {
				t.Fatal(err)
			}
			unix.CloseOnExec(fd)
			fds, some = append(fds, fd), append(some, fd)
			if err := unix.Connect(fd, to); err != nil {
				t.Fatal(err)
			}
			if _, err := unix.Write(fd, request); err != nil {
				t.Fatal(err)
			}
		}
		for _, fd := range some {
			if m, err := unix.Read(fd, buf); err != nil || string(buf[:m]) != "$-1\r\n" {
				t.Fatalf("%q %v", buf[:m], err)
			}
		}
	}
	each := (int64(heap()) - int64(before)) / n
	t.Logf("%d bytes for each idle client", each)
	if each > 2<<10 {
		t.Errorf("%d bytes for each idle client, want at most 2 KiB", each)
	}
}

func TestFullQueuesShed(t *testing.T) {
	t.Parallel() // it waits
	s := fake(t, func(args []string) string {
		if args[0] == "GET" {
			return silence
		}
		return ""
	})
	b := before(t, func(c *Config) { c.UpstreamCalls, c.RowOps, c.Loops, c.ReplyTimeout = 10, 2, 1, 5*time.Second }, s.addr)
	w := b.dial()
	w.want("SET k v", "+OK\r\n")
	w.send(slices.Repeat([]string{"GET k"}, 12)...)
	for i := range 12 {
		want := "-CACHEDOWN c1 no reply in time\r\n"
		if i >= 10 {
			want = "-OVERLOADED too many requests wait for the cache server\r\n"
		}
		if got := w.reply(); got != want {
			t.Errorf("reply %d: %q, want %q", i, got, want)
		}
	}
	release := make(chan struct{})
	b.rows.mu.Lock()
	b.rows.read = func(string) *Row { <-release; return &Row{Found: true, Body: []byte("{}")} }
	b.rows.mu.Unlock()
	w.send("EXISTS user:1 user:2", "EXISTS user:3 user:4", "EXISTS user:5 user:6", "HSET user:7 a b", "PING")
	eventually(t, "two are under way", func() bool { return b.server.rowOps.Load() == 2 })
	time.Sleep(20 * time.Millisecond)
	close(release)
	over := "-OVERLOADED too many misses and writes are under way in this sidecar\r\n"
	for _, want := range []string{":2\r\n", ":2\r\n", over, over, "+PONG\r\n"} {
		if got := w.reply(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	// A write of a row whose shard has too much to do goes no further than the loop.
	b.rows.mu.Lock()
	writes := b.rows.writes
	b.rows.refuses = map[string]error{"user:1": shard.ErrOverloaded}
	b.rows.mu.Unlock()
	w.want("SET user:1 '{}'", "-OVERLOADED too many requests wait for the shard\r\n")
	w.want("SET user:2 '{}'", "+OK\r\n")
	b.rows.mu.Lock()
	defer b.rows.mu.Unlock()
	if n := b.rows.writes - writes; n != 1 {
		t.Errorf("%d writes were begun, want that of the other row", n)
	}
}

func sockaddr(t *testing.T, addr string) unix.Sockaddr {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return &unix.SockaddrInet4{Port: n, Addr: netip.MustParseAddr(host).As4()}
}
