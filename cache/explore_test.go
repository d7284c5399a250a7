package cache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"ringside/internal/realredis"
	"ringside/shard"
)

// storm is readers and writers of a few rows through several sidecars at a time, with pauses before and after every step, evictions,
// leases that expire, sidecars that cannot reach the server, writes of unknown outcome, and shards of another view. Guards P3.
type storm struct {
	sides  []*sidecar
	rows   [3]row
	acked  [3]atomic.Int64
	reads  atomic.Int64
	writes atomic.Int64
	stale  atomic.Pointer[string]
}

func newStorm(t *testing.T, r *realredis.Server, off func(s *sidecar)) *storm {
	cfg := testConfig()
	cfg.StepTimeout, cfg.LoadTimeout, cfg.LeaseTTL = 20*time.Millisecond, 10*time.Millisecond, 30*time.Millisecond
	cfg.LeaseWait = 6 * time.Millisecond
	cfg.SoftTTL = 1e-4 // what has been cached for a few milliseconds is refreshed at each hit
	st := new(storm)
	for range 3 {
		s := newSidecar(t, cfg, r)
		s.hook("c1", tap{
			before: func(redis.Cmder) bool { st.pause(); return false },
			after:  func(redis.Cmder) { st.pause() },
		})
		off(s)
		st.sides = append(st.sides, s)
	}
	return st
}

func (st *storm) pause() {
	switch rand.N(20) {
	case 0:
		time.Sleep(rand.N(8 * time.Millisecond))
	case 1, 2, 3:
		time.Sleep(rand.N(time.Millisecond))
	}
}

func (st *storm) ref(i int) Ref {
	server := "c1"
	if rand.N(20) == 0 {
		server = "c9" // cannot be reached
	}
	return Ref{Server: server, Name: fmt.Sprintf("rs:1.0:%d", i)}
}

func (st *storm) read(s *sidecar) {
	items := make([]Item, 1+rand.N(2)*rand.N(3))
	floors, rows := make([]int64, len(items)), make([]int, len(items))
	for i := range items {
		rows[i] = rand.N(len(st.rows))
		items[i] = Item{Ref: st.ref(rows[i]), TTL: time.Minute, NegTTL: time.Minute}
		floors[i] = st.acked[rows[i]].Load()
	}
	results := s.ReadMany(ctxb, items, func(_ context.Context, idx []int) ([]Loaded, error) {
		st.pause()
		out := make([]Loaded, len(idx))
		for n, i := range idx {
			out[n] = st.rows[rows[i]].load()
			out[n].MayFill = rand.N(20) > 0
		}
		st.pause()
		return out, nil
	})
	for i, r := range results {
		st.reads.Add(1)
		if v := int64(version(r.Body)); r.Err == nil && v < floors[i] {
			s := fmt.Sprintf("row %d: version %d (%s), %d was acknowledged before", rows[i], v, r.Source, floors[i])
			st.stale.Store(&s)
		}
	}
}

func (st *storm) write(s *sidecar) {
	i := rand.N(len(st.rows))
	var v int64
	err := s.Write(ctxb, []Ref{{Server: "c1", Name: fmt.Sprintf("rs:1.0:%d", i)}}, func(_ context.Context, poisoned func() error) error {
		if err := poisoned(); err != nil {
			return err
		}
		st.pause()
		switch rand.N(20) {
		case 0:
			return shard.ErrFrozen
		case 1:
			return shard.ErrOutcomeUnknown
		}
		v = int64(st.rows[i].commit())
		st.pause()
		if rand.N(20) == 0 {
			return shard.ErrOutcomeUnknown
		}
		return nil
	})
	if err != nil {
		return
	}
	st.writes.Add(1)
	for old := st.acked[i].Load(); old < v && !st.acked[i].CompareAndSwap(old, v); old = st.acked[i].Load() {
	}
}

// rage lets the storm run until a read is stale or enough has happened, for d at least, unless a minute and a half is over.
func (st *storm) rage(t *testing.T, db *redis.Client, d time.Duration, enough func() bool) {
	begun := time.Now()
	over := func() bool {
		took := time.Since(begun)
		return st.stale.Load() != nil || took > 90*time.Second || took > d && enough()
	}
	var wg sync.WaitGroup
	loop := func(pause time.Duration, what func()) {
		wg.Go(func() {
			for !over() {
				what()
				time.Sleep(rand.N(pause))
			}
		})
	}
	for _, s := range st.sides {
		for range 6 {
			loop(300*time.Microsecond, func() { st.read(s) })
		}
		loop(8*time.Millisecond, func() { st.write(s) })
	}
	loop(3*time.Millisecond, func() { db.Del(ctxb, fmt.Sprintf("rs:1.0:%d", rand.N(len(st.rows)))) })
	wg.Wait()
	t.Logf("%d reads, %d acknowledged writes", st.reads.Load(), st.writes.Load())
}

func TestNoStaleReadInAStorm(t *testing.T) {
	r := realredis.T(t)
	st := newStorm(t, r, func(*sidecar) {})
	enough := func() bool { return st.reads.Load() > 500 && st.writes.Load() > 50 }
	st.rage(t, admin(t, r), 2*time.Second, enough)
	if s := st.stale.Load(); s != nil {
		t.Error(*s)
	}
	if !enough() {
		t.Error("too little happened")
	}
}

// TestTheStormFindsStaleReads shows that the storm can fail: with one rule off it finds a stale read.
func TestTheStormFindsStaleReads(t *testing.T) {
	for rule, off := range map[string]func(s *sidecar){
		"lease": func(s *sidecar) {
			s.scripts.fill = newScript(`redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) return 1`)
		},
		"claim": func(s *sidecar) {
			s.scripts.renew = newScript(`redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) return 1`)
		},
		"clean":            func(s *sidecar) { s.scripts.clean = newScript(`return 1`) },
		"who may be given": func(s *sidecar) { s.serves = func(_, _ uint64) bool { return true } },
	} {
		t.Run(rule, func(t *testing.T) {
			r := realredis.T(t)
			st := newStorm(t, r, off)
			st.rage(t, admin(t, r), 0, func() bool { return false })
			if s := st.stale.Load(); s == nil {
				t.Error("no stale read was found")
			} else {
				t.Log(*s)
			}
		})
	}
}
