package sidecar

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"ringside/shard"
	"ringside/shard/keyspace"
	"ringside/sidecar/topology"
)

// fill makes the table on both shards and n rows of version 0, each on the shard that owns it.
func (c *rowCluster) fill(n int) {
	t := c.t
	t.Helper()
	for _, sh := range c.shards {
		conn, err := pgx.Connect(t.Context(), sh.DSN)
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.Exec(t.Context(), "create table users (id bigint primary key, version bigint not null default 0)")
		if err == nil {
			_, err = conn.Exec(t.Context(), `insert into users select i, 0 from generate_series(1, $1::bigint) i
where exists (select from ringside.owner o where o.vnode = ringside.vnode(i::text) and o.state = 'owned')`, n)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// versionOf reads the version that a row has.
func versionOf(body []byte) (v int64, err error) {
	var id int64
	_, err = fmt.Sscanf(string(body), `{"id":%d,"version":%d}`, &id, &v)
	return v, err
}

// moved counts the rows up to n that have another server in b than in a.
func (c *rowCluster) moved(n int, a, b *topology.Topology) (moved int) {
	for id := 1; id <= n; id++ {
		v := c.key(id).CacheVnode
		if a.Caches[a.CacheOf(v)].Name != b.Caches[b.CacheOf(v)].Name {
			moved++
		}
	}
	return moved
}

// readAll reads rows 1 to n through a sidecar, many at a time.
func (c *rowCluster) readAll(s *rowSide, n int) {
	c.t.Helper()
	for from := 1; from <= n; from += 200 {
		var keys []keyspace.Key
		for id := from; id < from+200 && id <= n; id++ {
			keys = append(keys, c.key(id))
		}
		for i, row := range s.read(c.t.Context(), keys) {
			if row.Err != nil || !row.Found {
				c.t.Fatalf("user:%d: found %v, %v", from+i, row.Found, row.Err)
			}
		}
	}
}

// Guards P5: a server joins and is drained again, each as a planned change, while only a part of the cached rows is being read. Hardly any row
// that changes servers is read from its shard because of that, neither while the change is carried out nor when all are read afterwards.
func TestAPlannedChangeCostsTheShardsNothing(t *testing.T) {
	c := newRowCluster(t, 3)
	for range 2 {
		c.newSide(true)
	}
	const rows, busy = 4000, 400
	c.fill(rows)
	c.readAll(c.sides[0], rows)

	stop := make(chan struct{})
	var readers sync.WaitGroup
	defer readers.Wait()
	defer close(stop)
	for i := range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
				id := 1 + rand.IntN(busy)
				if row := c.sides[i%2].read(context.Background(), []keyspace.Key{c.key(id)})[0]; row.Err != nil || !row.Found {
					t.Errorf("user:%d: found %v, %v", id, row.Found, row.Err)
					return
				}
			}
		})
	}
	change := func(what string, next *topology.Topology, err error) {
		t.Helper()
		loads, carried := c.count("ringside_cache_loads_total"), c.count("ringside_cache_carried_total")
		before := c.now
		c.change(next, err)
		moved := c.moved(rows, before, c.now)
		c.settle()
		c.readAll(c.sides[1], rows)
		loads, carried = c.count("ringside_cache_loads_total")-loads, c.count("ringside_cache_carried_total")-carried
		t.Logf("%s: %d of %d rows moved, %d were carried, %d loaded", what, moved, rows, carried, loads)
		if moved < rows/8 || loads > moved/50 || carried < moved*9/10 {
			t.Errorf("%s: %d of %d rows moved, %d were carried, %d loaded; at most 2%% may be", what, moved, rows, carried, loads)
		}
	}
	c4 := c.startCache("c4")
	next, err := topology.AddCache(c.now, c4)
	c.change(next, err)
	c.settle()
	next, err = topology.Activate(c.now, map[string]string{"c4": c4.RunID})
	change("c4 joins", next, err)
	next, err = topology.DrainCache(c.now, "c4")
	change("c4 is drained", next, err)
}

