package cdc

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringside/shard/keyspace"
)

// Followers follow the changes of all shards, one follower for each. Safe for concurrent use.
//
// Order of calls: New, Apply as often as needed, Run once, everything else at any time.
type Followers struct {
	cfg     Config // Keyspaces is guarded by mu
	deps    Deps
	log     *slog.Logger
	metrics *metrics

	mu      sync.Mutex // guards the following
	wanted  map[string]Shard
	running map[string]*follower
	changed chan struct{} // capacity 1: wanted or cfg.Keyspaces has changed
}

// New returns Followers without shards. It does no I/O. cfg must be valid; its zero fields take their defaults. A nil reg keeps the metrics to
// itself, a nil log discards.
func New(cfg Config, deps Deps, reg prometheus.Registerer, log *slog.Logger) *Followers {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	f := &Followers{
		cfg: cfg.WithDefaults(), deps: deps, log: log,
		wanted: map[string]Shard{}, running: map[string]*follower{}, changed: make(chan struct{}, 1),
	}
	f.metrics = newMetrics(reg, f.State)
	return f
}

// Apply makes the followed shards exactly these. It never waits for the network. If a shard is invalid nothing changes, and the error names it
// without its secrets.
func (f *Followers) Apply(shards []Shard) error {
	wanted := map[string]Shard{}
	var errs []error
	for _, s := range shards {
		if s.Name == "" {
			errs = append(errs, errors.New("a shard has no name"))
		} else if _, err := s.parse(); err != nil {
			errs = append(errs, err)
		}
		if _, twice := wanted[s.Name]; twice {
			errs = append(errs, errors.New("shard "+s.Name+" is given twice"))
		}
		wanted[s.Name] = s
	}
	if errs != nil {
		return errors.Join(errs...)
	}
	f.mu.Lock()
	f.wanted = wanted
	f.mu.Unlock()
	select {
	case f.changed <- struct{}{}:
	default:
	}
	return nil
}

// SetKeyspaces replaces the table keyspaces. Every shard is followed anew, and counts as degraded until its follower knows them.
func (f *Followers) SetKeyspaces(keyspaces []*keyspace.Keyspace) {
	f.mu.Lock()
	f.cfg.Keyspaces = slices.Clone(keyspaces)
	for _, r := range f.running {
		r.outdated.Store(true)
	}
	f.mu.Unlock()
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// Run follows until ctx ends, and returns nil then: everything that was handed out is acknowledged, and the slots are free for others.
func (f *Followers) Run(ctx context.Context) error {
	var followers sync.WaitGroup
	defer followers.Wait()
	stops := map[string]context.CancelFunc{}
	for {
		f.mu.Lock()
		for name, r := range f.running {
			if s, ok := f.wanted[name]; !ok || s != r.shard || r.outdated.Load() {
				stops[name]()
				delete(f.running, name)
				if !ok {
					f.metrics.forget(name)
				}
			}
		}
		for name, s := range f.wanted {
			if f.running[name] == nil {
				r := newFollower(s, f.cfg, f.deps, f.metrics.forShard(name), f.log)
				own, stop := context.WithCancel(ctx)
				f.running[name], stops[name] = r, stop
				followers.Go(func() {
					defer stop()
					r.run(own)
				})
			}
		}
		f.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-f.changed:
		}
	}
}

// Role is what this sidecar is to a shard's changes.
type Role string

// The roles.
const (
	Starting Role = "starting" // it has not heard from the shard yet
	Down     Role = "down"     // the shard cannot be asked
	Off      Role = "off"      // the shard's settings do not allow to follow it: the TTL is the bound
	StandBy  Role = "standby"  // somebody else follows, or will in a moment
	Active   Role = "active"   // this sidecar follows
)

// State is how one shard's changes are followed.
type State struct {
	Shard    string
	Role     Role
	Reason   string // what is wrong, "" if nothing is
	Follower string // the sidecar that follows, by the shard's own word
	// Lag: all changes that were visible that long ago have been handed out. Known says whether that is known.
	Lag      time.Duration
	Known    bool
	Degraded bool
	// Left are the keyspaces that cannot be followed, with the reason: their TTL is the bound. Only an active sidecar knows.
	Left map[string]string

	Slot          string // "" while there is none
	WALStatus     string // of the slot: reserved, extended, unreserved or lost
	RetainedBytes int64
	SafeBytes     int64 // -1: without limit
	Acknowledged  LSN   // only an active sidecar knows
}

// State returns the state of every followed shard, by name.
func (f *Followers) State() []State {
	f.mu.Lock()
	running := make([]*follower, 0, len(f.running))
	for _, r := range f.running {
		running = append(running, r)
	}
	f.mu.Unlock()
	states := make([]State, 0, len(running))
	now := time.Now()
	for _, r := range running {
		states = append(states, r.snapshot(now))
	}
	slices.SortFunc(states, func(a, b State) int { return strings.Compare(a.Shard, b.Shard) })
	return states
}

// Lag returns how long ago all changes of the shard that were visible then had been handed out, by whoever follows it. known is false while
// nobody can say, and for a shard that is not followed.
func (f *Followers) Lag(shard string) (lag time.Duration, known bool) {
	if r := f.follower(shard); r != nil {
		s := r.snapshot(time.Now())
		return s.Lag, s.Known
	}
	return 0, false
}

// Degraded reports whether changes of the shard may be handed out later than Config.LagLimit or not at all, though it is to be followed: then what
// is cached of it should live for a moment only. False for a shard whose settings do not allow to follow it, and for one that is not known here.
// It is cheap enough to be asked at every fill.
func (f *Followers) Degraded(shard string) bool {
	r := f.follower(shard)
	return r != nil && r.degraded(time.Now())
}

func (f *Followers) follower(shard string) *follower {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.running[shard]
}

// degraded is the decision behind Degraded. asOf is the zero time while it is not known. Pure.
func degraded(role Role, asOf, now time.Time, complete bool, limit time.Duration) bool {
	if role == Off {
		return false
	}
	return !complete || asOf.IsZero() || now.Sub(asOf) > limit
}

// snapshot returns the state at the time now.
func (f *follower) snapshot(now time.Time) State {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := State{
		Shard: f.shard.Name, Role: f.role, Reason: f.reason, Follower: f.heard.follower, Left: f.left, Acknowledged: f.acked,
		Degraded: f.outdated.Load() || degraded(f.role, f.asOf, now, f.complete, f.cfg.LagLimit),
	}
	if !f.asOf.IsZero() {
		s.Lag, s.Known = max(now.Sub(f.asOf), 0), true
	}
	if slot := f.heard.slot; slot != nil {
		s.Slot, s.WALStatus, s.RetainedBytes, s.SafeBytes = f.slot, slot.walStatus, slot.retained, slot.safe
	}
	s.Reason = cmp.Or(s.Reason, f.trouble)
	return s
}

func (f *follower) degraded(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.outdated.Load() || degraded(f.role, f.asOf, now, f.complete, f.cfg.LagLimit)
}
