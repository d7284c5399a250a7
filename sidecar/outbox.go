package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringside/cache"
	"ringside/internal/failpoint"
	"ringside/shard/keyspace"
	"ringside/shard/origin"
)

// outbox makes writes possible while a cached copy of the row cannot be put out of reach (consistency: bounded). Such a write is remembered by
// its shard in the same transaction, and from then on the shard withholds the row: whoever is told its view is told that too, and reads the row
// from the shard. The write is acknowledged when the copy has been deleted, by whichever sidecar can, or when everybody has been told: after twice
// viewTTL, as a phase of a change of the ring, nobody can be using the cache who has not. So promise P3 holds as it does for other writes. What is
// remembered survives the sidecar that wrote it; any other one sees to it.
type outbox struct {
	rows *rows
	rank func() int // this sidecar's place among those that live, from 0
	log  *slog.Logger
	met  *outboxMetrics

	mu    sync.Mutex // guards the following
	works map[string]*outboxWork
}

// outboxWork is what is known of the work on one shard's outbox here.
type outboxWork struct {
	busy     bool
	failures int
	next     time.Time // not before
}

const (
	outboxLook = 25 * time.Millisecond // between two looks at what is remembered; without a question to anybody
	// outboxApart: rows are left to the sidecars before this one, in the order of their names, for so long each, so that not all do the same at once.
	outboxApart   = 100 * time.Millisecond
	outboxTurns   = 20 // those further behind do not wait longer
	outboxBatch   = 256
	outboxRetry   = 100 * time.Millisecond // after a failure, doubled at each further one
	outboxMost    = 2 * time.Second
	outboxTimeout = 3 * time.Second // of one batch
)

var errStranded = errors.New("the ring is changing and leaves a copy that nobody can reach")

type outboxMetrics struct {
	cleaned, failed prometheus.Counter
	waits           *prometheus.CounterVec // end
}

func newOutboxMetrics(reg prometheus.Registerer) *outboxMetrics {
	m := &outboxMetrics{
		cleaned: prometheus.NewCounter(prometheus.CounterOpts{Name: "ringside_outbox_cleaned_total",
			Help: "Rows of outboxes whose cached copies this sidecar has deleted."}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{Name: "ringside_outbox_failures_total",
			Help: "Times that this sidecar could not delete all cached copies of rows of an outbox; they are tried again."}),
		waits: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ringside_outbox_waits_total",
			Help: "Remembered writes that were acknowledged, by what ended their wait: the copies were gone (clean), or everybody knew (time)."}, []string{"end"}),
	}
	for _, end := range []string{"clean", "time"} {
		m.waits.WithLabelValues(end) // from 0, so that the first one is seen as an increase
	}
	reg.MustRegister(m.cleaned, m.failed, m.waits)
	return m
}

// remembered is what a write's transaction has come to. unpoisoned says why it was to be remembered; nil: it was not.
func remembered(err, unpoisoned error) error {
	switch {
	case unpoisoned == nil:
		return err
	case err == nil:
		return cache.ErrRemembered
	}
	if server, ok := errors.AsType[*cache.ServerError](unpoisoned); ok && errors.Is(err, origin.ErrOutboxFull) {
		return &cache.ServerError{Server: server.Server, Err: fmt.Errorf("%w; and %w", server.Err, err)}
	}
	return err
}

// takes reports whether a write that ended with err is the outbox's to end, and ends it: it may be acknowledged then. Besides writes that are
// remembered already these are those that were committed and could not be cleaned.
func (o *outbox) takes(ctx context.Context, name string, k *keyspace.Key, err error) bool {
	ctx = context.WithoutCancel(ctx) // it is committed
	if _, unclean := errors.AsType[*cache.CleanError](err); unclean {
		if err := o.rows.fleet.Remember(ctx, name, k); err != nil {
			o.log.Warn("a write whose cached copies are left could not be remembered", "shard", name, "error", err)
			return false
		}
	} else if !errors.Is(err, cache.ErrRemembered) {
		return false
	}
	since := time.Now()
	failpoint.At(failpoint.Remembered)
	o.await(name, k.CacheVnode, since)
	return true
}