// Guards P3 and P4: while servers join, are drained and weighed, no write is refused, and no read through any sidecar returns an older
// version than one that was acknowledged before.
func TestWritesGoOnThroughPlannedChanges(t *testing.T) {
	c := newRowCluster(t, 3)
	for range 2 {
		c.newSide(true)
	}
	const rows = 40
	c.fill(rows)
	var acked [rows + 1]atomic.Int64
	var reads, writes atomic.Int64
	stop := make(chan struct{})
	var load sync.WaitGroup
	loop := func(f func() bool) {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if !f() {
					return
				}
			}
		})
	}
	for _, s := range c.sides {
		for range 4 {
			loop(func() bool {
				id := 1 + rand.IntN(rows)
				floor := acked[id].Load()
				row := s.read(context.Background(), []keyspace.Key{c.key(id)})[0]
				v, err := versionOf(row.Body)
				if row.Err != nil || err != nil || v < floor {
					t.Errorf("user:%d: version %d of %q, %v, %v; %d was acknowledged before", id, v, row.Body, row.Err, err, floor)
					return false
				}
				reads.Add(1)
				time.Sleep(rand.N(time.Millisecond))
				return true
			})
		}
		loop(func() bool {
			id := 1 + rand.IntN(rows)
			out, err := s.Write(context.Background(), keyspace.Op{Kind: keyspace.Increment, Key: c.key(id), Column: "version", Delta: 1})
			if err != nil {
				t.Errorf("writing user:%d: %v", id, err)
				return false
			}
			for old := acked[id].Load(); old < out.Value && !acked[id].CompareAndSwap(old, out.Value); old = acked[id].Load() {
			}
			writes.Add(1)
			time.Sleep(rand.N(4 * time.Millisecond))
			return true
		})
	}
	c4 := c.startCache("c4")
	next, err := topology.AddCache(c.now, c4)
	c.change(next, err)
	next, err = topology.Activate(c.now, map[string]string{"c4": c4.RunID}) // before the shards have come to the one before
	c.change(next, err)
	c.settle()
	next, err = topology.WeighCache(c.now, "c1", 3)
	c.change(next, err)
	c.settle()
	next, err = topology.DrainCache(c.now, "c4")
	c.change(next, err)
	c.settle()
	close(stop)
	load.Wait()
	t.Logf("%d reads, %d writes, %d carried", reads.Load(), writes.Load(), c.count("ringside_cache_carried_total"))
	if reads.Load() < 500 || writes.Load() < 100 {
		t.Error("too little happened")
	}
}

// A server that is to hand over rows dies in the middle: the shards stay in that phase until a topology does without it, and are then done soon.
func TestTheFormerOwnerDiesWhileItsRowsAreHandedOver(t *testing.T) {
	c := newRowCluster(t, 2)
	c.step = 2 * time.Second // less than the server stands still
	s := c.newSide(true)
	const rows = 200
	c.fill(rows)
	c.readAll(s, rows)
	c3 := c.startCache("c3")
	next, err := topology.AddCache(c.now, c3)
	c.change(next, err)
	c.settle()
	next, err = topology.Activate(c.now, map[string]string{"c3": c3.RunID})
	c.change(next, err)
	c.await("a shard is active", func() bool {
		v, _ := s.fleet.Confirmation("s1").View()
		return v.Epoch == c.now.Epoch && v.Phase == shard.Active
	})
	if err := c.caches["c1"].Pause(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * holdFor(c.viewTTL)) // longer than the phase is held
	if v, _ := s.fleet.Confirmation("s1").View(); v.Phase != shard.Active {
		t.Errorf("s1 is at %v although c1 could not be closed", v)
	}
	c.readAll(s, rows)
	next, err = topology.MarkDown(c.now, []string{"c1"})
	c.change(next, err)
	for id := 1; id <= 20; id++ {
		var err error
		c.await("a write is not told to try again", func() bool {
			_, err = s.Write(t.Context(), keyspace.Op{Kind: keyspace.Increment, Key: c.key(id), Column: "version", Delta: 1})
			return !isStale(err)
		})
		if err != nil {
			t.Errorf("writing user:%d: %v", id, err)
		}
		row := s.read(t.Context(), []keyspace.Key{c.key(id)})[0]
		if v, err := versionOf(row.Body); row.Err != nil || err != nil || v != 1 {
			t.Errorf("user:%d: version %d, %v, %v", id, v, row.Err, err)
		}
	}
	c.settle()
	if err := c.caches["c1"].Resume(); err != nil {
		t.Fatal(err)
	}
}

