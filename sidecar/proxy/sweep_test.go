package proxy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/resp"
	"ringside/sidecar/topology"
)

// keysOf asks KEYS and returns the names, sorted.
func keysOf(t testing.TB, w *wire, pattern string) []string {
	t.Helper()
	v, _, err := resp.Decode([]byte(w.do("KEYS " + pattern)))
	if err != nil || v.Kind != resp.KindArray {
		t.Fatalf("KEYS %s: %+v, %v", pattern, v, err)
	}
	var names []string
	for _, e := range v.Elems {
		names = append(names, e.Text)
	}
	slices.Sort(names)
	return names
}

func TestKeysAndDBSizeAreOfPlainKeys(t *testing.T) {
	b := start(t, 3, nil)
	w := b.dial()
	w.want("DBSIZE", ":0\r\n")
	w.want("KEYS *", "*0\r\n")
	keys := fill(t, b, 3000)
	for proto := 2; proto <= 3; proto++ {
		w.do(fmt.Sprintf("HELLO %d", proto))
		w.want("DBSIZE", ":3000\r\n")
		for pattern, want := range map[string][]string{"*": keys, "key:42": {"key:42"}, "key:5[12]": {"key:51", "key:52"}, "rs:*": nil, "user:*": nil, "left:*": nil} {
			if got := keysOf(t, w, pattern); !slices.Equal(got, want) {
				t.Errorf("RESP%d KEYS %s: %d names, want %d", proto, pattern, len(got), len(want))
			}
		}
	}
	if n := b.server.sweeps.Load(); n != 0 {
		t.Errorf("%d sweeps are under way, want none", n)
	}
}

// What a client sends behind a command that takes several steps begins after it.
func TestSweepsKeepTheOrderOfAPipeline(t *testing.T) {
	b := start(t, 3, nil)
	w := b.dial()
	for range 20 {
		w.send("SET {a}1 x", "SET b x", "FLUSHALL", "SET c x", "SET d x", "DBSIZE", "DEL c", "KEYS *", "FLUSHDB", "DBSIZE", "RANDOMKEY", "PING")
		for i, want := range []string{"+OK\r\n", "+OK\r\n", "+OK\r\n", "+OK\r\n", "+OK\r\n", ":2\r\n", ":1\r\n", "*1\r\n" + bulk("d"), "+OK\r\n", ":0\r\n", "$-1\r\n", "+PONG\r\n"} {
			if got := w.reply(); got != want {
				t.Fatalf("reply %d: %q, want %q", i, got, want)
			}
		}
	}
}

func TestFlushSparesEntriesOfRows(t *testing.T) {
	b := start(t, 3, nil)
	w := b.dial()
	for _, flush := range []string{"FLUSHALL", "FLUSHDB", "FLUSHALL ASYNC", "flushdb sync"} {
		fill(t, b, 2500)
		w.want(flush, "+OK\r\n")
		w.want("DBSIZE", ":0\r\n")
		for i, s := range b.caches {
			direct := dial(t, s.Addr())
			direct.want("DBSIZE", ":50\r\n")
			if got := len(keysOf(t, direct, "rs:1.1:user:*")); got != 50 {
				t.Errorf("%s left %d entries of rows on server %d, want 50", flush, got, i+1)
			}
		}
	}
	for _, c := range []string{"FLUSHALL NOW", "FLUSHDB ASYNC SYNC", "FLUSHALL x y"} {
		w.want(c, "-ERR syntax error\r\n")
	}
	w.want("SET user:1 '{\"name\":\"a\"}'", "+OK\r\n")
	w.want("FLUSHALL", "+OK\r\n")
	w.want("EXISTS user:1", ":1\r\n")
}

func TestFlushFailsWithAServer(t *testing.T) {
	b := start(t, 3, nil)
	fill(t, b, 300)
	w := b.dial()
	if err := b.caches[1].Kill(); err != nil {
		t.Fatal(err)
	}
	if got := w.do("FLUSHALL"); !strings.HasPrefix(got, "-CACHEDOWN c2 ") {
		t.Errorf("FLUSHALL with c2 dead: %q", got)
	}
	for _, i := range []int{0, 2} {
		dial(t, b.caches[i].Addr()).want("DBSIZE", ":50\r\n")
	}
	for _, c := range []string{"KEYS *", "DBSIZE", "RANDOMKEY"} {
		if got := w.do(c); !strings.HasPrefix(got, "-CACHEDOWN c2 ") {
			t.Errorf("%s with c2 dead: %q", c, got)
		}
	}
	// Once the others agree that it is down it owns nothing, and it is emptied before it does again.
	b.holder.Publish(withCaches(t, b.holder.Current(), func(caches []topology.Cache) []topology.Cache {
		caches[1].State = topology.Down
		return caches
	}))
	w.want("DBSIZE", ":0\r\n")
	w.want("RANDOMKEY", "$-1\r\n")
	w.want("SET here x", "+OK\r\n")
	w.want("FLUSHALL", "+OK\r\n")
	w.want("EXISTS here", ":0\r\n")
}

