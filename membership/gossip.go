package membership

import (
	"context"
	crand "crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// ErrNameTaken is returned by Run when a live sidecar at another address has this one's name.
var ErrNameTaken = errors.New("the name is taken by another live sidecar")

// Callbacks are how Gossip tells its owner. Any may be nil. They are called without locks, so they may call Gossip; each should return
// within bounded time, since Run waits for the running one when it ends.
type Callbacks struct {
	// Topology returns this sidecar's topology, encoded, nil for none. It is called when a peer lacks it, possibly by several
	// goroutines at once. The slice must not be changed afterwards.
	Topology func() []byte
	// OnHint: the peer's hint changed. Only the latest of each peer is delivered.
	OnHint func(from string, h Hint)
	// OnVotes: the votes of some member changed, this one's included. Members has them. That a member with votes died or left is told
	// by OnChange.
	OnVotes func()
	// OnTopology: a peer sent its topology. The slice belongs to the callee.
	OnTopology func(from string, body []byte)
	// OnChange: a member came, left, died or changed its metadata.
	OnChange func()
}

// Gossip is one sidecar's place in the cluster. Create it with New, start it with Run. Its methods may be called by any goroutine,
// before, during and after Run.
type Gossip struct {
	cfg   Config
	cb    Callbacks
	log   *slog.Logger
	met   *metrics
	pace  pace
	keep  retention
	meta  []byte // cfg.Meta, encoded; nil when that is not possible, which Run reports
	ready chan struct{}
	begun atomic.Bool
	state atomic.Pointer[[]byte] // push/pull state, rebuilt by the spread loop
	ml    atomic.Pointer[memberlist.Memberlist]

	keyring *memberlist.Keyring // nil: plain text
	keysMu  sync.Mutex          // held to change it; it locks itself for those who use it

	// Seams for tests: the network between memberlist and its sockets, memberlist's settings, the resolver.
	network func(memberlist.NodeAwareTransport) memberlist.NodeAwareTransport
	tune    func(*memberlist.Config)
	lookup  func(ctx context.Context, host string) ([]netip.Addr, error)

	// One waiting wake-up each is enough: whoever wakes looks at everything.
	spreadNow, deliverNow, guardNow chan struct{}

	sends sync.WaitGroup // goroutines that send topologies and requests; none is added once stopped is set

	mu sync.Mutex // guards the following; see invariant I1
	// stopped is set once Run takes leave: memberlist's timers and streams may outlive it, and must find nothing to change.
	stopped bool
	began   time.Time // when Run was called
	// leaveTimes: since the goodbye began, how often at least a record is sent.
	leaveTimes int
	ip         net.IP // advertised
	port       uint16
	tab        *table
	queue      queue
	fresh      map[string]bool // whose record is to be passed on at once
	dirty      bool            // the push/pull state is out of date
	box        mailbox
	out        outbox
	asking     asking
	// askedEarly: who asked for our topology before memberlist showed them.
	askedEarly map[string]bool
	rival      *rival // the last one seen
	disputed   bool   // the last peer that joined us, or that we joined, holds our name for another address
	rnd        *rand.Rand
}

// New prepares gossip; it opens nothing. The configuration is checked by Run, and by Config.Validate. Metrics are registered with reg, which
// must not have them yet; nil registers none.
func New(cfg Config, cb Callbacks, reg prometheus.Registerer, log *slog.Logger) *Gossip {
	now := time.Now()
	cfg = cfg.withDefaults()
	if cfg.Meta.Boot == "" {
		cfg.Meta.Boot = newBoot()
	}
	if cfg.Meta.Started.IsZero() {
		cfg.Meta.Started = now
	}
	cfg.Meta.Started = time.UnixMilli(cfg.Meta.Started.UnixMilli()) // as peers will read it
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	g := &Gossip{
		cfg: cfg, cb: cb, log: log.With("component", "gossip"), pace: defaultPace(cfg.RequestAfter),
		keep:      retention{gone: goneFor, sweepEvery: sweepEvery},
		ready:     make(chan struct{}),
		spreadNow: make(chan struct{}, 1), deliverNow: make(chan struct{}, 1), guardNow: make(chan struct{}, 1),
		lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		},
		queue: queue{sent: map[string]int{}},
		fresh: map[string]bool{}, askedEarly: map[string]bool{},
		box: newMailbox(),
		out: outbox{jobs: map[string]job{}, active: map[string]bool{}},
		rnd: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
	}
	g.meta, _ = cfg.Meta.encode()
	g.keyring = newKeyring(cfg.Keys)
	own := record{Name: cfg.Name, Boot: cfg.Meta.Boot, Seq: 1}
	g.tab = newTable(own, cfg.Meta, now)
	g.rebuildState()
	g.met = newMetrics(reg, g)
	return g
}

