package cache

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"ringside/shard"
)

func TestOnAsk(t *testing.T) {
	for _, tc := range []struct {
		why  string
		met  asked
		want action
	}{
		{"a miss, and the lease is ours", asked{missing: true}, actFill},
		{"a miss after waiting: the other's lease was voided or expired", asked{missing: true, waited: true}, actFill},
		{"a hit", asked{kind: KindValue}, actServe},
		{"a negative hit", asked{kind: KindAbsent}, actServe},
		{"the fill came at the last moment", asked{kind: KindValue, waited: true}, actServe},
		{"somebody loads: one load per miss", asked{kind: KindLease}, actWait},
		{"the loader is slow or dead", asked{kind: KindLease, waited: true}, actBypass},
		{"a writer is at work: its row may be committed at any moment", asked{kind: KindPoison}, actBypass},
		{"after a lease was waited for", asked{kind: KindPoison, waited: true}, actBypass},
		{"not of this format", asked{kind: KindMalformed}, actDiscard},
		{"again not of this format", asked{kind: KindMalformed, discarded: true}, actBypass},
		{"no time left to clean", asked{kind: KindMalformed, waited: true}, actBypass},
		{"the server could not be asked; a lease of ours may be there or come late, and is not used", asked{failed: true}, actBypass},
		{"no server", asked{uncachable: true}, actBypass},
	} {
		if got := onAsk(tc.met); got != tc.want {
			t.Errorf("%s: %+v gives %d, want %d", tc.why, tc.met, got, tc.want)
		}
	}
}

func TestOnLoaded(t *testing.T) {
	found, absent := Loaded{Found: true, MayFill: true}, Loaded{MayFill: true}
	for _, tc := range []struct {
		why         string
		leased      bool
		loaded      Loaded
		caches, neg bool
		want        ending
	}{
		{"a row under our lease", true, found, true, true, endFill},
		{"no row under our lease", true, absent, true, true, endAbsent},
		{"absences are not cached", true, absent, true, false, endRelease},
		{"rows are not cached", true, found, false, true, endRelease},
		{"poison or another's lease was met", false, found, true, true, endNothing},
		{"the shard has another view than the ref", true, Loaded{Found: true}, true, true, endRelease},
		{"likewise for an absence", true, Loaded{}, true, true, endRelease},
		{"could not be loaded: the next reader tries at once", true, Loaded{Err: errors.New("down"), MayFill: true}, true, true, endRelease},
	} {
		if got := onLoaded(tc.leased, tc.loaded, tc.caches, tc.neg); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.why, got, tc.want)
		}
	}
}

func TestProves(t *testing.T) {
	ok := Loaded{Found: true, MayFill: true}
	for _, tc := range []struct {
		why   string
		e     ending
		there bool
		l     Loaded
		want  bool
	}{
		{"filled", endFill, true, ok, true},
		{"given back, and it was there: no write came between", endRelease, true, ok, true},
		{"a write, an expiry or an eviction took the lease", endFill, false, ok, false},
		{"there was no lease", endNothing, true, ok, false},
		{"writers may be cleaning another name", endRelease, true, Loaded{Found: true}, false},
		{"nothing was loaded", endRelease, true, Loaded{Err: errors.New("down"), MayFill: true}, false},
	} {
		if got := proves(tc.e, tc.there, tc.l); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.why, got, tc.want)
		}
	}
}

func TestServes(t *testing.T) {
	for _, tc := range []struct {
		joined, asOf uint64
		want         bool
	}{
		{0, 1, true},  // started the flight; found by the first ask
		{1, 1, false}, // joined while that ask was under way
		{1, 2, true},  // joined during the ask, loaded by the second step
		{2, 2, false}, // joined during the load, which was not followed by a fill
		{2, 3, true},  // joined during the load, which was
		{3, 3, false}, // joined during the fill
	} {
		if got := serves(tc.joined, tc.asOf); got != tc.want {
			t.Errorf("serves(%d, %d) = %v", tc.joined, tc.asOf, got)
		}
	}
}

