package cache

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Ref is where the entry of a row is now. It also says which row it is: reads of equal Refs are answered together.
type Ref struct {
	Server string // name of the cache server; empty: there is none, the row is read without a cache
	Name   string // see AppendName; empty: the row is read for each caller alone
	// RunID is the process by which Name was worked out: Name means nothing on another one. Servers and topology cannot change in the same
	// moment, so each Ref says for itself what it was made for. Empty: whatever process the server is configured for.
	RunID string
}

// Source is where a value came from.
type Source uint8

// The sources.
const (
	Hit       Source = iota + 1 // it was in the cache
	Filled                      // it was loaded and is now in the cache
	Bypassed                    // it was loaded and could not be put into the cache
	Coalesced                   // another read of this sidecar brought it
	Carried                     // it was taken over from where the row was cached before
)

func (s Source) String() string {
	switch s {
	case Hit:
		return "hit"
	case Filled:
		return "filled"
	case Bypassed:
		return "bypassed"
	case Coalesced:
		return "coalesced"
	case Carried:
		return "carried"
	}
	return "none"
}

// Value is a row, or that there is none. Body may be shared with other callers and must not be changed.
type Value struct {
	Found  bool
	Body   []byte
	Source Source
}

// Loaded is what a load callback found on the shard.
type Loaded struct {
	Found bool
	Body  []byte // kept and shared by the cache: the callback must not change it afterwards
	// MayFill says that the shard, in the statement that read the row, was at the view by which the Ref was computed. Otherwise
	// writers may be cleaning another Ref than this one, and the value goes to the caller only.
	MayFill bool
	Err     error // this row could not be loaded; the others may have been
}

// Item is one row to read.
type Item struct {
	Ref    Ref
	TTL    time.Duration // life of a row in the cache; 0: rows are not cached
	NegTTL time.Duration // life of an absence; 0: absences are not cached
	Carry  Carry         // where the entry may be taken over from instead of being loaded
}

// Result is what became of an Item.
type Result struct {
	Value
	Err error // of the load, ErrClosed, or the context's
}

// LoadFunc loads the rows of the items with the given indexes, and returns as many Loaded in the same order; an error stands for
// all of them. It runs on a goroutine of the cache, for different items perhaps several times at once, may run after the call that
// brought it has returned, and must therefore use nothing that the caller changes afterwards. It must ask the shard after it was called, not before: its answers must not be older
// than its call. ctx has a deadline of at most Config.LoadTimeout.
type LoadFunc func(ctx context.Context, idx []int) ([]Loaded, error)

// Cache reads and writes rows through entries on cache servers. Safe for concurrent use; not to be called from an event loop, since
// all its methods wait.
type Cache struct {
	cfg     Config
	servers *Servers
	metrics *metrics
	log     *slog.Logger
	tokens  *tokens
	scripts scripts
	serves  func(joined, asOf uint64) bool // serves of decide.go; a field so that a test can show what its absence costs

	base    context.Context // ends with Close; all flights run on it
	stop    context.CancelFunc
	flying  sync.WaitGroup
	mu      sync.Mutex // guards the following, and what call and flight say it guards
	closed  bool
	flights map[Ref]*flight
	// refreshing are the entries of which this process has begun a refresh.
	refreshing map[Ref]bool
}

// New returns a Cache; it does no I/O. It uses servers and does not close them.
func New(cfg Config, servers *Servers, reg prometheus.Registerer, log *slog.Logger) (*Cache, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	base, stop := context.WithCancel(context.Background())
	return &Cache{
		cfg: cfg, servers: servers, metrics: newMetrics(reg), log: log,
		tokens: newTokens(), scripts: newScripts(), serves: serves,
		base: base, stop: stop, flights: make(map[Ref]*flight), refreshing: make(map[Ref]bool),
	}, nil
}

// Close ends all reads with ErrClosed and waits until they have ended. Writes end by themselves: stop writing first.
func (c *Cache) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop()
	c.flying.Wait()
}

// Read returns the row of ref: from the cache, or by load, which at most one reader per row runs at a time as long as the cache
// server can be used; then the row is cached for ttl (jittered), its absence for negTTL. The value is not older than any write that
// was acknowledged before the call, provided that ref is the right one at the time. load is as LoadFunc says. Errors are those of
// load, of ctx, or ErrClosed; a cache server that cannot be used is no error.
func (c *Cache) Read(ctx context.Context, ref Ref, ttl, negTTL time.Duration, load func(ctx context.Context) (Loaded, error)) (Value, error) {
	r := c.ReadMany(ctx, []Item{{Ref: ref, TTL: ttl, NegTTL: negTTL}}, func(ctx context.Context, _ []int) ([]Loaded, error) {
		l, err := load(ctx)
		return []Loaded{l}, err
	})[0]
	return r.Value, r.Err
}
