package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"ringside/cache"
	"ringside/internal/realredis"
	"ringside/sidecar/admin"
	"ringside/sidecar/config"
	"ringside/sidecar/topology"
)

// patience bounds every wait of these tests.
const patience = 60 * time.Second

// cluster is a cluster without a catalog.
type cluster struct {
	redis    []*realredis.Server // c1, c2, ...
	sidecars []*Sidecar          // a1, a2, ...
	cut      []atomic.Pointer[string]
}

func newCluster(t *testing.T, sidecars, servers int) *cluster {
	t.Helper()
	c := &cluster{}
	for range servers {
		c.redis = append(c.redis, realredis.T(t))
	}
	c.start(t, sidecars, "")
	return c
}

// start starts the sidecars, with more in their configuration.
func (c *cluster) start(t *testing.T, sidecars int, more string) {
	t.Helper()
	c.cut = make([]atomic.Pointer[string], sidecars)
	// A server that only waits for its share of a busy machine must not look dead; one that is dead refuses connections.
	text := more + "limits: { cache_down_after: 20s }\ncaches:\n"
	for i := range c.redis {
		text += fmt.Sprintf("  - { name: c%d, addr: %q }\n", i+1, c.redis[i].Addr())
	}
	for i := range sidecars {
		join := ""
		if i > 0 {
			join = c.sidecars[0].gossip.Addr()
		}
		dir := t.TempDir()
		path := filepath.Join(dir, "ringside.yaml")
		own := fmt.Sprintf("name: a%d\ndata_dir: %s\nredis: { listen: \"127.0.0.1:0\" }\nadmin: { listen: \"127.0.0.1:0\", token: secret }\n"+
			"gossip: { listen: \"127.0.0.1:0\", join: [%s] }\n", i+1, dir, join)
		if err := os.WriteFile(path, []byte(own+text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load(path, func(string) string { return "" })
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(cfg, "v0", slog.New(slog.NewTextHandler(testLog{t, cfg.Name}, nil)))
		if err != nil {
			t.Fatal(err)
		}
		watch := s.prober.watch
		s.prober.watch = func(server string) watcher { return &cutOff{watch(server), server, &c.cut[i]} }
		c.sidecars = append(c.sidecars, s)
		runUntilEnd(t, s)
	}
	c.eventually(t, "all sidecars know each other", func(s *Sidecar) bool { return s.members.Sidecars() == sidecars })
}

// testLog writes what a sidecar says to the test's own log.
type testLog struct {
	t    *testing.T
	name string
}

func (l testLog) Write(line []byte) (int, error) {
	l.t.Logf("%s %s", l.name, strings.TrimSpace(string(line)))
	return len(line), nil
}

// runUntilEnd runs s until the test ends, and returns when it is ready.
func runUntilEnd(t *testing.T, s *Sidecar) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-ended:
		ended <- nil
		t.Fatalf("Run: %v", err)
	case <-time.After(patience):
		t.Fatal("not ready")
	}
}

// cutOff is a watcher that does not reach the server named.
type cutOff struct {
	watcher
	server string
	from   *atomic.Pointer[string]
}

func (c *cutOff) Look(ctx context.Context) (cache.Health, error) {
	if from := c.from.Load(); from != nil && *from == c.server {
		return cache.Health{}, errors.New("the network is cut")
	}
	return c.watcher.Look(ctx)
}

