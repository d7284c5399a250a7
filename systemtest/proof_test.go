package systemtest

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ringside/internal/localcluster"
	"ringside/systemtest/history"
)

// proofConfig is what the sidecars of a proof have beyond localcluster's own. A sidecar that cannot ask a shard refuses to use the cache for its rows: by
// default it serves what is cached, since a shard that is down takes no writes; but here it is only the sidecar that is cut off, or was stopped.
// RINGSIDE_UNREACHABLE=serve shows what that costs.
//
// Half of the runs are with strict, in which a write that is under way is hidden from everybody, or shown to everybody, from its commit on. With bounded a
// reader may see it and the next one not yet, until it is acknowledged.
func proofConfig(strict bool) string {
	consistency := "bounded"
	if strict {
		consistency = "strict"
	}
	return "when_shard_unreachable: " + cmp.Or(os.Getenv("RINGSIDE_UNREACHABLE"), "refuse") + "\nverify_rate: 0\nconsistency: " + consistency + "\n"
}

// proofGoal is how long TestProof runs, and how much it checks at least; RINGSIDE_PROOF asks for more. On a machine that has much else to do it goes
// on for up to three times as long to get there.
func proofGoal(t *testing.T) (length time.Duration, reads, writes int64) {
	t.Helper()
	text := os.Getenv("RINGSIDE_PROOF")
	if text == "" {
		return 15 * time.Second, 5000, 200
	}
	length, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("RINGSIDE_PROOF: %v", err)
	}
	minutes := length.Minutes()
	return length, int64(200_000 * minutes), int64(10_000 * minutes)
}

func proofSeed(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano()) % 1_000_000
	if text := os.Getenv("RINGSIDE_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("RINGSIDE_SEED=%d (strict: %v)", seed, seed%2 == 0)
	return seed
}

// Guards P3, P4, P7 and P8 for any mixture of failures: clients read and write rows through three sidecars while Redis servers, PostgreSQL servers and
// sidecars are killed, paused and started again and the ring changes, each on a schedule of its own that RINGSIDE_SEED repeats. All that clients saw is
// recorded and compared, row by row, with what the shards say of the order of writes (package history). RINGSIDE_PROOF=10m is the long run.
func TestProof(t *testing.T) {
	length, reads, writes := proofGoal(t)
	seed := proofSeed(t)
	c, r := proofCluster(t, proofConfig(seed%2 == 0))
	p := newProof(t, c, r, 0)
	p.weak = seed%2 != 0
	p.run()
	s := &schedule{p: p, caches: c.Caches}
	s.start(seed, everyLane)
	reached := func() bool { return p.counted.reads.Load() >= reads && p.counted.acknowledged.Load() >= writes }
	for begun := time.Now(); !t.Failed(); {
		time.Sleep(min(length, 20*time.Second))
		p.report(p.check())
		if past := time.Since(begun); past > 3*length || past > length && reached() {
			break
		}
	}
	s.end()
	p.settle(length > time.Minute)
	p.end()
	if !t.Failed() {
		p.finalReads()
		p.report(p.check())
	}
	p.tell()
	for _, line := range s.happened() {
		t.Log(line)
	}
	if !reached() {
		t.Errorf("that is too little: %d reads and %d writes are wanted", reads, writes)
	}
}

// proofCluster starts a cluster whose sidecars can be made to fail from within.
func proofCluster(t *testing.T, config string) (*cluster, *rig) {
	t.Helper()
	program(t) // its commands are used
	r := newRig(t)
	c := own(t, func(o *localcluster.Options) {
		o.Binary, o.Env, o.Sidecars, o.Config = failing(t), r.env, 3, config
		o.Settings["track_commit_timestamp"] = "on"
	})
	noteWrites(t, c)
	return c, r
}

// report fails the test for what is wrong, and says what happened around it.
func (p *proof) report(found []history.Violation) {
	p.t.Helper()
	const most = 20
	for i, v := range found {
		if i == most {
			p.t.Errorf("and %d more", len(found)-most)
			break
		}
		p.t.Error(v)
	}
	if len(found) > 0 {
		p.t.Log(strings.Join(p.journal.around(found[0].Op.End), "\n"))
		p.t.Log(strings.Join(p.near(found[0]), "\n"))
	}
}

// near is what was done to the row about that time: reads that returned another value than the one before, and all writes.
func (p *proof) near(v history.Violation) []string {
	var all []history.Op
	for _, r := range p.rows {
		if r.key == v.Register {
			r.mu.Lock()
			all = slices.Clone(r.ops)
			r.mu.Unlock()
		}
	}
	slices.SortFunc(all, func(a, b history.Op) int { return cmp.Compare(a.End, b.End) })
	from := min(v.Op.Begin, cmp.Or(v.Because.Begin, v.Op.Begin)) - 2*time.Second
	out := []string{"the row:"}
	last := ""
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range all {
		if o.End < from || o.Begin > v.Op.End+time.Second {
			continue
		}
		line := "    " + o.String()
		switch {
		case !o.Write && o.Value == last:
			continue
		case !o.Write:
			last = o.Value
		case o.Outcome != history.Acknowledged:
			line += " not acknowledged: " + p.answers[o.Mark]
		}
		out = append(out, line)
	}
	return out
}

// tell logs what was seen.
func (p *proof) tell() {
	p.t.Helper()
	seconds := p.elapsed().Seconds()
	p.t.Logf("%d reads (%.0f/s), %d writes acknowledged (%.0f/s), %d of unknown outcome, %d refused", p.counted.reads.Load(), float64(p.counted.reads.Load())/seconds,
		p.counted.acknowledged.Load(), float64(p.counted.acknowledged.Load())/seconds, p.counted.unknown.Load(), p.counted.refused.Load())
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, code := range slices.Sorted(maps.Keys(p.codes)) {
		p.t.Logf("    %6d %s", p.codes[code], code)
	}
}

// lane is one kind of failure, which comes again and again, one at a time.
type lane struct {
	name string
	// rest is how long it rests on average between two.
	rest time.Duration
	// act lets one happen and be over. It returns what it was.
	act func(s *schedule, rnd *rand.Rand) (string, error)
}

// everyLane is the full schedule.
var everyLane = []lane{
	{"redis", 3 * time.Second, (*schedule).hurtRedis},
	{"shard", 4 * time.Second, (*schedule).hurtShard},
	{"sidecar", 4 * time.Second, (*schedule).hurtSidecar},
	{"dies", 2 * time.Second, (*schedule).dieAtPoint},
	{"waits", 2 * time.Second, (*schedule).waitAtPoint},
	{"path", 2 * time.Second, (*schedule).hurtPath},
	{"shard path", 3 * time.Second, (*schedule).hurtShardPath},
	{"gossip", 4 * time.Second, (*schedule).hurtGossip},
	{"ring", 2 * time.Second, (*schedule).changeRing},
	{"moves", 3 * time.Second, (*schedule).moveRows},
}

// entry is one thing that happened.
type entry struct {
	from, to time.Duration
	what     string
}

func (e entry) String() string {
	return fmt.Sprintf("    %v to %v: %s", e.from.Round(time.Millisecond), e.to.Round(time.Millisecond), e.what)
}
