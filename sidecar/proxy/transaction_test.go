package proxy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"ringside/internal/realredis"
	"ringside/sidecar/topology"
)

// alikeConversations has the proxy and one Redis answer the same lines and compares what they say, in both protocols. In a reply that
// differs on purpose, the line ends with " !" and only the first word of the error is compared.
func alikeConversations(t *testing.T, b *bench, direct string, lines []string) {
	t.Helper()
	for _, proto := range []int{2, 3} {
		ours, theirs := dial(t, b.addr), dial(t, direct)
		for _, w := range []*wire{ours, theirs} {
			w.do(fmt.Sprintf("HELLO %d", proto))
			w.do("DEL {t}a {t}b {t}l {t}s")
		}
		for _, line := range lines {
			command, loose := strings.CutSuffix(line, " !")
			got, want := ours.do(command), theirs.do(command)
			if loose {
				got, _, _ = strings.Cut(got, " ")
				want, _, _ = strings.Cut(want, " ")
			}
			if got != want {
				t.Errorf("RESP%d %s: %q, want %q", proto, line, got, want)
			}
		}
	}
}

func TestTransactionsAnswerAsOneRedis(t *testing.T) {
	b := start(t, 3, nil)
	alikeConversations(t, b, realredis.T(t).Addr(), []string{
		"EXEC", "DISCARD", "EXEC now", "UNWATCH", "WATCH", "MULTI now",
		"MULTI", "EXEC",
		"MULTI", "SET {t}a 1", "INCR {t}a", "GET {t}a", "GET {t}none", "HGETALL {t}none", "EXEC", "GET {t}a",
		"MULTI", "SET {t}a x", "DISCARD", "GET {t}a", "EXEC",
		"MULTI", "MULTI", "SET {t}a 5", "WATCH {t}a", "EXEC", "GET {t}a",
		"MULTI", "SET {t}a 6", "GET", "SET {t}a 7", "EXEC", "GET {t}a",
		"MULTI", "NOSUCH x", "SET {t}a 7", "EXEC", "GET {t}a", "EXEC",
		"MULTI", "CONFIG NOSUCH", "EXEC",
		"MULTI", "SET {t}a 7", "EXEC now", "GET {t}a", "EXEC",
		"MULTI", "SAVE", "EXEC",
		"MULTI", "LPUSH {t}a 1", "SET {t}b 1", "INCR {t}a", "EXEC", "GET {t}b",
		"MULTI", "PING", "SET {t}a 8", "PING x", "ECHO y", "SELECT 0", "GET {t}a", "SELECT x", "EXEC",
		"MULTI", "CLIENT SETNAME me", "CLIENT GETNAME", "EXEC", "CLIENT GETNAME",
		"MULTI", "PING", "ECHO z", "UNWATCH", "EXEC",
		"MULTI", "MSET {t}a 1 {t}b 2", "MGET {t}a {t}b {t}none", "DEL {t}a {t}none", "EXISTS {t}a {t}b", "EXEC",
		"MULTI", "BLPOP {t}l 0", "RPUSH {t}l 1", "BLPOP {t}l 0", "EXEC",
		"MULTI", "EVAL 'return redis.call(\"GET\", KEYS[1])' 1 {t}b", "EXEC",
		"MULTI", "XADD {t}s 1-1 f v", "XREAD BLOCK 0 STREAMS {t}s 0", "XREAD BLOCK 0 STREAMS {t}s $", "EXEC",
		"MULTI", "PUBLISH {t}c x", "EXEC",
		"WATCH {t}a", "SET {t}a 1", "MULTI", "SET {t}a 2", "EXEC", "GET {t}a",
		"WATCH {t}a", "GET {t}a", "MULTI", "SET {t}a 3", "EXEC", "GET {t}a",
		"WATCH {t}a", "WATCH {t}b", "SET {t}b 1", "MULTI", "EXEC", "MULTI", "EXEC",
		"WATCH {t}a", "SET {t}a 1", "UNWATCH", "MULTI", "GET {t}a", "EXEC",
		"WATCH {t}a", "SET {t}a 1", "MULTI", "DISCARD", "MULTI", "GET {t}a", "EXEC",
		"WATCH {t}a", "SET {t}a 1", "MULTI", "GET", "EXEC", "MULTI", "GET {t}a", "EXEC",
		"WATCH {t}a", "SET {t}a 1", "MULTI", "PING", "EXEC",
		"WATCH {t}a", "MULTI", "PING", "GET {t}a", "EXEC",
		"WATCH {t}a", "SET {t}a 1", "RESET", "MULTI", "GET {t}a", "EXEC",
		"MULTI", "SET {t}a 9", "RESET", "EXEC", "GET {t}a",
	})
}

