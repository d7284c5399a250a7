package proxy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/cache"
	"ringside/resp"
	"ringside/shard"
	"ringside/shard/keyspace"
	"ringside/sidecar/topology"
)

// put stores an entry where the proxy looks for it.
func (b *bench) put(key, body string, kind cache.EntryKind) {
	b.t.Helper()
	b.putOf(key, body, kind, time.Now(), time.Now())
}

// putOf puts an entry that was written and has its soft expiry at these times.
func (b *bench) putOf(key, body string, kind cache.EntryKind, written, soft time.Time) {
	b.t.Helper()
	t := b.holder.Current()
	l, err := t.Locate(testKeyspaces(b.t), []byte(key))
	if err != nil {
		b.t.Fatal(err)
	}
	var entry []byte
	switch kind {
	case cache.KindValue:
		entry = cache.AppendValue(nil, written, soft, []byte(body))
	case cache.KindAbsent:
		entry = cache.AppendAbsent(nil, written, soft)
	case cache.KindLease:
		entry = cache.AppendLease(nil, cache.Token{1})
	case cache.KindPoison:
		entry = cache.AppendPoison(nil, cache.Token{1})
	}
	name := cache.AppendName(nil, t.Generation(l.CacheVnode), t.Flush(*l.ShardVnode), []byte(key))
	server := dial(b.t, b.caches[t.CacheIndex(l.Cache)].Addr())
	// Not by send, to which a quote among the entry's bytes would mean something.
	server.write(string(resp.AppendCommand(nil, []byte("SET"), name, entry, []byte("PX"), []byte("5000"))))
	if got := server.reply(); got != "+OK\r\n" {
		b.t.Fatalf("storing an entry: %q", got)
	}
}

func TestRowsAreAnsweredFromTheirEntry(t *testing.T) {
	b := start(t, 3, nil)
	w := b.dial()
	const row = `{"id":7,"name":"Ann O","visits":3,"email":null}`
	b.put("user:7", row, cache.KindValue)
	b.put("title:7", row, cache.KindValue)
	b.put("user:8", "", cache.KindAbsent)
	for _, c := range [][2]string{
		{"GET user:7", bulk(row)},
		{"GET title:7", bulk("Ann O")},
		{"GET user:8", "$-1\r\n"},
		{"STRLEN user:7", fmt.Sprintf(":%d\r\n", len(row))},
		{"STRLEN user:8", ":0\r\n"},
		{"EXISTS user:7", ":1\r\n"},
		{"EXISTS user:8", ":0\r\n"},
		{"TYPE user:7", "+string\r\n"},
		{"TYPE user:8", "+none\r\n"},
		{"TTL user:7", ":5\r\n"},
		{"TTL user:8", ":-2\r\n"},
		{"TTL user:9", ":-1\r\n"},
		{"HGETALL user:7", "*6\r\n" + bulk("id") + bulk("7") + bulk("name") + bulk("Ann O") + bulk("visits") + bulk("3")},
		{"HGETALL user:8", "*0\r\n"},
		{"HKEYS user:7", "*3\r\n" + bulk("id") + bulk("name") + bulk("visits")},
		{"HVALS user:7", "*3\r\n" + bulk("7") + bulk("Ann O") + bulk("3")},
		{"HLEN user:7", ":3\r\n"},
		{"HGET user:7 name", bulk("Ann O")},
		{"HGET user:7 email", "$-1\r\n"},
		{"HGET user:7 nosuch", "$-1\r\n"},
		{"HGET user:8 name", "$-1\r\n"},
		{"HMGET user:7 visits nosuch id", "*3\r\n" + bulk("3") + "$-1\r\n" + bulk("7")},
		{"HEXISTS user:7 name", ":1\r\n"},
		{"HEXISTS user:7 email", ":0\r\n"},
	} {
		w.want(c[0], c[1])
	}
	if n := b.rows.asked(); n != 0 {
		t.Errorf("%d reads went past the cache", n)
	}
	w.want("HELLO 3 SETNAME x", w.do("HELLO 3 SETNAME x"))
	for _, c := range [][2]string{
		{"GET user:8", "_\r\n"},
		{"HGETALL user:7", "%3\r\n" + bulk("id") + bulk("7") + bulk("name") + bulk("Ann O") + bulk("visits") + bulk("3")},
		{"HMGET user:7 visits nosuch", "*2\r\n" + bulk("3") + "_\r\n"},
		{"GET plain", "_\r\n"},
		{"MGET plain user:8", "*2\r\n_\r\n_\r\n"},
	} {
		w.want(c[0], c[1])
	}
}

