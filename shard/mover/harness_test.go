package mover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"ringside/internal/realpg"
	"ringside/ring"
	"ringside/shard"
	"ringside/shard/catalog"
	"ringside/shard/keyspace"
	"ringside/shard/origin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(realpg.Main(m)) }

const viewTTL = 200 * time.Millisecond

// rig is two shards with a table of counters, s1 owning all of it, and what a sidecar has around a Mover: a map, a fleet, and keepers of views.
type rig struct {
	t       testing.TB
	dsn     map[string]string
	catalog string
	journal *catalog.Catalog
	fleet   *origin.Fleet
	ks      *keyspace.Keyspace
	set     *keyspace.Set        // of ks
	sql     map[string]*pgx.Conn // past the fleet
	pause   time.Duration        // of writers, at most

	mu       sync.Mutex
	ring     Ring
	stop     context.CancelFunc
	sidecars sync.WaitGroup
}

const countersTable = `create table counters (id bigint primary key, n bigint not null default 0, note text unique, at timestamptz default now(),
	twice bigint generated always as (n * 2) stored)`

// newRig makes the shards in two databases of one server, or on servers that the test may kill.
func newRig(t testing.TB, rows int, more ...string) *rig {
	server := realpg.T(t)
	return rigAt(t, rows, server.Database(t), server.Database(t), server.Database(t), more...)
}

func rigAt(t testing.TB, rows int, one, two, journal string, more ...string) *rig {
	t.Helper()
	r := &rig{t: t, dsn: map[string]string{"s1": one, "s2": two}, catalog: journal, sql: map[string]*pgx.Conn{}, pause: 50 * time.Millisecond}
	r.ring = Ring{Epoch: 7, Settled: true, Shards: []string{"s1", "s2"}, Weights: []uint32{1, 1}, Owners: make([]uint16, ring.Vnodes)}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	var err error
	if r.ks, err = keyspace.Compile(keyspace.Spec{Name: "counter", Pattern: "counter:{id:int}", Table: "counters", TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if r.set, err = keyspace.NewSet([]*keyspace.Keyspace{r.ks}); err != nil {
		t.Fatal(err)
	}
	r.fleet = origin.New(origin.Config{ViewTTL: viewTTL, ConnectTimeout: 10 * time.Second, LoadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, LockTimeout: 10 * time.Second,
		QueueWait: 10 * time.Second, AdminTimeout: time.Minute}, nil, log)
	t.Cleanup(r.fleet.Close)
	if err := r.fleet.Apply([]origin.ShardConfig{{Name: "s1", DSN: one, MaxConnections: 16}, {Name: "s2", DSN: two, MaxConnections: 16}}); err != nil {
		t.Fatal(err)
	}
	all := make([]uint16, ring.Vnodes)
	for v := range all {
		all[v] = uint16(v)
	}
	for name, owned := range map[string][]uint16{"s1": all, "s2": nil} {
		r.sql[name] = connect(t, r.dsn[name])
		for _, sql := range append([]string{countersTable}, more...) {
			r.exec(name, sql)
		}
		if err := r.fleet.Install(t.Context(), name, shard.View{Epoch: 7, Phase: shard.Done}, []byte("topology"), owned); err != nil {
			t.Fatal(err)
		}
		r.exec(name, `select ringside.attach('counters', 'id')`)
	}
	r.exec("s1", fmt.Sprintf(`insert into counters (id, note) select i, 'note ' || i from generate_series(1, %d) i`, rows))
	r.exec("s1", `analyze counters`)
	if r.journal, err = catalog.Open(t.Context(), journal, log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.journal.Close)
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	t.Cleanup(func() { stop(); r.sidecars.Wait() })
	r.sidecars.Go(func() { _ = r.fleet.Run(ctx) })
	r.sidecars.Go(func() { r.keep(ctx) })
	return r
}

func connect(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = conn.Close(ctx) // the test may have killed its server
	})
	return conn
}

// keep brings the shards to the epoch of the map, as keepers do.
func (r *rig) keep(ctx context.Context) {
	for sleep(ctx, 20*time.Millisecond) == nil {
		now := r.now()
		for _, name := range now.Shards {
			if v, _ := r.fleet.Confirmation(name).View(); v.Epoch < now.Epoch {
				_, _ = r.fleet.Advance(ctx, name, shard.View{Epoch: now.Epoch, Phase: shard.Done}, []byte("topology")) // again in a moment
			}
		}
	}
}

func (r *rig) now() Ring {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ring
}

func (r *rig) publish(_ context.Context, _ uint64, p catalog.NewPart) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.Key != "" {
		overrides := maps.Clone(r.ring.Overrides)
		if overrides == nil {
			overrides = map[string]string{}
		}
		if delete(overrides, p.Key); !p.Clear {
			overrides[p.Key] = p.To
		}
		if !maps.Equal(overrides, r.ring.Overrides) {
			r.ring.Overrides = overrides
			r.ring.Epoch++
		}
		return nil
	}
	owners := slices.Clone(r.ring.Owners)
	for _, v := range p.Vnodes {
		owners[v] = uint16(slices.Index(r.ring.Shards, p.To))
	}
	if !slices.Equal(owners, r.ring.Owners) {
		r.ring.Owners = owners
		r.ring.Epoch++
	}
	return nil
}