func newBoot() string {
	var b [8]byte
	crand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Run listens, joins and takes part until ctx ends; then it says goodbye and closes everything, which takes at most the leave timeout and
// a moment. It returns nil when ctx ended it, else the reason: a wrong configuration, an address in use, or ErrNameTaken.
// It may be called once.
func (g *Gossip) Run(ctx context.Context) error {
	if g.begun.Swap(true) {
		return errors.New("gossip: Run was called before")
	}
	if err := g.cfg.Validate(); err != nil {
		return err
	}
	tr, ml, err := g.open()
	if err != nil {
		return err
	}
	close(g.ready)
	g.log.Info("gossip is listening", "addr", g.Addr(), "name", g.cfg.Name, "boot", g.cfg.Meta.Boot, "encrypted", len(g.cfg.Keys) > 0)

	loops, loopCtx := errgroup.WithContext(ctx)
	loops.Go(func() error { return g.spread(loopCtx, ml) })
	loops.Go(func() error { return g.deliver(loopCtx) })
	loops.Go(func() error { return g.rejoin(loopCtx, ml) })
	loops.Go(func() error { return g.guardName(loopCtx, ml) })
	<-loopCtx.Done()

	// Loops and senders may be waiting for peers; hanging up ends that. Packets still flow for the goodbye.
	tr.hangUp()
	err = loops.Wait()
	switch {
	case err == nil:
		g.sayGoodbye(ml)
	case errors.Is(err, errNameUnsettled):
		err = nil
	}
	// No goodbye when the name is or may be another's: memberlist's would take that one out.
	g.mu.Lock()
	g.stopped = true
	g.mu.Unlock()
	if serr := ml.Shutdown(); serr != nil {
		g.log.Warn("gossip did not shut down cleanly", "err", serr)
	}
	g.sends.Wait()
	return err
}

// open listens and starts memberlist.
func (g *Gossip) open() (*transport, *memberlist.Memberlist, error) {
	logger := newMemberlistLogger(g.log)
	tr, err := listen(g.cfg.BindAddr, g.cfg.BindPort, g.cfg.StreamTimeout, logger, g.met)
	if err != nil {
		return nil, nil, err
	}
	addr, err := g.advertised(tr.port())
	if err != nil {
		return nil, nil, errors.Join(err, tr.Shutdown())
	}
	g.mu.Lock()
	g.began, g.ip, g.port = time.Now(), addr.Addr().AsSlice(), addr.Port()
	g.mu.Unlock()
	ml, err := memberlist.Create(g.memberlistConfig(tr, addr, logger))
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("gossip: %w", err), tr.Shutdown())
	}
	g.ml.Store(ml)
	return tr, ml, nil
}

// advertised is the address that peers are told.
func (g *Gossip) advertised(listening int) (netip.AddrPort, error) {
	if a, err := netip.ParseAddrPort(g.cfg.Advertise); err == nil {
		return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
	}
	bind, err := netip.ParseAddr(g.cfg.BindAddr)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("gossip: listen address: %w", err)
	}
	interfaces, err := interfaceAddrs()
	if err != nil {
		return netip.AddrPort{}, err
	}
	a, err := advertiseIP(bind.Unmap(), interfaces)
	return netip.AddrPortFrom(a, uint16(listening)), err
}

// SetHint says which topology this sidecar has now. It never blocks; the last one given is told to the others.
func (g *Gossip) SetHint(h Hint) {
	if len(h.Digest) > maxDigest {
		h.Digest = h.Digest[:maxDigest]
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.stopped && g.tab.say(h, false) {
		g.pass(g.cfg.Name)
	}
}

// Members returns all known sidecars, this one included, sorted by name. The slice is the caller's.
func (g *Gossip) Members() []Member {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tab.list()
}

// Ready is closed when Run is listening. It stays open when Run fails before.
func (g *Gossip) Ready() <-chan struct{} { return g.ready }

// Addr returns the address (host:port) that peers are given; empty before Ready.
func (g *Gossip) Addr() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ip == nil {
		return ""
	}
	return net.JoinHostPort(g.ip.String(), strconv.Itoa(int(g.port)))
}

// HealthScore returns how far this process is behind the gossip protocol: 0 is well, more is worse. A sidecar that is behind judges
// others wrongly and should not.
func (g *Gossip) HealthScore() int {
	if ml := g.ml.Load(); ml != nil {
		return ml.GetHealthScore()
	}
	return 0
}

// Request asks a peer for its topology, which arrives through OnTopology if the peer answers. It never blocks; a peer that is not known
// or not alive is not asked. Peers whose hint is higher than ours are asked without being told to.
func (g *Gossip) Request(peer string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.enqueue(peer, job{request: true})
}

// hear merges a record. Called with mu held, also from delegates.
func (g *Gossip) hear(r record, now time.Time) {
	if g.stopped {
		return
	}
	h := g.tab.heard(r, now)
	if h.dropped != "" {
		g.met.dropped.WithLabelValues(h.dropped).Inc()
	}
	g.learnt(r.Name, h)
}

// learnt passes on and tells the owner what came of a record or a sighting. Called with mu held, also from delegates.
func (g *Gossip) learnt(name string, h hearing) {
	if h.fresh {
		g.pass(name)
	}
	if h.hint {
		g.box.hints[name] = true
		g.wake(g.deliverNow)
	}
	if h.votes {
		g.met.votesHeard.Inc()
		g.box.votes = true
		g.wake(g.deliverNow)
	}
	if h.changed {
		g.changed()
	}
}

// pass sees to it that a sidecar's latest record goes on to others. Called with mu held, also from delegates.
func (g *Gossip) pass(name string) {
	g.queue.add(name)
	g.fresh[name] = true
	g.dirty = true
	g.wake(g.spreadNow)
}

// changed notes that the member list changed. Called with mu held, also from delegates.
func (g *Gossip) changed() {
	g.box.change = true
	g.dirty = true
	g.wake(g.deliverNow)
	g.wake(g.spreadNow)
}

func (g *Gossip) wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (g *Gossip) dropped(err error) {
	reason := "malformed"
	switch {
	case errors.Is(err, errKind):
		reason = "unknown_kind"
	case errors.Is(err, errTooLong):
		reason = "too_long"
	}
	g.met.dropped.WithLabelValues(reason).Inc()
}

func (g *Gossip) countQueued() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.queue.sent)
}

func (g *Gossip) countMembers(s State) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tab.count(s)
}
