package sidecar

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"ringside/cache"
	"ringside/sidecar/topology"
)

// prober asks every cache server of the topology again and again how it is, those that are down or joining too, each on a goroutine and a
// connection of its own, so that a slow one delays nobody else's probes.
type prober struct {
	topology *topology.Holder
	watch    func(server string) watcher
	vote     func(names []string)   // tells the other sidecars
	changed  func() <-chan struct{} // closed at the next change of the topology
	news     func()                 // told when a server begins or ceases to be well, or another process was met
	log      *slog.Logger
	met      *healthMetrics

	mu       sync.Mutex    // guards the following
	patience time.Duration // how long a server may be silent
	records  map[string]*record
	stopped  bool
}

// watcher is a cache.Watcher; tests cut one off.
type watcher interface {
	Look(ctx context.Context) (cache.Health, error)
	Close()
}

type healthMetrics struct {
	up      *prometheus.GaugeVec
	votes   *prometheus.GaugeVec
	seconds *prometheus.HistogramVec
}

func newHealthMetrics(reg prometheus.Registerer) *healthMetrics {
	label := []string{"server"}
	m := &healthMetrics{
		up: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "ringside_cache_server_up",
			Help: "1 while this sidecar's own probes of a cache server go well."}, label),
		votes: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "ringside_cache_server_votes",
			Help: "Sidecars that vote against a cache server."}, label),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "ringside_cache_probe_seconds",
			Help:                        "Duration of this sidecar's probes of a cache server, failed ones included.",
			Buckets:                     []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .2, .4},
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
		}, label),
	}
	reg.MustRegister(m.up, m.votes, m.seconds)
	return m
}

func (m *healthMetrics) forget(server string) {
	m.up.DeleteLabelValues(server)
	m.votes.DeleteLabelValues(server)
	m.seconds.DeleteLabelValues(server)
}

// run probes until ctx ends.
func (p *prober) run(ctx context.Context) error {
	type watched struct {
		addr string
		stop context.CancelFunc
	}
	running := map[string]watched{}
	var group errgroup.Group
	for ctx.Err() == nil {
		changed := p.changed()
		t := p.topology.Current()
		present := map[string]bool{}
		for i := range t.Caches {
			c := &t.Caches[i]
			present[c.Name] = true
			w, ok := running[c.Name]
			if ok && w.addr == c.Addr {
				continue
			}
			if ok {
				w.stop() // another server of the same name
			}
			each, stop := context.WithCancel(ctx)
			running[c.Name] = watched{c.Addr, stop}
			r := p.begin(c.Name)
			group.Go(func() error {
				p.keep(each, c.Name, r)
				return nil
			})
		}
		for name, w := range running {
			if !present[name] {
				w.stop()
				delete(running, name)
				p.forget(name)
			}
		}
		p.announce()
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
	for _, w := range running {
		w.stop()
	}
	return group.Wait()
}

func (p *prober) begin(server string) *record {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &record{patience: p.patience, lastWell: time.Now()}
	p.records[server] = r
	return r
}

// setPatience changes for how long a server may be silent. Any goroutine.
func (p *prober) setPatience(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.patience = d
	for _, r := range p.records {
		r.patience = d
	}
}

func (p *prober) forget(server string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.records, server)
	p.met.forget(server)
}

// keep probes one server until ctx ends.
func (p *prober) keep(ctx context.Context, server string, r *record) {
	w := p.watch(server)
	defer w.Close()
	first := rand.N(probeEvery) // so that sidecars that start together do not probe together
	timer := time.NewTimer(first)
	defer timer.Stop()
	due := time.Now().Add(first)
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		each := probe{due: due, began: time.Now()}
		p.mu.Lock()
		limit := r.within()
		p.mu.Unlock()
		within, cancel := context.WithTimeout(ctx, limit)
		each.health, each.err = w.Look(within)
		cancel()
		if ctx.Err() != nil {
			return
		}
		each.ended = time.Now()
		pause := p.note(server, r, each)
		due = each.began.Add(pause)
		if due.Before(each.ended) {
			due = each.ended
		}
		timer.Reset(due.Sub(each.ended))
	}
}

// stillFailing asks servers once more, over connections of their own, and returns those that are no better.
func (p *prober) stillFailing(ctx context.Context, t *topology.Topology, names []string) []string {
	p.mu.Lock()
	patience := p.patience
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience/enoughFailures)
	defer cancel()
	failing := make([]bool, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			w := p.watch(name)
			defer w.Close()
			health, err := w.Look(ctx)
			c := &t.Caches[t.CacheIndex(name)]
			failing[i] = faultOf(health, err, len(t.Shards) > 0) != "" || c.State == topology.Draining && health.RunID != c.RunID
		})
	}
	wg.Wait()
	var out []string
	for i, name := range names {
		if failing[i] {
			out = append(out, name)
		}
	}
	return out
}

// note takes in a probe, tells what is news and returns the time until the next one, from when this one began.
func (p *prober) note(server string, r *record, each probe) time.Duration {
	rows := len(p.topology.Current().Shards) > 0
	p.mu.Lock()
	before := r.diagnose(each.ended)
	r.note(each, rows)
	after := r.diagnose(each.ended)
	current := p.records[server] == r
	pause := r.pause(each.ended)
	p.mu.Unlock()
	if !current {
		return pause
	}
	p.met.seconds.WithLabelValues(server).Observe(each.ended.Sub(each.began).Seconds())
	up := 0.0
	if after.well > 0 {
		up = 1
	}
	p.met.up.WithLabelValues(server).Set(up)
	if before.against != after.against {
		if after.against {
			p.log.Warn("a cache server fails: this sidecar votes against it", "server", server, "error", after.fault)
		} else {
			p.log.Info("a cache server is well again", "server", server)
		}
	}
	if before.against != after.against || before.well > 0 != (after.well > 0) || before.runID != after.runID {
		p.announce()
		p.news()
	}
	return pause
}

// announce tells the others what this sidecar votes.
func (p *prober) announce() {
	votes := ownVotes(p.topology.Current(), p.seen())
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped {
		p.vote(votes)
	}
}

// withdraw takes this sidecar's votes back, for good.
func (p *prober) withdraw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	p.vote([]string{})
}

// seen is how the servers stand with this sidecar now.
func (p *prober) seen() map[string]diagnosis {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[string]diagnosis, len(p.records))
	for name, r := range p.records {
		out[name] = r.diagnose(now)
	}
	return out
}
