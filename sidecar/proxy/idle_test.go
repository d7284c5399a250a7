package proxy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ringside/cache"
	"ringside/resp"
)

// count returns the value of a metric, summed over its labels, or with the given one ("name=value") only.
func (b *bench) count(name, label string) float64 {
	b.t.Helper()
	families, err := b.reg.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "ringside_"+name {
			continue
		}
		sum := 0.0
		for _, m := range f.GetMetric() {
			match := label == ""
			for _, l := range m.GetLabel() {
				match = match || l.GetName()+"="+l.GetValue() == label
			}
			if match {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
		return sum
	}
	b.t.Fatalf("there is no metric %s", name)
	return 0
}

// Of all that a server allows an unused sidecar takes nothing.
func TestUnusedUpstreamsAreClosed(t *testing.T) {
	t.Parallel() // it waits
	b := start(t, 1, func(c *Config) { c.Loops, c.UpstreamIdle = 1, 3*time.Second })
	direct := dial(t, b.caches[0].Addr())
	clients := func() int { return strings.Count(direct.do("CLIENT LIST"), " addr=") }
	before := clients() // whoever asks
	two, three := b.dial(), b.dial()
	three.do("HELLO 3")
	for round := range 2 {
		two.want("SET k v", "+OK\r\n")
		three.want("GET k", "$1\r\nv\r\n")
		if n := b.count("upstreams", ""); n != 2 {
			t.Errorf("round %d: %v connections, want 2", round, n)
		}
		eventually(t, "they are closed", func() bool { return b.count("upstreams", "") == 0 })
		if n := b.count("upstreams_idle_closed_total", ""); n != float64(2*(round+1)) {
			t.Errorf("round %d: %v were closed", round, n)
		}
	}
	eventually(t, "the server has no client of ours", func() bool { return clients() == before })
	if down := b.count("error_replies_total", ""); down != 0 {
		t.Errorf("%v errors", down)
	}
}

// A connection that is used is kept, and so is one on which something waits.
func TestUsedUpstreamsAreKept(t *testing.T) {
	t.Parallel() // it waits
	b := start(t, 1, func(c *Config) { c.Loops, c.UpstreamIdle = 1, 3*time.Second })
	w, waiting, listening := b.dial(), b.dial(), b.dial()
	listening.do("SUBSCRIBE ch")
	waiting.send("BLPOP list 0")
	for until := time.Now().Add(6 * time.Second); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		w.want("PING", "+PONG\r\n")
		w.want("GET k", "$-1\r\n")
	}
	if n := b.count("upstream_connects_total", ""); n != 3 {
		t.Errorf("%v connections were made, want one each", n)
	}
	w.want("RPUSH list x", ":1\r\n")
	if got := waiting.reply(); got != "*2\r\n"+bulk("list")+bulk("x") {
		t.Errorf("%q", got)
	}
	w.want("PUBLISH ch m", ":1\r\n")
	if got := listening.reply(); got != "*3\r\n"+bulk("message")+bulk("ch")+bulk("m") {
		t.Errorf("%q", got)
	}
}

// Requests that come just when a connection is closed get their replies by the next one: nothing is lost between the two.
func TestRequestsWhileUpstreamsAreClosed(t *testing.T) {
	b := start(t, 2, func(c *Config) { c.UpstreamIdle = 20 * time.Millisecond })
	w := b.dial()
	for i := range 60 {
		time.Sleep(time.Duration(18+i%10) * time.Millisecond)
		key := fmt.Sprint("k", i)
		w.send("SET "+key+" v", "MGET "+key+" other", "INCR n")
		for _, want := range []string{"+OK\r\n", "*2\r\n" + bulk("v") + "$-1\r\n", fmt.Sprintf(":%d\r\n", i+1)} {
			if got := w.reply(); got != want {
				t.Fatalf("round %d: %q, want %q", i, got, want)
			}
		}
	}
	if b.count("upstreams_idle_closed_total", "") == 0 {
		t.Error("nothing was closed meanwhile")
	}
}

