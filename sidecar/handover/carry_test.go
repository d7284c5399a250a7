package handover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"ringside/cache"
	"ringside/sidecar/topology"
)

// values are keys of every type, and what tells whether one is unchanged.
var values = map[string]struct {
	set func(db *redis.Client, key string) error
	get []any // command; the key comes second
}{
	"string": {func(db *redis.Client, k string) error { return db.Set(ctxb, k, "v\r\n\x00", 0).Err() }, []any{"GET"}},
	"empty":  {func(db *redis.Client, k string) error { return db.Set(ctxb, k, "", 0).Err() }, []any{"GET"}},
	"number": {func(db *redis.Client, k string) error { return db.IncrBy(ctxb, k, 42).Err() }, []any{"GET"}},
	"large": {func(db *redis.Client, k string) error {
		return db.Set(ctxb, k, bytes.Repeat([]byte("0123456789"), 500_000), 0).Err()
	}, []any{"GET"}},
	"list":      {func(db *redis.Client, k string) error { return db.RPush(ctxb, k, "a", "b", "a").Err() }, []any{"LRANGE", 0, -1}},
	"long list": {func(db *redis.Client, k string) error { return db.RPush(ctxb, k, numbers(5000)...).Err() }, []any{"LRANGE", 0, -1}},
	"set":       {func(db *redis.Client, k string) error { return db.SAdd(ctxb, k, "a", "b").Err() }, []any{"SISMEMBER", "b"}},
	"large set": {func(db *redis.Client, k string) error { return db.SAdd(ctxb, k, numbers(2000)...).Err() }, []any{"SCARD"}},
	"sorted set": {func(db *redis.Client, k string) error {
		return db.ZAdd(ctxb, k, redis.Z{Score: 1.5, Member: "a"}, redis.Z{Score: -2, Member: "b"}).Err()
	}, []any{"ZRANGE", 0, -1, "WITHSCORES"}},
	"hash":        {func(db *redis.Client, k string) error { return db.HSet(ctxb, k, "f", "v", "g", "").Err() }, []any{"HMGET", "f", "g", "none"}},
	"hyperloglog": {func(db *redis.Client, k string) error { return db.PFAdd(ctxb, k, numbers(3000)...).Err() }, []any{"PFCOUNT"}},
	"bitmap":      {func(db *redis.Client, k string) error { return db.SetBit(ctxb, k, 100_003, 1).Err() }, []any{"BITPOS", 1}},
	"geo": {func(db *redis.Client, k string) error {
		return db.GeoAdd(ctxb, k, &redis.GeoLocation{Name: "x", Longitude: 13.4, Latitude: 52.5}).Err()
	}, []any{"GEOHASH", "x"}},
	"stream": {func(db *redis.Client, k string) error {
		for i := range 3 {
			if err := db.XAdd(ctxb, &redis.XAddArgs{Stream: k, ID: fmt.Sprintf("1-%d", i+1), Values: []any{"f", i}}).Err(); err != nil {
				return err
			}
		}
		if err := db.XGroupCreate(ctxb, k, "g", "0").Err(); err != nil {
			return err
		}
		return db.XReadGroup(ctxb, &redis.XReadGroupArgs{Group: "g", Consumer: "me", Streams: []string{k, ">"}, Count: 2, Block: -1}).Err()
	}, []any{"XPENDING", "g"}},
}

func numbers(n int) []any {
	out := make([]any, n)
	for i := range out {
		out[i] = fmt.Sprintf("element-%d", i)
	}
	return out
}

func look(db *redis.Client, key string, command []any) string {
	args := append([]any{command[0], key}, command[1:]...)
	v, err := db.Do(ctxb, args...).Result()
	return fmt.Sprintf("%v %v", v, err)
}

