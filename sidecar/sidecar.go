package sidecar

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"ringside/cache"
	"ringside/membership"
	"ringside/shard/origin"
	"ringside/sidecar/admin"
	"ringside/sidecar/config"
	"ringside/sidecar/handover"
	"ringside/sidecar/proxy"
	"ringside/sidecar/topology"
)

// Sidecar is one ringside process. Create it with New, then call Run once.
type Sidecar struct {
	cfg     *config.Config // as it was at the start, but for the keyspaces, which its Set has as they are now
	loaded  *config.Config // as it was read last; Reload's alone
	reloads *reloadMetrics
	version string
	log     *slog.Logger

	access    *access
	topology  *topology.Holder
	catalog   *catalogLink // nil: none is configured
	servers   *cache.Servers
	cache     *cache.Cache
	fleet     *origin.Fleet
	gossip    *membership.Gossip
	feed      *feed
	handover  *handover.Carrier
	prober    *prober
	lifecycle *lifecycle
	proxy     *proxy.Server
	admin     *admin.Server
	members   *members
	operator  *changes
	shards    *shards
	foreign   *invalidation // changes that others make on the shards
	outbox    *outbox
	verifier  *verifier
	heat      *shardHeat
	lost      losses
	bootID    string
	ready     chan struct{}
}

// drainFor is how long a stopping sidecar lets clients have their replies.
const drainFor = 10 * time.Second

