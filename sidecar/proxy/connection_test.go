package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ringside/sidecar/topology"
)

// closeWrite shuts down the client's writing side, as `printf ... | nc` does.
func (w *wire) closeWrite() {
	w.t.Helper()
	if err := w.conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		w.t.Fatal(err)
	}
}

// rest returns all that still comes until the connection ends.
func (w *wire) rest() string {
	w.t.Helper()
	if err := w.conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		w.t.Fatal(err)
	}
	all, err := io.ReadAll(w.conn)
	if err != nil {
		w.t.Fatalf("reading to the end: %v after %d bytes", err, len(all))
	}
	return string(w.in) + string(all)
}

// A client that has sent everything and shut down its writing side gets every reply, also to what had not been parsed when its window
// was full, and then the end.
func TestHalfClosedClientGetsAllReplies(t *testing.T) {
	b := start(t, 1, func(c *Config) { c.InFlight = 4 })
	b.rows.set("user:1", `{"id":1}`)
	const n = 3000
	w := b.dial()
	var want strings.Builder
	var out []string
	for i := range n {
		switch i % 5 {
		case 0:
			out, _ = append(out, fmt.Sprintf("SET k %d", i)), want.WriteByte('+')
			want.WriteString("OK\r\n")
		case 1:
			out = append(out, "GET k")
			want.WriteString(bulk(fmt.Sprint(i - 1)))
		case 2:
			out = append(out, "PING")
			want.WriteString("+PONG\r\n")
		case 3:
			out = append(out, "GET user:1")
			want.WriteString(bulk(`{"id":1}`))
		case 4:
			out = append(out, fmt.Sprintf("HINCRBY user:2 visits %d", i))
			want.WriteString(fmt.Sprintf(":%d\r\n", i))
		}
	}
	w.send(out...)
	w.closeWrite()
	if got := w.rest(); got != want.String() {
		t.Errorf("%d bytes, want %d", len(got), want.Len())
	}
}

func TestInlineFromNetcat(t *testing.T) {
	b := start(t, 1, nil)
	w := b.dial()
	w.write("SET k \"a b\"\r\nGET k\nPING\r\n\r\nGET k")
	w.closeWrite()
	if got, want := w.rest(), "+OK\r\n"+bulk("a b")+"+PONG\r\n"; got != want {
		t.Errorf("%q, want %q: the line that was not ended is no command", got, want)
	}
}

func TestPipelinedQuit(t *testing.T) {
	b := start(t, 1, nil)
	w := b.dial()
	w.send("SET k v", "GET k", "QUIT", "SET k other", "GET k")
	if got, want := w.rest(), "+OK\r\n"+bulk("v")+"+OK\r\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	b.dial().want("GET k", bulk("v"))
}

func TestBrokenFramingEndsTheConnectionAfterWhatIsOwed(t *testing.T) {
	b := start(t, 1, nil)
	w := b.dial()
	w.write("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n+PING\r\n*1\r\n$4\r\nPING\r\n")
	if got, want := w.rest(), "$-1\r\n-ERR Protocol error: expected '$', got '+'\r\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestAWebPageIsCutOff(t *testing.T) {
	b := start(t, 1, nil)
	w := b.dial()
	w.write("POST / HTTP/1.1\r\nHost: localhost\r\n\r\nSET k v\r\n")
	w.closed()
	b.dial().want("GET k", "$-1\r\n")
}

// HELLO changes the connection by which requests reach a server. What comes after it must not overtake what came before, and replies
// keep the protocol of the time of their request.
func TestHELLOWaitsForEarlierRequests(t *testing.T) {
	store := make(chan string, 1)
	store <- ""
	s := fake(t, func(args []string) string {
		switch args[0] {
		case "SET":
			time.Sleep(50 * time.Millisecond)
			<-store
			store <- args[2]
			return "+OK\r\n"
		case "GET":
			v := <-store
			store <- v
			return bulk(v)
		}
		return ""
	})
	b := startBefore(t, []topology.Cache{{Name: "c1", Addr: s.addr, Weight: 1, RunID: fakeRunID}}, nil)
	w := b.dial()
	w.send("GET k", "SET k new", "HELLO 3", "GET k", "GET user:9", "INFO server", "RESET", "GET user:9", "INFO server")
	for _, want := range []string{bulk(""), "+OK\r\n", "%7\r\n", bulk("new"), "_\r\n", "=", "+RESET\r\n", "$-1\r\n", "$"} {
		if got := w.reply(); !strings.HasPrefix(got, want) {
			t.Errorf("%.60q, want %q", got, want)
		}
	}
}

// A TTL asks its server two questions. When both are lost it is still one request.
func TestTTLOfARowWhoseServerGoesAwayIsAnsweredOnce(t *testing.T) {
	s := fake(t, func(args []string) string {
		if args[0] == "PTTL" {
			return closeIt
		}
		return ""
	})
	b := startBefore(t, []topology.Cache{{Name: "c1", Addr: s.addr, Weight: 1, RunID: fakeRunID}}, nil)
	w := b.dial()
	for i := range 20 {
		w.send(fmt.Sprintf("TTL user:%d", i), "PING a", fmt.Sprintf("PTTL user:%d", i), "PING b")
		for _, want := range []string{":-1\r\n", bulk("a"), ":-1\r\n", bulk("b")} {
			if got := w.reply(); got != want {
				t.Fatalf("round %d: %q, want %q", i, got, want)
			}
		}
	}
}

