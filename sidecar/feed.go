package sidecar

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"ringside/cache"
	"ringside/membership"
	"ringside/shard"
	"ringside/shard/catalog"
	"ringside/shard/origin"
	"ringside/sidecar/topology"
)

// feed keeps this sidecar's topology up to date and publishes it. Where there is a catalog that is the authority: what gossip or a shard
// says of a higher epoch only makes the feed look. A shard's own copy counts too, since it was the catalog's once: so the cluster
// goes on while the catalog is down. Without a catalog the topology comes by gossip and the highest (epoch, digest) wins.
type feed struct {
	topology *topology.Holder
	catalog  *catalogLink // nil: a cache-only cluster
	fleet    *origin.Fleet
	servers  *cache.Servers
	gossip   *membership.Gossip
	apply    func(t *topology.Topology) // brings servers and pools in line; before t is published
	file     string
	log      *slog.Logger
	// patience is how long an operation that was refused by a shard waits for a change that may let it through: a little longer than
	// a shard is held in one phase.
	patience time.Duration

	wakeup chan struct{}

	mu       sync.Mutex // guards the following
	change   chan struct{}
	met      map[string]string // run_id last met by server
	received *topology.Topology
	hint     uint64 // highest epoch heard of

	// Only run touches the following.
	adopted map[string]time.Time
	polled  time.Time
}

const (
	// pollEvery is how often the catalog is asked without a reason, in case that a hint was lost.
	pollEvery = 5 * time.Second
	// adoptEvery bounds how often one server's new incarnation is adopted: a server that is restarted again and again, or an
	// address behind which several servers hide, must not drive the epoch.
	adoptEvery = 3 * time.Second
	// feedTimeout bounds one question to the catalog, a shard or a cache server.
	feedTimeout = 2 * time.Second
)

func newFeed() *feed {
	return &feed{wakeup: make(chan struct{}, 1), change: make(chan struct{}), met: map[string]string{}, adopted: map[string]time.Time{}}
}

// wake makes the feed look now. Any goroutine; never blocks.
func (f *feed) wake() {
	select {
	case f.wakeup <- struct{}{}:
	default: // it will look anyway
	}
}

// changed returns a channel that is closed at the next change of the topology or of a shard's view.
func (f *feed) changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.change
}

// await waits for a change, for a moment; false: there was none.
func (f *feed) await(ctx context.Context, changed <-chan struct{}) bool {
	timer := time.NewTimer(f.patience)
	defer timer.Stop()
	select {
	case <-changed:
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	return false
}

func (f *feed) announce() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.change)
	f.change = make(chan struct{})
}

// onView hears that a shard's view has changed.
func (f *feed) onView(_ string, v shard.View) {
	f.announce()
	if t := f.topology.Current(); t != nil && v.Epoch != t.Epoch {
		f.wake()
	}
}

// onHint hears what topology another sidecar has.
func (f *feed) onHint(_ string, h membership.Hint) {
	f.mu.Lock()
	f.hint = max(f.hint, h.Epoch)
	f.mu.Unlock()
	if t := f.topology.Current(); t != nil && h.Epoch > t.Epoch {
		f.wake()
	}
}

// onTopology is given another sidecar's topology. It counts only where there is no catalog.
func (f *feed) onTopology(from string, body []byte) {
	if f.catalog != nil {
		f.wake()
		return
	}
	t, err := topology.Decode(body)
	if err != nil {
		f.log.Warn("topology by gossip is of no use", "from", from, "error", err)
		return
	}
	f.mu.Lock()
	if t.Supersedes(f.received) {
		f.received = t
	}
	f.mu.Unlock()
	f.wake()
}

// onIncarnation hears the run_id of a cache server that was connected to. It is called on the event loops.
func (f *feed) onIncarnation(server, runID string) {
	t := f.topology.Current()
	if t == nil || runID == "" || len(t.Shards) == 0 {
		return
	}
	if i := t.CacheIndex(server); i < 0 || t.Caches[i].RunID == runID {
		return
	}
	f.mu.Lock()
	f.met[server] = runID
	f.mu.Unlock()
	f.wake()
}

