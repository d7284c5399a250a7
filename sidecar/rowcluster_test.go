package sidecar

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"ringside/cache"
	"ringside/internal/realpg"
	"ringside/internal/realredis"
	"ringside/ring"
	"ringside/shard"
	"ringside/shard/keyspace"
	"ringside/shard/origin"
	"ringside/sidecar/proxy"
	"ringside/sidecar/topology"
)

// rowCluster is the row side of some sidecars before real cache servers and shards. What catalog and gossip do elsewhere the test does: it makes
// topologies and gives them to the sidecars when it likes.
type rowCluster struct {
	t         *testing.T
	caches    map[string]*realredis.Server
	keyspaces *keyspace.Set
	viewTTL   time.Duration
	step      time.Duration // what a step of the cache may take
	shards    []origin.ShardConfig
	now       *topology.Topology

	mu    sync.Mutex // keepers look at sides
	sides []*rowSide
}

// rowSide is one sidecar of it.
type rowSide struct {
	*rows
	servers *cache.Servers
	reg     *prometheus.Registry
}

// newRowCluster starts n cache servers, c1 to cn, and two shards, s1 and s2. Sidecars come with newSide.
func newRowCluster(t *testing.T, n int) *rowCluster {
	t.Helper()
	c := &rowCluster{t: t, caches: map[string]*realredis.Server{}, viewTTL: 500 * time.Millisecond, step: 20 * time.Second}
	ks, err := keyspace.Compile(keyspace.Spec{Name: "user", Pattern: "user:{id:int}", Table: "users", TTL: 10 * time.Minute, NegativeTTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if c.keyspaces, err = keyspace.NewSet([]*keyspace.Keyspace{ks}); err != nil {
		t.Fatal(err)
	}
	var caches []topology.Cache
	for i := range n {
		caches = append(caches, c.startCache(fmt.Sprintf("c%d", i+1)))
		caches[i].Gen = 1
	}
	var shards []topology.Shard
	for _, name := range []string{"s1", "s2"} {
		s := origin.ShardConfig{Name: name, DSN: realpg.T(t).Database(t), MaxConnections: 16}
		c.shards = append(c.shards, s)
		shards = append(shards, topology.Shard{Name: name, Weight: 1, MaxConnections: 16})
	}
	if c.now, err = topology.Bootstrap(caches, shards); err != nil {
		t.Fatal(err)
	}
	return c
}

// startCache starts a cache server.
func (c *rowCluster) startCache(name string) topology.Cache {
	c.t.Helper()
	s := realredis.T(c.t)
	c.caches[name] = s
	return topology.Cache{Name: name, Addr: s.Addr(), Weight: 1, RunID: c.runID(name)}
}

func (c *rowCluster) client(name string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: c.caches[name].Addr(), Protocol: 2, DisableIdentity: true})
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

func (c *rowCluster) runID(name string) string {
	c.t.Helper()
	info, err := c.client(name).InfoMap(c.t.Context(), "server").Result()
	if err != nil {
		c.t.Fatal(err)
	}
	return info["Server"]["run_id"]
}

// newSide adds a sidecar that has the present topology. keepers: it keeps the shards.
func (c *rowCluster) newSide(keepers bool) *rowSide {
	t := c.t
	t.Helper()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	s := &rowSide{reg: prometheus.NewRegistry()}
	var err error
	sc := cache.DefaultServersConfig()
	sc.ConnectTimeout, sc.PoolTimeout = c.step, c.step/2
	if s.servers, err = cache.NewServers(sc, s.reg, log); err != nil {
		t.Fatal(err)
	}
	cfg := cache.DefaultConfig()
	cfg.StepTimeout, cfg.LeaseTTL, cfg.LeaseWait, cfg.LoadTimeout, cfg.ReadTimeout = c.step, 2*time.Minute, 4*time.Second, time.Minute, 2*time.Minute
	cfg.WriteTimeout, cfg.CleanTimeout, cfg.PoisonTTL = 20*time.Second, max(c.step, cfg.CleanTimeout), 2*time.Minute
	entries, err := cache.New(cfg, s.servers, s.reg, log)
	if err != nil {
		t.Fatal(err)
	}
	fleet := origin.New(origin.Config{ViewTTL: c.viewTTL, ConnectTimeout: 10 * time.Second, LoadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, LockTimeout: 10 * time.Second,
		QueueWait: 10 * time.Second, AdminTimeout: time.Minute}, s.reg, log)
	f := newFeed()
	f.topology, f.fleet, f.catalog, f.log, f.patience = &topology.Holder{}, fleet, &catalogLink{}, log, holdFor(c.viewTTL)+2*time.Second
	fleet.OnView(f.onView)
	s.rows = &rows{topology: f.topology, cache: entries, fleet: fleet, cutOvers: newCutOvers(fleet), feed: f, viewTTL: c.viewTTL}
	if err := fleet.Apply(c.shards); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	c.sides = append(c.sides, s)
	token := fmt.Sprint("side ", len(c.sides))
	c.mu.Unlock()
	c.give(s, c.now)
	for _, sh := range c.shards {
		if err := install(t.Context(), fleet, c.now, sh.Name); err != nil {
			t.Fatal(err)
		}
	}

	ctx, stop := context.WithCancel(context.Background())
	var background sync.WaitGroup
	background.Go(func() { _ = fleet.Run(ctx) }) // it returns nil
	background.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-f.wakeup:
				f.recall(ctx)
			}
		}
	})
	if keepers {
		for _, sh := range c.shards {
			k := &keeper{
				name: sh.Name, topology: f.topology, fleet: fleet, feed: f, allHave: c.allHave, hold: holdFor(c.viewTTL), log: log,
				carrier: &carrier{
					shard: sh.Name, confirmation: fleet.Confirmation(sh.Name), cache: entries, servers: s.servers, keyspaces: c.keyspaces,
					viewTTL: c.viewTTL, token: token, log: log,
				},
			}
			background.Go(func() { k.run(ctx) })
		}
	}
	t.Cleanup(func() {
		stop()
		background.Wait()
		entries.Close()
		_ = s.servers.Close() // nothing can go wrong with an empty configuration
		fleet.Close()
	})
	return s
}