// Another process than the one that the topology names is asked for nothing: rows come from their shard, plain keys from nowhere.
func TestMGETFromAnotherIncarnation(t *testing.T) {
	var asked atomic.Int64
	s := fake(t, func(args []string) string {
		if args[0] == "MGET" {
			asked.Add(1)
		}
		return ""
	})
	b := startBefore(t, []topology.Cache{{Name: "c1", Addr: s.addr, Weight: 1, RunID: "an earlier one"}}, nil)
	b.rows.set("user:1", `{"from":"shard"}`)
	w := b.dial()
	stranger := "-CACHEDOWN c1 " + errStranger.Error() + "\r\n"
	w.want("MGET a user:1 b", stranger)
	w.want("MGET user:1 user:1", "*2\r\n"+bulk(`{"from":"shard"}`)+bulk(`{"from":"shard"}`))
	w.want("MGET a user:1 b", stranger)
	w.want("GET user:1", bulk(`{"from":"shard"}`))
	if n := asked.Load(); n != 0 {
		t.Errorf("%d MGETs were sent", n)
	}
}

func TestSORTByPatternsThatMayLieElsewhereIsRefused(t *testing.T) {
	b := start(t, 2, nil)
	w := b.dial()
	w.want("RPUSH {t}l 1 2", ":2\r\n")
	w.want("MSET {t}w_1 9 {t}w_2 3", "+OK\r\n")
	w.want("SORT {t}l BY {t}w_* GET {t}w_* GET #", "*4\r\n"+bulk("3")+bulk("2")+bulk("9")+bulk("1"))
	w.want("SORT {t}l BY nosort", "*2\r\n"+bulk("1")+bulk("2"))
	w.want("SORT {t}l LIMIT 0 1 DESC STORE {t}s", ":1\r\n")
	w.want("SORT_RO {t}l BY {t}w_*->f", "*2\r\n"+bulk("1")+bulk("2"))
	for _, c := range []string{
		"SORT {t}l BY w_*", "SORT {t}l GET w_*", "SORT {t}l BY *{t}", "SORT_RO {t}l BY {u}w_*", "SORT {t}l LIMIT 0 1 GET # GET {*}", "SORT l GET l*",
	} {
		w.want(c, "-"+string(errSortPattern)+"\r\n")
	}
}

func TestDrain(t *testing.T) {
	slow, asked := make(chan struct{}), make(chan struct{}, 50)
	s := fake(t, func(args []string) string {
		if args[0] == "GET" {
			asked <- struct{}{}
			<-slow
			return bulk("late")
		}
		return ""
	})
	b := startBefore(t, []topology.Cache{{Name: "c1", Addr: s.addr, Weight: 1, RunID: fakeRunID}}, func(c *Config) { c.InFlight = 4 })
	idle, waits, partial := b.dial(), b.dial(), b.dial()
	idle.want("PING", "+PONG\r\n")
	partial.write("*2\r\n$3\r\nGET\r\n$1\r\n")
	const n = 50 // far more than the window: most are not parsed when the drain begins
	for range n {
		waits.send("GET k")
	}
	<-asked
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- b.server.Drain(ctx) }()
	idle.closed()
	partial.closed()
	select {
	case err := <-done:
		t.Fatalf("Drain returned while requests were under way: %v", err)
	case <-time.After(250 * time.Millisecond): // longer than its patience
	}
	if c, err := net.Dial("tcp", b.addr); err == nil {
		c.Close()
		t.Error("a new client was accepted while draining")
	}
	close(slow)
	if got, want := waits.rest(), strings.Repeat(bulk("late"), n); got != want {
		t.Errorf("%d bytes of replies, want %d", len(got), len(want))
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestDrainSaysHowManyAreLeft(t *testing.T) {
	asked := make(chan struct{})
	s := fake(t, func(args []string) string {
		if args[0] == "GET" {
			close(asked)
			return silence
		}
		return ""
	})
	b := startBefore(t, []topology.Cache{{Name: "c1", Addr: s.addr, Weight: 1, RunID: fakeRunID}}, nil)
	w := b.dial()
	w.send("GET k")
	<-asked
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	err := b.server.Drain(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "1 clients still had requests") {
		t.Error(err)
	}
}

// A client that never stops asking is closed at a moment at which nothing is owed to it.
func TestDrainOfABusyClient(t *testing.T) {
	b := start(t, 1, nil)
	w := b.dial()
	w.want("SET k v", "+OK\r\n")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- b.server.Drain(ctx) }()
	asked, answered := 0, 0
	for {
		if _, err := w.conn.Write([]byte("GET k\r\n")); err != nil {
			break
		}
		asked++
		if _, err := w.tryReply(); err != nil {
			break
		}
		answered++
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if asked-answered > 1 {
		t.Errorf("%d requests were asked, %d answered", asked, answered)
	}
}

func TestClientsGoneWhileOthersAnswer(t *testing.T) {
	b := start(t, 1, nil)
	release := make(chan struct{})
	b.rows.mu.Lock()
	b.rows.read = func(string) *Row { <-release; return &Row{Found: true, Body: []byte(`{"a":1}`)} }
	b.rows.mu.Unlock()
	for range 20 {
		w := b.dial()
		w.send("GET user:1", "MGET user:1 a user:2", "EXISTS user:1 user:2", "SET k v", "TTL user:1", "INFO", "SET user:1 '{}'", "DEL user:1 k")
		time.Sleep(time.Millisecond)
		_ = w.conn.Close() // in the middle of it: that is the test
	}
	other := b.dial()
	other.want("PING", "+PONG\r\n")
	close(release)
	other.want("GET user:5", bulk(`{"a":1}`))
	deadline := time.Now().Add(time.Minute)
	for b.server.clients.Load() > 1 || b.server.rowOps.Load() > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("%d clients and %d operations are left", b.server.clients.Load(), b.server.rowOps.Load())
		}
		time.Sleep(5 * time.Millisecond)
	}
	other.want("GET user:6", bulk(`{"a":1}`))
}