// TestHitsOfOldEntriesHaveThemRefreshed: the reply is the old value all the same.
func TestHitsOfOldEntriesHaveThemRefreshed(t *testing.T) {
	b := start(t, 2, nil)
	now := time.Now()
	b.putOf("user:1", `{"id":1}`, cache.KindValue, now.Add(-10*time.Minute), now.Add(-3*time.Minute))
	b.putOf("user:2", "", cache.KindAbsent, now.Add(-10*time.Minute), now.Add(-3*time.Minute))
	b.putOf("user:3", `{"id":3}`, cache.KindValue, now, now.Add(time.Hour))
	w := b.dial()
	w.want("GET user:1", bulk(`{"id":1}`))
	w.want("GET user:2", "$-1\r\n")
	w.want("GET user:3", bulk(`{"id":3}`))
	w.want("MGET user:3 user:2 user:1", "*3\r\n"+bulk(`{"id":3}`)+"$-1\r\n"+bulk(`{"id":1}`))
	b.eventually("four refreshes were asked for", func() bool {
		b.rows.mu.Lock()
		defer b.rows.mu.Unlock()
		slices.Sort(b.rows.refreshed)
		return slices.Equal(b.rows.refreshed, []string{"user:1", "user:1", "user:2", "user:2"})
	})
	if n := b.rows.asked(); n != 0 {
		t.Errorf("%d reads went past the cache", n)
	}
}

func TestRowsThatTheCacheCannotAnswerAreAskedFor(t *testing.T) {
	for _, kind := range []cache.EntryKind{cache.KindLease, cache.KindPoison, cache.KindMalformed} {
		t.Run(kind.String(), func(t *testing.T) {
			b := start(t, 2, nil)
			b.rows.set("user:7", `{"id":7}`)
			if kind != cache.KindMalformed {
				b.put("user:7", "", kind)
			}
			w := b.dial()
			w.want("GET user:7", bulk(`{"id":7}`))
			w.want("GET user:9", "$-1\r\n")
			if n := b.rows.asked(); n != 2 {
				t.Errorf("%d reads, want 2", n)
			}
		})
	}
}

func TestAnEntryCountsOnlyUnderAConfirmedViewAndTheNamedIncarnation(t *testing.T) {
	b := start(t, 2, func(c *Config) { c.ServeUnconfirmed = false })
	b.rows.set("user:7", `{"from":"shard"}`)
	b.put("user:7", `{"from":"cache"}`, cache.KindValue)
	w := b.dial()
	w.want("GET user:7", bulk(`{"from":"cache"}`))

	// The shard's last word is too old.
	b.shards.confirmation.Forget()
	w.want("GET user:7", bulk(`{"from":"shard"}`))
	b.shards.confirmation.Confirm(shard.View{Epoch: 1, Phase: shard.Done}, time.Now().Add(-2*time.Second), nil)
	w.want("GET user:7", bulk(`{"from":"shard"}`))
	// It is at another epoch.
	b.shards.confirmation.Confirm(shard.View{Epoch: 2, Phase: shard.Done}, time.Now().Add(time.Hour), nil)
	w.want("GET user:7", bulk(`{"from":"shard"}`))

	// The topology names another incarnation of the server: what this one holds does not count, even under the right name.
	l, err := b.holder.Current().Locate(testKeyspaces(t), []byte("user:7"))
	if err != nil {
		t.Fatal(err)
	}
	next, err := topology.AdoptRuns(b.holder.Current(), map[string]string{l.Cache: "another"})
	if err != nil {
		t.Fatal(err)
	}
	b.holder.Publish(next)
	b.put("user:7", `{"from":"cache"}`, cache.KindValue)
	b.shards.confirmation.Forget()
	b.shards.confirmation.Confirm(shard.View{Epoch: 2, Phase: shard.Done}, time.Now().Add(time.Hour), nil)
	w.want("GET user:7", bulk(`{"from":"shard"}`))
	w.want("MGET user:7", "*1\r\n"+bulk(`{"from":"shard"}`))
}