// TestTransactionsInOnePipeline sends all before it reads anything.
func TestTransactionsInOnePipeline(t *testing.T) {
	b := start(t, 3, nil)
	direct := realredis.T(t)
	lines := []string{"DEL {t}a {t}b"}
	for range 50 {
		lines = append(lines, "INCR {t}a", "MULTI", "INCR {t}a", "PING", "INCR {t}b", "EXEC", "GET {t}a",
			"SET {t}c x", "WATCH {t}c", "GET {t}c", "MULTI", "APPEND {t}c y", "EXEC", "APPEND {t}c z", "GET {t}c",
			"WATCH {t}c", "SET {t}c x", "MULTI", "APPEND {t}c y", "EXEC", "GET {t}c")
	}
	for _, proto := range []string{"HELLO 2", "HELLO 3"} {
		ours, theirs := b.dial(), dial(t, direct.Addr())
		ours.do(proto)
		theirs.do(proto)
		ours.send(lines...)
		theirs.send(lines...)
		for i, line := range lines {
			if got, want := ours.reply(), theirs.reply(); got != want {
				t.Fatalf("%s, %d %s: %q, want %q", proto, i, line, got, want)
			}
		}
	}
}

func TestWhatCannotBeInATransaction(t *testing.T) {
	b := start(t, 3, func(c *Config) { c.QueuedCommands, c.QueuedBytes = 10, 1000 })
	b.rows.set("user:1", "{}")
	w := b.dial()
	abort := "-EXECABORT Transaction discarded because of previous errors.\r\n"
	for _, c := range []struct{ command, word string }{
		{"GET x", "-CROSSSLOT"}, {"MGET {t}a x", "-CROSSSLOT"}, {"GET user:1", "-ERR"}, {"GET rs:1.1:user:1", "-ERR"},
		{"EVAL 'return 1' 0", "-ERR"}, {"SUBSCRIBE c", "-ERR"}, {"KEYS *", "-ERR"}, {"FLUSHALL", "-ERR"}, {"SCAN 0", "-ERR"}, {"HELLO 3", "-ERR"},
		{"AUTH x", "-ERR"}, {"RING NODES", "-ERR"}, {"PUBLISH x y", "-CROSSSLOT"}, {"INFO", "-ERR"}, {"MIGRATE h 1 {t}a 0 1", "-ERR"}, {"WAIT 0 0", "-ERR"},
		{"SET {t}a " + strings.Repeat("x", 1000), "-ERR"},
	} {
		w.want("MULTI", "+OK\r\n")
		w.want("SET {t}a 1", "+QUEUED\r\n")
		if got := w.do(c.command); !strings.HasPrefix(got, c.word+" ") {
			t.Errorf("%s: %q", c.command, got)
		}
		w.want("SET {t}a 1", "+QUEUED\r\n")
		w.want("EXEC", abort)
		w.want("GET {t}a", "$-1\r\n")
	}
	w.want("MULTI", "+OK\r\n")
	for range 10 {
		w.want("INCR {t}a", "+QUEUED\r\n")
	}
	if got := w.do("PING"); !strings.HasPrefix(got, "-ERR the transaction is too large") {
		t.Errorf("%q", got)
	}
	w.want("EXEC", abort)
	w.want("WATCH user:1", "-ERR user:1 cannot be used with MULTI or WATCH: it is a row of table users\r\n")
	w.want("WATCH {t}a x", "-CROSSSLOT Keys in request don't hash to the same slot\r\n")
	w.want("WATCH {t}a", "+OK\r\n")
	w.want("WATCH x", "-CROSSSLOT Keys in request don't hash to the same slot\r\n")
	if got := w.do("HELLO 3"); !strings.HasPrefix(got, "-ERR HELLO cannot change") {
		t.Errorf("%q", got)
	}
	w.want("MULTI", "+OK\r\n")
	w.want("GET x", "-CROSSSLOT Keys in request don't hash to the same slot\r\n")
	w.want("EXEC", abort)
}

