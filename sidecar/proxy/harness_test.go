package proxy

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringside/internal/realredis"
	"ringside/shard"
	"ringside/shard/keyspace"
	"ringside/sidecar/topology"
)

// bench is a proxy in front of real cache servers, with rows that come from a map instead of shards.
type bench struct {
	t       testing.TB
	server  *Server
	addr    string
	caches  []*realredis.Server
	holder  *topology.Holder
	rows    *fakeRows
	shards  *fakeShards
	reg     *prometheus.Registry
	metRuns chan [2]string
	plain   atomic.Pointer[testCarrier]
	epochs  atomic.Uint64 // the last one heard of by a marker
	adopts  atomic.Bool   // what is met behind the address of a server becomes part of the topology

	credentials atomic.Pointer[Credentials] // of the cache servers; nil: none
}

// fakeShards confirms whatever it is told to.
type fakeShards struct{ confirmation shard.Confirmation }

func (f *fakeShards) Confirmation(string) *shard.Confirmation { return &f.confirmation }

type onlySelf struct{}

func (onlySelf) Sidecars() int { return 1 }

// fakeRows is a table in memory. Its functions, when set, come first.
type fakeRows struct {
	mu        sync.Mutex
	rows      map[string]string
	calls     int // of Read
	reads     int
	writes    int
	refreshed []string // keys
	read      func(key string) *Row
	write     func(op keyspace.Op) (keyspace.Outcome, error)
	refuses   map[string]error // by key: writes of it
}

func (f *fakeRows) Read(_ context.Context, keys []keyspace.Key, got func(at []int, rows []Row)) {
	f.mu.Lock()
	f.calls++
	f.mu.Unlock()
	out := make([]Row, len(keys))
	there := make(chan int, len(keys))
	for i, k := range keys {
		go func() { // one does not wait for another
			out[i] = f.readOne(string(k.Text))
			there <- i
		}()
	}
	for range keys {
		got([]int{<-there}, out)
	}
}

func (f *fakeRows) readOne(key string) Row {
	f.mu.Lock()
	f.reads++
	body, ok := f.rows[key]
	read := f.read
	f.mu.Unlock()
	if read != nil {
		if r := read(key); r != nil {
			return *r
		}
	}
	return Row{Found: ok, Body: []byte(body)}
}

// set stores a row.
func (f *fakeRows) Refresh(key keyspace.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refreshed = append(f.refreshed, string(key.Text))
}

func (f *fakeRows) Refuses(key *keyspace.Key) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refuses[string(key.Text)]
}

func (f *fakeRows) set(key, row string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows[key] = row
}

// asked is how many rows were read.
func (f *fakeRows) asked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads
}

