package loadtest

import (
	"context"
	"maps"
	"slices"
	"time"
)

// keeper turns what the recorders count into a line for each second, and looks at the target's counts.
type keeper struct {
	plan      Plan
	target    Target
	recorders []*recorder
	say       func(Second)

	ended   []Second       // seconds of which every request has ended
	counts  map[int]Counts // what rose in each second
	last    Counts
	first   Counts
	sampled int // seconds whose counts are known
}

// settleTime is how long after its second a request may still be heard of, beyond its time limit.
const settleTime = 5 * time.Second

func newKeeper(ctx context.Context, plan Plan, target Target, recorders []*recorder, say func(Second)) *keeper {
	k := &keeper{plan: plan, target: target, recorders: recorders, say: say, counts: map[int]Counts{}}
	if target.Sample != nil {
		k.first = target.Sample(ctx)
		k.last = k.first
	}
	return k
}

// watch looks at the end of every second until ctx ends.
func (k *keeper) watch(ctx context.Context, began time.Time) {
	for n := 0; ; n++ {
		timer := time.NewTimer(time.Until(began.Add(time.Duration(n+1) * time.Second)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		k.sample(ctx, n)
		k.fold(n - int((k.plan.Timeout+settleTime)/time.Second))
		if k.say != nil && time.Duration(n)*time.Second < k.plan.Duration {
			s := newSecond()
			for _, r := range k.recorders {
				r.look(n, s)
			}
			k.say(k.line(n, s))
		}
	}
}

func (k *keeper) sample(ctx context.Context, n int) {
	if k.target.Sample == nil {
		return
	}
	now := k.target.Sample(ctx)
	if ctx.Err() != nil {
		return
	}
	k.counts[n], k.last, k.sampled = now.minus(k.last), now, n+1
}

// fold makes lines of all seconds before n and forgets their histograms.
func (k *keeper) fold(n int) {
	all := map[int]*second{}
	for _, r := range k.recorders {
		for i, s := range r.take(n) {
			if all[i] == nil {
				all[i] = newSecond()
			}
			all[i].add(s)
		}
	}
	for _, i := range slices.Sorted(maps.Keys(all)) {
		if i < len(k.ended) { // heard of even later: its percentiles stand already
			k.ended[i].Requests += all[i].requests
			for kind, n := range all[i].errors {
				k.ended[i].Errors[kind] += n
				k.ended[i].Failed += n
			}
			continue
		}
		for len(k.ended) < i {
			k.ended = append(k.ended, k.line(len(k.ended), newSecond()))
		}
		k.ended = append(k.ended, k.line(i, all[i]))
	}
}

// line of one second.
func (k *keeper) line(n int, s *second) Second {
	l := Second{At: n, Requests: s.requests, Errors: s.errors, HitRatio: -1, ShardReads: -1}
	for _, n := range s.errors {
		l.Failed += n
	}
	if s.took.TotalCount() > 0 {
		l.P50, l.P99, l.P999, l.Max = s.took.ValueAtQuantile(50), s.took.ValueAtQuantile(99), s.took.ValueAtQuantile(99.9), s.took.Max()
	}
	if k.target.Sample == nil {
		if k.target.HitsFrom != "" {
			l.HitRatio = ratio(float64(s.hits), float64(s.misses))
		}
		if k.target.ShardReadsFrom != "" {
			l.ShardReads = float64(s.shardReads)
		}
		return l
	}
	if c, sampled := k.counts[n]; sampled {
		l.HitRatio, l.ShardReads, l.ShardWrites = c.hits(), c.ShardReads, c.ShardWrites
	}
	return l
}

// ratio of hits, -1 if nothing was looked up.
func ratio(hits, misses float64) float64 {
	if hits+misses <= 0 {
		return -1
	}
	return hits / (hits + misses)
}

// result sums up. It comes once the load has ended; took is how long that was.
func (k *keeper) result(took time.Duration) *Result {
	k.fold(int(took/time.Second) + 2)
	if k.target.Sample != nil {
		now := k.target.Sample(context.Background())
		if c := now.minus(k.last); k.sampled < len(k.ended) { // the last second, which nobody has looked at the end of
			k.ended[k.sampled].HitRatio, k.ended[k.sampled].ShardReads, k.ended[k.sampled].ShardWrites = c.hits(), c.ShardReads, c.ShardWrites
		}
		k.last = now
	}
	r := &Result{
		Name: k.target.Name, Errors: map[string]uint64{}, HitRatio: -1, ShardReads: -1, HitsFrom: k.target.HitsFrom,
		ShardReadsFrom: k.target.ShardReadsFrom, Notes: k.target.Notes, Seconds: k.ended,
	}
	reads, writes := newHistogram(fineDigits), newHistogram(fineDigits)
	var hits, misses, shardReads uint64
	for _, c := range k.recorders {
		merge(reads, c.reads)
		merge(writes, c.writes)
		r.Reads += c.sent.reads
		r.Writes += c.sent.writes
		hits, misses, shardReads = hits+c.sent.hits, misses+c.sent.misses, shardReads+c.sent.shardReads
	}
	r.Requests = r.Reads + r.Writes
	for _, s := range k.ended {
		r.Failed += s.Failed
		for kind, n := range s.Errors {
			r.Errors[kind] += n
		}
	}
	r.Read, r.Write = latencyOf(reads), latencyOf(writes)
	merge(reads, writes)
	r.All = latencyOf(reads)
	r.Rate = float64(r.Requests-r.Failed) / max(took, k.plan.Duration).Seconds()
	if k.target.Sample != nil {
		c := k.last.minus(k.first)
		r.HitRatio, r.ShardReads = c.hits(), c.ShardReads
		return r
	}
	if k.target.HitsFrom != "" {
		r.HitRatio = ratio(float64(hits), float64(misses))
	}
	if k.target.ShardReadsFrom != "" {
		r.ShardReads = float64(shardReads)
	}
	return r
}