func TestTransactionsByGoRedis(t *testing.T) {
	b := start(t, 3, nil)
	ctx := context.Background()
	for _, proto := range []int{2, 3} {
		c := redis.NewClient(&redis.Options{Addr: b.addr, Protocol: proto})
		defer c.Close()
		var got *redis.IntCmd
		if _, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, "{g}n", 41, 0)
			got = p.Incr(ctx, "{g}n")
			return nil
		}); err != nil || got.Val() != 42 {
			t.Errorf("TxPipelined: %v, %d", err, got.Val())
		}
		// Counting from eight goroutines by WATCH: none is lost.
		c.Set(ctx, "{g}w", 0, 0)
		failed := make(chan error, 8)
		for range cap(failed) {
			go func() { failed <- countByWatch(ctx, c, 10) }()
		}
		for range cap(failed) {
			if err := <-failed; err != nil {
				t.Error(err)
			}
		}
		if n, err := c.Get(ctx, "{g}w").Int(); n != 80 || err != nil {
			t.Errorf("counted %d, %v", n, err)
		}
	}
}

func countByWatch(ctx context.Context, c *redis.Client, times int) error {
	for done, tries := 0, 0; done < times; tries++ {
		err := c.Watch(ctx, func(tx *redis.Tx) error {
			n, err := tx.Get(ctx, "{g}w").Int()
			if err != nil {
				return err
			}
			_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Set(ctx, "{g}w", n+1, 0).Err() })
			return err
		}, "{g}w")
		switch {
		case err == nil:
			done++
		case !errors.Is(err, redis.TxFailedErr):
			return err
		case tries > 10000:
			return errors.New("no progress")
		}
	}
	return nil
}

func TestServerLostAroundATransaction(t *testing.T) {
	b := start(t, 1, nil)
	other := b.dial()
	t.Run("between WATCH and EXEC", func(t *testing.T) {
		w := b.dial()
		other.want("SET a 1", "+OK\r\n")
		w.want("WATCH a", "+OK\r\n")
		dial(t, b.caches[0].Addr()).do("CLIENT KILL TYPE normal")
		time.Sleep(50 * time.Millisecond)
		w.want("MULTI", "+OK\r\n")
		w.want("SET a 2", "+QUEUED\r\n")
		if got := w.do("EXEC"); !strings.HasPrefix(got, "-CACHEDOWN c1 the connection that watched the keys is lost; nothing has run") {
			t.Errorf("%q", got)
		}
		w.want("GET a", bulk("1"))
		w.want("EXEC", "-ERR EXEC without MULTI\r\n")
		w.want("WATCH a", "+OK\r\n")
		w.want("MULTI", "+OK\r\n")
		w.want("SET a 2", "+QUEUED\r\n")
		w.want("EXEC", "*1\r\n+OK\r\n")
	})
	t.Run("while it is away", func(t *testing.T) {
		w := b.dial()
		if err := b.caches[0].Kill(); err != nil {
			t.Fatal(err)
		}
		w.want("MULTI", "+OK\r\n")
		w.want("SET a 3", "+QUEUED\r\n")
		if got := w.do("EXEC"); !strings.HasPrefix(got, "-CACHEDOWN c1 ") {
			t.Errorf("%q", got)
		}
		if got := w.do("WATCH a"); !strings.HasPrefix(got, "-CACHEDOWN c1 ") {
			t.Errorf("%q", got)
		}
	})
}

func TestServerLostDuringExec(t *testing.T) {
	var sets atomic.Int64
	s := fake(t, func(args []string) string {
		switch args[0] {
		case "EXEC":
			return closeIt
		case "SET":
			sets.Add(1)
		}
		return ""
	})
	b := before(t, nil, s.addr)
	for _, watch := range []bool{false, true} {
		w := b.dial()
		if watch {
			w.want("WATCH a", "+OK\r\n")
		}
		w.want("MULTI", "+OK\r\n")
		w.want("SET a 3", "+QUEUED\r\n")
		got := w.do("EXEC")
		if !strings.HasPrefix(got, "-CACHEDOWN c1 ") || !strings.HasSuffix(got, "; whether the transaction has run is not known\r\n") {
			t.Errorf("watch %v: %q", watch, got)
		}
		w.want("PING", "+PONG\r\n")
	}
	if n := sets.Load(); n != 2 {
		t.Errorf("sent %d times, must not be repeated", n)
	}
}

