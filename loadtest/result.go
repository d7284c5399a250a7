package loadtest

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Report is everything that was measured: one result for each target, under the same plan.
type Report struct {
	Title      string    `json:"title"`
	Began      time.Time `json:"began"`
	Machine    string    `json:"machine"`
	LoadBefore string    `json:"load_before"` // load averages of the system: what else was going on
	LoadAfter  string    `json:"load_after"`
	Plan       Plan      `json:"plan"`
	Results    []*Result `json:"results"`
}

// Violations is how many reads of ringside returned an older value than they may, or lost one.
func (r *Report) Violations() uint64 {
	var n uint64
	for _, x := range r.Results {
		if x.Judged {
			n += x.Check.Stale
			if !r.Plan.Text {
				n += x.Check.Lost
			}
		}
	}
	return n
}

// Undone is the first event that could not be carried out; empty if there is none.
func (r *Report) Undone() string {
	for _, x := range r.Results {
		for _, e := range x.Events {
			if e.Error != "" {
				return fmt.Sprintf("%s: event %s", x.Name, e)
			}
		}
	}
	return ""
}

// Unanswered says that one target answered no request at all; empty if there is none such: figures of such a load mean nothing.
func (r *Report) Unanswered() string {
	for _, x := range r.Results {
		if x.Requests > 0 && x.Failed == x.Requests {
			return fmt.Sprintf("%s answered none of %d requests: is it what the load is for, and is it up?", x.Name, x.Requests)
		}
	}
	return ""
}

// Result is what one target made of the load.
type Result struct {
	Name     string            `json:"name"`
	Judged   bool              `json:"judged"` // a violation makes the whole run fail
	Requests uint64            `json:"requests"`
	Reads    uint64            `json:"reads"`
	Writes   uint64            `json:"writes"`
	Failed   uint64            `json:"failed"`
	Errors   map[string]uint64 `json:"errors"` // by kind
	Rate     float64           `json:"rate"`   // requests answered without error, a second
	All      Latency           `json:"latency"`
	Read     Latency           `json:"read_latency"`
	Write    Latency           `json:"write_latency"`
	// HitRatio is -1 where it is not known, ShardReads too.
	HitRatio       float64      `json:"hit_ratio"`
	HitsFrom       string       `json:"hits_from"`
	ShardReads     float64      `json:"shard_reads"`
	ShardReadsFrom string       `json:"shard_reads_from"`
	TargetMicros   float64      `json:"target_cpu_us_per_request"` // processor time of the target's own processes; 0: not known
	Check          Check        `json:"check"`
	Generator      Cost         `json:"generator"`
	Notes          []string     `json:"notes,omitempty"`
	Events         []Occurrence `json:"events"`
	Seconds        []Second     `json:"seconds"`
}

// Latency in microseconds, from when a request was due. Requests that failed do not count, but for those that were waited for in vain.
type Latency struct {
	Count uint64  `json:"count"`
	Mean  float64 `json:"mean_us"`
	P50   int64   `json:"p50_us"`
	P90   int64   `json:"p90_us"`
	P99   int64   `json:"p99_us"`
	P999  int64   `json:"p999_us"`
	Max   int64   `json:"max_us"`
}

func latencyOf(h *hdrhistogram.Histogram) Latency {
	return Latency{
		Count: uint64(h.TotalCount()), Mean: h.Mean(), P50: h.ValueAtQuantile(50), P90: h.ValueAtQuantile(90), P99: h.ValueAtQuantile(99),
		P999: h.ValueAtQuantile(99.9), Max: h.Max(),
	}
}

// Second is what became of the requests that were due in one second, and what the target's counts rose by meanwhile.
type Second struct {
	At          int               `json:"at"` // seconds since the start
	Requests    uint64            `json:"requests"`
	Failed      uint64            `json:"failed"`
	Errors      map[string]uint64 `json:"errors,omitempty"`
	P50         int64             `json:"p50_us"`
	P99         int64             `json:"p99_us"`
	P999        int64             `json:"p999_us"`
	Max         int64             `json:"max_us"`
	HitRatio    float64           `json:"hit_ratio"`   // -1: not known
	ShardReads  float64           `json:"shard_reads"` // -1: not known
	ShardWrites float64           `json:"shard_writes"`
}

// Occurrence is an event that was due during a load.
type Occurrence struct {
	Name  string        `json:"name"`
	At    time.Duration `json:"at_ns"`    // when it was begun
	Until time.Duration `json:"until_ns"` // when it was carried out, or had failed
	Error string        `json:"error,omitempty"`
}

// Check is what was found out about the values that were read.
type Check struct {
	Reads    uint64      `json:"reads"` // checked
	Stale    uint64      `json:"stale"` // older than a value whose write had been acknowledged before the read was sent
	Lost     uint64      `json:"lost"`  // nothing, where a write had been acknowledged
	Back     uint64      `json:"back"`  // older than what another read had shown, of a write that was not acknowledged: allowed
	Barred   uint64      `json:"barred"`
	Examples []Violation `json:"examples,omitempty"`
}

func (l *ledger) check() Check {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Check{l.read.Load(), l.stale.Load(), l.lost.Load(), l.back.Load(), l.bars.Load(), l.examples}
}

// Cost is what the generator itself took.
type Cost struct {
	Cores   float64 `json:"cores"`  // processors that it kept busy
	Micros  float64 `json:"cpu_us"` // processor time for each request
	Lag     Latency `json:"lag"`    // from when requests were due until they were sent: part of their latency
	Seconds float64 `json:"took_s"` // the load, with the wait for the last replies
}

func cost(own, took time.Duration, requests uint64, lag *hdrhistogram.Histogram) Cost {
	return Cost{
		Cores: own.Seconds() / took.Seconds(), Micros: float64(own.Microseconds()) / float64(max(requests, 1)),
		Lag: latencyOf(lag), Seconds: took.Seconds(),
	}
}

func (v Violation) String() string {
	read := "nothing"
	if v.Found {
		read = fmt.Sprintf("version %d", v.Read)
	}
	return fmt.Sprintf("%s: %s read from %s at %.3f s, although version %d had been acknowledged", v.Key, read, v.From, v.At.Seconds(), v.Acked)
}
