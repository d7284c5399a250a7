package loadtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Target is what is loaded: servers that speak Redis's protocol, or clients of something else.
type Target struct {
	Name     string
	Addrs    []string // host:port; connections are spread over them evenly
	Password string
	// Client makes the i-th client of something else than Addrs. Each is used by one goroutine.
	Client      func(ctx context.Context, i int) (Client, error)
	MostClients int // 0: as many as the plan has connections
	// Warm prepares the keys, for instance so that the cache holds them. Nil: nothing.
	Warm   func(ctx context.Context) error
	Always bool // whatever the plan says of it
	// Sample asks for counts that only rise, once a second. Nil: what the answers say is counted.
	Sample func(ctx context.Context) Counts
	// CountFound counts a value as a hit and its absence as a miss.
	CountFound bool
	// HitsFrom and ShardReadsFrom say where the figures come from; "": there are none.
	HitsFrom, ShardReadsFrom string
	Notes                    []string // for the report
	// ProcessorTime is what the target's own processes have used so far. Nil: unknown.
	ProcessorTime func() (time.Duration, bool)
}

// Counts only rise: rows looked up, rows asked of the shards for that, rows written.
type Counts struct{ Reads, ShardReads, ShardWrites float64 }

func (c Counts) minus(o Counts) Counts {
	return Counts{c.Reads - o.Reads, c.ShardReads - o.ShardReads, c.ShardWrites - o.ShardWrites}
}

func (c Counts) plus(o Counts) Counts {
	return Counts{c.Reads + o.Reads, c.ShardReads + o.ShardReads, c.ShardWrites + o.ShardWrites}
}

// hits is the share of the reads that no shard was asked for; -1 if there were none. In a single second a shard may be asked for rows that were
// looked up before, so it is not less than 0.
func (c Counts) hits() float64 {
	if c.Reads <= 0 {
		return -1
	}
	return max(1-c.ShardReads/c.Reads, 0)
}

// Event is something that is done while the load runs.
type Event struct {
	At   time.Duration // since the start
	Name string
	Do   func(ctx context.Context) error
	Last bool // the load ends once it has been carried out
}

// eventLimit bounds how long events may go on after the load.
const eventLimit = 2 * time.Minute

// run is one load of one target.
type run struct {
	plan         Plan
	keys         Keys
	distribution distribution
	values       *values
	ledger       *ledger
	countFound   bool
	began        time.Time
	over         atomic.Bool // nothing more is sent, though the plan is not carried out
}

func (r *run) now() time.Duration { return time.Since(r.began) }

// Run loads the target and returns what came of it. say is told, once a second, what the last second was like; nil: nobody. Events run beside
// the load, each when it is due.
func Run(ctx context.Context, target Target, plan Plan, events []Event, say func(Second)) (*Result, error) {
	if err := plan.Validate(); err != nil {
		return nil, err
	}
	keys, err := ParseKeys(plan.Pattern, plan.Keys)
	if err != nil {
		return nil, err
	}
	r := &run{
		plan: plan, keys: keys, distribution: newDistribution(plan.Keys, plan.Zipf), values: newValues(plan, keys), ledger: newLedger(keys, time.Now()),
		countFound: target.CountFound, began: time.Now(),
	}
	if target.Warm != nil && (plan.Warm || target.Always) {
		if err := target.Warm(ctx); err != nil {
			return nil, fmt.Errorf("warming %s: %w", target.Name, err)
		}
	}
	g, err := r.generator(ctx, target)
	if err != nil {
		return nil, fmt.Errorf("loading %s: %w", target.Name, err)
	}
	defer g.close()
	return r.load(ctx, target, g, events, say)
}

// generator is what sends: workers on connections, or clients.
type generator interface {
	// load sends until the plan is carried out and every request has ended.
	load(ctx context.Context)
	recorders() []*recorder
	// lag is how late requests were sent. Only after load.
	lag() *hdrhistogram.Histogram
	close()
}

func (r *run) generator(ctx context.Context, target Target) (generator, error) {
	if target.Client != nil {
		return newCrew(ctx, r, target)
	}
	return newFleet(ctx, r, target)
}

