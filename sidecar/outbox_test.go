package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"ringside/cache"
	"ringside/internal/childproc"
	"ringside/shard"
	"ringside/shard/keyspace"
	"ringside/shard/origin"
	"ringside/sidecar/proxy"
)

func TestWhatIsRemembered(t *testing.T) {
	unreachable := &cache.ServerError{Server: "c1", Err: errors.New("unreachable")}
	down := &shard.DownError{Shard: "s1", Err: errors.New("gone")}
	for _, c := range []struct {
		what            string
		err, unpoisoned error
		is, is2         error
	}{
		{"all poisoned", nil, nil, nil, nil},
		{"refused by the shard", down, nil, down, nil},
		{"not poisoned", nil, unreachable, cache.ErrRemembered, nil},
		{"not poisoned, and the commit is lost", down, unreachable, down, nil},
		{"not poisoned, no room", origin.ErrOutboxFull, unreachable, origin.ErrOutboxFull, unreachable.Err},
	} {
		got := remembered(c.err, c.unpoisoned)
		if !errors.Is(got, c.is) || c.is2 != nil && !errors.Is(got, c.is2) {
			t.Errorf("%s: %v", c.what, got)
		}
		if _, refused := errors.AsType[*cache.ServerError](got); refused != (c.err == origin.ErrOutboxFull) {
			t.Errorf("%s: refused because of the cache server: %v", c.what, refused)
		}
	}
}