// A sidecar that was started while a shard is still at an earlier topology gets that from the shard, and serves the shard's rows by it.
func TestAnEarlierTopologyComesFromTheShard(t *testing.T) {
	c := newRowCluster(t, 2)
	first := c.newSide(false)
	c.fill(50)
	c.readAll(first, 50)
	next, err := topology.WeighCache(c.now, "c1", 3)
	if err != nil {
		t.Fatal(err)
	}
	was := c.now
	c.now = next
	second := c.newSide(false) // knows only the later one; nobody brings the shards to it
	c.await("the sidecar knows the topology that the shards are at", func() bool { return second.topology.At(was.Epoch) != nil })
	c.await("it has heard of both shards", func() bool {
		for _, sh := range c.shards {
			if v, _ := second.fleet.Confirmation(sh.Name).View(); v.Epoch != was.Epoch {
				return false
			}
		}
		return true
	})
	loads := c.count("ringside_cache_loads_total")
	c.readAll(second, 50)
	if n := c.count("ringside_cache_loads_total") - loads; n != 0 {
		t.Errorf("%d of 50 rows were loaded", n)
	}
	if _, err := second.Write(t.Context(), keyspace.Op{Kind: keyspace.Increment, Key: c.key(7), Column: "version", Delta: 1}); err != nil {
		t.Error(err)
	}
	row := first.read(t.Context(), []keyspace.Key{c.key(7)})[0]
	if v, err := versionOf(row.Body); err != nil || v != 1 {
		t.Errorf("version %d, %v after a write through the other sidecar", v, err)
	}
}

// A write whose cleaning took so long that entries may be in further places cleans what its shard's view has added since.
func TestALateWriteCleansWhatTheViewHasAdded(t *testing.T) {
	c := newRowCluster(t, 2)
	s := c.newSide(true)
	c.fill(200)
	before := c.now
	next, err := topology.WeighCache(c.now, "c1", 3)
	c.change(next, err)
	var k keyspace.Key
	for id := 1; ; id++ {
		if k = c.key(id); before.CacheOf(k.CacheVnode) != next.CacheOf(k.CacheVnode) {
			break
		}
	}
	name := next.Shards[next.ShardOf(k.ShardKey, k.ShardVnode)].Name
	c.settle()
	// As if its commit had been sent before the change.
	late := &rowWrite{rows: s.rows, op: keyspace.Op{Key: k}, sent: time.Now().Add(-time.Minute)}
	view := shard.View{Epoch: before.Epoch, Phase: shard.Done}
	copies := before.Copies(view, k.CacheVnode, k.ShardVnode)
	done := cleaned(before, &copies, &k)

	if row := s.read(t.Context(), []keyspace.Key{k})[0]; row.Err != nil {
		t.Fatal(row.Err)
	}
	p, err := s.locate(&k, "")
	if err != nil {
		t.Fatal(err)
	}
	there := func() bool {
		n, err := c.client(p.ref.Server).Exists(t.Context(), p.ref.Name).Result()
		if err != nil {
			t.Fatal(err)
		}
		return n == 1
	}
	if !there() {
		t.Fatal("the row is not cached in its new place")
	}
	if err := late.guard(t.Context(), name, done); err != nil || there() {
		t.Errorf("guard: %v; the entry in the new place is still there: %v", err, there())
	}
	// In time there is nothing to ask.
	s.read(t.Context(), []keyspace.Key{k})
	late.sent = time.Now()
	if err := late.guard(t.Context(), name, done); err != nil || !there() {
		t.Errorf("guard: %v; the entry in the new place is gone: %v", err, !there())
	}
	// A shard that does not say leaves the outcome unknown.
	late.sent = time.Now().Add(-time.Minute)
	if err := late.guard(t.Context(), "s9", done); answer(err) == nil {
		t.Error("a late write was acknowledged although its shard could not be asked")
	}
}