func TestOnCommit(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want aftermath
	}{
		{nil, afterClean},
		{&shard.DownError{Shard: "s1", Err: errors.New("refused")}, afterLift},
		{&ServerError{Server: "c1", Err: errors.New("refused")}, afterLift},
		{&shard.StaleViewError{Shard: "s1"}, afterLift},
		{ErrRemembered, afterTry},
		{shard.ErrOutcomeUnknown, afterLeave},
		{&shard.DownError{Shard: "s1", Err: fmt.Errorf("commit: %w", shard.ErrOutcomeUnknown)}, afterLeave},
	} {
		if got := onCommit(tc.err); got != tc.want {
			t.Errorf("%v: %d, want %d", tc.err, got, tc.want)
		}
	}
}

func TestGateLetsOneReadTryPerPause(t *testing.T) {
	g := gate{min: 10 * time.Millisecond, max: 40 * time.Millisecond}
	at := func(ms int) time.Time { return time.UnixMilli(int64(1000 + ms)) }
	pass := func(ms int, want bool) {
		t.Helper()
		if got := g.pass(at(ms)); got != want {
			t.Errorf("at %d ms: pass is %v", ms, got)
		}
	}
	pass(0, true)
	g.report(failed, at(0))
	g.report(failed, at(1)) // was under way at the same time: does not count twice
	pass(9, false)
	pass(10, true)
	pass(10, false) // the trial is out
	g.report(failed, at(11))
	pass(30, false)
	pass(31, true)
	g.report(unknown, at(32)) // all connections in use: no news
	pass(33, false)
	pass(51, true)
	g.report(failed, at(51))
	pass(90, false)
	pass(91, true)
	g.report(answered, at(92))
	pass(92, true)
	pass(92, true)
}

func TestConfigRelations(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Fatal(err)
	}
	if err := DefaultServersConfig().Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Config){
		"a lease shorter than a load":       func(c *Config) { c.LeaseTTL = c.LoadTimeout },
		"poison shorter than a transaction": func(c *Config) { c.PoisonTTL = c.WriteTimeout },
		"a read that ends before its load":  func(c *Config) { c.ReadTimeout = c.LoadTimeout },
		"no lease wait":                     func(c *Config) { c.LeaseWait = 0 },
		"a clean without a single try":      func(c *Config) { c.CleanTimeout = c.StepTimeout / 2 },
		"jitter of everything":              func(c *Config) { c.TTLJitter = 1 },
		"soft expiry past the end":          func(c *Config) { c.SoftTTL = 1.5 },
	} {
		c := DefaultConfig()
		change(&c)
		if c.Validate() == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestTheLifeOfWhatIsCarried(t *testing.T) {
	const ttl, negTTL = time.Minute, time.Second
	for _, c := range []struct {
		kind        EntryKind
		left        time.Duration
		ttl, negTTL time.Duration
		want        time.Duration
	}{
		{KindValue, 5 * time.Second, ttl, negTTL, 5 * time.Second},
		{KindValue, time.Hour, ttl, negTTL, ttl},
		{KindValue, -1, ttl, negTTL, ttl},
		{KindValue, 0, ttl, negTTL, 0},
		{KindValue, time.Microsecond, ttl, negTTL, 0},
		{KindValue, time.Second, 0, negTTL, 0},
		{KindAbsent, 5 * time.Second, ttl, negTTL, negTTL},
		{KindAbsent, time.Millisecond, ttl, negTTL, time.Millisecond},
		{KindAbsent, time.Second, ttl, 0, 0},
		{KindLease, time.Second, ttl, negTTL, 0},
		{KindPoison, time.Second, ttl, negTTL, 0},
		{KindMalformed, time.Second, ttl, negTTL, 0},
	} {
		if got := carriedLife(c.kind, c.left, c.ttl, c.negTTL); got != c.want {
			t.Errorf("%s with %v left, configured %v and %v: %v, want %v", c.kind, c.left, c.ttl, c.negTTL, got, c.want)
		}
	}
}
