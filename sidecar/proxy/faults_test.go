package proxy

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringside/internal/realredis"
	"ringside/sidecar/topology"
)

// keyOn returns the n-th key that lies on a server.
func (b *bench) keyOn(server string, n int) string {
	b.t.Helper()
	for i := range 100000 {
		key := fmt.Sprintf("key:%d", i)
		l, err := b.holder.Current().Locate(testKeyspaces(b.t), []byte(key))
		if err != nil {
			b.t.Fatal(err)
		}
		if l.Cache == server {
			if n--; n < 0 {
				return key
			}
		}
	}
	b.t.Fatalf("no key on %s", server)
	return ""
}

// persistent starts a proxy before servers that keep their data over a kill.
func persistent(t *testing.T, n int, change func(*Config)) *bench {
	t.Helper()
	var servers []*realredis.Server
	var caches []topology.Cache
	for i := range n {
		s := realredis.T(t, "--appendonly", "yes", "--appendfsync", "no")
		servers = append(servers, s)
		caches = append(caches, topology.Cache{Name: fmt.Sprintf("c%d", i+1), Addr: s.Addr(), Weight: 1, RunID: runIDAt(t, s.Addr())})
	}
	b := startBefore(t, caches, change)
	b.caches = servers
	return b
}

// A server that does not answer delays nobody who does not need it; what is behind it in a pipeline waits for the reply timeout at most;
// and its late replies reach nobody.
func TestPausedServerDelaysNobodyElse(t *testing.T) {
	t.Parallel() // it waits
	const timeout = 4 * time.Second
	b := start(t, 2, func(c *Config) { c.ReplyTimeout = timeout })
	stuck, stuckToo, fine := b.keyOn("c1", 0), b.keyOn("c1", 1), b.keyOn("c2", 0)
	w := b.dial()
	w.want("SET "+stuck+" s", "+OK\r\n")
	w.want("SET "+fine+" f", "+OK\r\n")
	if err := b.caches[0].Pause(); err != nil {
		t.Fatal(err)
	}
	behind := b.dial()
	begun := time.Now()
	for i := range 50 {
		behind.send("GET "+stuck, "GET "+fine, fmt.Sprintf("SET %s %d", stuckToo, i))
	}
	var slowest []time.Duration
	for time.Since(begun) < timeout/4 {
		at := time.Now()
		w.want("GET "+fine, bulk("f"))
		slowest = append(slowest, time.Since(at))
		time.Sleep(time.Millisecond)
	}
	over := 0
	for _, d := range slowest {
		if d > timeout/6 {
			over++
		}
	}
	if over*4 > len(slowest) { // if it delayed others, all of them would take that long
		t.Errorf("%d of %d requests to the other server took longer than %v", over, len(slowest), timeout/6)
	}
	for range 50 {
		for _, want := range []string{"-CACHEDOWN c1 ", bulk("f"), "-CACHEDOWN c1 "} {
			if got := behind.reply(); !strings.HasPrefix(got, want) {
				t.Fatalf("%q, want %q", got, want)
			}
		}
	}
	if took := time.Since(begun); took > 10*timeout { // and not 50 times
		t.Errorf("the pipeline behind the paused server took %v", took)
	}
	if err := b.caches[0].Resume(); err != nil {
		t.Fatal(err)
	}
	for _, each := range []*wire{w, behind} { // on different loops, whose pauses end at different times
		deadline := time.Now().Add(time.Minute)
		for {
			got := each.do("SET " + stuck + " again")
			if got == "+OK\r\n" {
				break
			}
			if !strings.HasPrefix(got, "-CACHEDOWN c1 ") || time.Now().After(deadline) {
				t.Fatalf("%q", got)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	for range 20 {
		w.want("GET "+stuck, bulk("again"))
		behind.want("GET "+stuck, bulk("again"))
	}
}

func before(t *testing.T, change func(*Config), addrs ...string) *bench {
	t.Helper()
	var caches []topology.Cache
	for i, a := range addrs {
		caches = append(caches, topology.Cache{Name: fmt.Sprintf("c%d", i+1), Addr: a, Weight: 1, RunID: fakeRunID})
	}
	return startBefore(t, caches, change)
}

// A server that closes every connection is asked again after pauses that grow, and used again when it behaves.
func TestReconnectBacksOff(t *testing.T) {
	var bad atomic.Bool
	var attempts atomic.Int64
	bad.Store(true)
	s := fake(t, func(args []string) string {
		if args[0] == "INFO" {
			attempts.Add(1)
			if bad.Load() {
				return closeIt
			}
		}
		return ""
	})
	b := before(t, func(c *Config) { c.Loops = 1 }, s.addr)
	w := b.dial()
	begun, took := time.Now(), time.Duration(0)
	for took < time.Second || attempts.Load() < 3 && took < time.Minute {
		if got := w.do("SET k v"); !strings.HasPrefix(got, "-CACHEDOWN c1 ") {
			t.Fatalf("%q", got)
		}
		time.Sleep(time.Millisecond)
		took = time.Since(begun)
	}
	if n := attempts.Load(); n < 3 || n > 12+int64(took/pauseMax) {
		t.Errorf("%d attempts to connect within %v, want some that become fewer", n, took)
	}
	bad.Store(false)
	deadline := time.Now().Add(time.Minute)
	for w.do("SET k v") != "+OK\r\n" {
		if time.Now().After(deadline) {
			t.Fatal("the server is not used again")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// A server that closes connections because they are idle is not down.
func TestLostIdleConnectionCostsNoError(t *testing.T) {
	s := fake(t, func([]string) string { return "" })
	b := before(t, func(c *Config) { c.Loops = 1 }, s.addr)
	w := b.dial()
	for i := range 10 {
		w.want(fmt.Sprintf("SET k %d", i), "+OK\r\n")
		s.cut()
		deadline := time.Now().Add(time.Minute)
		for b.server.gather().upstreams > 0 {
			if time.Now().After(deadline) {
				t.Fatal("the loss was not noticed")
			}
			time.Sleep(time.Millisecond)
		}
	}
}

func TestUpstreamsThatMisbehave(t *testing.T) {
	t.Parallel() // it waits
	var answer atomic.Value
	answer.Store("")
	s := fake(t, func(args []string) string {
		if args[0] == "GET" {
			return answer.Load().(string)
		}
		return ""
	})
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel connects, nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	b := before(t, func(c *Config) { c.ReplyTimeout = 4 * time.Second }, s.addr, silent.Addr().String(), closed.Addr().String(), "no-such-host.invalid:6379", "not an address")
	good := b.keyOn("c1", 0)
	w := b.dial()
	for server, want := range map[string]string{
		"c2": "no reply in time", "c3": "dial tcp", "c4": "lookup no-such-host.invalid", "c5": "address not an address",
	} {
		if got := w.do("GET " + b.keyOn(server, 0)); !strings.HasPrefix(got, "-CACHEDOWN "+server+" "+want) {
			t.Errorf("%s: %q", server, got)
		}
		w.want("ECHO x", bulk("x"))
	}
	for _, c := range []struct{ answer, want string }{
		{"garbage\r\n", "-CACHEDOWN c1 Protocol error"},
		{"$3\r\nlonger\r\n", "-CACHEDOWN c1 Protocol error"},
		{closeIt, "-CACHEDOWN c1 "},
		{"+OK\r\n+nobody asked\r\n", "+OK\r\n"},
		{"-ERR from the server\r\n", "-ERR from the server\r\n"},
		{"$-1\r\n", "$-1\r\n"},
	} {
		answer.Store(c.answer)
		w.send("GET "+good, "PING")
		if got := w.reply(); !strings.HasPrefix(got, c.want) {
			t.Errorf("%q: %q, want %q", c.answer, got, c.want)
		}
		if got := w.reply(); got != "+PONG\r\n" {
			t.Errorf("%q: PING %q", c.answer, got)
		}
		answer.Store("+fine\r\n")
		deadline := time.Now().Add(time.Minute)
		for w.do("GET "+good) != "+fine\r\n" {
			if time.Now().After(deadline) {
				t.Fatalf("%q: the server is not used again", c.answer)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

func TestUpstreamByNameAndPassword(t *testing.T) {
	s := realredis.T(t, "--requirepass", "pw")
	direct := dial(t, s.Addr())
	direct.want("AUTH pw", "+OK\r\n")
	id := runIDOf([]byte(direct.do("INFO server")))
	for _, c := range []struct {
		credentials Credentials
		want        string
	}{
		{Credentials{}, "-CACHEDOWN c1 handshake refused: NOAUTH"},
		{Credentials{Password: "wrong"}, "-CACHEDOWN c1 handshake refused: WRONGPASS"},
		{Credentials{Password: "pw"}, "$-1\r\n"},
		{Credentials{Username: "default", Password: "pw"}, "$-1\r\n"},
	} {
		b := startBefore(t, []topology.Cache{{Name: "c1", Addr: fmt.Sprintf("localhost:%d", s.Port()), Weight: 1, RunID: id}}, nil)
		b.credentials.Store(&c.credentials)
		for _, proto := range []string{"2", "3"} {
			w := b.dial()
			w.do("HELLO " + proto)
			want := c.want
			if proto == "3" && want[0] == '$' {
				want = "_\r\n"
			}
			// A name may have an address that is tried in vain first.
			got := w.do("GET k")
			for deadline := time.Now().Add(time.Minute); strings.Contains(got, "refused:") == false && got[0] == '-' && time.Now().Before(deadline); {
				time.Sleep(5 * time.Millisecond)
				got = w.do("GET k")
			}
			if !strings.HasPrefix(got, want) {
				t.Errorf("%+v, RESP%s: %q, want %q", c.credentials, proto, got, want)
			}
		}
	}
}

// What one connection breaks is no other's business.
func TestGarbageDisturbsNobodyElse(t *testing.T) {
	b := start(t, 2, nil)
	stop := make(chan struct{})
	var all sync.WaitGroup
	for i := range 4 {
		rng := rand.New(rand.NewPCG(3, uint64(i)))
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				c, err := net.Dial("tcp", b.addr)
				if err != nil {
					t.Error(err)
					return
				}
				junk := make([]byte, 1+rng.IntN(2000))
				for k := range junk {
					junk[k] = "*$123\r\n GETk-:+\x00\xff"[rng.IntN(17)]
				}
				_, _ = c.Write(junk) // the proxy may have closed already
				if rng.IntN(2) == 0 {
					_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
					_, _ = c.Read(junk)
				}
				_ = c.Close()
			}
		})
	}
	w := b.dial()
	for i := range 300 {
		w.want(fmt.Sprintf("SET own:%d v%d", i%50, i), "+OK\r\n")
		w.want(fmt.Sprintf("GET own:%d", i%50), bulk(fmt.Sprintf("v%d", i)))
	}
	close(stop)
	all.Wait()
}

// A topology without the server comes while a join waits for it: the join ends, and the connection is let go.
func TestTopologyChangesUnderAJoin(t *testing.T) {
	hold := make(chan struct{})
	mget := func(args []string) string {
		if args[0] != "MGET" {
			return ""
		}
		<-hold
		var out strings.Builder
		fmt.Fprintf(&out, "*%d\r\n", len(args)-1)
		for _, k := range args[1:] {
			out.WriteString(bulk("value of " + k))
		}
		return out.String()
	}
	s1, s2 := fake(t, mget), fake(t, mget)
	b := before(t, nil, s1.addr, s2.addr)
	b.rows.set("user:1", "{}")
	k1, k2 := b.keyOn("c1", 0), b.keyOn("c2", 0)
	w := b.dial()
	w.send("MGET " + k1 + " " + k2 + " user:1 " + k1)
	time.Sleep(50 * time.Millisecond)
	next, err := topology.Bootstrap([]topology.Cache{{Name: "c2", Addr: s2.addr, Weight: 1, RunID: fakeRunID}}, []topology.Shard{{Name: "s1", Weight: 1, MaxConnections: 4}})
	if err != nil {
		t.Fatal(err)
	}
	b.holder.Publish(next)
	b.dial().want("PING", "+PONG\r\n") // on both loops
	b.dial().want("PING", "+PONG\r\n")
	close(hold)
	want := "*4\r\n" + bulk("value of "+k1) + bulk("value of "+k2) + bulk("{}") + bulk("value of "+k1)
	if got := w.reply(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	deadline := time.Now().Add(time.Minute)
	for {
		s1.mu.Lock()
		n := len(s1.conns)
		s1.mu.Unlock()
		if n == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d connections to the server that has left", n)
		}
		time.Sleep(5 * time.Millisecond)
	}
	w.want("MGET "+k1+" x", "*2\r\n"+bulk("value of "+k1)+bulk("value of x"))
}

func TestWhatWaitsForAnAddressIsBounded(t *testing.T) {
	w := newWorkerForTest(t)
	cfg := DefaultConfig()
	w.server.current.Store(&cfg)
	u := &upstream{worker: w, dialing: true, early: make([]byte, maxUnsent)}
	if err := u.room(); err != nil {
		t.Error(err)
	}
	u.early = append(u.early, 0)
	if err := u.room(); err != errManyRequests {
		t.Error(err)
	}
}