func (c *rowCluster) allHave(epoch uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sides {
		if s.topology.Current().Epoch < epoch {
			return false
		}
	}
	return true
}

// give lets a sidecar have a topology.
func (c *rowCluster) give(s *rowSide, t *topology.Topology) {
	c.t.Helper()
	configs := make([]cache.ServerConfig, len(t.Caches))
	for i, x := range t.Caches {
		configs[i] = cache.ServerConfig{Name: x.Name, Addr: x.Addr, RunID: x.RunID}
	}
	if err := s.servers.Apply(configs); err != nil {
		c.t.Fatal(err)
	}
	s.topology.Publish(t)
	s.feed.announce()
}

// change makes a topology the cluster's: it takes its time from sidecar to sidecar.
func (c *rowCluster) change(next *topology.Topology, err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
	c.now = next
	for i, s := range c.sides {
		if i > 0 {
			time.Sleep(50 * time.Millisecond)
		}
		c.give(s, next)
	}
}

// settle waits until all sidecars have heard that all shards are done with the present topology, and ends its hand-over.
func (c *rowCluster) settle() {
	c.t.Helper()
	c.await("all shards are done", func() bool {
		for _, s := range c.sides {
			for _, sh := range c.shards {
				if v, _ := s.fleet.Confirmation(sh.Name).View(); v.Epoch != c.now.Epoch || v.Phase != shard.Done {
					return false
				}
			}
		}
		return true
	})
	next, err := topology.Finish(c.now, c.now.Handovers, true)
	if next != c.now {
		c.change(next, err)
		c.settle()
	}
}

func (c *rowCluster) await(what string, ok func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(2 * patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("not within %v: %s", 2*patience, what)
		}
	}
}

// key is row number id.
func (c *rowCluster) key(id int) keyspace.Key {
	c.t.Helper()
	var k keyspace.Key
	ok, err := c.keyspaces.Match(ring.NewHasher(), fmt.Appendf(nil, "user:%d", id), &k)
	if !ok || err != nil {
		c.t.Fatalf("user:%d: %v", id, err)
	}
	return k
}

// count is the value of a counter of all sidecars together.
func (c *rowCluster) count(name string) (n int) {
	c.t.Helper()
	for _, s := range c.sides {
		families, err := s.reg.Gather()
		if err != nil {
			c.t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == name {
				n += int(f.GetMetric()[0].GetCounter().GetValue())
			}
		}
	}
	return n
}

// read reads rows and waits for all of them.
func (s *rowSide) read(ctx context.Context, keys []keyspace.Key) []proxy.Row {
	out := make([]proxy.Row, len(keys))
	s.rows.Read(ctx, keys, func(at []int, rows []proxy.Row) {
		for _, i := range at {
			out[i] = rows[i]
		}
	})
	return out
}
