package handover

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"ringside/cache"
	"ringside/internal/realredis"
	"ringside/ring"
	"ringside/sidecar/topology"
)

func TestMain(m *testing.M) {
	cache.LogRedis(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

var ctxb = context.Background()

// fleet is real cache servers c1, c2, ... and the topology that sidecars of a test act by.
type fleet struct {
	t       testing.TB
	servers map[string]*realredis.Server
	db      map[string]*redis.Client // without any check of ours

	mu      sync.Mutex // guards the following
	now     *topology.Topology
	changed chan struct{}
	apply   []func(t *topology.Topology)
}

// newFleet starts servers, of which the first active ones are the ring.
func newFleet(t testing.TB, active, all int, args ...string) *fleet {
	t.Helper()
	f := &fleet{t: t, servers: map[string]*realredis.Server{}, db: map[string]*redis.Client{}, changed: make(chan struct{})}
	var caches []topology.Cache
	for i := range all {
		name := fmt.Sprintf("c%d", i+1)
		r := realredis.T(t, args...)
		f.servers[name] = r
		db := redis.NewClient(&redis.Options{Addr: r.Addr(), Protocol: 2, MaxRetries: -1, DisableIdentity: true, ReadTimeout: 20 * time.Second})
		t.Cleanup(func() { db.Close() })
		f.db[name] = db
		if i < active {
			caches = append(caches, topology.Cache{Name: name, Addr: r.Addr(), Weight: 1, RunID: f.runID(name), Gen: 1})
		}
	}
	top, err := topology.Bootstrap(caches, nil)
	f.must(err)
	f.now = top
	return f
}

func (f *fleet) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) runID(name string) string {
	return f.db[name].InfoMap(ctxb, "server").Item("Server", "run_id")
}

func (f *fleet) current() *topology.Topology {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

func (f *fleet) change() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

// publish is told what a function of the life cycle returned.
func (f *fleet) publish(next *topology.Topology, err error) *topology.Topology {
	f.t.Helper()
	f.must(err)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, apply := range f.apply {
		apply(next)
	}
	f.now = next
	close(f.changed)
	f.changed = make(chan struct{})
	return next
}

// join adds a server to the ring as it is, which hands vnodes over to it.
func (f *fleet) join(name string) *topology.Topology {
	f.t.Helper()
	f.publish(topology.AddCache(f.current(), topology.Cache{Name: name, Addr: f.servers[name].Addr(), Weight: 1}))
	return f.publish(topology.Activate(f.current(), map[string]string{name: f.runID(name)}))
}

// finish drops a hand-over, as the sidecar does when it is carried.
func (f *fleet) finish(h topology.Handover) {
	f.mu.Lock()
	now := f.now
	f.mu.Unlock()
	f.publish(topology.Finish(now, []topology.Handover{h}, false))
}

func testConfig() Config {
	c := DefaultConfig()
	c.LeaseTTL = 300 * time.Millisecond
	c.CarryTimeout, c.StepTimeout = patience, patience/4
	c.DriverTTL = 900 * time.Millisecond
	c.Asserting = 100 * time.Millisecond
	return c
}

// carrier is one sidecar's.
func (f *fleet) carrier(cfg Config, carried func(h topology.Handover)) *Carrier {
	f.t.Helper()
	reg, log := prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	sc := cache.DefaultServersConfig()
	sc.ConnectTimeout, sc.PoolTimeout = patience/4, patience/4
	servers, err := cache.NewServers(sc, reg, log)
	f.must(err)
	apply := func(t *topology.Topology) {
		var configs []cache.ServerConfig
		for _, s := range t.Caches {
			configs = append(configs, cache.ServerConfig{Name: s.Name, Addr: s.Addr, RunID: s.RunID})
		}
		f.must(servers.Apply(configs))
	}
	apply(f.current())
	f.mu.Lock()
	f.apply = append(f.apply, apply)
	f.mu.Unlock()
	c, err := New(Deps{Servers: servers, Current: f.current, Changed: f.change, Carried: carried}, cfg, reg, log)
	f.must(err)
	f.t.Cleanup(func() {
		c.Close()
		servers.Close()
	})
	return c
}

// run runs drivers until the test or stop ends them.
func (f *fleet) run(c *Carrier) (stop func()) {
	ctx, cancel := context.WithCancel(ctxb)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.Run(ctx); err != nil {
			f.t.Errorf("run: %v", err)
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	f.t.Cleanup(stop)
	return stop
}

// handed brings all hand-overs to step Handed without a driver.
func (f *fleet) handed(c *Carrier) {
	f.t.Helper()
	t := f.current()
	for _, h := range t.Handovers {
		d := newDriver(c, h)
		client, err := c.client(t, h.From, h.RunID)
		f.must(err)
		f.must(d.markOwners(ctxb, t))
		_, err = d.mark(ctxb, client, topology.Handed)
		f.must(err)
	}
}

// where returns what the topology says of a key: the hand-over that it is in, if any, and its owner.
func (f *fleet) where(key string) (h *topology.Handover, owner string) {
	return placeOf(f.current(), key)
}

// moving returns n keys that are handed over, with prefix.
func (f *fleet) moving(prefix string, n int) []string {
	var out []string
	for i := 0; len(out) < n; i++ {
		key := fmt.Sprintf("%s%d", prefix, i)
		if h, _ := f.where(key); h != nil {
			out = append(out, key)
		}
	}
	return out
}

// patience is what a busy machine is given.
const patience = 2 * time.Minute

func within(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not within %v: %s", patience, what)
}

// plain lists the keys of applications on a server.
func (f *fleet) plain(name string) []string {
	var out []string
	it := f.db[name].Scan(ctxb, 0, "", 1000).Iterator()
	for it.Next(ctxb) {
		if !strings.HasPrefix(it.Val(), cache.Prefix) {
			out = append(out, it.Val())
		}
	}
	f.must(it.Err())
	return out
}

// placeOf returns the hand-over that a key is in by t, nil if it is in none, and its owner.
func placeOf(t *topology.Topology, key string) (h *topology.Handover, owner string) {
	v := ring.Vnode(ring.CacheKey([]byte(key)))
	if i := t.HandoverOf(v); i >= 0 {
		h = &t.Handovers[i]
	}
	return h, t.Caches[t.CacheOf(v)].Name
}

func counted(c prometheus.Counter) float64 { return testutil.ToFloat64(c) }
