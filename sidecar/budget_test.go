package sidecar

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"ringside/internal/realpg"
	"ringside/ring"
	"ringside/shard"
	"ringside/shard/keyspace"
	"ringside/shard/origin"
)

// budgetCluster is the shards' side of many sidecars: a fleet each, that opens its sessions by the catalog's door. What gossip does elsewhere the test does: it
// tells each of them late how many there are.
type budgetCluster struct {
	t       *testing.T
	shard   origin.ShardConfig
	catalog string
	ks      *keyspace.Keyspace
	keys    []keyspace.Key

	mu    sync.Mutex
	sides map[*budgetSide]bool // those that gossip believes alive
}

type budgetSide struct {
	fleet  *origin.Fleet
	link   *catalogLink
	stop   context.CancelFunc
	ended  chan error
	served atomic.Int64
	shed   atomic.Int64
}

var budgetView = shard.View{Epoch: 3, Phase: shard.Done}

func newBudgetCluster(t *testing.T, budget int) *budgetCluster {
	t.Helper()
	c := &budgetCluster{t: t, catalog: realpg.T(t).Database(t), sides: map[*budgetSide]bool{}}
	c.shard = origin.ShardConfig{Name: "s1", DSN: realpg.T(t).Database(t), MaxConnections: budget}
	conn := c.connect()
	if _, err := conn.Exec(t.Context(), `create table users (id bigint primary key, name text); insert into users select n, 'u' from generate_series(1, 64) n`); err != nil {
		t.Fatal(err)
	}
	ks, err := keyspace.Compile(keyspace.Spec{Name: "user", Pattern: "user:{id:int}", Table: "users", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	set, err := keyspace.NewSet([]*keyspace.Keyspace{ks})
	if err != nil {
		t.Fatal(err)
	}
	c.ks = ks
	for _, text := range []string{"user:1", "user:2", "user:3", "user:4"} {
		var k keyspace.Key
		if _, err := set.Match(ring.NewHasher(), []byte(text), &k); err != nil {
			t.Fatal(err)
		}
		c.keys = append(c.keys, k.Clone())
	}
	first := origin.New(origin.Config{}, nil, nil)
	defer first.Close()
	if err := first.Apply([]origin.ShardConfig{c.shard}); err != nil {
		t.Fatal(err)
	}
	vnodes := make([]uint16, ring.Vnodes)
	for i := range vnodes {
		vnodes[i] = uint16(i)
	}
	if err := first.Install(t.Context(), "s1", budgetView, nil, vnodes); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *budgetCluster) connect() *pgx.Conn {
	c.t.Helper()
	conn, err := pgx.Connect(c.t.Context(), c.shard.DSN+"&application_name=watcher")
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// start starts a sidecar, that believes to be alone until it hears of the others.
func (c *budgetCluster) start() *budgetSide {
	s := &budgetSide{link: &catalogLink{dsn: c.catalog, log: slog.New(slog.DiscardHandler)}, ended: make(chan error, 1)}
	// As a sidecar does, it has the catalog before it begins; on a busy machine not all of them have it at the first try.
	for begun := time.Now(); ; {
		_, err := s.link.get(context.Background())
		if err == nil {
			break
		}
		if time.Since(begun) > time.Minute {
			c.t.Errorf("the catalog is not to be had: %v", err)
			break
		}
	}
	s.fleet = origin.New(origin.Config{ConnectTimeout: 20 * time.Second}, nil, nil) // the machine is slower than a shard may be
	s.fleet.GuardDoors(s.link.door)
	s.fleet.SetLimit("s1", origin.Share(c.shard.MaxConnections, 1))
	if err := s.fleet.Apply([]origin.ShardConfig{c.shard}); err != nil {
		c.t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	go func() { s.ended <- s.fleet.Run(ctx) }()
	c.mu.Lock()
	c.sides[s] = true
	c.mu.Unlock()
	return s
}

func (c *budgetCluster) end(s *budgetSide) {
	c.mu.Lock()
	delete(c.sides, s)
	c.mu.Unlock()
	s.stop()
	if err := <-s.ended; err != nil {
		c.t.Error(err)
	}
	s.fleet.Close()
	s.link.close()
}

// gossip tells the sidecars how many there are, each some time after the other, until ctx ends.
func (c *budgetCluster) gossip(ctx context.Context) {
	for ctx.Err() == nil {
		c.mu.Lock()
		n := len(c.sides)
		var all []*budgetSide
		for s := range c.sides {
			all = append(all, s)
		}
		c.mu.Unlock()
		for _, s := range all {
			s.fleet.SetLimit("s1", origin.Share(c.shard.MaxConnections, n))
			time.Sleep(time.Duration(rand.N(10)) * time.Millisecond)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// work reads rows one after another until ctx ends.
func (c *budgetCluster) work(ctx context.Context, s *budgetSide, pause time.Duration) {
	for ctx.Err() == nil {
		_, _, err := s.fleet.Load(ctx, "s1", c.ks, c.keys[:1])
		switch {
		case err == nil:
			s.served.Add(1)
		case errors.Is(err, shard.ErrOverloaded):
			s.shed.Add(1)
		case ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded): // a machine that is busy with other things
			c.t.Errorf("neither served nor shed: %v", err)
		}
		time.Sleep(pause)
	}
}

// watch counts the sessions of the sidecars again and again until ctx ends, and returns the most. The server's list is not of one moment; who is on it twice
// running was there between the two looks.
func (c *budgetCluster) watch(ctx context.Context, conn *pgx.Conn) (most, listed, looks int) {
	last := map[int32]bool{}
	for ctx.Err() == nil {
		var pids []int32
		if err := conn.QueryRow(context.Background(), `select coalesce(array_agg(pid), '{}') from pg_stat_activity where application_name = 'ringside' and datname = current_database()`).Scan(&pids); err != nil {
			c.t.Error(err)
			break
		}
		both, now := 0, map[int32]bool{}
		for _, pid := range pids {
			now[pid] = true
			if last[pid] {
				both++
			}
		}
		most, listed, looks, last = max(most, both), max(listed, len(pids)), looks+1, now
		time.Sleep(time.Millisecond)
	}
	return most, listed, looks
}

// Guards P6: the sessions of all sidecars together never exceed the budget, while they start, all at once, believing to be alone, while some are started
// again, and while there are more sidecars than sessions; and each of them gets its turn.
func TestTheBudgetOfTheClusterIsNeverExceeded(t *testing.T) {
	const budget, sidecars = 40, 40
	c := newBudgetCluster(t, budget)
	watcher := c.connect()
	watching, stopWatching := context.WithCancel(context.Background())
	var most, listed, looks int
	var watch sync.WaitGroup
	watch.Go(func() { most, listed, looks = c.watch(watching, watcher) })

	ctx, cancel := context.WithCancel(context.Background())
	var background sync.WaitGroup
	background.Go(func() { c.gossip(ctx) })
	begin := func() (*budgetSide, context.CancelFunc, *sync.WaitGroup) {
		s := c.start()
		working, stop := context.WithCancel(ctx)
		var callers sync.WaitGroup
		callers.Go(func() { c.work(working, s, 100*time.Millisecond) })
		return s, stop, &callers
	}
	type running struct {
		side    *budgetSide
		stop    context.CancelFunc
		callers *sync.WaitGroup
	}
	all := make([]running, sidecars)
	each := func(which []running, do func(r *running)) {
		var wg sync.WaitGroup
		for i := range which {
			wg.Go(func() { do(&which[i]) })
		}
		wg.Wait()
	}
	start := func(r *running) { r.side, r.stop, r.callers = begin() }
	end := func(r *running) {
		r.stop()
		r.callers.Wait()
		c.end(r.side)
	}
	served := func(what string) {
		t.Helper()
		since := make([]int64, len(all))
		for i := range all {
			since[i] = all[i].side.served.Load()
		}
		began := time.Now()
		for i := range all {
			for all[i].side.served.Load() < since[i]+3 {
				if time.Since(began) > 2*patience {
					t.Errorf("%s: sidecar %d is not served: %+v", what, i, all[i].side.fleet.Pools()[0])
					return
				}
				time.Sleep(5 * time.Millisecond)
			}
		}
		t.Logf("%s: all were served within %v", what, time.Since(began))
	}
	each(all, start)
	served("all started at once")
	each(all[:12], func(r *running) { end(r); start(r) })
	served("some started again")
	all = append(all, make([]running, 8)...)
	each(all[sidecars:], start)
	served("more sidecars than sessions")
	each(all[sidecars:], end)
	all = all[:sidecars]
	served("as before")
	cancel()
	each(all, end)
	background.Wait()
	stopWatching()
	watch.Wait()
	t.Logf("%d sessions at a time at most, %d listed, in %d looks", most, listed, looks)
	if most > budget || most < budget/2 || looks < 100 {
		t.Errorf("%d sessions were seen at a time in %d looks, the budget is %d", most, looks, budget)
	}
}
