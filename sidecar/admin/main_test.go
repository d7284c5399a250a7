package admin

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"ringside/shard/keyspace"
	"ringside/sidecar/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	here  = "127.0.0.1:5000"
	there = "10.1.2.3:5000"
	token = "s3cret-token"
)

// setup is what a test may change before the server is made.
type setup struct {
	cfg  Config
	deps Deps
	logs bytes.Buffer
}

func newSetup(t testing.TB, top *topology.Topology) *setup {
	t.Helper()
	registry := prometheus.NewRegistry()
	served := prometheus.NewCounter(prometheus.CounterOpts{Name: "ringside_test_served_total", Help: "For the test."})
	registry.MustRegister(served)
	served.Add(3)
	s := &setup{cfg: Config{Listen: "127.0.0.1:0", Token: token}}
	s.deps = Deps{
		Name: "a1", Version: "v1.2.3", Topology: &topology.Holder{}, Keyspaces: keyspaces(t),
		Members: func() []Member { return nil }, Pools: func() []Pool { return nil }, Counts: func() Counts { return Counts{} }, Ready: func() error { return nil },
		Change:   func(context.Context, Change) (Changed, error) { return Changed{}, errors.New("unexpected") },
		Progress: func() Progress { return Progress{} }, Invalidation: func() Invalidation { return Invalidation{} },
		Verify:   func(context.Context, int) Verification { return Verification{} },
		Shards:   noShards(),
		HotKeys:  func(int) HotKeys { return HotKeys{} },
		Gatherer: registry, Log: slog.New(slog.NewTextHandler(&s.logs, nil)),
	}
	if top != nil {
		s.deps.Topology.Publish(top)
	}
	return s
}

// noShards refuses all that is asked of shards.
func noShards() Shards {
	no := errors.New("unexpected")
	return Shards{
		Plan:   func(context.Context, MoveRequest) (MovePlan, error) { return MovePlan{}, no },
		Start:  func(context.Context, MoveRequest) (MoveStarted, error) { return MoveStarted{}, no },
		Cancel: func(context.Context, int64) error { return no },
		Moves:  func(context.Context) ([]MovePart, error) { return nil, nil },
		Verify: func(context.Context) (MoveVerification, error) { return MoveVerification{}, no },
		Add:    func(context.Context, NewShard) (Changed, error) { return Changed{}, no },
		Weigh:  func(context.Context, string, int64) (Changed, error) { return Changed{}, no },
		Remove: func(context.Context, string) (Changed, error) { return Changed{}, no },
		Attach: func(context.Context, string) (Attached, error) { return Attached{}, no },
	}
}

func (s *setup) server(t testing.TB) *Server {
	t.Helper()
	server, err := New(s.cfg, s.deps)
	if err != nil {
		t.Fatal(err)
	}
	return server
}

func keyspaces(t testing.TB) *keyspace.Set {
	t.Helper()
	var all []*keyspace.Keyspace
	for _, spec := range []keyspace.Spec{
		{Name: "user", Pattern: "user:{id:int}", Table: "users", TTL: time.Minute},
		{Name: "order", Pattern: "order:{tenant}:{id:int}", ShardBy: "tenant", Table: "orders", TTL: time.Minute},
	} {
		k, err := keyspace.Compile(spec)
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

func smallCaches() []topology.Cache {
	return []topology.Cache{
		{Name: "c1", Addr: "10.0.0.1:6379", Weight: 1, RunID: "r1", Gen: 1},
		{Name: "c2", Addr: "10.0.0.2:6379", Weight: 2},
		{Name: "c3", Addr: "10.0.0.3:6379", Weight: 0},
	}
}

func smallShards() []topology.Shard {
	return []topology.Shard{
		{Name: "s1", DSN: "postgres://ringside@pg-1/app", Weight: 1, MaxConnections: 64},
		{Name: "s2", DSN: "postgres://ringside@pg-2/app", Weight: 3, MaxConnections: 64},
	}
}

func bootstrap(t testing.TB, caches []topology.Cache, shards []topology.Shard) *topology.Topology {
	t.Helper()
	top, err := topology.Bootstrap(caches, shards)
	if err != nil {
		t.Fatal(err)
	}
	return top
}

func small(t testing.TB) *topology.Topology { return bootstrap(t, smallCaches(), smallShards()) }

// overridden is the small topology with its vnodes as they are and one shard key placed by hand.
func overridden(t testing.TB) *topology.Topology {
	t.Helper()
	c := small(t).Content()
	c.Epoch, c.Overrides = 7, []topology.Override{{ShardKey: "acme", Shard: "s1"}}
	top, err := topology.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// request is one from this machine that says nothing of itself, unless told otherwise. Headers are "Name: value".
func request(method, target string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	r.RemoteAddr, r.Host = here, "127.0.0.1:6381"
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	return r
}

func answer(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func get(h http.Handler, target string, headers ...string) *httptest.ResponseRecorder {
	return answer(h, request(http.MethodGet, target, headers...))
}

var errStarting = errors.New("shard s1 has not answered yet")
