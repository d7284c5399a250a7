package sidecar

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringside/cache"
	"ringside/ring"
	"ringside/shard/keyspace"
	"ringside/shard/origin"
	"ringside/sidecar/admin"
)

// verifier compares cached rows with the shards: the check, from outside the protocol, that the protocol holds. It changes nothing.
type verifier struct {
	rows      *rows
	servers   *cache.Servers
	keyspaces *keyspace.Set
	grace     time.Duration // a difference that is gone by then was a deletion under way
	met       *verifyMetrics
	log       *slog.Logger
}

const (
	// verifyGrace is how long a changed row's entry may stay: no longer than a shard's changes may lag before it is degraded.
	verifyGrace = 2 * time.Second
	// verifyBatch is how many entries are compared at once.
	verifyBatch = 64
	// scanWithin bounds going through the names of entries.
	scanWithin = 15 * time.Second
)

type verifyMetrics struct {
	verified, stale prometheus.Counter
	age             prometheus.Histogram
}

func newVerifyMetrics(reg prometheus.Registerer) *verifyMetrics {
	m := &verifyMetrics{
		verified: prometheus.NewCounter(prometheus.CounterOpts{Name: "ringside_verified_entries_total",
			Help: "Cached rows that were compared with their shards."}),
		stale: prometheus.NewCounter(prometheus.CounterOpts{Name: "ringside_stale_reads_total",
			Help: "Cached rows that were found to be stale, and would have been read."}),
		age: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "ringside_staleness_seconds",
			Help: "Age of stale cached rows when they were found, since they were cached.", Buckets: []float64{1, 2, 5, 10, 30, 60, 300, 600, 3600, 86400},
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
		}),
	}
	reg.MustRegister(m.verified, m.stale, m.age)
	return m
}

// finding is what the comparison of one entry has come to.
type finding uint8

const (
	unchecked   finding = iota // the shard or the cache server did not say
	superseded                 // nobody reads the entry
	overwritten                // it was written, or ended, meanwhile
	fresh
	absentOK // there is no such row, as the entry says
	differs
)

// specimen is an entry that is looked at.
type specimen struct {
	server, runID, name string

	key    keyspace.Key
	place  place
	before []byte
	found  finding
	fault  error
	row    origin.Row
}

// judge compares an entry, a value or an absence as it was before and after its row was read from the shard, with that row. Pure.
func judge(before, after []byte, row origin.Row) finding {
	kind := cache.Kind(before)
	switch {
	case row.Err != nil:
		return unchecked
	case kind == cache.KindValue && row.Found && bytes.Equal(cache.Body(before), row.Body):
		return fresh
	case kind == cache.KindAbsent && !row.Found:
		return absentOK
	case !bytes.Equal(before, after):
		return overwritten
	}
	return differs
}

// look compares entries once. The specimens' results are in them.
func (v *verifier) look(ctx context.Context, specimens []*specimen) {
	hasher := ring.NewHasher()
	var counting []*specimen
	for _, p := range specimens {
		p.found, p.fault = superseded, nil
		_, _, key, ok := cache.ParseName(p.name)
		if !ok {
			continue
		}
		var k keyspace.Key
		if isRow, err := v.keyspaces.Match(hasher, []byte(key), &k); err != nil || !isRow {
			continue
		}
		where, err := v.rows.locate(&k, "")
		if err != nil || where.ref.Server != p.server || where.ref.Name != p.name {
			continue
		}
		p.key, p.place, p.found = k, where, unchecked
		counting = append(counting, p)
	}
	before, faults := v.entries(ctx, counting)
	var open []*specimen
	for i, p := range counting {
		p.before, p.fault = before[i], faults[i]
		switch kind := cache.Kind(p.before); {
		case p.fault != nil:
		case kind == cache.KindValue, kind == cache.KindAbsent:
			open = append(open, p)
		default:
			p.found = overwritten
		}
	}
	v.load(ctx, open)
	after, faults := v.entries(ctx, open)
	for i, p := range open {
		if p.fault == nil {
			p.fault = faults[i]
		}
		if p.fault == nil {
			p.found, p.fault = judge(p.before, after[i], p.row), p.row.Err
		}
	}
}

// entries reads the entries of specimens, those of one server together.
func (v *verifier) entries(ctx context.Context, specimens []*specimen) ([][]byte, []error) {
	out, faults := make([][]byte, len(specimens)), make([]error, len(specimens))
	type process struct{ server, runID string }
	of := map[process][]int{}
	for i, p := range specimens {
		of[process{p.server, p.runID}] = append(of[process{p.server, p.runID}], i)
	}
	for at, members := range of {
		names := make([]string, len(members))
		for m, i := range members {
			names[m] = specimens[i].name
		}
		got, err := v.servers.Entries(ctx, at.server, at.runID, names)
		for m, i := range members {
			if err != nil {
				faults[i] = err
			} else {
				out[i] = got[m]
			}
		}
	}
	return out, faults
}

