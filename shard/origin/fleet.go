package origin

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringside/shard"
	"ringside/shard/keyspace"
)

// Fleet is the shards by name. It is safe for concurrent use.
//
// Order of calls: New, OnView, Apply and SetLimit as often as needed, Run once, everything else at any time after Apply, Close after
// Run has returned.
type Fleet struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics

	mu      sync.RWMutex
	pools   map[string]*pool
	words   map[string]*word
	limits  map[string]int // as given to SetLimit
	heard   func(name string, v shard.View)
	door    Door
	closed  bool
	changed chan struct{}                    // capacity 1: there are pools that nobody watches
	current atomic.Pointer[map[string]*pool] // as pools, for who takes no lock

	closing sync.WaitGroup // pools that were taken out
}

// New returns a Fleet without shards. It does no I/O. cfg must be valid; its zero fields take their defaults. A nil reg
// keeps the metrics to itself, a nil log discards.
func New(cfg Config, reg prometheus.Registerer, log *slog.Logger) *Fleet {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	f := &Fleet{
		cfg: cfg.WithDefaults(), log: log,
		pools: map[string]*pool{}, words: map[string]*word{}, limits: map[string]int{},
		changed: make(chan struct{}, 1),
	}
	f.metrics = newMetrics(reg, f.Pools)
	return f
}

// OnView sets what is called when a shard's view is heard to be newer than any before. It is called by whoever heard it, one call at a
// time per shard, and must neither block nor call the Fleet. Set it before Apply.
func (f *Fleet) OnView(fn func(name string, v shard.View)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard = fn
	for _, w := range f.words {
		w.mu.Lock()
		w.heard = fn
		w.mu.Unlock()
	}
}

// GuardDoors makes sessions be opened through door, so that the cluster keeps within a shard's budget also while they are opened. Set it before Apply.
func (f *Fleet) GuardDoors(door Door) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.door = door
}

// Apply makes the fleet consist of exactly these shards. Connections are opened when they are needed, so Apply never waits for the network.
// If a shard is invalid nothing changes, and the error names it without its secrets. A shard whose DSN or budget changed
// gets new connections; those of its former pool end with the operations that use them.
func (f *Fleet) Apply(shards []ShardConfig) error {
	var errs []error
	wanted := map[string]ShardConfig{}
	for _, s := range shards {
		if err := s.Validate(); err != nil {
			errs = append(errs, err)
		} else if _, twice := wanted[s.Name]; twice {
			errs = append(errs, errors.New("shard "+s.Name+" is given twice"))
		}
		wanted[s.Name] = s
	}
	if errs != nil {
		return errors.Join(errs...)
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return errShutDown
	}
	fresh := map[string]*pool{}
	for name, s := range wanted {
		if old := f.pools[name]; old != nil && old.conf == s {
			continue
		}
		limit, ok := f.limits[name]
		if !ok {
			limit = Seats(s.MaxConnections)
		}
		p, err := newPool(s, f.cfg, limit, f.wordLocked(name), f.metrics.timings(name), f.door, f.log)
		if err != nil {
			for _, made := range fresh {
				made.close()
			}
			return err
		}
		fresh[name] = p
	}
	for name, old := range f.pools {
		next, replaced := fresh[name]
		if _, stays := wanted[name]; stays && !replaced {
			continue
		}
		if !replaced {
			old.word.unlearn(nil)
			f.metrics.forget(name)
		} else if next.conf.DSN != old.conf.DSN {
			old.word.unlearn(next)
		}
		delete(f.pools, name)
		old.retire(errRemoved)
		f.closing.Go(old.close)
	}
	for name, p := range fresh {
		f.pools[name] = p
		p.word.listen(p)
	}
	current := maps.Clone(f.pools)
	f.current.Store(&current)
	select {
	case f.changed <- struct{}{}:
	default:
	}
	return nil
}

// Run asks every shard for its view, more often than every ViewTTL/2, until ctx ends. It returns nil then, after all its pollers have ended.
func (f *Fleet) Run(ctx context.Context) error {
	var pollers sync.WaitGroup
	defer pollers.Wait()
	watched := map[*pool]bool{}
	tick := f.cfg.ViewTTL / 4
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.changed:
			current := map[*pool]bool{}
			for _, p := range f.all() {
				current[p] = true
				if !watched[p] {
					pollers.Go(func() { p.watch(ctx) })
				}
			}
			watched = current
		case <-ticker.C:
			now := time.Now()
			if wasSuspended(now.Round(0).Sub(last.Round(0)), now.Sub(last), tick) {
				f.log.Warn("the machine was suspended: asking every shard again")
				f.forget()
			}
			last = now
		}
	}
}

// forget makes every shard count as unheard, and asks all of them.
func (f *Fleet) forget() {
	f.mu.RLock()
	for _, w := range f.words {
		w.forget()
	}
	f.mu.RUnlock()
	for _, p := range f.all() {
		p.askNow()
	}
}

// Confirmation returns where the shard's last word is kept. It is the same for a name as long as the Fleet lives, also while the shard is
// not, or not yet, part of it. Every load, write and poll writes it.
func (f *Fleet) Confirmation(name string) *shard.Confirmation {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &f.wordLocked(name).confirmation
}