// await returns when a row that was remembered before since is not withheld any more, or everybody knows that it is.
func (o *outbox) await(name string, vnode uint16, since time.Time) {
	confirmation := o.rows.fleet.Confirmation(name)
	tick := time.NewTicker(outboxLook)
	defer tick.Stop()
	for {
		withheld, asked := confirmation.Withheld()
		switch {
		case asked.After(since) && !withheld.Has(vnode):
			o.met.waits.WithLabelValues("clean").Inc()
			return
		case time.Since(since) >= holdFor(o.rows.viewTTL):
			o.met.waits.WithLabelValues("time").Inc()
			return
		}
		o.rows.fleet.Poke(name)
		<-tick.C
	}
}

// run sees to the outboxes until ctx ends.
func (o *outbox) run(ctx context.Context) error {
	var workers sync.WaitGroup
	defer workers.Wait()
	tick := time.NewTicker(outboxLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		t := o.rows.topology.Current()
		if t == nil {
			continue
		}
		for i := range t.Shards {
			name := t.Shards[i].Name
			if withheld, _ := o.rows.fleet.Confirmation(name).Withheld(); withheld.Len() > 0 && o.begin(name) {
				workers.Go(func() { o.end(name, o.batch(ctx, name)) })
			}
		}
	}
}

// begin reports whether it is time to work on a shard's outbox, and nobody does.
func (o *outbox) begin(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := o.works[name]
	if w == nil {
		w = &outboxWork{}
		o.works[name] = w
	}
	if w.busy || time.Now().Before(w.next) {
		return false
	}
	w.busy = true
	return true
}

// end notes what a batch has come to.
func (o *outbox) end(name string, b outboxDone) {
	if b.err != nil {
		o.met.failed.Inc()
		o.log.Debug("cached copies of remembered rows are left", "shard", name, "error", b.err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	w := o.works[name]
	w.busy = false
	if b.err == nil || b.gone > 0 {
		w.failures = 0
	}
	w.next = time.Now().Add(pauseAfter(b, w.failures, o.turn()))
	if b.err != nil {
		w.failures++
	}
}

// turn is how long a row must have been remembered before this sidecar sees to it.
func (o *outbox) turn() time.Duration { return outboxApart * time.Duration(min(o.rank(), outboxTurns)) }

// outboxDone is what a batch has come to.
type outboxDone struct {
	found, gone int
	err         error
}

// pauseAfter decides how long a sidecar leaves an outbox alone after a batch, and failures before it: not at all while there is more that it can do.
func pauseAfter(b outboxDone, failures int, turn time.Duration) time.Duration {
	switch {
	case b.err != nil:
		return min(outboxRetry<<min(failures, 10), outboxMost)
	case b.found == 0:
		return turn + outboxApart
	}
	return 0
}

// batch deletes the cached copies of some rows, and has the shard forget those that are gone.
func (o *outbox) batch(ctx context.Context, name string) (b outboxDone) {
	ctx, cancel := context.WithTimeout(ctx, outboxTimeout)
	defer cancel()
	list, err := o.rows.fleet.Outbox(ctx, name, o.turn(), outboxBatch)
	if err != nil || len(list) == 0 {
		return outboxDone{err: err}
	}
	b.found = len(list)
	// What places the row is remembered with it. This sidecar need not have its keyspace: while a configuration is rolled out, not all do.
	keys := make([]keyspace.Key, len(list))
	for i, r := range list {
		keys[i] = keyspace.Key{Text: r.Key, CacheVnode: r.CacheVnode, ShardVnode: r.ShardVnode}
	}
	var gone []int64
	var done []bool
	done, b.err = o.rows.deleteCopies(ctx, name, keys)
	for i, ok := range done {
		if ok {
			gone = append(gone, list[i].ID)
		} else if b.err == nil {
			b.err = errStranded
		}
	}
	if len(gone) == 0 {
		return b
	}
	failpoint.At(failpoint.Settling)
	if err := o.rows.fleet.Settled(ctx, name, gone); err != nil {
		b.err = err
		return b
	}
	failpoint.At(failpoint.Settled)
	b.gone = len(gone)
	o.met.cleaned.Add(float64(len(gone)))
	o.rows.fleet.Poke(name)
	return b
}