// load reads the rows of specimens from their shards.
func (v *verifier) load(ctx context.Context, specimens []*specimen) {
	type batch struct {
		shard string
		ks    *keyspace.Keyspace
	}
	of := map[batch][]*specimen{}
	for _, p := range specimens {
		b := batch{p.place.shard, p.key.Keyspace}
		of[b] = append(of[b], p)
	}
	for b, members := range of {
		keys := make([]keyspace.Key, len(members))
		for i, p := range members {
			keys[i] = p.key
		}
		found, _, err := v.rows.fleet.LoadSpare(ctx, b.shard, b.ks, keys)
		for i, p := range members {
			if p.fault = err; err == nil {
				p.row = found[i]
			}
		}
	}
}

// compare looks at entries, at most verifyBatch, and at those that differ once more after a while: an entry that has not changed in all that time, and
// differs from its row both times, is stale. What is stale is counted and told.
func (v *verifier) compare(ctx context.Context, specimens []*specimen) {
	v.look(ctx, specimens)
	var suspects []*specimen
	was := map[*specimen][]byte{}
	for _, p := range specimens {
		if p.found == differs {
			suspects, was[p] = append(suspects, p), p.before
		}
	}
	if len(suspects) > 0 {
		timer := time.NewTimer(v.grace)
		select {
		case <-timer.C:
			v.look(ctx, suspects)
		case <-ctx.Done():
			for _, p := range suspects {
				p.found, p.fault = unchecked, ctx.Err()
			}
		}
		timer.Stop()
	}
	for _, p := range specimens {
		if p.found == differs && !bytes.Equal(p.before, was[p]) {
			p.found = overwritten
		}
		switch p.found {
		case differs:
			v.met.stale.Inc()
			v.met.age.Observe(p.age().Seconds())
			v.log.Error("a cached row is stale", "server", p.server, "entry", p.name, "shard", p.place.shard, "age", p.age())
			fallthrough // it was compared too
		case fresh, absentOK:
			v.met.verified.Inc()
		}
		if p.found != differs {
			p.before, p.row = nil, origin.Row{} // there may be ten thousand
		}
	}
}

// age is how long ago the entry was cached.
func (p *specimen) age() time.Duration {
	e, err := cache.Decode(p.before)
	if err != nil {
		return 0 // only values and absences are asked
	}
	return max(time.Since(e.WrittenAt), 0)
}

// what says in a word how a stale entry is wrong.
func (p *specimen) what() string {
	switch {
	case cache.Kind(p.before) == cache.KindAbsent:
		return "cached_absent"
	case !p.row.Found:
		return "cached_row"
	}
	return "differs"
}

// verify implements admin.Deps: it looks at sample entries, chosen at random of all that there are.
func (v *verifier) verify(ctx context.Context, sample int) admin.Verification {
	begun := time.Now()
	out := admin.Verification{Epoch: v.rows.topology.Current().Epoch}
	specimens := v.sample(ctx, sample, &out)
	for batch := range slices.Chunk(specimens, verifyBatch) {
		if ctx.Err() == nil {
			v.compare(ctx, batch)
		}
	}
	for _, p := range specimens {
		count(&out, p)
		if p.fault != nil {
			addFault(&out, p.fault)
		}
	}
	if ctx.Err() != nil {
		addFault(&out, ctx.Err())
	}
	out.TookMS = time.Since(begun).Milliseconds()
	return out
}

func count(out *admin.Verification, p *specimen) {
	switch p.found {
	case superseded:
		out.Superseded++
	case overwritten:
		out.Changed++
	case fresh:
		out.Fresh++
	case absentOK:
		out.Absent++
	case differs:
		out.Stale++
		if len(out.Entries) < admin.MaxStaleShown {
			out.Entries = append(out.Entries, admin.StaleEntry{
				Key: string(p.key.Text), Cache: p.server, Shard: p.place.shard, Entry: p.name, AgeMS: p.age().Milliseconds(), What: p.what(),
			})
		}
	default:
		out.Unchecked++
	}
	out.Checked = out.Fresh + out.Absent + out.Stale
}

// maxFaults bounds how many different ones are told.
const maxFaults = 10

func addFault(out *admin.Verification, err error) {
	if text := err.Error(); len(out.Faults) < maxFaults && !slices.Contains(out.Faults, text) {
		out.Faults = append(out.Faults, text)
	}
}

// sample goes through the names of all entries and keeps n of them, each with the same chance.
func (v *verifier) sample(ctx context.Context, n int, out *admin.Verification) []*specimen {
	ctx, cancel := context.WithTimeout(ctx, scanWithin)
	defer cancel()
	var kept []*specimen
	out.Complete = true
	t := v.rows.topology.Current()
	for i := range t.Caches {
		c := &t.Caches[i]
		if c.RunID == "" {
			continue // nobody reads there
		}
		for cursor := uint64(0); ; {
			names, next, err := v.servers.Scan(ctx, c.Name, c.RunID, cursor)
			if err != nil {
				addFault(out, err)
				out.Complete = false
				break
			}
			for _, name := range names {
				if _, _, _, ok := cache.ParseName(name); !ok {
					continue
				}
				out.Seen++
				p := &specimen{server: c.Name, runID: c.RunID, name: name}
				if len(kept) < n {
					kept = append(kept, p)
				} else if at := rand.IntN(out.Seen); at < n {
					kept[at] = p
				}
			}
			if cursor = next; cursor == 0 {
				break
			}
		}
	}
	return kept
}
