package origin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"ringside/internal/realpg"
	"ringside/shard"
	"ringside/shard/keyspace"
)

const sessionsSQL = `select count(*)::text from pg_stat_activity where application_name = 'ringside' and datname = current_database()`

func (f *fixture) sessions() int {
	var n int
	if _, err := fmt.Sscan(f.text(sessionsSQL), &n); err != nil {
		f.t.Fatal(err)
	}
	return n
}

// Guards P6: however many callers, there are never more sessions than the limit, the poller's included; and all are served.
func TestSessionsNeverExceedTheLimit(t *testing.T) {
	f := newFixture(t, Config{QueueLimit: 1000, QueueWait: plenty, ViewTTL: 10 * time.Second}, usersTable, `insert into users select n, 'u' from generate_series(1, 200) n`)
	ks := users(t)
	for _, limit := range []int{5, 1, 8} {
		f.SetLimit("s1", limit)
		if limit == 5 {
			f.run()
		}
		// What was admitted before the limit became smaller finishes, also when its caller has gone.
		eventually(t, "nothing is under way", func() bool { return f.Pools()[0].InUse == 0 })
		eventually(t, "surplus sessions are closed", func() bool { return f.sessions() <= limit })
		ctx, cancel := context.WithCancel(t.Context())
		var served atomic.Int64
		var callers sync.WaitGroup
		for n := range 200 {
			k := key(t, ks, fmt.Sprintf("user:%d", n+1))
			callers.Go(func() {
				for ctx.Err() == nil {
					var err error
					if n%4 == 0 {
						_, err = f.Write(ctx, "s1", at, upsert(t, k, `{"name":"v"}`), nil)
					} else {
						_, _, err = f.Load(ctx, "s1", ks, []keyspace.Key{k})
					}
					if err == nil {
						served.Add(1)
					} else if ctx.Err() == nil {
						t.Errorf("limit %d: %v", limit, err)
					}
				}
			})
		}
		most := 0
		for begun := time.Now(); ; {
			most = max(most, f.sessions())
			enough := (limit == 1 || most >= limit) && served.Load() >= 50
			if took := time.Since(begun); took > plenty || took > 500*time.Millisecond && enough {
				break
			}
		}
		if v, standing := f.Confirmation("s1").Trust(time.Now(), 10*time.Second, 0); v.Epoch != at.Epoch || standing != shard.Current {
			t.Errorf("limit %d: overload let the view expire: %v", limit, standing)
		}
		cancel()
		callers.Wait()
		if most > limit {
			t.Errorf("%d sessions, the limit is %d", most, limit)
		}
		if limit > 1 && most < limit {
			t.Errorf("only %d sessions under load, the limit is %d", most, limit)
		}
		if served.Load() < 50 {
			t.Errorf("limit %d: only %d served", limit, served.Load())
		}
	}
}

// Guards P6: a full queue and a long wait are refused, nothing is sent, and saturation is not taken for the shard being down.
func TestQueueFullAndQueueWait(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{QueueLimit: 2, QueueWait: 4 * time.Second}, usersTable, `insert into users values (1, 'a')`)
	f.SetLimit("s1", 2) // one for the poller, one for requests
	f.run()
	ks := users(t)
	k := key(t, ks, "user:1")
	release := make(chan struct{})
	held := make(chan error, 1)
	entered := make(chan struct{})
	go func() {
		_, err := f.Write(context.Background(), "s1", at, upsert(t, k, `{"name":"b"}`), func() (bool, error) { close(entered); <-release; return false, nil })
		held <- err
	}()
	<-entered
	late := make(chan error, 2)
	for range 2 {
		go func() {
			_, _, err := f.Load(context.Background(), "s1", ks, []keyspace.Key{k})
			late <- err
		}()
	}
	eventually(t, "two wait", func() bool { return f.Pools()[0].Waiting == 2 })
	start := time.Now()
	if _, _, err := f.Load(t.Context(), "s1", ks, []keyspace.Key{k}); !errors.Is(err, shard.ErrOverloaded) || time.Since(start) > 3*time.Second {
		t.Errorf("queue full: %v after %v", err, time.Since(start))
	}
	if s := f.Pools()[0]; s.InUse != 1 || s.Limit != 2 || s.OldestWait == 0 {
		t.Errorf("%+v", s)
	}
	for range 2 {
		if err := <-late; !errors.Is(err, shard.ErrOverloaded) {
			t.Errorf("queue wait: %v", err)
		}
	}
	close(release)
	if err := <-held; err != nil {
		t.Error(err)
	}
	s := f.Pools()[0]
	if s.ShedFull != 1 || s.ShedLate != 2 || !s.DownSince.IsZero() || s.Waiting != 0 || s.LastError != "" {
		t.Errorf("%+v", s)
	}
	if _, _, err := f.Load(t.Context(), "s1", ks, []keyspace.Key{k}); err != nil {
		t.Error(err)
	}
}

