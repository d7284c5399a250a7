package cache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"ringside/internal/realredis"
)

// The race windows, explored: readers and writers whose steps are the product's own, run one at a time against a real server in every
// order (or in many random ones where there are too many). Guards P3.

// world is one run.
type world struct {
	s     *sidecar
	db    *redis.Client
	ref   Ref
	reg   *row
	acked int // the highest acknowledged version
	seen  int // the highest version that a finished read returned
	stale string
}

// actor is a sequence of steps; next does one, and says whether it was the last.
type actor interface {
	next(w *world) (done bool)
}

// judge checks what a read returned. A read is stale if it is older than what was acknowledged, or was returned to anyone, before it began.
func (w *world) judge(who string, version, floor int) {
	if version < floor && w.stale == "" {
		w.stale = fmt.Sprintf("%s returned version %d, %d was known when it began", who, version, floor)
	}
	w.seen = max(w.seen, version)
}

func (w *world) floor(monotone bool) int {
	if monotone {
		return max(w.acked, w.seen)
	}
	return w.acked
}

// aReader asks, loads and fills, a step at a time.
type aReader struct {
	monotone bool
	pc       int
	floor    int
	f        *flight
	loaded   Loaded
}

func (r *aReader) next(w *world) bool {
	item := Item{Ref: w.ref, TTL: time.Minute}
	switch r.pc++; r.pc {
	case 1:
		r.floor = w.floor(r.monotone)
		r.f = &flight{ref: w.ref, lead: waiter{call: &call{items: []Item{item}}}}
		w.s.ask(ctxb, []*flight{r.f})
		r.f.asked.waited = true
		switch onAsk(r.f.asked) {
		case actServe:
			r.finish(w, "a hit", version(Body(r.f.reply)))
			return true
		case actBypass:
			r.f.lease = nil
		}
	case 2:
		r.loaded = w.reg.load()
		if r.f.lease == nil {
			r.finish(w, "a load past the cache", version(r.loaded.Body))
			return true
		}
	case 3:
		e := end{flight: r.f, ending: onLoaded(true, r.loaded, true, false), loaded: r.loaded}
		w.s.end(ctxb, []end{e})
		r.finish(w, "a load", version(r.loaded.Body))
		return true
	}
	return false
}

func (r *aReader) finish(w *world, who string, version int) {
	w.s.servers.release(r.f.srv)
	w.judge(who, version, r.floor)
}

// aRefresher claims the entry, loads and puts, a step at a time. What it found is a reader's business.
type aRefresher struct {
	pc     int
	r      *refreshing
	loaded Loaded
}

func (a *aRefresher) next(w *world) bool {
	switch a.pc++; a.pc {
	case 1:
		srv, err := w.s.servers.of(w.ref)
		if err != nil {
			panic(err)
		}
		a.r = &refreshing{c: w.s.Cache, srv: srv, item: Item{Ref: w.ref, TTL: time.Minute}}
		if !a.r.claim(ctxb) {
			w.s.servers.release(srv)
			return true
		}
	case 2:
		a.loaded = w.reg.load()
	case 3:
		a.r.renew(ctxb, onLoaded(true, a.loaded, true, false), a.loaded)
		w.s.servers.release(a.r.srv)
		return true
	}
	return false
}

// aDegradedReader cannot reach the cache server and loads.
type aDegradedReader struct{}

func (aDegradedReader) next(w *world) bool {
	w.judge("a degraded read", version(w.reg.load().Body), w.floor(true))
	return true
}

// aWriter poisons, commits, cleans and acknowledges. With crash it dies before it cleans.
type aWriter struct {
	crash bool
	pc    int
	w     *write
	ver   int
}