// TestKeysOfAllTypesAreCarriedAsTheyAre guards H1, by Carry and by the driver, with names of any bytes.
func TestKeysOfAllTypesAreCarriedAsTheyAre(t *testing.T) {
	for _, how := range []string{"carry", "driver"} {
		t.Run(how, func(t *testing.T) {
			f := newFleet(t, 2, 3)
			old := map[string]string{} // key -> what it was
			commands := map[string][]any{}
			owner := map[string]string{}
			for kind, v := range values {
				for i := range 4 {
					key := fmt.Sprintf("%s \x00\xff\r\n%d", kind, i)
					_, at := f.where(key)
					f.must(v.set(f.db[at], key))
					old[key], commands[key], owner[key] = look(f.db[at], key, v.get), v.get, at
				}
			}
			f.join("c3")
			c := f.carrier(testConfig(), f.finish)
			moved := 0
			if how == "driver" {
				f.run(c)
				within(t, "the hand-overs end", func() bool { return len(f.current().Handovers) == 0 })
			} else {
				f.handed(c)
			}
			for key, was := range old {
				h, now := f.where(key)
				if h != nil {
					if err := c.Carry(ctxb, *h, now, []byte(key)); err != nil {
						t.Fatalf("%q: %v", key, err)
					}
				}
				if got := look(f.db[now], key, commands[key]); got != was {
					t.Errorf("%q is %.100q, was %.100q", key, got, was)
				}
				if now != owner[key] {
					moved++
					if n := f.db[owner[key]].Exists(ctxb, key).Val(); n != 0 {
						t.Errorf("%q is still on its former owner", key)
					}
				}
				if n := f.db[now].Exists(ctxb, topology.CarryPrefix+key).Val(); n != 0 {
					t.Errorf("%q: the lease is left", key)
				}
			}
			if moved < len(old)/10 {
				t.Errorf("only %d of %d keys moved", moved, len(old))
			}
		})
	}
}

// TestLivesAreKept guards H4.
func TestLivesAreKept(t *testing.T) {
	f := newFleet(t, 2, 3)
	f.join("c3")
	c := f.carrier(testConfig(), nil)
	f.handed(c)
	keys := f.moving("ttl:", 20)
	for i, key := range keys {
		h, to := f.where(key)
		life := time.Duration(i) * time.Minute
		if i == 1 {
			life = time.Millisecond
		}
		f.must(f.db[h.From].Set(ctxb, key, "v", life).Err())
		before := f.db[h.From].PExpireTime(ctxb, key).Val().Milliseconds()
		f.must(c.Carry(ctxb, *h, to, []byte(key)))
		after := f.db[to].PExpireTime(ctxb, key).Val().Milliseconds()
		switch {
		case i == 0 && after > 0:
			t.Errorf("a key without an end got one: %d", after)
		case i == 1 && f.db[to].Exists(ctxb, key).Val() == 1 && after > before:
			t.Error("an expired key lives on")
		case i > 1 && (after > before || after < before-30_000):
			t.Errorf("%s ended at %d, now %d", key, before, after)
		}
	}
}

// TestACarrierMayStopAnywhere guards H1 and H2 on real servers: one carrier stands still before a step, while another one carries the key and a client
// uses it, or the key expires, or is evicted; then it goes on.
func TestACarrierMayStopAnywhere(t *testing.T) {
	f := newFleet(t, 2, 3)
	f.join("c3")
	cfg := testConfig()
	cfg.LeaseTTL = 50 * time.Millisecond
	other := f.carrier(cfg, nil)
	f.handed(other)
	// settle is what an event loop does before a command.
	settle := func(h topology.Handover, to, key string) {
		if f.db[h.From].Exists(ctxb, key).Val() == 0 {
			f.must(f.db[to].Unlink(ctxb, topology.CarryPrefix+key).Err())
			return
		}
		f.must(other.Carry(ctxb, h, to, []byte(key)))
	}
	meanwhile := map[string]struct {
		do   func(h topology.Handover, to, key string)
		want string // on the new owner, in the end; empty: nothing
	}{
		"nothing": {func(topology.Handover, string, string) {}, "41"},
		"deleted": {func(h topology.Handover, to, key string) {
			settle(h, to, key)
			f.must(f.db[to].Del(ctxb, key).Err())
		}, ""},
		"set": {func(h topology.Handover, to, key string) {
			settle(h, to, key)
			f.must(f.db[to].Set(ctxb, key, "new", 0).Err())
		}, "new"},
		"incremented": {func(h topology.Handover, to, key string) {
			settle(h, to, key)
			f.must(f.db[to].Incr(ctxb, key).Err())
		}, "42"},
		"set and deleted": {func(h topology.Handover, to, key string) {
			settle(h, to, key)
			f.must(f.db[to].Set(ctxb, key, "new", 0).Err())
			settle(h, to, key)
			f.must(f.db[to].Del(ctxb, key).Err())
		}, ""},
		"evicted": {func(h topology.Handover, to, key string) {
			f.must(f.db[h.From].Del(ctxb, key).Err())
			settle(h, to, key)
			f.must(f.db[to].Del(ctxb, key).Err())
		}, ""},
		"expired": {func(h topology.Handover, to, key string) {
			f.must(f.db[h.From].PExpire(ctxb, key, time.Millisecond).Err())
			within(t, "it expires", func() bool { return f.db[h.From].Exists(ctxb, key).Val() == 0 })
			settle(h, to, key)
			f.must(f.db[to].Del(ctxb, key).Err())
		}, ""},
	}
	for name, m := range meanwhile {
		for at := opLease; at < opEnd; at++ {
			for _, ends := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s before %v, goes on: %v", name, at, ends), func(t *testing.T) {
					slow := f.carrier(cfg, nil)
					key := f.moving(t.Name(), 1)[0]
					h, to := f.where(key)
					f.must(f.db[h.From].Set(ctxb, key, "41", 0).Err())
					stands, goOn := make(chan struct{}), make(chan bool)
					var once sync.Once
					slow.hook = func(o op) bool {
						alive := true
						if o == at {
							once.Do(func() {
								close(stands)
								alive = <-goOn
							})
						}
						return alive
					}
					result := make(chan error, 1)
					go func() { result <- slow.Carry(ctxb, *h, to, []byte(key)) }()
					<-stands
					m.do(*h, to, key)
					goOn <- ends
					if err := <-result; (err == nil) != ends {
						t.Fatalf("the slow carrier: %v", err)
					}
					settle(*h, to, key)
					if got := f.db[to].Get(ctxb, key).Val(); got != m.want {
						t.Errorf("the key is %q, want %q", got, m.want)
					}
					if f.db[h.From].Exists(ctxb, key).Val() != 0 {
						t.Error("it is still on the former owner")
					}
				})
			}
		}
	}
}

// TestALateTopologyChangesNothing guards H3.
func TestALateTopologyChangesNothing(t *testing.T) {
	f := newFleet(t, 2, 3)
	f.join("c3")
	cfg := testConfig()
	cfg.LeaseTTL, cfg.CarryTimeout = 200*time.Millisecond, 1500*time.Millisecond
	c := f.carrier(cfg, nil)
	key := f.moving("late:", 1)[0]
	h, to := f.where(key)
	f.must(f.db[h.From].Set(ctxb, key, "v", 0).Err())
	for step, prepare := range map[string]func(){
		"not marked": func() {},
		"the source is of a later epoch": func() {
			f.handed(c)
			f.must(f.db[h.From].Set(ctxb, topology.MarkerName, fmt.Sprintf("%d %d:handed", h.Since+1, h.Since), 0).Err())
		},
		"the new owner is of a later epoch": func() {
			f.handed(c)
			f.must(f.db[to].Set(ctxb, topology.MarkerName, h.Since+1, 0).Err())
		},
		"only held": func() {
			f.handed(c)
			f.must(f.db[h.From].Set(ctxb, topology.MarkerName, fmt.Sprintf("%d %d:held", h.Since, h.Since), 0).Err())
		},
	} {
		for _, db := range f.db {
			f.must(db.Del(ctxb, topology.MarkerName).Err())
		}
		prepare()
		if err := c.Carry(ctxb, *h, to, []byte(key)); !errors.Is(err, errStale) {
			t.Errorf("%s: %v", step, err)
		}
		if f.db[h.From].Exists(ctxb, key).Val() != 1 || f.db[to].Exists(ctxb, key, topology.CarryPrefix+key).Val() != 0 {
			t.Errorf("%s: something was changed", step)
		}
	}
	// and it goes on by itself as soon as the marker says so
	result := make(chan error, 1)
	slow := f.carrier(testConfig(), nil)
	go func() { result <- slow.Carry(ctxb, *h, to, []byte(key)) }()
	time.Sleep(20 * time.Millisecond)
	for _, db := range f.db {
		f.must(db.Del(ctxb, topology.MarkerName).Err())
	}
	f.handed(c)
	if err := <-result; err != nil {
		t.Error(err)
	}
}

