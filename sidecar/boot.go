package sidecar

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"ringside/shard/origin"
	"ringside/sidecar/config"
	"ringside/sidecar/topology"
)

// firstTopology finds the topology to begin with: the catalog's; if that cannot be asked, the one kept from the last time; if there is none
// anywhere, a new one made from the configuration, unless another sidecar was quicker.
func (s *Sidecar) firstTopology(ctx context.Context) (*topology.Topology, error) {
	kept, err := topology.LoadFile(s.topologyFile())
	if err != nil {
		s.log.Warn("the topology kept from the last time is of no use", "error", err)
	}
	if s.catalog == nil {
		if kept != nil {
			return kept, nil
		}
		return s.bootstrap(ctx)
	}
	t, err := s.catalog.load(ctx, kept)
	if err == nil && t == nil {
		if t, err = s.bootstrap(ctx); err == nil {
			t, err = s.catalog.create(ctx, t)
		}
	}
	if err == nil {
		return t, nil
	}
	if kept != nil {
		s.log.Warn("the catalog cannot be asked: starting with the topology kept from the last time", "epoch", kept.Epoch, "error", err)
		return kept, nil
	}
	return nil, s.cfg.At("catalog.dsn", fmt.Errorf("the catalog cannot be asked and no topology is kept from an earlier start in %s: %w", s.cfg.DataDir, err))
}

// bootstrap makes the first topology from the configuration. Cache servers that answer now are used from the start.
func (s *Sidecar) bootstrap(ctx context.Context) (*topology.Topology, error) {
	caches := make([]topology.Cache, len(s.cfg.Caches))
	for i, c := range s.cfg.Caches {
		caches[i] = topology.Cache{Name: c.Name, Addr: c.Addr, Weight: uint32(c.Weight), State: topology.Active}
	}
	shards := make([]topology.Shard, len(s.cfg.Shards))
	for i, sh := range s.cfg.Shards {
		shards[i] = topology.Shard{Name: sh.Name, DSN: sh.DSN.Bare(), Weight: uint32(sh.Weight), MaxConnections: sh.MaxConnections}
	}
	if err := s.servers.Apply(s.serverConfigs(caches)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, feedTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for i := range caches {
		wg.Go(func() {
			runID, err := s.servers.Probe(ctx, caches[i].Name)
			if err != nil {
				s.log.Warn("a cache server does not answer; it will be used when it does", "server", caches[i].Name, "error", err)
				return
			}
			caches[i].RunID, caches[i].Gen = runID, 1
		})
	}
	wg.Wait()
	return topology.Bootstrap(caches, shards)
}

// warnOfDifferences tells the operator whose changes of the configuration have no effect: a topology that exists counts.
func (s *Sidecar) warnOfDifferences(t *topology.Topology) {
	configured := map[string]bool{}
	for _, c := range s.cfg.Caches {
		configured["cache server "+c.Name] = true
		if i := t.CacheIndex(c.Name); i < 0 || t.Caches[i].Addr != c.Addr || t.Caches[i].Weight != uint32(c.Weight) {
			s.log.Warn("the configuration of a cache server is not the cluster's, which counts", "server", c.Name)
		}
	}
	for _, sh := range s.cfg.Shards {
		configured["shard "+sh.Name] = true
		if i := t.ShardIndex(sh.Name); i < 0 || t.Shards[i].Weight != uint32(sh.Weight) || t.Shards[i].MaxConnections != sh.MaxConnections {
			s.log.Warn("the configuration of a shard is not the cluster's, which counts", "shard", sh.Name)
		}
	}
	for _, c := range t.Caches {
		if !configured["cache server "+c.Name] {
			s.log.Info("the cluster has a cache server that the configuration does not list", "server", c.Name)
		}
	}
	for _, sh := range t.Shards {
		if !configured["shard "+sh.Name] {
			s.log.Info("the cluster has a shard that the configuration does not list", "shard", sh.Name)
		}
	}
}

// setUpShards installs what ringside needs on every shard and checks the tables. A shard that does not answer is left for its keeper; what is
// wrong with one that does is an error that says where in the configuration its cause stands.
func (s *Sidecar) setUpShards(ctx context.Context, t *topology.Topology) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	errs := make([]error, len(t.Shards))
	var wg sync.WaitGroup
	for i := range t.Shards {
		wg.Go(func() { errs[i] = s.setUpShard(ctx, t, t.Shards[i].Name) })
	}
	wg.Wait()
	return config.Join(errs...)
}

func (s *Sidecar) setUpShard(ctx context.Context, t *topology.Topology, name string) error {
	err := install(ctx, s.fleet, t, name)
	if wrong, ok := errors.AsType[*origin.WrongShardError](err); ok {
		return s.cfg.At(s.shardPath(name), wrong)
	}
	if err != nil {
		s.log.Warn("a shard cannot be set up yet", "shard", name, "error", err)
		return nil
	}
	var errs []error
	for _, ks := range s.cfg.Set().Keyspaces() {
		err := s.fleet.CheckTable(ctx, name, ks)
		if table, ok := errors.AsType[*origin.TableError](err); ok {
			errs = append(errs, s.cfg.At(keyspacePath(s.cfg, ks.Name), table))
		} else if err != nil {
			s.log.Warn("a table cannot be checked", "shard", name, "table", ks.Table, "error", err)
		}
	}
	return config.Join(errs...)
}

// shardPath is where the configuration speaks of a shard; it may not, if the shard came later.
func (s *Sidecar) shardPath(name string) string {
	for i := range s.cfg.Shards {
		if s.cfg.Shards[i].Name == name {
			return fmt.Sprintf("shards[%d].dsn", i)
		}
	}
	return "shards"
}