func (f *fakeRows) Write(_ context.Context, op keyspace.Op) (keyspace.Outcome, error) {
	f.mu.Lock()
	write := f.write
	f.writes++
	f.mu.Unlock()
	if write != nil {
		return write(op)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	key := string(op.Key.Text)
	_, existed := f.rows[key]
	switch op.Kind {
	case keyspace.Delete:
		delete(f.rows, key)
		return keyspace.Outcome{Applied: existed}, nil
	case keyspace.Increment:
		return keyspace.Outcome{Applied: true, Value: op.Delta}, nil
	case keyspace.Insert:
		if existed {
			return keyspace.Outcome{}, nil
		}
	case keyspace.Update:
		if !existed {
			return keyspace.Outcome{}, nil
		}
	}
	var doc strings.Builder
	for i, c := range op.Columns {
		if i > 0 {
			doc.WriteByte(',')
		}
		fmt.Fprintf(&doc, "%q:%s", c.Name, c.Value)
	}
	f.rows[key] = "{" + doc.String() + "}"
	return keyspace.Outcome{Applied: true, Inserted: !existed}, nil
}

// start starts a proxy before n cache servers. change may alter the configuration.
func start(t testing.TB, n int, change func(*Config)) *bench {
	t.Helper()
	var servers []*realredis.Server
	var caches []topology.Cache
	for i := range n {
		s := realredis.T(t)
		servers = append(servers, s)
		caches = append(caches, topology.Cache{Name: fmt.Sprintf("c%d", i+1), Addr: s.Addr(), Weight: 1, RunID: runIDAt(t, s.Addr())})
	}
	b := startBefore(t, caches, change)
	b.caches = servers
	return b
}

// startBefore starts a proxy before the given cache servers.
func startBefore(t testing.TB, caches []topology.Cache, change func(*Config)) *bench {
	t.Helper()
	b := &bench{t: t, holder: &topology.Holder{}, rows: &fakeRows{rows: map[string]string{}}, shards: &fakeShards{}, reg: prometheus.NewRegistry(), metRuns: make(chan [2]string, 1000)}
	topo, err := topology.Bootstrap(caches, []topology.Shard{{Name: "s1", Weight: 1, MaxConnections: 4}})
	if err != nil {
		t.Fatal(err)
	}
	b.holder.Publish(topo)
	b.shards.confirmation.Confirm(shard.View{Epoch: topo.Epoch, Phase: shard.Done}, time.Now().Add(time.Hour), nil)
	cfg := DefaultConfig()
	cfg.Name, cfg.Version, cfg.Listen, cfg.Loops = "test", "v0", "127.0.0.1:0", 2
	cfg.ConnectTimeout, cfg.ReplyTimeout, cfg.RowTimeout = 10*time.Second, 30*time.Second, 30*time.Second // a machine may be busy; tests of the limits have their own
	if change != nil {
		change(&cfg)
	}
	b.server, err = New(cfg, Deps{
		Topology: b.holder, Keyspaces: testKeyspaces(t), Rows: b.rows, Shards: b.shards, Cluster: onlySelf{},
		Credentials: func(string) Credentials {
			if c := b.credentials.Load(); c != nil {
				return *c
			}
			return Credentials{}
		},
		OnIncarnation: func(server, runID string) {
			select {
			case b.metRuns <- [2]string{server, runID}:
			default:
			}
			if b.adopts.Load() {
				b.adopt(server, runID)
			}
		},
		Plain:        onDemand{b},
		OnNewerEpoch: b.epochs.Store,
		Registerer:   b.reg, Log: slog.New(slog.DiscardHandler),
	}, "0123456789")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	select {
	case <-b.server.Ready():
	case err := <-ended:
		ended <- nil
		t.Fatalf("Run: %v", err)
	}
	b.addr = b.server.Addr().String()
	return b
}

// onDemand carries keys by what the test has set.
type onDemand struct{ b *bench }

func (o onDemand) Carry(ctx context.Context, h topology.Handover, to string, key []byte) error {
	if c := o.b.plain.Load(); c != nil {
		return c.Carry(ctx, h, to, key)
	}
	return errNoCarrier
}

// adopt makes what was met behind a server's address part of the topology, as the sidecar's feed does; on the loops.
func (b *bench) adopt(server, runID string) {
	for {
		now := b.holder.Current()
		next, err := topology.AdoptRuns(now, map[string]string{server: runID})
		if err != nil || next == now {
			return
		}
		b.shards.confirmation.Confirm(shard.View{Epoch: next.Epoch, Phase: shard.Done}, time.Now().Add(time.Hour), nil)
		if b.holder.Publish(next); b.holder.Current().Caches[next.CacheIndex(server)].RunID == runID {
			return
		}
	}
}

func testKeyspaces(t testing.TB) *keyspace.Set {
	t.Helper()
	var all []*keyspace.Keyspace
	for _, s := range []keyspace.Spec{
		{Name: "user", Pattern: "user:{id:int}", Table: "users", TTL: time.Minute, NegativeTTL: time.Second},
		{Name: "title", Pattern: "title:{id:int}", Table: "users", Value: "name", TTL: time.Minute},
	} {
		k, err := keyspace.Compile(s)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, k)
	}
	set, err := keyspace.NewSet(all)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func runIDAt(t testing.TB, addr string) string {
	t.Helper()
	w := dial(t, addr)
	id := runIDOf([]byte(w.do("INFO server")))
	if id == "" {
		t.Fatal("no run_id")
	}
	return id
}

func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }
