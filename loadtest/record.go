package loadtest

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The histograms count microseconds up to a minute. The limit of a request's time is below that, so nothing is cut off.
const (
	longest      = time.Minute
	fineDigits   = 3
	coarseDigits = 2 // of a single second
)

func newHistogram(digits int) *hdrhistogram.Histogram {
	return hdrhistogram.New(1, longest.Microseconds(), digits)
}

// put counts a latency; what is longer than a minute counts as a minute.
func put(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(d, time.Microsecond), longest).Microseconds()) // in range
}

// merge adds b to a. Both have the same range, so nothing is dropped.
func merge(a, b *hdrhistogram.Histogram) { a.Merge(b) }

// second is what became of the requests that were due in one second; hits, misses and reads of shards count when they are known, as servers count.
type second struct {
	requests, hits, misses, shardReads uint64
	errors                             map[string]uint64
	took                               *hdrhistogram.Histogram
}

func newSecond() *second {
	return &second{errors: map[string]uint64{}, took: newHistogram(coarseDigits)}
}

func (s *second) add(o *second) {
	s.requests += o.requests
	s.hits += o.hits
	s.misses += o.misses
	s.shardReads += o.shardReads
	for kind, n := range o.errors {
		s.errors[kind] += n
	}
	merge(s.took, o.took)
}

// recorder counts what becomes of requests. Each worker has one, which its connections share.
type recorder struct {
	last          int        // second of the plan: what is known later counts in it
	mu            sync.Mutex // guards the following
	seconds       map[int]*second
	sent          sums
	reads, writes *hdrhistogram.Histogram
}

// sums of all seconds.
type sums struct{ reads, writes, hits, misses, shardReads uint64 }

func newRecorder(p Plan) *recorder {
	return &recorder{last: int((p.Duration - 1) / time.Second), seconds: map[int]*second{}, reads: newHistogram(fineDigits), writes: newHistogram(fineDigits)}
}

// outcome of one request.
type outcome struct {
	due        time.Duration // since the start
	took       time.Duration // since it was due
	write      bool
	failed     string // kind of error; "": none
	timed      bool   // its time counts although it failed: it was waited for in vain
	counted    bool   // whether hit and shardReads say anything
	hit        bool
	shardReads uint64
}

// at returns a second; mu must be held.
func (r *recorder) at(t time.Duration) *second {
	n := min(int(t/time.Second), r.last)
	s := r.seconds[n]
	if s == nil {
		s = newSecond()
		r.seconds[n] = s
	}
	return s
}

// add counts; mu must be held.
func (r *recorder) add(o outcome) {
	s := r.at(o.due)
	s.requests++
	all := r.reads
	if o.write {
		r.sent.writes++
		all = r.writes
	} else {
		r.sent.reads++
	}
	if o.counted && !o.write && o.failed == "" {
		known := r.at(o.due + o.took)
		known.shardReads += o.shardReads
		r.sent.shardReads += o.shardReads
		if o.hit {
			known.hits++
			r.sent.hits++
		} else {
			known.misses++
			r.sent.misses++
		}
	}
	if o.failed != "" {
		s.errors[o.failed]++
		if !o.timed {
			return
		}
	}
	put(s.took, o.took)
	put(all, o.took)
}

// one counts a single outcome.
func (r *recorder) one(o outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(o)
}

// take removes and returns what is known of all seconds before n.
func (r *recorder) take(n int) map[int]*second {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := map[int]*second{}
	for i, s := range r.seconds {
		if i < n {
			taken[i] = s
			delete(r.seconds, i)
		}
	}
	return taken
}

// look returns a copy of one second as it is known by now.
func (r *recorder) look(n int, into *second) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.seconds[n]; s != nil {
		into.add(s)
	}
}