// New puts the parts together. It opens no connection and no listener.
func New(cfg *config.Config, version string, log *slog.Logger) (*Sidecar, error) {
	access, err := newAccess(cfg)
	if err != nil {
		return nil, err
	}
	warnOfExposure(cfg, log)
	warnOfSolitude(cfg, log)
	boot := make([]byte, 20)
	_, _ = rand.Read(boot) // never fails
	s := &Sidecar{
		cfg: cfg, loaded: cfg, version: version, log: log, access: access, topology: &topology.Holder{}, feed: newFeed(), bootID: hex.EncodeToString(boot[:8]), ready: make(chan struct{}),
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registerIdentity(registry, version, s.epoch)
	s.reloads = newReloadMetrics(registry)
	if cfg.Catalog.DSN != "" {
		s.catalog = &catalogLink{dsn: string(cfg.Catalog.DSN), log: log}
	}
	serversCfg := cache.DefaultServersConfig()
	serversCfg.Watcher = hex.EncodeToString(boot)
	if s.servers, err = cache.NewServers(serversCfg, registry, log); err != nil {
		return nil, err
	}
	cacheCfg := cache.DefaultConfig()
	if s.cache, err = cache.New(cacheCfg, s.servers, registry, log); err != nil {
		return nil, err
	}
	originCfg := origin.Config{
		ViewTTL: cfg.ViewTTL, QueueLimit: cfg.Limits.ShardQueue, QueueWait: cfg.Limits.ShardQueueWait,
		ConnectTimeout: cfg.Limits.ShardConnectTimeout, LoadTimeout: cfg.Limits.ShardReadTimeout, WriteTimeout: cfg.Limits.ShardWriteTimeout,
		LockTimeout: cfg.Limits.ShardLockTimeout,
	}
	if err := originCfg.Validate(); err != nil {
		return nil, err
	}
	// Poison must outlive the transaction that it covers, else a reader could fill what a late commit replaces.
	if bound := originCfg.WithDefaults().WriteBound(); cacheCfg.PoisonTTL <= bound {
		return nil, fmt.Errorf("poison lives for %v, a write can last %v", cacheCfg.PoisonTTL, bound)
	}
	s.fleet = origin.New(originCfg, registry, log)
	if s.catalog != nil {
		s.fleet.GuardDoors(s.catalog.door)
	}
	if err := s.newGossip(version, registry); err != nil {
		return nil, err
	}
	s.members = &members{gossip: s.gossip, fleet: s.fleet, topology: s.topology}
	*s.feed = feed{
		topology: s.topology, catalog: s.catalog, fleet: s.fleet, gossip: s.gossip, apply: s.apply, adopt: func() { s.proxy.Wake() },
		file: s.topologyFile(), log: log, patience: holdFor(cfg.ViewTTL) + 2*keeperPause, wakeup: s.feed.wakeup, change: s.feed.change,
	}
	if err := s.newLifecycle(registry); err != nil {
		return nil, err
	}
	s.fleet.OnView(s.feed.onView)
	s.servers.OnIncarnation(s.lifecycle.onIncarnation)
	s.heat = newShardHeat(s.topology)
	rows := &rows{topology: s.topology, cache: s.cache, fleet: s.fleet, cutOvers: newCutOvers(s.fleet), feed: s.feed, viewTTL: cfg.ViewTTL, serve: cfg.WhenShardUnreachable == "serve", heat: s.heat}
	if s.foreign, err = newInvalidation(cfg.Name, rows, cfg.Set(), cfg.Invalidation == "off", registry, log); err != nil {
		return nil, err
	}
	rows.degraded = s.foreign.degraded
	s.outbox = &outbox{rows: rows, rank: s.members.rank, log: log, met: newOutboxMetrics(registry), works: map[string]*outboxWork{}}
	if cfg.Consistency == "bounded" {
		rows.outbox = s.outbox
	}
	s.verifier = &verifier{rows: rows, servers: s.servers, keyspaces: cfg.Set(), grace: verifyGrace, met: newVerifyMetrics(registry), log: log}
	if s.proxy, err = proxy.New(s.proxyConfig(cfg, version), proxy.Deps{
		Topology: s.topology, Keyspaces: cfg.Set(), Rows: rows, Shards: s.fleet, Cluster: s.members, Plain: s.handover,
		Credentials: s.access.of, OnIncarnation: s.lifecycle.onIncarnation, OnNewerEpoch: s.feed.onNewerEpoch, Registerer: registry, Log: log,
	}, hex.EncodeToString(boot)); err != nil {
		return nil, err
	}
	s.operator = &changes{topology: s.topology, feed: s.feed, credentials: s.access.of, agreed: s.members.agreed, meet: s.meet}
	if s.shards, err = s.newShards(registry); err != nil {
		return nil, err
	}
	s.admin, err = admin.New(admin.Config{Listen: cfg.Admin.Listen, Token: string(cfg.Admin.Token), Pprof: cfg.Admin.Pprof}, admin.Deps{
		Topology: s.topology, Keyspaces: cfg.Set(), Members: s.members.list, Pools: s.members.pools, Counts: s.counts, Ready: s.isReady,
		Change: s.operator.do, Progress: s.progress, Invalidation: s.foreign.shown, Verify: s.verifier.verify, Shards: s.shards.functions(), HotKeys: s.hotKeys,
		Gatherer: registry, Name: cfg.Name, Version: version, Log: log,
	})
	return s, err
}

// newLifecycle makes what looks after the cache servers.
func (s *Sidecar) newLifecycle(reg prometheus.Registerer) error {
	s.prober = &prober{
		topology: s.topology, watch: func(server string) watcher { return s.servers.Watch(server) }, vote: s.gossip.SetVotes, changed: s.feed.changed,
		patience: s.cfg.Limits.CacheDownAfter, news: func() { s.lifecycle.wake() }, log: s.log, met: newHealthMetrics(reg), records: map[string]*record{},
	}
	changing := func() bool {
		t := s.topology.Current()
		return t != nil && t.Changing()
	}
	s.lifecycle = &lifecycle{
		watching: s.servers.Watching,
		name:     s.cfg.Name, topology: s.topology, feed: s.feed, prober: s.prober, members: s.gossip.Members, hasAll: s.members.allHave, agreed: s.members.agreed, fleet: s.fleet,
		seeds: slices.ContainsFunc(s.cfg.Gossip.Join, func(seed string) bool { return seed != s.cfg.Gossip.Listen }), log: s.log, met: newLifecycleMetrics(reg, changing), wakeup: make(chan struct{}, 1),
	}
	var err error
	s.handover, err = handover.New(handover.Deps{
		Servers: s.servers, Current: s.topology.Current, Changed: s.feed.changed, Carried: s.lifecycle.onCarried,
	}, handover.DefaultConfig(), reg, s.log)
	s.lifecycle.ready, s.lifecycle.driven = s.handover, s.handover.Progress
	return err
}

// meet looks at a server that is not in the topology yet.
func (s *Sidecar) meet(ctx context.Context, addr string, c proxy.Credentials) (cache.Stranger, error) {
	return s.servers.Meet(ctx, addr, c.Username, c.Password, c.TLS)
}

func (s *Sidecar) proxyConfig(cfg *config.Config, version string) proxy.Config {
	c := proxy.DefaultConfig()
	c.Name, c.Version, c.Listen, c.Password, c.MaxClients = cfg.Name, version, cfg.Redis.Listen, string(cfg.Redis.Password), cfg.Redis.MaxClients
	c.Loops = cfg.Loops
	if c.Loops == 0 {
		// One processor is left to misses, gossip and the collector; and fewer loops make larger batches, which cost less per request.
		c.Loops = max(1, runtime.GOMAXPROCS(0)-1)
	}
	l := cfg.Limits
	c.Limits.MaxBulk, c.Limits.MaxRequest = int(l.Value), int(l.Request)
	c.OutputHard, c.InFlight, c.RowOps = int(l.Output), l.Pipeline, l.RowOperations
	c.ClientIdle, c.UpstreamIdle = l.ClientIdle, l.UpstreamIdle
	c.ConnectTimeout, c.ReplyTimeout, c.SweepTimeout, c.SlowFrom = l.ConnectTimeout, l.ReplyTimeout, l.SweepTimeout, l.SlowFrom
	c.SlowLines = map[string]proxy.SlowLines{"masked": proxy.MaskedKeys, "keys": proxy.ShownKeys}[cfg.Log.SlowRequests]
	c.UpstreamCalls, c.PrivateUpstreams = l.UpstreamRequests, l.PrivateConnections
	c.OutputSoft = min(c.OutputSoft, c.OutputHard)
	c.ViewTTL, c.ServeUnconfirmed = cfg.ViewTTL, cfg.WhenShardUnreachable == "serve"
	return c
}

func (s *Sidecar) topologyFile() string { return filepath.Join(s.cfg.DataDir, "topology") }

// Ready is closed when the sidecar answers clients.
func (s *Sidecar) Ready() <-chan struct{} { return s.ready }

func (s *Sidecar) isReady() error {
	select {
	case <-s.ready:
		return nil
	default:
		return errors.New("still starting")
	}
}

// Run serves until ctx ends and then stops gracefully. The error says why it could not start or go on; a stop that was asked for is none.
func (s *Sidecar) Run(ctx context.Context) error {
	defer s.closeClients()
	// What runs in the background ends after the clients have gone, so it has a context of its own.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, background := errgroup.WithContext(background)

	// The admin listener comes first: whoever waits for the sidecar can ask how far it is.
	group.Go(func() error { return s.admin.Run(background) })
	t, err := s.firstTopology(ctx)
	if err == nil {
		s.warnOfDifferences(t)
		s.feed.publish(t)
		group.Go(func() error { return s.fleet.Run(background) })
		err = s.setUpShards(ctx, t)
	}
	if err != nil {
		stop()
		if ended := group.Wait(); ctx.Err() != nil {
			return ended // asked to stop while it was starting
		} else {
			return errors.Join(err, ended)
		}
	}
	group.Go(func() error { return s.gossip.Run(background) })
	group.Go(func() error { return s.feed.run(background) })
	group.Go(func() error { return s.keepShards(background) })
	s.lifecycle.began = time.Now()
	group.Go(func() error { return s.prober.run(background) })
	group.Go(func() error { return s.lifecycle.run(background) })
	group.Go(func() error { return s.handover.Run(background) })
	group.Go(func() error { return s.foreign.run(background) })
	group.Go(func() error { return s.shards.run(background) })
	group.Go(func() error { return s.outbox.run(background) })
	group.Go(func() error { return (&sampler{verifier: s.verifier, rate: s.cfg.VerifyRate}).run(background) })
	s.awaitShards(ctx)
	group.Go(func() error { return s.proxy.Run(background) })
	group.Go(func() error { return s.announceReady(background) })

	select {
	case <-ctx.Done():
		s.log.Info("stopping: no new clients, what is under way is finished")
		s.prober.withdraw()
		draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainFor)
		defer cancel()
		if err := s.proxy.Drain(draining); err != nil {
			s.log.Warn("not everything was finished", "error", err)
		}
	case <-background.Done(): // a part has failed
	}
	stop()
	return group.Wait()
}