// mover makes a Mover that is not running yet.
func (r *rig) mover(holder string, change func(c *Config)) *Mover {
	r.t.Helper()
	cfg := Config{Holder: holder, ViewTTL: viewTTL, Look: 50 * time.Millisecond, Lease: 10 * time.Second, Retry: 20 * time.Millisecond, Grace: 50 * time.Millisecond,
		Block: 10 * time.Second} // the machine may be slow; what the bound does has tests of its own
	if change != nil {
		change(&cfg)
	}
	m, err := New(cfg, Deps{
		Journal: func(context.Context) (*catalog.Catalog, error) { return r.journal, nil },
		DSN:     func(name string) (string, bool) { dsn, ok := r.dsn[name]; return dsn, ok },
		Ring:    r.now, View: func(name string) (shard.View, time.Time) { return r.fleet.Confirmation(name).View() },
		Publish: r.publish, Queue: func(string) (time.Duration, uint64) { return 0, 0 }, Tables: func() []string { return []string{"counters"} },
		Registerer: prometheus.NewRegistry(), Log: slog.New(slog.NewTextHandler(r.t.Output(), nil)).With("holder", holder),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

// start runs a mover until it is stopped, which waits for its end.
func (r *rig) start(m *Mover) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = m.Run(ctx) // nil by its promise
	}()
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); <-ended }) }
	r.t.Cleanup(stop)
	return stop
}

// half is every other vnode, some every sixteenth.
func half() []uint16 { return every(2) }
func some() []uint16 { return every(16) }

func every(n int) (out []uint16) {
	for v := 0; v < ring.Vnodes; v += n {
		out = append(out, uint16(v))
	}
	return out
}

// request asks for a move in so many parts.
func (r *rig) request(from, to string, vnodes []uint16, parts int) int64 {
	r.t.Helper()
	var list []catalog.NewPart
	for chunk := range slices.Chunk(vnodes, (len(vnodes)+parts-1)/parts) {
		list = append(list, catalog.NewPart{From: from, To: to, Vnodes: chunk})
	}
	id, err := r.journal.CreateMove(context.Background(), list)
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

// await waits until all parts of a move have ended, and returns them.
func (r *rig) await(id int64) []catalog.Part {
	r.t.Helper()
	for deadline := time.Now().Add(4 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		all, err := r.journal.Parts(context.Background(), 100)
		var parts []catalog.Part
		open := 0
		for _, p := range all {
			if p.Move == id {
				parts = append(parts, p)
				if !p.State.Ended() {
					open++
				}
			}
		}
		if err == nil && open == 0 && len(parts) > 0 {
			return parts
		}
		if time.Now().After(deadline) {
			for i := range parts {
				parts[i].Vnodes = nil
			}
			r.t.Fatalf("the move has not ended: %+v, %v", parts, err)
		}
	}
}

func (r *rig) exec(name, sql string, args ...any) {
	r.t.Helper()
	if _, err := r.sql[name].Exec(context.Background(), sql, args...); err != nil {
		r.t.Fatalf("%s: %s: %v", name, sql, err)
	}
}

func (r *rig) text(name, sql string, args ...any) string {
	r.t.Helper()
	var s *string
	err := r.sql[name].QueryRow(context.Background(), sql, args...).Scan(&s)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "<none>"
	case err != nil:
		r.t.Fatalf("%s: %s: %v", name, sql, err)
	case s == nil:
		return "<null>"
	}
	return *s
}

// check is what must hold when nothing is moved any more: every vnode has one owner, which the map names; every row is there and only there; nothing is
// left behind.
func (r *rig) check() {
	r.t.Helper()
	owners := map[int32]string{}
	for name := range r.dsn {
		rows, err := r.sql[name].Query(context.Background(), `select vnode from ringside.ownership where state = 'owned'`)
		if err != nil {
			r.t.Fatal(err)
		}
		vnodes, err := pgx.CollectRows(rows, pgx.RowTo[int32])
		if err != nil {
			r.t.Fatal(err)
		}
		for _, v := range vnodes {
			if owners[v] != "" {
				r.t.Fatalf("vnode %d has two owners", v)
			}
			owners[v] = name
		}
		for sql, want := range map[string]string{
			`select count(*)::text from counters c where coalesce((select k.state from ringside.override k where k.shard_key = c.id::text),
	(select o.state from ringside.owner o where o.vnode = c.ringside_vnode)) is distinct from 'owned'`: "0",
			`select count(*)::text from ringside.override where move_id is not null or state not in ('owned', 'moved')`: "0",
			`select count(*)::text from ringside.change`:                                                                "0",
			`select count(*)::text from ringside.owner where move_id is not null`:                                       "0",
			`select count(*)::text from ringside.view where cutover is not null`:                                        "0",
			`select count(*)::text from ringside.part where state <> 'gone'`:                                            "0",
			`select count(*)::text from ringside.owner where state in ('frozen', 'closed', 'incoming')`:                 "0",
		} {
			if got := r.text(name, sql); got != want {
				r.t.Errorf("%s: %s: %s, want %s", name, sql, got, want)
			}
		}
	}
	now := r.now()
	for v := range now.Owners {
		if want := now.Shards[now.Owners[v]]; owners[int32(v)] != want {
			r.t.Fatalf("vnode %d is owned by %q, the map says %s", v, owners[int32(v)], want)
		}
	}
	for _, fault := range r.mover("verifier", nil).Verify(context.Background()).Faults {
		r.t.Error(fault)
	}
}