// A row's hit needs the connection again, and the server has to say anew which process it is.
func TestRowHitAfterIdleness(t *testing.T) {
	b := start(t, 1, func(c *Config) { c.Loops, c.UpstreamIdle = 1, 30*time.Millisecond })
	w := b.dial()
	for range 3 {
		b.put("user:1", `{"id":1}`, cache.KindValue)
		w.want("GET user:1", bulk(`{"id":1}`))
		eventually(t, "it is closed", func() bool { return b.count("upstreams", "") == 0 })
	}
	if n := b.rows.asked(); n != 0 {
		t.Errorf("%d rows were asked of the shard", n)
	}
}

func TestIdleClientsAreClosed(t *testing.T) {
	t.Parallel() // it waits
	b := start(t, 1, func(c *Config) { c.ClientIdle = 3500 * time.Millisecond })
	silent, spoke, busy, waiting, listening := b.dial(), b.dial(), b.dial(), b.dial(), b.dial()
	spoke.want("SET k v", "+OK\r\n")
	spoke.want("WATCH k", "+OK\r\n")
	spoke.want("MULTI", "+OK\r\n")
	waiting.send("BLPOP list 0")
	listening.do("SUBSCRIBE ch")
	ended := make(chan string, 2)
	for _, w := range []*wire{silent, spoke} {
		go func() { ended <- w.rest() }()
	}
	at := time.Now()
	for n := 0; n < 2 || time.Since(at) < 6*time.Second; {
		busy.want("GET k", "$1\r\nv\r\n")
		select {
		case got := <-ended:
			if n++; got != "" {
				t.Errorf("an idle client was told %q: it would take that for the reply to what it sends next", got)
			}
		case <-time.After(50 * time.Millisecond):
			if time.Since(at) > time.Minute {
				t.Fatal("an idle client is still connected")
			}
		}
	}
	if n := b.count("clients_idle_closed_total", ""); n != 2 {
		t.Errorf("%v were closed, want 2", n)
	}
	busy.want("RPUSH list x", ":1\r\n")
	if got := waiting.reply(); got != "*2\r\n"+bulk("list")+bulk("x") {
		t.Errorf("waiting: %q", got)
	}
	busy.want("PUBLISH ch m", ":1\r\n")
	if got := listening.reply(); got != "*3\r\n"+bulk("message")+bulk("ch")+bulk("m") {
		t.Errorf("listening: %q", got)
	}
	busy.want("CONFIG GET timeout", "*2\r\n"+bulk("timeout")+bulk("3")) // in whole seconds
}

// A client that has asked for much and reads slowly gets all of it.
func TestIdleClientGetsWhatItIsOwed(t *testing.T) {
	t.Parallel() // it waits
	b := start(t, 1, func(c *Config) { c.ClientIdle = 3 * time.Second })
	w := b.dial()
	value := strings.Repeat("x", 1<<20)
	w.write(string(resp.AppendCommandString(nil, "SET", "big", value)))
	if got := w.reply(); got != "+OK\r\n" {
		t.Fatal(got)
	}
	const n = 10
	w.write(strings.Repeat(string(resp.AppendCommandString(nil, "GET", "big")), n))
	eventually(t, "it counts as idle", func() bool { return b.count("clients_idle_closed_total", "") == 1 })
	for i := range n {
		if got := w.reply(); got != bulk(value) {
			t.Fatalf("reply %d: %d bytes", i, len(got))
		}
	}
}

func TestNoIdleLimits(t *testing.T) {
	b := start(t, 1, func(c *Config) { c.ClientIdle, c.UpstreamIdle = 0, 0 })
	w := b.dial()
	w.want("GET k", "$-1\r\n")
	time.Sleep(50 * time.Millisecond)
	w.want("GET k", "$-1\r\n")
}
