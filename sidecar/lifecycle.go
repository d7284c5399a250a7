package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"ringside/membership"
	"ringside/shard"
	"ringside/shard/catalog"
	"ringside/shard/origin"
	"ringside/sidecar/handover"
	"ringside/sidecar/topology"
)

// lifecycle carries cache servers through their states: what health.go decides, it commits. Every sidecar runs one, and any of them can do
// all of it; who acts first is agreed by their names (turn), and of two that act at the same time one is too late.
//
// Two loops, so that a server that is slow to be made ready does not keep another one in the ring that is gone:
//
//	judge:   in use -> down; down -> joining; what has been handed over is forgotten
//	prepare: joining -> active; a server that was started anew is used again. Both are emptied before: nothing that an
//	         earlier life of a server has kept may be read again (promise P3)
type lifecycle struct {
	name     string // of this sidecar
	topology *topology.Holder
	feed     *feed
	prober   *prober
	members  func() []membership.Member
	hasAll   func(epoch uint64) bool // every sidecar that lives has that epoch
	agreed   func() bool             // every sidecar that lives has the same topology
	fleet    *origin.Fleet
	ready    preparer
	watching func(ctx context.Context, server string) ([]string, error) // who looks after a server
	driven   func() []handover.Progress                                 // how far the topology's hand-overs are, in its order
	seeds    bool                                                       // the configuration names other sidecars
	log      *slog.Logger
	met      *lifecycleMetrics
	wakeup   chan struct{}

	began  time.Time // when gossip did; set before run
	warned time.Time // of votes that are no majority; only judge uses it
}

// preparer is a *handover.Carrier.
type preparer interface {
	// Prepare empties a server, once for an epoch, and keeps sidecars with an older topology from using it for plain keys. It returns the
	// run_id of the process that it has done so to. epoch is the present one, in which nobody uses that process.
	Prepare(ctx context.Context, server string, epoch uint64) (runID string, err error)
}

const (
	// lookEvery is how often is looked without a reason.
	lookEvery  = 200 * time.Millisecond
	retryAfter = time.Second // a failure
	// A sidecar whose turn it is to commit has commitApart until the next one does it; one that has to make servers ready before has prepareApart.
	commitApart  = 300 * time.Millisecond
	prepareApart = time.Second
	// censusWithin bounds the question who looks after the cache servers.
	censusWithin = 500 * time.Millisecond
	// warnAgain is how long a warning that would be repeated all the time is not.
	warnAgain = time.Minute
	// prepareWithin bounds making a server ready.
	prepareWithin = 5 * time.Second
	// adoptEvery bounds how often one server's new incarnation is adopted: a server that is restarted again and again, or an
	// address behind which several servers hide, must not drive the epoch.
	adoptEvery = 3 * time.Second
	// keepFormer is how long what a change replaced is remembered at least: sidecars must see what is lost.
	keepFormer = 3 * time.Second
	// partlyAfter is how long those hand-overs that are done wait for others, so that a change ends in one step and not in many.
	partlyAfter = time.Minute
	// calmWithin bounds how long a change waits for the one before to be known to all, where it might be displaced.
	calmWithin = 5 * time.Second
	// hearWithin bounds how long sidecars that have not heard of a change keep it from being finished.
	hearWithin = 30 * time.Second
	// shardPatience is how long a shard that is down keeps a change from being finished. It catches up by itself.
	shardPatience = 30 * time.Second
)

type lifecycleMetrics struct {
	commits *prometheus.CounterVec
	failed  prometheus.Counter
}

func newLifecycleMetrics(reg prometheus.Registerer, changing func() bool) *lifecycleMetrics {
	m := &lifecycleMetrics{
		commits: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ringside_ring_changes_total",
			Help: "Changes of the topology that this sidecar has made, by what they were."}, []string{"change"}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{Name: "ringside_ring_change_failures_total",
			Help: "Changes that this sidecar tried in vain: the catalog or a cache server could not be asked."}),
	}
	for _, what := range []string{"down", "return", "join", "adopt", "finish"} {
		m.commits.WithLabelValues(what) // from 0, so that the first one is seen as an increase
	}
	reg.MustRegister(m.commits, m.failed, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ringside_ring_changing",
		Help: "1 while a change of the cache servers is being carried out."}, func() float64 {
		if changing() {
			return 1
		}
		return 0
	}))
	return m
}