func TestPauseAfterABatch(t *testing.T) {
	failed := errors.New("unreachable")
	for _, c := range []struct {
		what     string
		b        outboxDone
		failures int
		turn     time.Duration
		want     time.Duration
	}{
		{"there may be more", outboxDone{found: 3, gone: 3}, 0, time.Second, 0},
		{"nothing whose turn it is", outboxDone{}, 0, 300 * time.Millisecond, 300*time.Millisecond + outboxApart},
		{"the first failure", outboxDone{found: 3, gone: 2, err: failed}, 0, 0, outboxRetry},
		{"the third", outboxDone{found: 3, err: failed}, 2, 0, 4 * outboxRetry},
		{"failing for ever", outboxDone{found: 3, err: failed}, 1000, 0, outboxMost},
	} {
		if got := pauseAfter(c.b, c.failures, c.turn); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

// bounded makes a sidecar's writes bounded. It sees to outboxes, as the sidecar of that rank, once work is called.
func (c *rowCluster) bounded(s *rowSide, rank int) (work func()) {
	s.rows.outbox = &outbox{rows: s.rows, rank: func() int { return rank }, log: slog.New(slog.DiscardHandler),
		met: newOutboxMetrics(prometheus.NewRegistry()), works: map[string]*outboxWork{}}
	return func() {
		ctx, stop := context.WithCancel(context.Background())
		var group sync.WaitGroup
		group.Go(func() { _ = s.rows.outbox.run(ctx) }) // it returns nil
		c.t.Cleanup(func() { stop(); group.Wait() })
	}
}

// cutOff has a sidecar find nobody where a cache server is.
func (c *rowCluster) cutOff(s *rowSide, server string) {
	c.t.Helper()
	port, err := childproc.FreePort()
	if err != nil {
		c.t.Fatal(err)
	}
	configs := make([]cache.ServerConfig, len(c.now.Caches))
	for i, x := range c.now.Caches {
		if configs[i] = (cache.ServerConfig{Name: x.Name, Addr: x.Addr, RunID: x.RunID}); x.Name == server {
			configs[i].Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		}
	}
	if err := s.servers.Apply(configs); err != nil {
		c.t.Fatal(err)
	}
}

// rowOn finds a row whose copy is on a server.
func (c *rowCluster) rowOn(server string) keyspace.Key {
	c.t.Helper()
	for id := 1; id < 1000; id++ {
		if k := c.key(id); c.now.Caches[c.now.CacheOf(k.CacheVnode)].Name == server {
			return k
		}
	}
	c.t.Fatalf("no row is on %s", server)
	return keyspace.Key{}
}

func (s *rowSide) version(t *testing.T, k keyspace.Key) int64 {
	t.Helper()
	row := s.read(t.Context(), []keyspace.Key{k})[0]
	if row.Err != nil {
		t.Fatalf("%s: %v", k.Text, row.Err)
	}
	v, err := versionOf(row.Body)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// raise adds one to a row's version.
func (s *rowSide) raise(t *testing.T, k keyspace.Key) (time.Duration, error) {
	t.Helper()
	begun := time.Now()
	_, err := s.Write(t.Context(), keyspace.Op{Kind: keyspace.Increment, Key: k, Column: "version", Delta: 1})
	return time.Since(begun), err
}

// isCached reports whether c1 has a value of the row.
func (c *rowCluster) isCached(k keyspace.Key) bool {
	c.t.Helper()
	name := cache.AppendName(nil, c.now.Generation(k.CacheVnode), c.now.Flush(k.ShardVnode), k.Text)
	entry, err := c.client("c1").Get(c.t.Context(), string(name)).Bytes()
	return err == nil && cache.Kind(entry) == cache.KindValue
}

// Guards P3 of bounded writes: one sidecar cannot reach the cache server that has the old copy, the other one can, and is never given it once the
// write is acknowledged; neither while the copy is still there, nor afterwards.
func TestABoundedWriteIsNotHiddenByACopyThatIsLeft(t *testing.T) {
	c := newRowCluster(t, 2)
	a, b := c.newSide(true), c.newSide(true)
	c.bounded(a, 0)()
	work := c.bounded(b, 1)
	c.fill(1000)
	k := c.rowOn("c1")
	for b.version(t, k) != 0 || !c.isCached(k) {
	}
	c.cutOff(a, "c1")

	took, err := a.raise(t, k)
	if err != nil {
		t.Fatal(err)
	}
	if took < holdFor(c.viewTTL) {
		t.Errorf("the write was acknowledged after %v, although its copy was left", took)
	}
	if !c.isCached(k) {
		t.Fatal("the copy is gone: nothing is shown")
	}
	for i := range 20 {
		if got := b.version(t, k); got != 1 {
			t.Fatalf("read %d through the other sidecar gives version %d, 1 was acknowledged", i, got)
		}
	}
	if b.version(t, c.rowOn("c2")) != 0 {
		t.Error("another row cannot be read")
	}

	work()
	c.await("the other sidecar deletes the copy", func() bool { return !c.isCached(k) })
	c.await("the row is cached again", func() bool {
		if got := b.version(t, k); got != 1 {
			t.Fatalf("version %d, 1 was acknowledged", got)
		}
		return c.isCached(k)
	})
	if p := b.fleet.Pools(); p[0].Outbox+p[1].Outbox != 0 {
		t.Errorf("%+v", p)
	}
	// From now on somebody deletes the copy while the write waits.
	for v := int64(2); v < 6; v++ {
		took, err := a.raise(t, k)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.version(t, k); got != v {
			t.Fatalf("version %d, %d was acknowledged", got, v)
		}
		t.Logf("acknowledged after %v", took)
		c.await("the row is cached again", func() bool { return b.version(t, k) == v && c.isCached(k) })
	}
}

// Guards P3 and P6: a strict write is refused, and so is a bounded one that cannot be remembered.
func TestWhatCannotBeRememberedIsRefused(t *testing.T) {
	c := newRowCluster(t, 2)
	a := c.newSide(true)
	c.fill(1000)
	k := c.rowOn("c1")
	if a.version(t, k) != 0 {
		t.Fatal("not a new row")
	}
	c.cutOff(a, "c1")
	refused := func(why string) {
		t.Helper()
		_, err := a.raise(t, k)
		down, ok := errors.AsType[*proxy.CacheDownError](err)
		if !ok || down.Server != "c1" || !strings.Contains(err.Error(), why) {
			t.Errorf("%v", err)
		}
		if got := a.version(t, k); got != 0 {
			t.Errorf("version %d of a row whose write was refused", got)
		}
	}
	refused("")
	c.bounded(a, 0)
	for _, sh := range c.shards {
		c.execute(sh.DSN, fmt.Sprintf(`insert into ringside.outbox (key, vnode, shard_vnode) select 'x', 0, 0 from generate_series(1, %d)`, origin.OutboxLimit))
	}
	refused(origin.ErrOutboxFull.Error())
}

// TestABoundedWriteThatCannotBeCleanedIsRemembered: its server is lost between the poison and the clean.
func TestABoundedWriteThatCannotBeCleanedIsRemembered(t *testing.T) {
	c := newRowCluster(t, 2)
	a := c.newSide(true)
	c.bounded(a, 0)
	c.fill(1000)
	k := c.rowOn("c1")
	if taken := a.outbox.takes(t.Context(), "s1", &k, &cache.CleanError{Err: errors.New("unreachable")}); !taken {
		t.Error("it is not remembered")
	}
	if taken := a.outbox.takes(t.Context(), "s1", &k, &shard.DownError{Shard: "s1", Err: errors.New("gone")}); taken {
		t.Error("a failed write is remembered")
	}
	if p := a.fleet.Pools()[0]; p.Outbox != 1 {
		t.Errorf("%d rows are remembered", p.Outbox)
	}
}

// execute runs a statement on a shard.
func (c *rowCluster) execute(dsn, sql string) {
	c.t.Helper()
	conn, err := pgx.Connect(c.t.Context(), dsn)
	if err == nil {
		_, err = conn.Exec(c.t.Context(), sql)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	if err := conn.Close(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
}