// announceReady says once that clients can come.
func (s *Sidecar) announceReady(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.proxy.Ready():
	}
	close(s.ready)
	s.log.Info("ready", "redis", s.proxy.Addr(), "admin", s.admin.Addr(), "gossip", s.cfg.Gossip.Listen, "name", s.cfg.Name)
	return nil
}

// keepShards runs one keeper per shard of the topology.
func (s *Sidecar) keepShards(ctx context.Context) error {
	keepers := map[string]context.CancelFunc{}
	var group errgroup.Group
	for ctx.Err() == nil {
		changed := s.feed.changed()
		present := map[string]bool{}
		for _, sh := range s.topology.Current().Shards {
			present[sh.Name] = true
			if keepers[sh.Name] != nil {
				continue
			}
			keep, cancel := context.WithCancel(ctx)
			keepers[sh.Name] = cancel
			k := s.newKeeper(sh.Name)
			group.Go(func() error {
				k.run(keep)
				return nil
			})
		}
		for name, cancel := range keepers {
			if !present[name] {
				cancel()
				delete(keepers, name)
			}
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
	for _, cancel := range keepers {
		cancel()
	}
	return group.Wait()
}

// awaitShards waits a moment for the shards to confirm their views, so that the first reads can be hits.
func (s *Sidecar) awaitShards(ctx context.Context) {
	deadline := time.Now().Add(2 * time.Second)
	for _, sh := range s.topology.Current().Shards {
		for {
			changed := s.feed.changed()
			if v, _ := s.fleet.Confirmation(sh.Name).View(); v.Epoch != 0 || ctx.Err() != nil || time.Now().After(deadline) {
				break
			}
			s.feed.await(ctx, changed)
		}
	}
}

// closeClients lets go of the connections to servers and shards, after everything that uses them has ended.
func (s *Sidecar) closeClients() {
	s.cache.Close()
	s.handover.Close()
	if err := s.servers.Close(); err != nil {
		s.log.Warn("closing the connections to cache servers", "error", err)
	}
	s.fleet.Close()
	if s.catalog != nil {
		s.catalog.close()
	}
}

// apply brings connections in line with a topology that is about to be published.
func (s *Sidecar) apply(t *topology.Topology) {
	s.lost.note(s.topology.Current(), t, s.handover.Progress(), s.log)
	if err := s.servers.Apply(s.serverConfigs(t.Caches)); err != nil {
		s.log.Error("connections to cache servers", "error", err)
	}
	shards := make([]origin.ShardConfig, len(t.Shards))
	for i, sh := range t.Shards {
		shards[i] = origin.ShardConfig{Name: sh.Name, DSN: s.dsn(sh), MaxConnections: sh.MaxConnections}
	}
	if err := s.fleet.Apply(shards); err != nil {
		s.log.Error("connections to shards", "error", err)
	}
	if err := s.foreign.apply(t, s.dsn); err != nil {
		s.log.Error("following changes on the shards", "error", err)
	}
	s.members.shareBudget()
}

// dsn returns the connection string of a shard: the topology's carries no password, so this sidecar's own comes first.
func (s *Sidecar) dsn(sh topology.Shard) string {
	for i := range s.cfg.Shards {
		if s.cfg.Shards[i].Name == sh.Name {
			return string(s.cfg.Shards[i].DSN)
		}
	}
	return sh.DSN
}

func (s *Sidecar) serverConfigs(caches []topology.Cache) []cache.ServerConfig {
	out := make([]cache.ServerConfig, len(caches))
	for i, c := range caches {
		cred := s.access.of(c.Name)
		out[i] = cache.ServerConfig{Name: c.Name, Addr: c.Addr, Username: cred.Username, Password: cred.Password, TLS: cred.TLS, RunID: c.RunID}
	}
	return out
}

func (s *Sidecar) newGossip(version string, reg prometheus.Registerer) error {
	g, err := gossipConfig(s.cfg, version, s.bootID)
	if err != nil {
		return fmt.Errorf("gossip: %w", err)
	}
	s.gossip = membership.New(g, membership.Callbacks{
		Topology:   func() []byte { return s.topology.Current().Encode() },
		OnHint:     s.feed.onHint,
		OnTopology: s.feed.onTopology,
		OnVotes:    func() { s.lifecycle.wake() },
		OnChange:   func() { s.members.shareBudget(); s.lifecycle.wake() },
	}, reg, s.log)
	return nil
}
