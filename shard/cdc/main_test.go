package cdc

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"ringside/internal/realpg"
	"ringside/shard/keyspace"
)

func TestMain(m *testing.M) {
	if dsn := os.Getenv(childDSN); dsn != "" {
		os.Exit(followAsChild(dsn))
	}
	goleak.VerifyTestMain(realpg.Main(m))
}

// patience is how long a test waits for what must happen. The machine may be slow and shared.
const patience = 60 * time.Second

// quick are settings that make a test short.
func quick() Config {
	return Config{
		Sidecar: "a1", Beat: 200 * time.Millisecond, Look: 100 * time.Millisecond, LagLimit: patience,
		OffRetry: 200 * time.Millisecond, Check: 300 * time.Millisecond, CallTimeout: patience / 2,
	}
}

// bed is one shard on a database of its own, with the tables of testKeyspaces.
type bed struct {
	t    testing.TB
	dsn  string
	name string
	sql  *pgx.Conn
}

const testTables = `
create table users (id bigint primary key, name text, blob text);
create table orders (tenant text, id int, item text, primary key (tenant, id));
create table docs (id uuid primary key, body text);
create table other (id int primary key);`

func testKeyspaces(t testing.TB) []*keyspace.Keyspace {
	t.Helper()
	return []*keyspace.Keyspace{
		compile(t, keyspace.Spec{Name: "user", Pattern: "user:{id:int}", Table: "users"}),
		compile(t, keyspace.Spec{Name: "order", Pattern: "order:{tenant}:{id:int}", Table: "public.orders", ShardBy: "tenant"}),
		compile(t, keyspace.Spec{Name: "order2", Pattern: "o/{id:int}/{tenant}", Table: "orders", ShardBy: "tenant"}),
		compile(t, keyspace.Spec{Name: "doc", Pattern: "doc:{id:uuid}", Table: "docs"}),
	}
}

func compile(t testing.TB, spec keyspace.Spec) *keyspace.Keyspace {
	t.Helper()
	if spec.TTL == 0 {
		spec.TTL = time.Minute
	}
	ks, err := keyspace.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	return ks
}

func newBed(t testing.TB) *bed {
	t.Helper()
	return bedAt(t, realpg.T(t).Database(t))
}

func bedAt(t testing.TB, dsn string) *bed {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, dsn: dsn, name: strings.TrimPrefix(u.Path, "/")} // slots have names of the whole server, as databases have
	b.sql = b.connect()
	schema, err := os.ReadFile("../origin/schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	b.script("set synchronous_commit = local; create schema ringside;" + string(schema) + "set search_path = public;" + testTables)
	b.exec("insert into ringside.view (shard, epoch, phase) values ($1, 1, 3)", b.name)
	return b
}

func (b *bed) connect() *pgx.Conn {
	b.t.Helper()
	conn, err := pgx.Connect(context.Background(), b.dsn)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = conn.Close(ctx) // the test may have ended its server
	})
	return conn
}

// script runs statements without parameters, in one transaction unless it has its own.
func (b *bed) script(sql string) {
	b.t.Helper()
	if _, err := b.sql.PgConn().Exec(context.Background(), sql).ReadAll(); err != nil {
		b.t.Fatalf("%.200s: %v", sql, err)
	}
}

func (b *bed) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.sql.Exec(context.Background(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

func (b *bed) text(sql string, args ...any) string {
	b.t.Helper()
	var s string
	if err := b.sql.QueryRow(context.Background(), "select coalesce(("+sql+")::text, '')", args...).Scan(&s); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
	return s
}

// sink is what is done about changes in a test.
type sink struct {
	mu      sync.Mutex
	keys    []string
	at      map[string]time.Time // when a key was handed out last
	flushed []string             // shard/keyspace
	largest int                  // batch
	calls   int                  // of Invalidate
	fail    func() error         // asked at each Invalidate; nil: never fails
}

func (s *sink) deps() Deps {
	return Deps{
		Invalidate: func(ctx context.Context, keys []Key) error {
			s.mu.Lock()
			fail := s.fail
			s.mu.Unlock()
			if fail != nil {
				if err := fail(); err != nil {
					return err
				}
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.at == nil {
				s.at = map[string]time.Time{}
			}
			for _, k := range keys {
				s.keys = append(s.keys, string(k.Text)+" "+string(k.ShardKey))
				s.at[string(k.Text)] = time.Now()
			}
			s.largest = max(s.largest, len(keys))
			s.calls++
			return ctx.Err()
		},
		Flush: func(ctx context.Context, shard, keyspace, why string) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.flushed = append(s.flushed, keyspace)
			return ctx.Err()
		},
	}
}

func (s *sink) setFail(fail func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

// taken returns what was handed out since the last call, sorted, each key once.
func (s *sink) taken() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := slices.Clone(s.keys)
	s.keys = nil
	slices.Sort(keys)
	return slices.Compact(keys)
}

func (s *sink) has(key string) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.at[key]
	return at, ok
}

func (s *sink) distinct() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at)
}

func (s *sink) flushes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.flushed)
}

// follow runs Followers of the bed until the returned function is called, or the test ends.
func (b *bed) follow(cfg Config, s *sink) (f *Followers, stop func()) {
	b.t.Helper()
	if cfg.Keyspaces == nil {
		cfg.Keyspaces = testKeyspaces(b.t)
	}
	if err := cfg.Validate(); err != nil {
		b.t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(b.t.Output(), nil)).With("sidecar", cfg.Sidecar)
	f = New(cfg, s.deps(), nil, log)
	if err := f.Apply([]Shard{{Name: b.name, DSN: b.dsn}}); err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Errorf("Run: %v", err)
		}
	})
	b.t.Cleanup(stop)
	return f, stop
}

// awaitRole waits until the sidecar has that role and, if it is Active, all is well.
func (b *bed) awaitRole(f *Followers, role Role) State {
	b.t.Helper()
	var s State
	eventually(b.t, fmt.Sprintf("role %s", role), func() bool {
		states := f.State()
		if len(states) != 1 {
			return false
		}
		s = states[0]
		return s.Role == role && (role != Active || s.Known && s.Reason == "")
	})
	return s
}

// probe changes a row and waits until it was handed out: then all before it was too.
func (b *bed) probe(s *sink) {
	b.t.Helper()
	n := time.Now().UnixNano()
	b.exec("insert into users (id) values ($1)", n)
	eventually(b.t, "the probe is handed out", func() bool {
		_, ok := s.has(fmt.Sprintf("user:%d", n))
		return ok
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = slices.DeleteFunc(s.keys, func(k string) bool { return strings.HasPrefix(k, fmt.Sprintf("user:%d ", n)) })
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