func TestSweepOfAServerThatHangs(t *testing.T) {
	t.Parallel() // it waits
	b := start(t, 2, func(c *Config) { c.ReplyTimeout = 2 * time.Second })
	fill(t, b, 300)
	w := b.dial()
	if err := b.caches[0].Pause(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.caches[0].Resume() }()
	for _, c := range []string{"KEYS *", "DBSIZE", "FLUSHALL"} {
		if got := w.do(c); !strings.HasPrefix(got, "-CACHEDOWN c1 ") {
			t.Errorf("%s: %q", c, got)
		}
	}
	// Clients that leave, and too many at once.
	var all []*wire
	for range 2 * maxSweeps {
		one := b.dial()
		one.send("KEYS *")
		all = append(all, one)
	}
	for i, one := range all {
		if i%2 == 0 {
			_ = one.conn.Close()
		} else if got := one.reply(); !strings.HasPrefix(got, "-CACHEDOWN c1 ") && !strings.HasPrefix(got, "-OVERLOADED ") {
			t.Errorf("KEYS beside others: %q", got)
		}
	}
	eventually(t, "all sweeps end", func() bool { return b.server.sweeps.Load() == 0 })
}

func TestSweepsAreBounded(t *testing.T) {
	b := start(t, 1, func(c *Config) { c.SweepTimeout = time.Nanosecond })
	fill(t, b, 5000)
	w := b.dial()
	for command, hint := range map[string]string{"KEYS *": "use SCAN", "DBSIZE": "counted one by one", "FLUSHALL": "the rest is still there"} {
		if got := w.do(command); !strings.HasPrefix(got, "-ERR not done after 1ns: ") || !strings.Contains(got, hint) {
			t.Errorf("%s: %q", command, got)
		}
	}
	small := start(t, 1, func(c *Config) { c.OutputSoft, c.OutputHard = 1000, 1000 })
	fill(t, small, 100)
	small.dial().want("KEYS *", "-ERR the keys are too many for one reply: use SCAN\r\n")
	b.server.sweeps.Add(maxSweeps)
	w.want("DBSIZE", "-OVERLOADED too many commands that go through all keys are under way in this sidecar\r\n")
	b.server.sweeps.Add(-maxSweeps)
}

func TestRandomKey(t *testing.T) {
	b := start(t, 3, nil)
	w := b.dial()
	w.want("RANDOMKEY", "$-1\r\n")
	keys := fill(t, b, 4)
	drawn := map[string]int{}
	const draws = 400
	for range draws {
		w.send("RANDOMKEY")
	}
	for range draws {
		v, _, err := resp.Decode([]byte(w.reply()))
		if err != nil {
			t.Fatal(err)
		}
		drawn[v.Text]++
	}
	for _, k := range keys {
		// A hundred each on average; Redis itself favours keys that are alone in their bucket.
		if drawn[k] < 20 {
			t.Errorf("%s was drawn %d times of %d", k, drawn[k], draws)
		}
	}
	if len(drawn) != len(keys) {
		t.Errorf("drawn: %v, want of %v", drawn, keys)
	}
	w.want("FLUSHALL", "+OK\r\n")
	w.want("RANDOMKEY", "$-1\r\n") // there are entries of rows only
	for _, s := range b.caches {
		direct := dial(t, s.Addr())
		for i := range 2000 {
			direct.send(fmt.Sprintf("SET rs:1.1:user:%d V", i))
		}
		for range 2000 {
			direct.reply()
		}
	}
	w.want("SET needle x", "+OK\r\n")
	w.want("RANDOMKEY", bulk("needle"))
	w.want("HELLO 3 SETNAME x", w.do("HELLO 3"))
	w.want("DEL needle", ":1\r\n")
	w.want("RANDOMKEY", "_\r\n")
}