func (a *aWriter) next(w *world) bool {
	switch a.pc++; a.pc {
	case 1:
		a.w = w.s.newWrite(ctxb, []Ref{w.ref})
		a.w.poison()
	case 2:
		a.ver = w.reg.commit()
		if a.crash {
			a.w.close()
			return true
		}
	case 3:
		a.w.clean()
		a.w.close()
		w.acked = max(w.acked, a.ver)
		return true
	}
	return false
}

// aLoss is an eviction.
type aLoss struct{}

func (aLoss) next(w *world) bool { w.db.Del(ctxb, w.ref.Name); return true }

func version(body []byte) (v int) {
	fmt.Sscan(string(body), &v)
	return v
}

// run lets the actors take the steps that the order says (indexes of actors; steps left over are skipped). When all have ended, what is
// committed is what is read, acknowledged or not: a writer that died leaves poison, not an older value.
func (w *world) run(warm bool, actors []actor, order []int) {
	*w = world{s: w.s, db: w.db, ref: w.ref, reg: new(row)}
	w.db.Del(ctxb, w.ref.Name)
	if warm {
		w.finish(&aReader{})
	}
	done := make([]bool, len(actors))
	for _, i := range order {
		if !done[i] {
			done[i] = actors[i].next(w)
		}
	}
	w.acked = w.reg.version
	for range 2 {
		w.finish(&aReader{monotone: true})
	}
}

func (w *world) finish(a actor) {
	for !a.next(w) {
	}
}

// orders returns all orders of the given numbers of steps, or limit random ones if there are more.
func orders(limit int, seed uint64, steps ...int) [][]int {
	var all [][]int
	var grow func(prefix []int, left []int)
	grow = func(prefix, left []int) {
		last := true
		for i, n := range left {
			if n > 0 && len(all) <= limit {
				last = false
				less := slices.Clone(left)
				less[i]--
				grow(append(prefix, i), less)
			}
		}
		if last && len(all) <= limit {
			all = append(all, slices.Clone(prefix))
		}
	}
	if grow(nil, steps); len(all) <= limit {
		return all
	}
	var deck []int
	for i, n := range steps {
		deck = append(deck, slices.Repeat([]int{i}, n)...)
	}
	rnd := rand.New(rand.NewPCG(seed, 0))
	for i := range all[:limit] {
		all[i] = slices.Clone(deck)
		rnd.Shuffle(len(deck), func(a, b int) { all[i][a], all[i][b] = all[i][b], all[i][a] })
	}
	return all[:limit]
}

// explore runs a scenario in its orders until a read is stale, and returns that run.
func (w *world) explore(warm bool, limit int, steps []int, make func() []actor) (stale string, runs int) {
	for i, order := range orders(limit, 1, steps...) {
		w.run(warm, make(), order)
		if w.stale != "" {
			return fmt.Sprintf("%s, in order %v", w.stale, order), i + 1
		}
		runs = i + 1
	}
	return "", runs
}

type scenario struct {
	name  string
	steps []int
	make  func() []actor
}

// scenarios: an eviction breaks only what was never acknowledged, so there the reads are not monotone.
var scenarios = []scenario{
	{"two readers, a writer, a degraded reader", []int{3, 3, 3, 1}, func() []actor {
		return []actor{&aReader{monotone: true}, &aReader{monotone: true}, new(aWriter), aDegradedReader{}}
	}},
	{"a reader, two writers, a degraded reader", []int{3, 3, 3, 1}, func() []actor {
		return []actor{&aReader{monotone: true}, new(aWriter), new(aWriter), aDegradedReader{}}
	}},
	{"a reader, a writer, two evictions", []int{3, 3, 1, 1}, func() []actor {
		return []actor{new(aReader), new(aWriter), aLoss{}, aLoss{}}
	}},
	{"two readers, a writer that dies after its commit, a degraded reader", []int{3, 3, 2, 1}, func() []actor {
		return []actor{&aReader{monotone: true}, &aReader{monotone: true}, &aWriter{crash: true}, aDegradedReader{}}
	}},
	{"a writer that dies, another one, a reader", []int{2, 3, 3}, func() []actor {
		return []actor{&aWriter{crash: true}, new(aWriter), &aReader{monotone: true}}
	}},
	{"two writers that die, another one, a reader", []int{2, 2, 3, 3}, func() []actor {
		return []actor{&aWriter{crash: true}, &aWriter{crash: true}, new(aWriter), &aReader{monotone: true}}
	}},
	{"two refreshers, a writer, a reader", []int{3, 3, 3, 3}, func() []actor {
		return []actor{new(aRefresher), new(aRefresher), new(aWriter), &aReader{monotone: true}}
	}},
	{"a refresher, a writer, a reader, an eviction", []int{3, 3, 3, 1}, func() []actor {
		return []actor{new(aRefresher), new(aWriter), new(aReader), aLoss{}}
	}},
}