// run keeps the topology up to date until ctx ends.
func (f *feed) run(ctx context.Context) error {
	timer := time.NewTimer(pollEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.wakeup:
		case <-timer.C:
		}
		again := f.step(ctx)
		timer.Reset(again)
		// A storm of wake-ups is one look.
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// step looks once and says when to look again at the latest.
func (f *feed) step(ctx context.Context) time.Duration {
	again := pollEvery
	if f.behind() || time.Since(f.polled) >= pollEvery {
		f.polled = time.Now()
		f.refresh(ctx)
		if f.behind() {
			again = 500 * time.Millisecond // whoever had the news could not be asked
		}
	}
	if f.recall(ctx) {
		again = min(again, time.Second)
	}
	if f.meetUnknown(ctx) {
		again = min(again, time.Second)
	}
	if f.adopt(ctx) {
		again = min(again, time.Second)
	}
	return again
}

// behind reports whether somebody has a higher epoch than this sidecar.
func (f *feed) behind() bool {
	t := f.topology.Current()
	f.mu.Lock()
	hint, received := f.hint, f.received
	f.mu.Unlock()
	if f.catalog == nil {
		return received != nil && received.Supersedes(t)
	}
	if hint > t.Epoch {
		return true
	}
	for i := range t.Shards {
		if v, _ := f.fleet.Confirmation(t.Shards[i].Name).View(); v.Epoch > t.Epoch {
			return true
		}
	}
	return false
}

// refresh publishes the newest topology that can be had.
func (f *feed) refresh(ctx context.Context) {
	best := f.topology.Current()
	if f.catalog == nil {
		f.mu.Lock()
		received := f.received
		f.mu.Unlock()
		if received != nil && received.Supersedes(best) {
			f.publish(received)
		}
		return
	}
	if t, err := f.catalog.load(ctx); err != nil {
		f.log.Warn("the catalog cannot be asked for the topology", "error", err)
	} else if t != nil && t.Epoch > best.Epoch {
		best = t
	}
	for i := range best.Shards {
		name := best.Shards[i].Name
		if v, _ := f.fleet.Confirmation(name).View(); v.Epoch > best.Epoch {
			if t := f.fromShard(ctx, name); t != nil && t.Epoch > best.Epoch {
				best = t
			}
		}
	}
	if best != f.topology.Current() {
		f.publish(best)
	}
}

func (f *feed) fromShard(ctx context.Context, name string) *topology.Topology {
	ctx, cancel := context.WithTimeout(ctx, feedTimeout)
	defer cancel()
	_, body, err := f.fleet.Topology(ctx, name)
	if err == nil {
		var t *topology.Topology
		if t, err = topology.Decode(body); err == nil {
			return t
		}
	}
	f.log.Warn("a shard's copy of the topology cannot be used", "shard", name, "error", err)
	return nil
}

// publish makes t the topology that this sidecar acts by.
func (f *feed) publish(t *topology.Topology) {
	f.apply(t)
	f.topology.Publish(t)
	f.gossip.SetHint(hintOf(t))
	f.announce()
	f.log.Info("topology published", "epoch", t.Epoch, "digest", t.Digest(), "caches", len(t.Caches), "shards", len(t.Shards))
	if err := topology.Save(f.file, t); err != nil {
		f.log.Warn("the topology is not kept for the next start", "error", err)
	}
}

func hintOf(t *topology.Topology) membership.Hint {
	return membership.Hint{Epoch: t.Epoch, Digest: t.Digest().String()}
}

// meetUnknown asks the servers that may hold no rows yet for their run_id: nobody else connects to them for a row. It reports whether
// there are any.
func (f *feed) meetUnknown(ctx context.Context) (some bool) {
	t := f.topology.Current()
	if f.catalog == nil || len(t.Shards) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, feedTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for i := range t.Caches {
		if t.Caches[i].RunID != "" {
			continue
		}
		some = true
		name := t.Caches[i].Name
		wg.Go(func() {
			if runID, err := f.servers.Probe(ctx, name); err == nil {
				f.remember(name, runID)
			}
		})
	}
	wg.Wait()
	return some
}

// adopt brings the incarnations of cache servers that were met and that the topology does not name into it, under new generations.
// It reports whether some are left for later.
func (f *feed) adopt(ctx context.Context) (later bool) {
	if f.catalog == nil {
		return false
	}
	t := f.topology.Current()
	f.mu.Lock()
	met := f.met
	f.met = map[string]string{}
	f.mu.Unlock()
	found := map[string]string{}
	for server := range met {
		i := t.CacheIndex(server)
		if i < 0 {
			continue
		}
		if time.Since(f.adopted[server]) < adoptEvery {
			f.remember(server, met[server])
			later = true
			continue
		}
		// What was met may be gone by now: ask again.
		probe, cancel := context.WithTimeout(ctx, feedTimeout)
		runID, err := f.servers.Probe(probe, server)
		cancel()
		if err != nil || runID == t.Caches[i].RunID {
			continue
		}
		found[server] = runID
		f.adopted[server] = time.Now()
	}
	next, err := topology.AdoptRuns(t, found)
	if err != nil {
		f.log.Error("new incarnations of cache servers cannot be adopted", "error", err)
		return later
	}
	if next == t {
		return later
	}
	if err := f.catalog.swap(ctx, t, next); err != nil {
		for server, runID := range found {
			delete(f.adopted, server)
			f.remember(server, runID)
		}
		if errors.Is(err, catalog.ErrConflict) {
			f.refresh(ctx)
		} else {
			f.log.Warn("the catalog cannot be changed", "error", err)
		}
		return true
	}
	f.log.Info("cache servers were started anew; their entries count under a new generation", "run_ids", found)
	f.publish(next)
	return later
}

// remember keeps an incarnation for the next look.
func (f *feed) remember(server, runID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, newer := f.met[server]; !newer {
		f.met[server] = runID
	}
}
