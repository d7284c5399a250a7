package origin

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringside/internal/realpg"
	"ringside/shard"
	"ringside/shard/keyspace"
)

// slowTable makes every write of a row take 40 ms on the shard.
const slowTable = usersTable + `; insert into users select n, 'u' from generate_series(1, 64) n;
create function dawdle() returns trigger language plpgsql as 'begin perform pg_sleep(0.04); return new; end';
create trigger dawdle before update on users for each row execute function dawdle()`

// storm offers so many writes a second for a while, whether they are served or not. It returns how many were, how many were shed, and the longest that it took
// to say so.
func (f *fixture) storm(keys []keyspace.Key, rate int, lasting time.Duration) (served, shed int64, slowest time.Duration) {
	var ok, no, worst atomic.Int64
	var callers sync.WaitGroup
	begun := time.Now()
	for n := 0; time.Since(begun) < lasting; n++ {
		if ahead := time.Duration(n)*time.Second/time.Duration(rate) - time.Since(begun); ahead > 0 {
			time.Sleep(ahead)
		}
		op := upsert(f.t, keys[n%len(keys)], `{"name":"v"}`)
		callers.Go(func() {
			came := time.Now()
			_, err := f.Write(context.Background(), "s1", at, op, nil)
			switch {
			case err == nil:
				ok.Add(1)
			case errors.Is(err, shard.ErrOverloaded):
				no.Add(1)
				for took, seen := int64(time.Since(came)), worst.Load(); took > seen && !worst.CompareAndSwap(seen, took); seen = worst.Load() {
				}
			default:
				f.t.Errorf("neither served nor shed: %v", err)
			}
		})
	}
	callers.Wait()
	return ok.Load(), no.Load(), time.Duration(worst.Load())
}

// Guards P6: beyond its capacity a shard goes on serving what it can, the rest is told so in time, and when the load ends all is well at once.
func TestOverloadCostsNoCapacity(t *testing.T) {
	f := newFixture(t, Config{QueueLimit: 64, QueueWait: 200 * time.Millisecond, WriteTimeout: plenty}, slowTable)
	f.SetLimit("s1", 5) // four for requests
	f.run()
	ks := users(t)
	var keys []keyspace.Key
	for n := range 64 {
		keys = append(keys, key(t, ks, fmt.Sprintf("user:%d", n+1)))
	}
	// What four callers, who ask one after the other, are served in a second is the capacity. It is as good as the machine is just now.
	capacity := func() float64 {
		var n atomic.Int64
		var callers sync.WaitGroup
		begun := time.Now()
		for i := range 4 {
			callers.Go(func() {
				for time.Since(begun) < time.Second {
					if _, err := f.Write(context.Background(), "s1", at, upsert(t, keys[i], `{"name":"v"}`), nil); err == nil {
						n.Add(1)
					}
				}
			})
		}
		callers.Wait()
		return float64(n.Load()) / time.Since(begun).Seconds()
	}
	const best = 100 // writes a second by four sessions, of 40 ms each: no machine does more
	for _, times := range []int{2, 5} {
		// What others do on this machine meanwhile can spoil a comparison, though not each time.
		for chance := 1; ; chance++ {
			before := capacity()
			begun := time.Now()
			served, shed, slowest := f.storm(keys, best*times, 1500*time.Millisecond)
			took := time.Since(begun)
			if err := f.Refuses("s1"); err != nil && f.Pools()[0].Waiting == 0 {
				t.Errorf("%d times: nobody waits any more, and yet: %v", times, err)
			}
			after := capacity()
			could := min(before, after) * took.Seconds()
			result := fmt.Sprintf("%d times the capacity (%.0f/s before, %.0f/s afterwards): %d served (%.0f%%) and %d shed, after %v at most", times, before, after, served, 100*float64(served)/could, shed, slowest)
			t.Log(result)
			if float64(served) >= 0.8*could && shed > 0 && slowest <= 3*time.Second && after >= before/3 {
				break
			}
			if chance == 6 {
				t.Error(result)
				break
			}
		}
	}
	if s := f.Pools()[0]; s.Waiting != 0 || !s.DownSince.IsZero() {
		t.Errorf("%+v", s)
	}
}

// Guards P6, P7: a shard that stands still costs another one nothing and this process no memory; saturation is not taken for down, and when it goes on it is used again.
func TestAShardThatStandsStillIsBounded(t *testing.T) {
	t.Parallel()
	still := realpg.Alone(t, nil)
	f := fixtureAt(t, still.DSN(), Config{QueueLimit: 64, ConnectTimeout: time.Second, LoadTimeout: 2 * time.Second, QueueWait: 500 * time.Millisecond}, usersTable, `insert into users values (1, 'a')`)
	other := newFixture(t, Config{}, usersTable, `insert into users values (1, 'a')`)
	f.run()
	other.run()
	keys := []keyspace.Key{key(t, users(t), "user:1")}
	load := func(f *fixture) (time.Duration, error) {
		begun := time.Now()
		_, _, err := f.Load(context.Background(), "s1", keys[0].Keyspace, keys)
		return time.Since(begun), err
	}
	eventually(t, "the shard is used", func() bool {
		_, err := load(f)
		return err == nil
	})
	if err := still.Pause(); err != nil {
		t.Fatal(err)
	}
	goroutines := runtime.NumGoroutine()
	var callers sync.WaitGroup
	var most atomic.Int64
	paused := time.Now()
	for time.Since(paused) < 5*time.Second {
		for range 50 {
			callers.Go(func() {
				if _, err := load(f); err == nil && time.Since(paused) < 4*time.Second {
					t.Error("served by a shard that stands still")
				}
			})
		}
		if took, err := load(other); err != nil || took > plenty/4 {
			t.Errorf("the other shard: %v after %v", err, took)
		}
		most.Store(max(most.Load(), int64(runtime.NumGoroutine()-goroutines)))
		time.Sleep(100 * time.Millisecond)
	}
	// Each call ends within a few seconds, by the queue or by the statement's time; there are never more than those of that time.
	if n := most.Load(); n > 2500 {
		t.Errorf("%d goroutines more than before", n)
	}
	if err := still.Resume(); err != nil {
		t.Fatal(err)
	}
	callers.Wait()
	eventually(t, "the shard is used again", func() bool {
		_, err := load(f)
		return err == nil
	})
}