func newWorld(t *testing.T) *world {
	r := realredis.T(t)
	cfg := testConfig()
	cfg.SoftTTL = 1e-9 // all that is cached may be refreshed
	return &world{s: newSidecar(t, cfg, r), db: admin(t, r), ref: Ref{Server: "c1", Name: "rs:1.0:k"}}
}

func TestNoOrderOfStepsIsStale(t *testing.T) {
	w := newWorld(t)
	for _, sc := range scenarios {
		for _, warm := range []bool{false, true} {
			stale, runs := w.explore(warm, 200, sc.steps, sc.make)
			t.Logf("%s, warm %v: %d orders", sc.name, warm, runs)
			if stale != "" {
				t.Errorf("%s, warm %v: %s", sc.name, warm, stale)
			}
		}
	}
}

// TestEachRuleIsNeeded switches one rule off at a time: the same exploration must then find a stale read.
func TestEachRuleIsNeeded(t *testing.T) {
	for _, tc := range []struct {
		rule string
		scenario
		off func(s *sidecar)
	}{
		{"lease", scenarios[0], func(s *sidecar) { // fill whatever is there
			s.scripts.fill = newScript(`redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) return 1`)
		}},
		{"poison", scenarios[0], func(s *sidecar) {
			s.tap("c1", func(cmd redis.Cmder) bool { return stepOf(s.Cache, cmd) == "poison" })
		}},
		{"clean", scenarios[2], func(s *sidecar) { s.scripts.clean = newScript(`return 1`) }},
		{"clean takes leases", scenarios[1], func(s *sidecar) {
			s.scripts.clean = newScript(`
if string.sub(redis.call('GET', KEYS[1]) or '', 1, 1) == 'L' then return 1 end
return redis.call('DEL', KEYS[1])`)
		}},
		{"poison stays beside ours", scenarios[4], func(s *sidecar) { s.scripts.poison = newScript(onePoison) }},
		{"clean keeps other writers' poison", scenarios[4], func(s *sidecar) {
			s.scripts.clean = newScript(`return redis.call('DEL', KEYS[1])`)
		}},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			w := newWorld(t)
			tc.off(w.s)
			stale, runs := w.explore(false, 2000, tc.steps, tc.make)
			if stale == "" {
				t.Fatalf("no stale read was found in %d orders", runs)
			}
			t.Logf("%s, order %d: %s", tc.name, runs, stale)
		})
	}
}

// TestARefreshNeedsItsClaim: what is put in place of any value, and not of that which was claimed, may be older than it.
func TestARefreshNeedsItsClaim(t *testing.T) {
	w := newWorld(t)
	w.s.scripts.renew = newScript(`
if string.sub(redis.call('GET', KEYS[1]) or '', 1, 1) ~= 'V' then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1`)
	sc := scenarios[len(scenarios)-2]
	stale, runs := w.explore(true, 2000, sc.steps, sc.make)
	if stale == "" {
		t.Fatalf("no stale read was found in %d orders", runs)
	}
	t.Logf("%s, order %d: %s", sc.name, runs, stale)
}
