package origin

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"ringside/internal/realpg"
	"ringside/ring"
	"ringside/shard"
	"ringside/shard/keyspace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(realpg.Main(m)) }

// at is the view that every shard of these tests is installed at.
var at = shard.View{Epoch: 7, Phase: shard.Done}

// fixture is one shard named s1 on a fresh database, and a fleet that knows it.
type fixture struct {
	*Fleet
	t   testing.TB
	dsn string
	sql *pgx.Conn // as superuser, past the fleet
}

// newFixture installs s1, owner of all vnodes, with the given tables.
func newFixture(t testing.TB, cfg Config, tables ...string) *fixture {
	t.Helper()
	return fixtureAt(t, realpg.T(t).Database(t), cfg, tables...)
}

func fixtureAt(t testing.TB, dsn string, cfg Config, tables ...string) *fixture {
	t.Helper()
	f := &fixture{t: t, dsn: dsn, sql: connect(t, dsn)}
	for _, statement := range tables {
		f.exec(statement)
	}
	s := ShardConfig{Name: "s1", DSN: dsn, MaxConnections: 9}
	// By one of its own: the limits that a test is about are not for this.
	installer := newFleet(t, Config{}, s)
	defer installer.Close()
	if err := installer.Install(t.Context(), "s1", at, []byte("topology 7"), allVnodes()); err != nil {
		t.Fatal(err)
	}
	f.Fleet = newFleet(t, cfg, s)
	return f
}

// plenty of time: what a busy machine is given.
const plenty = time.Minute

// patient returns cfg with much time for all that it does not set itself.
func patient(cfg Config) Config {
	for _, d := range []*time.Duration{&cfg.ConnectTimeout, &cfg.LockTimeout, &cfg.LoadTimeout, &cfg.WriteTimeout, &cfg.QueueWait, &cfg.AdminTimeout} {
		if *d == 0 {
			*d = plenty / 2
		}
	}
	return cfg
}

func newFleet(t testing.TB, cfg Config, shards ...ShardConfig) *Fleet {
	t.Helper()
	f := New(patient(cfg), nil, slog.New(slog.NewTextHandler(t.Output(), nil)))
	t.Cleanup(f.Close)
	if err := f.Apply(shards); err != nil {
		t.Fatal(err)
	}
	return f
}

// run runs the fleet's pollers until the test ends.
func (f *fixture) run() { runFleet(f.t, f.Fleet) }

func runFleet(t testing.TB, f *Fleet) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func allVnodes() []uint16 {
	all := make([]uint16, ring.Vnodes)
	for i := range all {
		all[i] = uint16(i)
	}
	return all
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

func (f *fixture) exec(sql string, args ...any) {
	f.t.Helper()
	if _, err := f.sql.Exec(context.Background(), sql, args...); err != nil {
		f.t.Fatalf("%s: %v", sql, err)
	}
}

// text returns the one value of a query as text, "<none>" without a row and "<null>" for NULL.
func (f *fixture) text(sql string, args ...any) string {
	f.t.Helper()
	var s *string
	err := f.sql.QueryRow(context.Background(), sql, args...).Scan(&s)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "<none>"
	case err != nil:
		f.t.Fatalf("%s: %v", sql, err)
	case s == nil:
		return "<null>"
	}
	return *s
}

// setOwner puts a vnode into a state as a mover does.
func (f *fixture) setOwner(vnode uint16, state string) {
	f.t.Helper()
	f.exec(`insert into ringside.owner (vnode, state, epoch) values ($1, $2, 7)
on conflict (vnode) do update set state = excluded.state`, int32(vnode), state)
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

// key takes a key of the keyspace apart.
func key(t testing.TB, ks *keyspace.Keyspace, text string) keyspace.Key {
	t.Helper()
	set, err := keyspace.NewSet([]*keyspace.Keyspace{ks})
	if err != nil {
		t.Fatal(err)
	}
	var k keyspace.Key
	matched, err := set.Match(ring.NewHasher(), []byte(text), &k)
	if err != nil || !matched {
		t.Fatalf("%q does not match %s: %v", text, ks, err)
	}
	return k.Clone()
}

const usersTable = `create table users (id bigint primary key, name text not null, email text unique, visits bigint default 0)`

func users(t testing.TB) *keyspace.Keyspace {
	t.Helper()
	return compile(t, keyspace.Spec{Name: "user", Pattern: "user:{id:int}", Table: "users"})
}

// columns takes a JSON object apart as SET does.
func columns(t testing.TB, doc string) []keyspace.Column {
	t.Helper()
	c, err := keyspace.Columns([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(plenty); ; time.Sleep(10 * time.Millisecond) {
		if ok() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", plenty, what)
		}
	}
}