func TestAShrunkLimitClosesIdleSessions(t *testing.T) {
	f := newFixture(t, Config{}, usersTable)
	ks := users(t)
	var ready, done sync.WaitGroup
	release := make(chan struct{})
	for n := range 6 {
		k := key(t, ks, fmt.Sprintf("user:%d", n))
		ready.Add(1)
		done.Go(func() {
			_, err := f.Write(context.Background(), "s1", at, upsert(t, k, `{"name":"b"}`), func() (bool, error) { ready.Done(); <-release; return false, nil })
			if err != nil {
				t.Error(err)
			}
		})
	}
	ready.Wait()
	f.SetLimit("s1", 3) // while all are in use
	close(release)
	done.Wait()
	eventually(t, "3 sessions are left", func() bool { return f.sessions() == 3 })
	f.SetLimit("s1", 2) // while all are idle
	eventually(t, "2 sessions are left", func() bool { return f.sessions() == 2 })
	f.SetLimit("s1", -1)
	if s := f.Pools()[0]; s.Limit != 1 {
		t.Errorf("%+v", s)
	}
	f.SetLimit("s1", 1000)
	if s := f.Pools()[0]; s.Limit != 8 {
		t.Errorf("%+v", s)
	}
}

func TestApplyAddsChangesAndRemoves(t *testing.T) {
	one, two := newFixture(t, Config{}, usersTable), newFixture(t, Config{}, usersTable)
	one.Close() // what it installed stays
	two.Close()
	ks := users(t)
	keys := []keyspace.Key{key(t, ks, "user:1")}
	f := newFleet(t, Config{})
	runFleet(t, f)
	confirmation := f.Confirmation("s1")
	heard := func() bool {
		v, standing := confirmation.Trust(time.Now(), 2*time.Second, 0)
		return v.Epoch == at.Epoch && standing == shard.Current
	}
	load := func() error {
		_, _, err := f.Load(t.Context(), "s1", ks, keys)
		return err
	}
	apply := func(shards ...ShardConfig) {
		t.Helper()
		if err := f.Apply(shards); err != nil {
			t.Fatal(err)
		}
	}
	if err := load(); !errors.Is(err, errNotInTopology) {
		t.Errorf("before: %v", err)
	}
	apply(ShardConfig{"s1", one.dsn, 4})
	eventually(t, "the shard is heard", heard)
	if f.Confirmation("s1") != confirmation {
		t.Error("the confirmation is another one")
	}
	if err := load(); err != nil {
		t.Error(err)
	}
	apply(ShardConfig{"s1", two.dsn, 4})
	eventually(t, "the former database is left", func() bool { return one.sessions() == 0 })
	eventually(t, "the shard is heard", heard)
	if err := load(); err != nil {
		t.Error(err)
	}
	apply()
	eventually(t, "the database is left", func() bool { return two.sessions() == 0 })
	if heard() {
		t.Error("a removed shard still confirms")
	}
	if err := load(); !errors.Is(err, errNotInTopology) {
		t.Errorf("after: %v", err)
	}
}

func TestApplyRefusesWithoutSecrets(t *testing.T) {
	f := newFleet(t, Config{}, ShardConfig{"s1", "postgres://u:hush@127.0.0.1:1/app", 4})
	for _, bad := range [][]ShardConfig{
		{{"s9", "postgres://u:hush@host:port:/app?x", 4}},
		{{"s9", "host=a password='hush", 4}},
		{{"s9", "", 4}},
		{{"s9", "postgres://u:hush@127.0.0.1/app", 0}},
		{{"s9", "postgres://u:hush@127.0.0.1/app", 1}, {"s9", "postgres://u:hush@127.0.0.1/app", 1}},
	} {
		err := f.Apply(bad)
		if err == nil || strings.Contains(err.Error(), "hush") || !strings.Contains(err.Error(), "s9") {
			t.Errorf("%v: got %v", bad[0].DSN, err)
		}
	}
	if err := f.Apply([]ShardConfig{{"", "postgres://127.0.0.1/app", 1}}); err == nil {
		t.Error("a shard without a name was taken")
	}
	if pools := f.Pools(); len(pools) != 1 || pools[0].Name != "s1" {
		t.Errorf("a refused Apply changed the fleet: %+v", pools)
	}
	_, err := f.Write(t.Context(), "s1", at, upsert(t, key(t, users(t), "user:1"), `{}`), nil)
	if _, ok := errors.AsType[*shard.DownError](err); !ok || strings.Contains(err.Error(), "hush") {
		t.Errorf("unreachable: %v", err)
	}
}

func TestConfig(t *testing.T) {
	if err := (Config{}).Validate(); err != nil {
		t.Error(err)
	}
	err := Config{ViewTTL: -1, QueueLimit: -1, QueueWait: -1}.Validate()
	for _, field := range []string{"view_ttl", "queue_limit", "queue_wait"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not named: %v", field, err)
		}
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	f := New(Config{}, reg, nil)
	defer f.Close()
	if err := f.Apply([]ShardConfig{{"s1", realpg.T(t).Database(t), 4}}); err != nil {
		t.Fatal(err)
	}
	if err := f.Install(t.Context(), "s1", at, nil, allVnodes()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.Load(t.Context(), "s1", users(t), []keyspace.Key{key(t, users(t), "user:1")}); err == nil {
		t.Fatal("loaded from a table that does not exist")
	}
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	count := func() int {
		t.Helper()
		n, err := testutil.GatherAndCount(reg)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count(); n != 19 {
		t.Errorf("%d series, want 19", n)
	}
	if err := f.Apply(nil); err != nil {
		t.Fatal(err)
	}
	if n := count(); n != 0 {
		t.Errorf("%d series of a shard that was removed", n)
	}
}