// load runs the load itself, with events and a look at the counts every second.
func (r *run) load(ctx context.Context, target Target, g generator, events []Event, say func(Second)) (*Result, error) {
	keeper := newKeeper(ctx, r.plan, target, g.recorders(), say)
	used, own := usage(target), ownTime()
	r.began = time.Now()
	var beside sync.WaitGroup
	besideCtx, end := context.WithCancel(ctx)
	defer end()
	occurred := make([]Occurrence, len(events))
	for i, e := range events {
		beside.Go(func() {
			occurred[i] = r.occur(besideCtx, e)
			if e.Last {
				r.over.Store(true)
			}
		})
	}
	watched := make(chan struct{})
	watchCtx, unwatch := context.WithCancel(ctx)
	defer unwatch()
	go func() {
		defer close(watched)
		keeper.watch(watchCtx, r.began)
	}()
	g.load(ctx)
	took := r.now()
	own, now := ownTime()-own, usage(target)
	unwatch()
	<-watched
	late := time.AfterFunc(eventLimit, end)
	beside.Wait()
	late.Stop()
	if ctx.Err() != nil {
		return nil, errors.New("interrupted")
	}
	result := keeper.result(took)
	result.Events = occurred
	result.Check = r.ledger.check()
	result.Generator = cost(own, took, result.Requests, g.lag())
	if used.known && now.known && result.Requests > 0 {
		result.TargetMicros = float64((now.d - used.d).Microseconds()) / float64(result.Requests)
	}
	return result, nil
}

func (r *run) occur(ctx context.Context, e Event) Occurrence {
	o := Occurrence{Name: e.Name, At: e.At}
	timer := time.NewTimer(time.Until(r.began.Add(e.At)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		o.Error = "not done: the load had ended"
		return o
	case <-timer.C:
	}
	o.At = r.now()
	if err := e.Do(ctx); err != nil {
		o.Error = err.Error()
	}
	o.Until = r.now()
	return o
}

// known is a processor time, if it is known.
type known struct {
	d     time.Duration
	known bool
}

func usage(t Target) known {
	if t.ProcessorTime == nil {
		return known{}
	}
	d, ok := t.ProcessorTime()
	return known{d, ok}
}

// ownTime is the processor time of this process.
func ownTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// fleet is workers on connections.
type fleet struct {
	run     *run
	workers []*worker
	conns   []*conn
}

// perWorker is what one worker can send, with room to spare.
const perWorker = 30_000

func newFleet(ctx context.Context, r *run, target Target) (*fleet, error) {
	if len(target.Addrs) == 0 {
		return nil, errors.New("there is no address to load")
	}
	n := min(1+int(r.plan.Rate/perWorker), runtime.NumCPU(), r.plan.Connections)
	f := &fleet{run: r}
	for i := range n {
		random := rand.New(rand.NewPCG(r.plan.Seed, uint64(i)))
		f.workers = append(f.workers, &worker{
			drawer: drawer{r, random}, lag: newHistogram(fineDigits), rec: newRecorder(r.plan),
			arrivals: newArrivals(r.plan.schedule(), n, i, r.plan.Poisson, random),
		})
	}
	reached := map[string]bool{}
	for i := range r.plan.Connections {
		w := f.workers[i/len(target.Addrs)%n]
		c := newConn(r, target.Addrs[i%len(target.Addrs)], target.Password, w.rec)
		if err := c.dial(ctx); err != nil {
			if !reached[c.addr] {
				f.close()
				return nil, fmt.Errorf("no connection to %s: %w", c.addr, err)
			}
		}
		reached[c.addr] = true
		w.conns, f.conns = append(w.conns, c), append(f.conns, c)
	}
	for _, w := range f.workers {
		if len(w.conns) == 0 {
			w.conns = f.conns
		}
	}
	return f, nil
}

func (f *fleet) recorders() []*recorder {
	var list []*recorder
	for _, w := range f.workers {
		list = append(list, w.rec)
	}
	return list
}

func (f *fleet) load(ctx context.Context) {
	var serving, working sync.WaitGroup
	serve, end := context.WithCancel(ctx)
	defer serving.Wait()
	defer end()
	for _, c := range f.conns {
		serving.Go(func() { c.serve(serve) })
	}
	for _, w := range f.workers {
		working.Go(func() { w.work(ctx) })
	}
	working.Wait()
	for ctx.Err() == nil { // what is on its way ends, or its time does
		owed := 0
		for _, c := range f.conns {
			c.sweep(f.run.now())
			owed += c.owed()
		}
		if owed == 0 {
			return
		}
		pause(longestPause)
	}
}

func (f *fleet) lag() *hdrhistogram.Histogram {
	all := newHistogram(fineDigits)
	for _, w := range f.workers {
		merge(all, w.lag)
	}
	return all
}

func (f *fleet) close() {
	for _, c := range f.conns {
		if c.nc != nil {
			_ = c.nc.Close() // nothing is on its way any more
		}
	}
}
