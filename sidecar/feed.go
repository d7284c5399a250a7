package sidecar

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"ringside/membership"
	"ringside/shard"
	"ringside/shard/catalog"
	"ringside/shard/origin"
	"ringside/sidecar/topology"
)

// feed keeps this sidecar's topology up to date, and is the one way to change the cluster's. Where there is a catalog that is the authority:
// what gossip or a shard says of a higher epoch only makes the feed look. A shard's own copy counts too, since it was the catalog's
// once: so the cluster goes on while the catalog is down. Without a catalog the topology comes by gossip and the highest (epoch, digest)
// wins.
type feed struct {
	topology *topology.Holder
	catalog  *catalogLink // nil: a cache-only cluster
	fleet    *origin.Fleet
	gossip   *membership.Gossip
	apply    func(t *topology.Topology) // brings servers and pools in line; before t is published
	adopt    func()                     // has everybody look at what was published
	file     string
	log      *slog.Logger
	// patience is how long an operation that was refused by a shard waits for a change that may let it through: a little longer than
	// a shard is held in one phase.
	patience time.Duration

	wakeup chan struct{}

	// publishing is held while a topology takes effect here, so that none is published after a newer one.
	publishing sync.Mutex

	mu       sync.Mutex // guards the following
	change   chan struct{}
	received *topology.Topology
	hint     uint64    // highest epoch heard of
	suspects bool      // a shard has refused what the present map says of it
	adopted  time.Time // when the present topology was published here

	polled time.Time // only run touches it
}

const (
	// pollEvery is how often the catalog is asked without a reason, in case that a hint was lost.
	pollEvery = 5 * time.Second
	// suspectEvery is how often it is asked because shards refuse what the map says: vnodes may have moved.
	suspectEvery = 50 * time.Millisecond
	// feedTimeout bounds one question to the catalog, a shard or a cache server.
	feedTimeout = 2 * time.Second
)

func newFeed() *feed {
	return &feed{wakeup: make(chan struct{}, 1), change: make(chan struct{})}
}

// wake makes the feed look now. Any goroutine; never blocks.
func (f *feed) wake() {
	select {
	case f.wakeup <- struct{}{}:
	default: // it will look anyway
	}
}

// suspect makes the feed look, although nobody has spoken of a newer topology. Any goroutine; never blocks.
func (f *feed) suspect() {
	f.mu.Lock()
	f.suspects = true
	f.mu.Unlock()
	f.wake()
}

// suspected reports whether to look because of that now, or in a moment.
func (f *feed) suspected() (now, soon bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.suspects || time.Since(f.polled) < suspectEvery {
		return false, f.suspects
	}
	f.suspects = false
	return true, false
}

// awaitMap waits until the topology is another one than t, for so long at most.
func (f *feed) awaitMap(ctx context.Context, t *topology.Topology, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		changed := f.changed()
		if f.topology.Current() != t {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		}
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
func (f *feed) onHint(_ string, h membership.Hint) { f.onNewerEpoch(h.Epoch) }

// onTopology is given another sidecar's topology. It counts only where there is no catalog.
func (f *feed) onTopology(from string, body []byte) {
	if f.catalog != nil {
		f.wake()
		return
	}
	t, err := topology.Decode(body, f.topology.Current())
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

// onNewerEpoch hears that somebody, for instance a cache server, knows of an epoch. Any goroutine; it never blocks.
func (f *feed) onNewerEpoch(epoch uint64) {
	f.mu.Lock()
	f.hint = max(f.hint, epoch)
	f.mu.Unlock()
	if t := f.topology.Current(); t != nil && epoch > t.Epoch {
		f.wake()
	}
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
	suspected, soon := f.suspected()
	if soon {
		again = suspectEvery
	}
	if suspected || f.behind() || time.Since(f.polled) >= pollEvery {
		f.polled = time.Now()
		f.refresh(ctx)
		if f.behind() {
			again = min(again, 500*time.Millisecond) // whoever had the news could not be asked
		}
	}
	if f.recall(ctx) {
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
	if t, err := f.catalog.load(ctx, f.topology.Current()); err != nil {
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
		if t, err = topology.Decode(body, f.topology.Current()); err == nil {
			return t
		}
	}
	f.log.Warn("a shard's copy of the topology cannot be used", "shard", name, "error", err)
	return nil
}

// publish makes t the topology that this sidecar acts by, unless it acts by a newer one already; it reports which.
func (f *feed) publish(t *topology.Topology) bool {
	f.publishing.Lock()
	defer f.publishing.Unlock()
	return f.publishLocked(t)
}

func (f *feed) publishLocked(t *topology.Topology) bool {
	if now := f.topology.Current(); now != nil && (f.catalog != nil && t.Epoch <= now.Epoch || !t.Supersedes(now)) {
		return false
	}
	f.apply(t)
	f.topology.Publish(t)
	f.mu.Lock()
	f.adopted = time.Now()
	f.mu.Unlock()
	f.adopt()
	f.gossip.SetHint(hintOf(t))
	f.announce()
	f.log.Info("topology published", "epoch", t.Epoch, "digest", t.Digest(), "caches", len(t.Caches), "shards", len(t.Shards))
	if err := topology.Save(f.file, t); err != nil {
		f.log.Warn("the topology is not kept for the next start", "error", err)
	}
	return true
}

// commit replaces the cluster's topology, which must be from, by next. The error is catalog.ErrConflict when the topology is another one by
// now: look, and decide anew. Where there is no catalog the change spreads by gossip, and of two that are made at the same time one is
// lost: whoever made it looks again whether it has come to stay.
func (f *feed) commit(ctx context.Context, from, next *topology.Topology) error {
	return f.commitAs(ctx, 0, from, next)
}

// commitAs is commit by the driver of moves with that token: the error is catalog.ErrDeposed when it is that no more.
func (f *feed) commitAs(ctx context.Context, driver uint64, from, next *topology.Topology) error {
	if f.catalog != nil {
		if err := f.catalog.swap(ctx, driver, from, next); err != nil {
			if errors.Is(err, catalog.ErrConflict) {
				f.refresh(ctx)
			}
			return err
		}
		f.publish(next)
		return nil
	}
	f.publishing.Lock()
	defer f.publishing.Unlock()
	if f.topology.Current() != from || !f.publishLocked(next) {
		return catalog.ErrConflict
	}
	return nil
}

// since is when the present topology was published here.
func (f *feed) since() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.adopted
}

func hintOf(t *topology.Topology) membership.Hint {
	return membership.Hint{Epoch: t.Epoch, Digest: t.Digest().String()}
}