// wake makes it look now. Any goroutine; never blocks.
func (l *lifecycle) wake() {
	select {
	case l.wakeup <- struct{}{}:
	default:
	}
}

// onIncarnation hears the run_id of a cache server that was connected to. The prober meets it too, within moments. It is called on the event loops.
func (l *lifecycle) onIncarnation(string, string) { l.wake() }

// onCarried hears, again and again, that nothing is left to carry over for a hand-over.
func (l *lifecycle) onCarried(topology.Handover) { l.wake() }

// run carries on until ctx ends.
func (l *lifecycle) run(ctx context.Context) error {
	var group errgroup.Group
	prepare := make(chan struct{}, 1)
	group.Go(func() error {
		l.loop(ctx, l.wakeup, func(ctx context.Context, p *pending) {
			select {
			case prepare <- struct{}{}:
			default:
			}
			l.judge(ctx, p)
		})
		return nil
	})
	adopted := map[string]time.Time{}
	group.Go(func() error {
		l.loop(ctx, prepare, func(ctx context.Context, p *pending) { l.prepare(ctx, p, adopted) })
		return nil
	})
	return group.Wait()
}

func (l *lifecycle) loop(ctx context.Context, wake <-chan struct{}, step func(context.Context, *pending)) {
	p := &pending{since: map[string]time.Time{}}
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	for ctx.Err() == nil {
		p.begin(time.Now())
		step(ctx, p)
		p.end()
		timer.Reset(lookEvery + p.retry)
		if p.retry > 0 {
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			continue
		}
		select {
		case <-ctx.Done():
		case <-wake:
		case <-timer.C:
		}
	}
}

// pending remembers since when each thing has been to be done.
type pending struct {
	now   time.Time
	since map[string]time.Time
	seen  map[string]bool
	retry time.Duration // how long to wait because something failed
}

func (p *pending) begin(now time.Time) { p.now, p.seen, p.retry = now, map[string]bool{}, 0 }

// of returns for how long what has been to be done to these servers.
func (p *pending) of(what string, servers []string) time.Duration {
	key := what + " " + strings.Join(servers, " ")
	p.seen[key] = true
	if p.since[key].IsZero() {
		p.since[key] = p.now
	}
	return p.now.Sub(p.since[key])
}

// end forgets what is not to be done any more.
func (p *pending) end() {
	maps.DeleteFunc(p.since, func(key string, _ time.Time) bool { return !p.seen[key] })
}

// ballot counts the votes now. A sidecar that knows of others and has not found them yet is nobody's majority.
func (l *lifecycle) ballot(now time.Time) ballot {
	least := 1
	if l.seeds && now.Sub(l.began) < missedFor {
		least = 2
	}
	return countVotes(l.members(), now, least)
}

// calm reports whether it is known that the present topology counts. Where there is no catalog another one of its epoch may be on its way, and what
// is decided by one that is displaced is decided in vain.
func (l *lifecycle) calm(now time.Time) bool {
	return l.feed.catalog != nil || l.agreed() || now.Sub(l.feed.since()) >= calmWithin
}

// judge does what needs no cache server to be asked.
func (l *lifecycle) judge(ctx context.Context, p *pending) {
	t, b, seen := l.topology.Current(), l.ballot(p.now), l.prober.seen()
	for i := range t.Caches {
		l.prober.met.votes.WithLabelValues(t.Caches[i].Name).Set(float64(len(b.against[t.Caches[i].Name])))
	}
	if names, rank := b.accused(l.name, failing(t, &b)); len(names) > 0 && turn(rank, p.of("down", names), commitApart) {
		if names = l.convicted(ctx, t, &b, names); len(names) > 0 &&
			l.commit(ctx, p, t, "down", names, func() (*topology.Topology, error) { return topology.MarkDown(t, names) }) {
			return
		}
	}
	if !l.calm(p.now) {
		return
	}
	if names := returning(t, &b, seen); len(names) > 0 && turn(b.rank(l.name, names...), p.of("return", names), commitApart) &&
		l.commit(ctx, p, t, "return", names, func() (*topology.Topology, error) { return topology.Rejoin(t, names) }) {
		return
	}
	l.finish(ctx, t, &b, p)
}