func (f *Fleet) wordLocked(name string) *word {
	w := f.words[name]
	if w == nil {
		w = &word{name: name, heard: f.heard}
		f.words[name] = w
	}
	return w
}

// Down returns the *shard.DownError that requests to a shard are refused with at once while it is known to be down; nil when it is not known
// to be. Any goroutine; never blocks.
func (f *Fleet) Down(name string) error {
	p, err := f.pool(name)
	if err != nil {
		return err
	}
	return p.admission.refusing()
}

// Refuses returns the error with which a write to a shard would be refused now because too many wait already; nil: it may be tried. It counts as a request that
// was shed. Any goroutine; it takes no lock, so that refusing costs next to nothing.
func (f *Fleet) Refuses(name string) error {
	if pools := f.current.Load(); pools != nil {
		if p := (*pools)[name]; p != nil {
			return p.admission.refuses()
		}
	}
	return nil
}

// RefusesLoads is Refuses for a load of rows of a keyspace.
func (f *Fleet) RefusesLoads(name string, ks *keyspace.Keyspace) error {
	if pools := f.current.Load(); pools != nil {
		if p := (*pools)[name]; p != nil {
			return p.batcher(ks).refuses()
		}
	}
	return nil
}

// Busy reports whether requests wait for the shard, so that what can be left should be. Any goroutine; never blocks.
func (f *Fleet) Busy(name string) bool {
	p, err := f.pool(name)
	if err != nil {
		return true
	}
	now := time.Now()
	n, _ := p.queuedLoads(now)
	return n > 0 || p.admission.stats(now).waiting > 0
}

// Poke asks the shard for its view now, for instance because gossip hinted at a new one. It does not wait for the answer.
func (f *Fleet) Poke(name string) {
	if p, err := f.pool(name); err == nil {
		p.askNow()
	}
}

// SetLimit sets how many sessions this sidecar may hold on the shard, its poller's included: its part of the cluster's budget (Share), kept
// within 1 and Seats of MaxConnections; less than 1 says that sidecars take turns. Without it the limit is all the seats. On a decrease idle sessions beyond it are closed, and those in
// use when they are done. It may be called for a shard that is yet to be applied.
func (f *Fleet) SetLimit(name string, n int) {
	f.mu.Lock()
	f.limits[name] = n
	p := f.pools[name]
	f.mu.Unlock()
	if p != nil {
		p.setLimit(n)
	}
}

// PoolStats is a snapshot of one shard's pool.
type PoolStats struct {
	Name       string
	Budget     int           // MaxConnections of the whole cluster
	Limit      int           // sessions that this sidecar may hold
	InUse      int           // sessions that a request has, or had until it broke
	Idle       int           // sessions that nobody has
	Waiting    int           // requests that wait for one
	OldestWait time.Duration // how long the first of them has waited
	Served     uint64        // requests that got a session
	ShedFull   uint64        // requests refused because the queue was full
	ShedLate   uint64        // requests refused because they had waited too long
	Spared     uint64        // times that work which nobody waits for got a session; not in Served
	SpareShed  uint64        // times that it was refused one
	Refused    uint64        // sessions for which the cluster's budget had no room
	Locked     uint64        // statements that ended because somebody else's lock was not free in time
	DownSince  time.Time     // zero while the shard is up
	LastError  string        // why it is down, or why it does not say its view; empty when all is well
	LastShed   time.Time     // when a request was last refused
	Activity   Activity      // what the shard was found to do
	Diagnosis  Diagnosis     // what all of this comes to
	Outbox     int           // rows whose cached copies are still to be deleted, by the shard's last word
	OldestRow  time.Duration // how long the first of them had waited then
}

// Pools returns a snapshot of every pool, by name.
func (f *Fleet) Pools() []PoolStats {
	now := time.Now()
	var stats []PoolStats
	for _, p := range f.all() {
		stats = append(stats, p.stats(now))
	}
	slices.SortFunc(stats, func(a, b PoolStats) int { return cmp.Compare(a.Name, b.Name) })
	return stats
}

// Close refuses every request from now on and closes all connections, waiting for operations under way no longer than they may last.
// Call it after Run has returned.
func (f *Fleet) Close() {
	f.mu.Lock()
	f.closed = true
	for name, p := range f.pools {
		delete(f.pools, name)
		p.retire(errShutDown)
		f.closing.Go(p.close)
	}
	f.mu.Unlock()

	done := make(chan struct{})
	go func() {
		f.closing.Wait()
		close(done)
	}()
	bound := max(f.cfg.LoadTimeout, f.cfg.WriteTimeout, f.cfg.AdminTimeout) + cleanupBound
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		f.log.Warn("connections to the shards did not close in time", "waited", bound)
	}
}

func (f *Fleet) pool(name string) (*pool, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if p := f.pools[name]; p != nil {
		return p, nil
	}
	if f.closed {
		return nil, &shard.DownError{Shard: name, Err: errShutDown}
	}
	return nil, &shard.DownError{Shard: name, Err: errNotInTopology}
}

func (f *Fleet) all() []*pool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	pools := make([]*pool, 0, len(f.pools))
	for _, p := range f.pools {
		pools = append(pools, p)
	}
	return pools
}