func TestServerRefusesAtQueueing(t *testing.T) {
	b := start(t, 1, nil)
	admin := dial(t, b.caches[0].Addr())
	admin.want("SET big x", "+OK\r\n")
	admin.want("CONFIG SET maxmemory 1", "+OK\r\n")
	w := b.dial()
	w.want("MULTI", "+OK\r\n")
	w.want("SET a 1", "+QUEUED\r\n")
	if got := w.do("EXEC"); !strings.HasPrefix(got, "-EXECABORT Transaction discarded because of: OOM ") {
		t.Errorf("%q", got)
	}
	w.want("GET big", bulk("x"))
}

// TestRingChangesAfterWatch moves the vnode of the watched key away, and away and back: what was written elsewhere was not watched.
func TestRingChangesAfterWatch(t *testing.T) {
	b := start(t, 2, nil)
	key := b.keyOn("c1", 0)
	w := b.dial()
	w.want("SET "+key+" 1", "+OK\r\n")
	w.want("WATCH "+key, "+OK\r\n")
	before := b.holder.Current()
	content := before.Content()
	content.Epoch++
	content.Caches[0].State = topology.Draining
	b.publish(content)
	w.want("MULTI", "+OK\r\n")
	w.want("SET "+key+" 2", "+QUEUED\r\n")
	w.want("EXEC", "*-1\r\n")
	w.want("GET "+key, "$-1\r\n")
	w.want("MULTI", "+OK\r\n")
	w.want("SET "+key+" 3", "+QUEUED\r\n")
	w.want("EXEC", "*1\r\n+OK\r\n")
	dial(t, b.caches[0].Addr()).want("GET "+key, bulk("1"))
	dial(t, b.caches[1].Addr()).want("GET "+key, bulk("3"))
}

func TestOwnConnectionsAreBoundedAndClosed(t *testing.T) {
	b := start(t, 1, func(c *Config) { c.PrivateUpstreams, c.PrivateIdle = 2, 50*time.Millisecond })
	first, second, third := b.dial(), b.dial(), b.dial()
	first.want("WATCH a", "+OK\r\n")
	second.want("WATCH a", "+OK\r\n")
	if got := third.do("WATCH a"); !strings.HasPrefix(got, "-OVERLOADED ") {
		t.Errorf("%q", got)
	}
	third.want("GET a", "$-1\r\n")
	if n := b.server.privates.Load(); n != 2 {
		t.Errorf("%d own connections", n)
	}
	first.conn.Close()
	b.eventually("the connection of a client that left is closed", func() bool { return b.server.privates.Load() == 1 })
	third.want("WATCH a", "+OK\r\n")
	third.want("RESET", "+RESET\r\n")
	b.eventually("RESET closes it", func() bool { return b.server.privates.Load() == 1 })
	time.Sleep(100 * time.Millisecond)
	if n := b.server.privates.Load(); n != 1 {
		t.Errorf("%d own connections: one that watches is not idle", n)
	}
	second.want("MULTI", "+OK\r\n")
	second.want("EXEC", "*0\r\n")
	b.eventually("an idle one is closed", func() bool { return b.server.privates.Load() == 0 })
	second.want("WATCH a", "+OK\r\n")
	second.want("BLPOP a 0.01", "*-1\r\n")
	second.want("UNWATCH", "+OK\r\n")
	b.eventually("an idle one is closed", func() bool { return b.server.privates.Load() == 0 })
}

// publish makes a changed topology the current one, on both loops when it returns.
func (b *bench) publish(content topology.Content) {
	b.t.Helper()
	next, err := topology.New(content)
	if err != nil {
		b.t.Fatal(err)
	}
	b.holder.Publish(next)
	for range 2 {
		b.dial().want("PING", "+PONG\r\n")
	}
}

// eventually waits for a condition, for a minute.
func (b *bench) eventually(what string, is func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatal(what + ": not so")
		}
	}
}