func TestWhatCannotBeCarried(t *testing.T) {
	f := newFleet(t, 2, 3)
	cfg := testConfig()
	cfg.MaxValue = 10_000
	c := f.carrier(cfg, nil)
	cfg.LeaseTTL, cfg.CarryTimeout = 100*time.Millisecond, 2*time.Second
	hasty := f.carrier(cfg, nil)
	f.join("c3")
	f.handed(c)
	keys := f.moving("x:", 4)
	h, to := f.where(keys[0])

	f.must(f.db[h.From].Set(ctxb, keys[0], strings.Repeat("x", 20_000), 0).Err())
	f.must(c.Carry(ctxb, *h, to, []byte(keys[0])))
	if f.db[h.From].Exists(ctxb, keys[0]).Val()+f.db[to].Exists(ctxb, keys[0]).Val() != 0 {
		t.Error("a key that is too big was not dropped")
	}

	if err := c.Carry(ctxb, *h, "c9", []byte(keys[0])); !errors.Is(err, ErrMoved) {
		t.Errorf("to an unknown server: %v", err)
	}
	gone := *h
	gone.Since = 1
	if err := c.Carry(ctxb, gone, to, []byte(keys[0])); !errors.Is(err, ErrMoved) {
		t.Errorf("a hand-over that is over: %v", err)
	}

	// somebody else's lease for too long
	h1, to1 := f.where(keys[1])
	f.must(f.db[h1.From].Set(ctxb, keys[1], "v", 0).Err())
	f.must(f.db[to1].Set(ctxb, topology.CarryPrefix+keys[1], "another", 0).Err())
	if err := hasty.Carry(ctxb, *h1, to1, []byte(keys[1])); !errors.Is(err, cache.ErrBusy) {
		t.Errorf("another's lease: %v", err)
	}
	ctx, cancel := context.WithTimeout(ctxb, 10*time.Millisecond)
	defer cancel()
	if err := c.Carry(ctx, *h1, to1, []byte(keys[1])); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("our own time is over: %v", err)
	}
	f.must(f.db[to1].Del(ctxb, topology.CarryPrefix+keys[1]).Err())

	// a new owner that is full
	f.must(f.db[to1].ConfigSet(ctxb, "maxmemory", "1").Err())
	var down *cache.ServerError
	if err := hasty.Carry(ctxb, *h1, to1, []byte(keys[1])); !errors.As(err, &down) || down.Server != to1 || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("a full server: %v", err)
	}
	f.must(f.db[to1].ConfigSet(ctxb, "maxmemory", "0").Err())
	if f.db[h1.From].Exists(ctxb, keys[1]).Val() != 1 {
		t.Error("the key is lost")
	}

	// scripts are forgotten
	for _, db := range f.db {
		f.must(db.ScriptFlush(ctxb).Err())
	}
	f.must(c.Carry(ctxb, *h1, to1, []byte(keys[1])))
	if f.db[to1].Get(ctxb, keys[1]).Val() != "v" {
		t.Error("not carried")
	}

	f.must(f.servers[h.From].Kill())
	if err := c.Carry(ctxb, *h, to, []byte(keys[0])); !errors.As(err, &down) || down.Server != h.From {
		t.Errorf("a dead source: %v", err)
	}
	f.must(f.servers[h.From].Restart(ctxb))
	var other *cache.IncarnationError
	if err := c.Carry(ctxb, *h, to, []byte(keys[0])); !errors.As(err, &other) {
		t.Errorf("a source that was started anew: %v", err)
	}
	c.Close()
	if err := c.Carry(ctxb, *h, to, []byte(keys[0])); err == nil {
		t.Error("a closed carrier carries")
	}
}

// TestManyCallersAreCarriedTogether: callers of one key share its outcome, and keys are carried in batches (H5).
func TestManyCallersAreCarriedTogether(t *testing.T) {
	f := newFleet(t, 2, 3)
	f.join("c3")
	a, b := f.carrier(testConfig(), nil), f.carrier(testConfig(), nil)
	f.handed(a)
	keys := f.moving("many:", 2000)
	for _, key := range keys {
		h, _ := f.where(key)
		f.must(f.db[h.From].Set(ctxb, key, key, 0).Err())
	}
	var wg sync.WaitGroup
	for _, c := range []*Carrier{a, b, a} {
		for _, key := range keys {
			wg.Go(func() {
				h, to := f.where(key)
				if err := c.Carry(ctxb, *h, to, []byte(key)); err != nil {
					t.Errorf("%s: %v", key, err)
				}
			})
		}
	}
	wg.Wait()
	for _, key := range keys {
		if _, to := f.where(key); f.db[to].Get(ctxb, key).Val() != key {
			t.Fatalf("%s is lost", key)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.queues) != 0 {
		t.Errorf("%d queues are left", len(a.queues))
	}
}