func TestAChangingRowIsKeptOutOfTheCache(t *testing.T) {
	b := start(t, 1, nil)
	b.rows.set("user:7", `{"from":"shard"}`)
	b.put("user:7", `{"from":"cache"}`, cache.KindValue)
	w := b.dial()
	for _, c := range []struct {
		view shard.View
		from string
	}{
		{shard.View{Epoch: 1, Phase: shard.Preparing, From: 1}, "cache"}, // the row's generation is 1: nothing changes for it
		{shard.View{Epoch: 1, Phase: shard.Preparing, From: 0}, "shard"},
		{shard.View{Epoch: 1, Phase: shard.Done, From: 0}, "cache"},
	} {
		b.shards.confirmation.Forget()
		b.shards.confirmation.Confirm(c.view, time.Now().Add(time.Hour), nil)
		w.want("GET user:7", bulk(`{"from":"`+c.from+`"}`))
	}
}

func TestWritesOfRows(t *testing.T) {
	b := start(t, 2, nil)
	w := b.dial()
	for _, c := range [][2]string{
		{`SET user:7 '{"visits":7}'`, "+OK\r\n"},
		{`SET user:7 '{"visits":8}' NX`, "$-1\r\n"},
		{`SET user:7 '{"visits":8}' XX`, "+OK\r\n"},
		{`SET user:9 '{"visits":8}' XX`, "$-1\r\n"},
		{`SET user:7 '{"visits":8}' NX XX`, "-ERR syntax error\r\n"},
		{`SET user:7 '{"visits":'`, ""},
		{"SET title:3 'A title'", "+OK\r\n"},
		{"HSET user:20 name Bo visits 1", ":2\r\n"},
		{"HSET user:20 name Bo visits 1", ":0\r\n"},
		{"HSET user:20 name", "-ERR wrong number of arguments for 'hset' command\r\n"},
		{"HINCRBY user:20 visits 5", ":5\r\n"},
		{"HINCRBY user:20 visits x", "-ERR value is not an integer or out of range\r\n"},
		{"DEL user:20 user:21 plain", ":1\r\n"},
		{"UNLINK user:7", ":1\r\n"},
		{"EXPIRE user:7 5", "-ERR EXPIRE does not apply to user:7: it is a row of table users; the life of its cached copy is the keyspace's ttl, and the row itself does not expire\r\n"},
		{`SET user:7 '{}' EX 5`, "-ERR SET with an expiry does not apply to user:7: it is a row of table users; the life of its cached copy is the keyspace's ttl, and the row itself does not expire\r\n"},
		{"LPUSH user:7 x", "-ERR LPUSH does not apply to user:7: it is a row of table users; rows take GET, MGET, EXISTS, TOUCH, STRLEN, TYPE, TTL, PTTL, HGETALL, HGET, HMGET, HEXISTS, HKEYS, HVALS, HLEN, SET, HSET, HMSET, HINCRBY, DEL and UNLINK\r\n"},
		{"MSET a 1 user:7 x", ""},
		{"RENAME user:7 user:8", ""},
		{"GET user:007", ""},
	} {
		got := w.do(c[0])
		if c[1] == "" && !strings.HasPrefix(got, "-") || c[1] != "" && got != c[1] {
			t.Errorf("%s: %q, want %q", c[0], got, c[1])
		}
	}
}