// eventually waits until all sidecars say so.
func (c *cluster) eventually(t *testing.T, what string, is func(s *Sidecar) bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for _, s := range c.sidecars {
		for !is(s) {
			if time.Now().After(deadline) {
				p := s.progress()
				t.Fatalf("%s: never %s: %+v", s.cfg.Name, what, p)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

func server(s *Sidecar, name string) topology.Cache {
	t := s.topology.Current()
	if i := t.CacheIndex(name); i >= 0 {
		return t.Caches[i]
	}
	return topology.Cache{}
}

func in(name string, state topology.State) func(s *Sidecar) bool {
	return func(s *Sidecar) bool { return server(s, name).State == state }
}

func settled(s *Sidecar) bool { return !s.topology.Current().Changing() }

// keysOn is what is on a server that is not ringside's own.
func keysOn(t *testing.T, r *realredis.Server) []string {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: r.Addr()})
	defer client.Close()
	names, err := client.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, name := range names {
		if !strings.HasPrefix(name, cache.Prefix) {
			keys = append(keys, name)
		}
	}
	return keys
}

// TestAServerThatDiesIsTakenOutAndComesBackEmpty guards P3: what a server brings back from its disk is never read.
func TestAServerThatDiesIsTakenOutAndComesBackEmpty(t *testing.T) {
	c := newCluster(t, 3, 3)
	before := server(c.sidecars[0], "c2")
	if before.RunID == "" || before.Gen != 1 {
		t.Fatalf("after the start: %+v", before)
	}
	db := redis.NewClient(&redis.Options{Addr: c.redis[1].Addr()})
	defer db.Close()
	if err := db.Set(t.Context(), "old", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := db.Save(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := c.redis[1].Kill(); err != nil {
		t.Fatal(err)
	}
	c.eventually(t, "c2 is down", in("c2", topology.Down))
	c.eventually(t, "the change is done", settled)
	if err := c.redis[1].Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.eventually(t, "c2 is back", in("c2", topology.Active))
	after := server(c.sidecars[2], "c2")
	if after.RunID == before.RunID || after.Gen <= before.Gen {
		t.Errorf("c2 came back as %+v, it was %+v", after, before)
	}
	if keys := keysOn(t, c.redis[1]); len(keys) > 0 {
		t.Errorf("c2 came back with %q", keys)
	}
	c.eventually(t, "the change is done", settled)
	for _, s := range c.sidecars {
		if a, b := s.topology.Current(), c.sidecars[0].topology.Current(); a.Digest() != b.Digest() {
			t.Errorf("%s has %d/%s, a1 has %d/%s", s.cfg.Name, a.Epoch, a.Digest(), b.Epoch, b.Digest())
		}
	}
}

// TestAServerThatIsStartedAnewIsEmptiedBeforeItIsUsed: it is back before anybody votes.
func TestAServerThatIsStartedAnewIsEmptiedBeforeItIsUsed(t *testing.T) {
	c := newCluster(t, 2, 2)
	before := server(c.sidecars[0], "c1")
	db := redis.NewClient(&redis.Options{Addr: c.redis[0].Addr()})
	defer db.Close()
	if err := errors.Join(db.Set(t.Context(), "old", "x", 0).Err(), db.Save(t.Context()).Err()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.redis[0].Kill(), c.redis[0].Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	c.eventually(t, "c1 is used again", func(s *Sidecar) bool {
		now := server(s, "c1")
		return now.State == topology.Active && now.RunID != "" && now.RunID != before.RunID
	})
	if keys := keysOn(t, c.redis[0]); len(keys) > 0 {
		t.Errorf("c1 is used with %q", keys)
	}
	c.eventually(t, "the change is done", settled)
}

// TestOneSidecarsBadNetworkMovesNothing: one vote of three is no majority.
func TestOneSidecarsBadNetworkMovesNothing(t *testing.T) {
	c := newCluster(t, 3, 2)
	epoch := c.sidecars[0].topology.Current().Epoch
	name := "c1"
	c.cut[2].Store(&name)
	c.eventually(t, "a3's vote is known", func(s *Sidecar) bool {
		b := s.lifecycle.ballot(time.Now())
		return len(b.against["c1"]) == 1
	})
	time.Sleep(3 * time.Second) // nothing is to happen
	c.eventually(t, "c1 stays", in("c1", topology.Active))
	if now := c.sidecars[0].topology.Current().Epoch; now != epoch {
		t.Errorf("epoch %d became %d", epoch, now)
	}
	c.cut[2].Store(nil)
	c.eventually(t, "a3 takes its vote back", func(s *Sidecar) bool {
		b := s.lifecycle.ballot(time.Now())
		return len(b.against) == 0
	})
}

// TestASidecarThatGossipDoesNotReachIsNoMajority: it knows of nobody else, but another cache server does.
func TestASidecarThatGossipDoesNotReachIsNoMajority(t *testing.T) {
	c := newCluster(t, 2, 2)
	alone := &cluster{redis: c.redis}
	alone.start(t, 1, "")
	name := "c1"
	alone.cut[0].Store(&name)
	alone.eventually(t, "its votes are all that it knows", func(s *Sidecar) bool {
		b := s.lifecycle.ballot(time.Now())
		return b.agreed("c1")
	})
	time.Sleep(2 * time.Second) // nothing is to happen
	alone.eventually(t, "c1 stays", in("c1", topology.Active))
	if now := alone.sidecars[0].topology.Current().Epoch; now != 1 {
		t.Errorf("epoch 1 became %d", now)
	}
}

// TestAServerThatWasNeverMetKeepsItsKeys: it was not there when the cluster began, so nothing on it can be older than what was written.
func TestAServerThatWasNeverMetKeepsItsKeys(t *testing.T) {
	r := realredis.T(t)
	db := redis.NewClient(&redis.Options{Addr: r.Addr()})
	defer db.Close()
	if err := errors.Join(db.Set(t.Context(), "kept", "x", 0).Err(), db.Save(t.Context()).Err(), r.Kill()); err != nil {
		t.Fatal(err)
	}
	s := run(t, fmt.Sprintf("caches: [{ name: c1, addr: %q }]\n", r.Addr()))
	c := &cluster{sidecars: []*Sidecar{s}}
	if got := server(s, "c1"); got.RunID != "" || got.State != topology.Active {
		t.Fatalf("before it was met: %+v", got)
	}
	if err := r.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.eventually(t, "c1 is used", func(s *Sidecar) bool { return server(s, "c1").RunID != "" })
	client := redis.NewClient(&redis.Options{Addr: s.proxy.Addr().String()})
	defer client.Close()
	deadline := time.Now().Add(patience)
	for client.Get(t.Context(), "kept").Val() != "x" {
		if time.Now().After(deadline) {
			t.Fatalf("the key is lost: %v", client.Get(t.Context(), "kept").Err())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestChangesAtTheSameTimeAreBothMade: without a catalog two topologies of one epoch meet, and the one that loses is made anew.
func TestChangesAtTheSameTimeAreBothMade(t *testing.T) {
	c := newCluster(t, 2, 2)
	var group errgroup.Group
	for i, s := range c.sidecars {
		add := admin.Change{Verb: admin.AddCache, Name: fmt.Sprintf("d%d", i+1), Addr: realredis.T(t).Addr(), Weight: 1}
		group.Go(func() error {
			_, err := s.operator.do(t.Context(), add)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"d1", "d2"} {
		c.eventually(t, name+" has joined", in(name, topology.Active))
	}
	c.eventually(t, "the changes are done", settled)
	c.eventually(t, "all have the same", func(s *Sidecar) bool {
		return s.topology.Current().Digest() == c.sidecars[0].topology.Current().Digest()
	})
}

// TestAStoppingSidecarWithdrawsItsVotes: they would count until it is known to be gone.
func TestAStoppingSidecarWithdrawsItsVotes(t *testing.T) {
	c := newCluster(t, 2, 2)
	name := "c1"
	c.cut[0].Store(&name)
	a2 := c.sidecars[1]
	against := func() int {
		b := a2.lifecycle.ballot(time.Now())
		return len(b.against["c1"])
	}
	c.eventually(t, "a1 votes", func(*Sidecar) bool { return against() == 1 })
	c.sidecars[0].prober.withdraw()
	c.eventually(t, "a1's vote is gone", func(*Sidecar) bool { return against() == 0 })
	c.sidecars[0].prober.announce()
	if len(c.sidecars[0].gossip.Members()[0].Votes) != 0 {
		t.Error("a1 votes again")
	}
}

// TestTheRightsThatAreAskedForAreEnough: those of docs/OPERATIONS.md, for all that happens to cache servers.
func TestTheRightsThatAreAskedForAreEnough(t *testing.T) {
	c := &cluster{}
	for range 3 {
		r := realredis.T(t)
		db := redis.NewClient(&redis.Options{Addr: r.Addr()})
		err := db.Do(t.Context(), "acl", "setuser", "side", "on", ">pw", "~*", "&*", "+@all", "-@dangerous", "+info", "+client", "+flushdb", "+restore").Err()
		if err := errors.Join(err, db.Do(t.Context(), "acl", "setuser", "default", "off").Err(), db.Close()); err != nil {
			t.Fatal(err)
		}
		c.redis = append(c.redis, r)
	}
	spare := c.redis[2]
	c.redis = c.redis[:2]
	c.start(t, 1, "default_cache: { username: side, password: pw }\n")
	s := c.sidecars[0]
	client := redis.NewClient(&redis.Options{Addr: s.proxy.Addr().String()})
	defer client.Close()
	const keys = 100
	for i := range keys {
		if err := client.Set(t.Context(), fmt.Sprint("k", i), i, time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
	}
	add := admin.Change{Verb: admin.AddCache, Name: "spare", Addr: spare.Addr(), Weight: 1, Flush: true}
	if _, err := s.operator.do(t.Context(), add); err != nil {
		t.Fatal(err)
	}
	c.eventually(t, "the spare has joined", in("spare", topology.Active))
	c.eventually(t, "the change is done", settled)
	if _, err := s.operator.do(t.Context(), admin.Change{Verb: admin.DrainCache, Name: "c1"}); err != nil {
		t.Fatal(err)
	}
	c.eventually(t, "the change is done", settled)
	for i := range keys {
		if got, err := client.Get(t.Context(), fmt.Sprint("k", i)).Int(); err != nil || got != i {
			t.Fatalf("k%d is %d, %v", i, got, err)
		}
	}
}