// convicted returns those of the accused servers that are to go down. Going down costs their plain keys, so two things are made sure of: that the server is
// still failing, since votes are as old as gossip is slow; and that the votes are a majority also of the sidecars which the other servers
// see, since a sidecar that gossip does not reach would be a majority by itself.
func (l *lifecycle) convicted(ctx context.Context, t *topology.Topology, b *ballot, names []string) []string {
	names = l.prober.stillFailing(ctx, t, names)
	if len(names) == 0 {
		return nil
	}
	sidecars, asked := l.census(ctx, t, names)
	if spared := b.outvoted(names, sidecars); len(spared) > 0 {
		if time.Since(l.warned) >= warnAgain {
			l.warned = time.Now()
			l.log.Warn("most sidecars that gossip knows cannot use cache servers, but other cache servers see more sidecars: is this one cut off from gossip?",
				"servers", spared, "sidecars", sidecars, "votes_of", b.electorate, "asked", asked)
		}
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(spared, name) })
	}
	return names
}

// census counts the sidecars that look after the servers in use, the accused aside, by what those servers say.
func (l *lifecycle) census(ctx context.Context, t *topology.Topology, except []string) (sidecars int, asked []string) {
	ctx, cancel := context.WithTimeout(ctx, censusWithin)
	defer cancel()
	var mu sync.Mutex // guards seen and asked
	seen := map[string]bool{}
	var wg sync.WaitGroup
	for i := range t.Caches {
		name := t.Caches[i].Name
		if t.Caches[i].State != topology.Active || slices.Contains(except, name) {
			continue
		}
		wg.Go(func() {
			who, err := l.watching(ctx, name)
			if err != nil {
				l.log.Debug("a cache server does not tell who looks after it", "server", name, "error", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, name)
			for _, one := range who {
				seen[one] = true
			}
		})
	}
	wg.Wait()
	return len(seen), asked
}

// finish forgets what has been handed over.
func (l *lifecycle) finish(ctx context.Context, t *topology.Topology, b *ballot, p *pending) {
	if !t.Changing() {
		return
	}
	published := p.now.Sub(l.feed.since())
	carried := carriedOf(t, l.driven())
	rows := rowsDone(t, l.standings(t), published, l.hasAll(t.Epoch))
	if !ending(len(t.Handovers), len(carried), rows, published) || !turn(b.rank(l.name), p.of("finish", nil), commitApart) {
		return
	}
	l.commit(ctx, p, t, "finish", nil, func() (*topology.Topology, error) { return topology.Finish(t, carried, rows) })
}

// ending reports whether it is time to forget what is done: all of it at once, or some of it when the rest takes long.
func ending(handovers, carried int, rows bool, published time.Duration) bool {
	return carried == handovers && rows || carried > 0 && published >= partlyAfter
}

// carriedOf returns the hand-overs that are carried out: t's, if it is still what the progress is of.
func carriedOf(t *topology.Topology, driven []handover.Progress) []topology.Handover {
	var out []topology.Handover
	for _, h := range t.Handovers {
		if slices.ContainsFunc(driven, func(p handover.Progress) bool { return p.Done && p.From == h.From && p.Since == h.Since }) {
			out = append(out, h)
		}
	}
	return out
}

// standing is how far a shard is.
type standing struct {
	view    shard.View
	downFor time.Duration // 0: it is up
}

func (l *lifecycle) standings(t *topology.Topology) []standing {
	down := map[string]time.Duration{}
	for _, p := range l.fleet.Pools() {
		if !p.DownSince.IsZero() {
			down[p.Name] = max(1, time.Since(p.DownSince))
		}
	}
	out := make([]standing, len(t.Shards))
	for i := range t.Shards {
		view, _ := l.fleet.Confirmation(t.Shards[i].Name).View()
		out[i] = standing{view, down[t.Shards[i].Name]}
	}
	return out
}

// rowsDone reports whether nobody needs what the change replaced for rows any more, or to see what it has lost. published is for how long t has
// been acted by here, heard whether all sidecars have it.
func rowsDone(t *topology.Topology, shards []standing, published time.Duration, heard bool) bool {
	if published < keepFormer || !heard && published < hearWithin {
		return false
	}
	for _, s := range shards {
		if s.downFor < shardPatience && !s.settled(t) {
			return false
		}
	}
	return true
}

// settled reports whether a shard needs nothing any more of what t replaces.
func (s standing) settled(t *topology.Topology) bool {
	return s.view.Phase == shard.Done && s.view.Epoch > t.FormerEpoch()
}

// prepare makes servers ready, and has them used.
func (l *lifecycle) prepare(ctx context.Context, p *pending, adopted map[string]time.Time) {
	t, b, seen := l.topology.Current(), l.ballot(p.now), l.prober.seen()
	if !l.calm(p.now) {
		return
	}
	if names := renewed(t, &b, seen); len(names) > 0 {
		l.adopt(ctx, t, &b, p, seen, names, adopted)
	}
	// A planned change waits until the one before it is done: see topology.Activate.
	if names := joinable(t, &b, seen); len(names) > 0 && !t.Changing() && l.topology.Current() == t && turn(b.rank(l.name, names...), p.of("join", names), prepareApart) {
		ready := l.prepareAll(ctx, p, t, names)
		l.commit(ctx, p, t, "join", slices.Sorted(maps.Keys(ready)), func() (*topology.Topology, error) { return topology.Activate(t, ready) })
	}
}

// adopt has servers used again that were started anew. Each may be another sidecar's turn.
func (l *lifecycle) adopt(ctx context.Context, t *topology.Topology, b *ballot, p *pending, seen map[string]diagnosis, names []string, adopted map[string]time.Time) {
	met := map[string]string{}
	var used []string
	for _, name := range names {
		if p.now.Sub(adopted[name]) < adoptEvery || !turn(b.rank(l.name, name), p.of("adopt", []string{name}), prepareApart) {
			continue
		}
		if c := &t.Caches[t.CacheIndex(name)]; neverMet(c) {
			met[name] = seen[name].runID
		} else {
			used = append(used, name)
		}
	}
	maps.Copy(met, l.prepareAll(ctx, p, t, used))
	if l.commit(ctx, p, t, "adopt", slices.Sorted(maps.Keys(met)), func() (*topology.Topology, error) { return topology.AdoptRuns(t, met) }) {
		for name := range met {
			adopted[name] = time.Now()
		}
	}
}

// prepareAll makes servers ready, all at the same time, and returns the run_ids of those that are.
func (l *lifecycle) prepareAll(ctx context.Context, p *pending, t *topology.Topology, names []string) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, prepareWithin)
	defer cancel()
	var mu sync.Mutex // guards ready and p
	ready := map[string]string{}
	var wg sync.WaitGroup
	for _, name := range names {
		wg.Go(func() {
			runID, err := l.ready.Prepare(ctx, name, t.Epoch)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				p.retry = retryAfter
				l.met.failed.Inc()
				l.log.Warn("a cache server cannot be made ready", "server", name, "error", err)
				return
			}
			ready[name] = runID
		})
	}
	wg.Wait()
	return ready
}

// commit makes a change of the topology, if it is one. It reports whether it was made.
func (l *lifecycle) commit(ctx context.Context, p *pending, t *topology.Topology, what string, servers []string, change func() (*topology.Topology, error)) bool {
	next, err := change()
	if err == nil && next == t {
		return false
	}
	if err == nil {
		err = l.feed.commit(ctx, t, next)
	}
	switch {
	case err == nil:
		l.met.commits.WithLabelValues(what).Inc()
		l.log.Info("the ring was changed: "+describe(what), "servers", servers, "epoch", next.Epoch)
		return true
	case errors.Is(err, catalog.ErrConflict) || ctx.Err() != nil:
	default:
		p.retry = retryAfter
		l.met.failed.Inc()
		l.log.Warn("the ring could not be changed: "+describe(what), "servers", servers, "error", err)
	}
	return false
}

func describe(what string) string {
	switch what {
	case "down":
		return "most sidecars cannot use cache servers"
	case "return":
		return "cache servers that were down are well again and join anew"
	case "join":
		return "cache servers have joined"
	case "adopt":
		return "cache servers were started anew and count under a new generation"
	case "finish":
		return "what was handed over is done"
	}
	return fmt.Sprintf("change %q", what)
}