func TestErrorsOfRowsHaveTheirWord(t *testing.T) {
	b := start(t, 1, nil)
	w := b.dial()
	for _, c := range []struct {
		err  error
		want string
	}{
		{&shard.BadRowError{Column: "visits", Reason: "is not a number"}, "-BADROW column \"visits\": is not a number\r\n"},
		{shard.ErrOverloaded, "-OVERLOADED too many requests wait for the shard\r\n"},
		{&CacheDownError{Server: "c1", Err: cache.ErrBusy}, "-OVERLOADED cache server c1: too many requests wait for the cache server\r\n"},
		{shard.ErrFrozen, "-TRYAGAIN vnode is frozen for a cut-over\r\n"},
		{fmt.Errorf("shard s1: canceling statement due to lock timeout: %w", shard.ErrLocked), "-TRYAGAIN shard s1: canceling statement due to lock timeout: locked by another transaction\r\n"},
		{shard.ErrNotOwner, "-TRYAGAIN the ring is changing: shard does not own the vnode\r\n"},
		{&shard.DownError{Shard: "s1", Err: errors.New("connection refused")}, "-SHARDDOWN s1 connection refused\r\n"},
		{&CacheDownError{Server: "c1", Err: errors.New("connection refused")}, "-CACHEDOWN c1 connection refused\r\n"},
		{&WrittenError{Err: &shard.DownError{Shard: "s1", Err: shard.ErrOutcomeUnknown}}, "-SHARDDOWN s1 the write may have been made but could not be acknowledged; read the row before you repeat it: outcome of the write is unknown\r\n"},
	} {
		b.rows.mu.Lock()
		b.rows.read = func(string) *Row { return &Row{Err: c.err} }
		b.rows.write = func(keyspace.Op) (keyspace.Outcome, error) { return keyspace.Outcome{}, c.err }
		b.rows.mu.Unlock()
		w.want("GET user:1", c.want)
		w.want("MGET plain user:1", c.want)
		w.want("SET user:1 '{}'", c.want)
		w.want("DEL user:1 plain", c.want)
	}
	if got := w.do("GET user:01"); !strings.HasPrefix(got, "-BADKEY ") {
		t.Errorf("GET user:01: %q", got)
	}
}

// A read that follows a write to the same row on one connection is not begun before the write has ended, and other rows do not wait.
func TestProgramOrderOfOneConnection(t *testing.T) {
	b := start(t, 1, nil)
	release := make(chan struct{})
	b.rows.set("user:1", `{"v":1}`)
	b.rows.mu.Lock()
	b.rows.write = func(op keyspace.Op) (keyspace.Outcome, error) {
		<-release
		b.rows.set(string(op.Key.Text), `{"v":2}`)
		return keyspace.Outcome{Applied: true}, nil
	}
	b.rows.mu.Unlock()
	w, other := b.dial(), b.dial()
	w.send(`SET user:1 '{"v":2}'`, "GET user:1", "MGET user:1", "DEL user:1 x", "PING")
	other.want("GET user:1", bulk(`{"v":1}`))
	time.Sleep(50 * time.Millisecond)
	if n := b.rows.asked(); n != 1 {
		t.Errorf("%d reads before the write has ended, want the other connection's only", n)
	}
	close(release)
	for _, want := range []string{"+OK\r\n", bulk(`{"v":2}`), "*1\r\n" + bulk(`{"v":2}`), ":1\r\n", "+PONG\r\n"} {
		if got := w.reply(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestMGETOfMixedKeysKeepsTheirOrder(t *testing.T) {
	b := start(t, 3, nil)
	w := b.dial()
	var command, want strings.Builder
	command.WriteString("MGET")
	const n = 200
	fmt.Fprintf(&want, "*%d\r\n", n)
	for i := range n {
		switch i % 4 {
		case 0: // cached
			key, row := fmt.Sprintf("user:%d", i), fmt.Sprintf(`{"id":%d}`, i)
			b.put(key, row, cache.KindValue)
			command.WriteString(" " + key)
			want.WriteString(bulk(row))
		case 1: // on the shard only
			key, row := fmt.Sprintf("user:%d", i), fmt.Sprintf(`{"id":%d,"name":"n"}`, i)
			b.rows.set(key, row)
			command.WriteString(" " + key)
			want.WriteString(bulk(row))
		case 2: // nowhere
			fmt.Fprintf(&command, " user:%d", i)
			want.WriteString("$-1\r\n")
		case 3: // plain
			key := fmt.Sprintf("plain:%d", i)
			w.want(fmt.Sprintf("SET %s %d", key, i), "+OK\r\n")
			command.WriteString(" " + key)
			want.WriteString(bulk(fmt.Sprint(i)))
		}
	}
	w.want(command.String(), want.String())
	if asked := b.rows.asked(); asked != n/2 {
		t.Errorf("%d rows were asked for, want %d", asked, n/2)
	}
}
