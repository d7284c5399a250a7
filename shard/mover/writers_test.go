package mover

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"ringside/ring"
	"ringside/shard"
	"ringside/shard/keyspace"
)

// writers increment counters where the map says they are, as sidecars do, and read them now and then. They remember what was acknowledged.
type writers struct {
	r     *rig
	rows  int
	acked []atomic.Int64 // by id
	wait  sync.WaitGroup
	stop  context.CancelFunc
	sent  atomic.Int64
	lost  atomic.Int64 // answers: the increments may have been made
	worst atomic.Int64 // the longest that an increment took, in microseconds
}

func (r *rig) write(n, rows int) *writers {
	ctx, stop := context.WithCancel(context.Background())
	w := &writers{r: r, rows: rows, acked: make([]atomic.Int64, rows+1), stop: stop}
	for i := range n {
		w.wait.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for ctx.Err() == nil {
				_ = sleep(ctx, time.Duration(random.IntN(int(w.r.pause)+1)))
				id := 1 + random.IntN(w.rows)
				if random.IntN(4) == 0 {
					w.read(ctx, id)
				} else {
					w.increment(ctx, id)
				}
			}
		})
	}
	r.t.Cleanup(func() { stop(); w.wait.Wait() })
	return w
}

func (r *rig) key(id int) keyspace.Key {
	var k keyspace.Key
	if ok, err := r.set.Match(ring.NewHasher(), fmt.Appendf(nil, "counter:%d", id), &k); !ok || err != nil {
		r.t.Errorf("counter:%d is no key: %v", id, err)
	}
	return k.Clone()
}

// place is where the map says that a key is, and the view of that shard. The map may be of a while ago.
func (w *writers) place(now Ring, k *keyspace.Key) (string, shard.View) {
	name := now.Overrides[string(k.ShardKey)]
	if name == "" {
		name = now.Shards[now.Owners[k.ShardVnode]]
	}
	v, _ := w.r.fleet.Confirmation(name).View()
	return name, v
}

func (w *writers) increment(ctx context.Context, id int) {
	k := w.r.key(id)
	begun := time.Now()
	now := w.r.now()
	for ctx.Err() == nil {
		name, view := w.place(now, &k)
		out, err := w.r.fleet.Write(ctx, name, view, keyspace.Op{Key: k, Kind: keyspace.Increment, Column: "n", Delta: 1}, nil)
		switch {
		case err == nil:
			w.acked[id].Add(1)
			w.sent.Add(1)
			if out.Inserted {
				w.r.t.Errorf("counter %d was not where the map and the shard say", id)
			}
			for took := time.Since(begun).Microseconds(); ; {
				worst := w.worst.Load()
				if took <= worst || w.worst.CompareAndSwap(worst, took) {
					return
				}
			}
		case errors.Is(err, shard.ErrOutcomeUnknown):
			w.lost.Add(1)
			return
		}
		now = w.r.now()
		_ = sleep(ctx, 2*time.Millisecond)
	}
}

func (w *writers) read(ctx context.Context, id int) {
	k := w.r.key(id)
	now := w.r.now()
	for ctx.Err() == nil {
		floor := w.acked[id].Load()
		name, _ := w.place(now, &k)
		rows, _, err := w.r.fleet.Load(ctx, name, w.r.ks, []keyspace.Key{k})
		if err == nil && rows[0].Err == nil {
			var n int64
			if !rows[0].Found {
				w.r.t.Errorf("counter %d is missing on %s", id, name)
			} else if _, err := fmt.Sscanf(string(rows[0].Body), fmt.Sprintf(`{"id":%d,"n":%%d`, id), &n); err != nil {
				w.r.t.Errorf("%s: %v", rows[0].Body, err)
			} else if n < floor {
				w.r.t.Errorf("stale read of counter %d on %s: %d, %d was acknowledged", id, name, n, floor)
			}
			return
		}
		now = w.r.now()
		_ = sleep(ctx, time.Millisecond)
	}
}

// end stops the writers, and checks that what was acknowledged is there, on one shard.
func (w *writers) end() {
	w.r.t.Helper()
	w.stop()
	w.wait.Wait()
	var want int64
	for i := range w.acked {
		want += w.acked[i].Load()
	}
	var got, rows int64
	for name := range w.r.dsn {
		var n, c int64
		if err := w.r.sql[name].QueryRow(context.Background(), `select coalesce(sum(n), 0)::bigint, count(*) from counters`).Scan(&n, &c); err != nil {
			w.r.t.Fatal(err)
		}
		got, rows = got+n, rows+c
	}
	if got < want || got > want+w.lost.Load() || rows != int64(w.rows) {
		w.r.t.Errorf("the shards hold %d increments in %d rows, acknowledged were %d in %d, the answers of %d were lost", got, rows, want, w.rows, w.lost.Load())
	}
	if w.sent.Load() == 0 {
		w.r.t.Error("nothing was written")
	}
	w.r.t.Logf("%d increments; the longest took %v", w.sent.Load(), time.Duration(w.worst.Load())*time.Microsecond)
}
