package sidecar

import (
	"encoding/base64"
	"fmt"
	"net"
	"strconv"
	"time"

	"ringside/membership"
	"ringside/shard/origin"
	"ringside/sidecar/admin"
	"ringside/sidecar/config"
	"ringside/sidecar/topology"
)

// members tells the other parts who is in the cluster, and divides the shards' connections among them.
type members struct {
	gossip   *membership.Gossip
	fleet    *origin.Fleet
	topology *topology.Holder
}

// Sidecars implements proxy.Cluster.
func (m *members) Sidecars() int {
	n := 0
	for _, member := range m.gossip.Members() {
		if member.State == membership.Alive {
			n++
		}
	}
	return n
}

// rank is this sidecar's place among those that live, by their names, from 0.
func (m *members) rank() int {
	all := m.gossip.Members()
	rank := 0
	for _, self := range all {
		if !self.Self {
			continue
		}
		for _, other := range all {
			if other.State == membership.Alive && other.Name < self.Name {
				rank++
			}
		}
	}
	return rank
}

// agreed reports whether every sidecar that lives, as far as gossip knows, acts by the same topology as this one.
func (m *members) agreed() bool {
	own := hintOf(m.topology.Current())
	for _, member := range m.gossip.Members() {
		if member.State == membership.Alive && !member.Self && member.Hint != own {
			return false
		}
	}
	return true
}

// shareBudget gives this sidecar its part of each shard's connections: all sidecars alike. It is what they aim at; the shards see to it that all of them
// together keep within the budget.
func (m *members) shareBudget() {
	t := m.topology.Current()
	if t == nil {
		return
	}
	n := m.Sidecars()
	for i := range t.Shards {
		m.fleet.SetLimit(t.Shards[i].Name, origin.Share(t.Shards[i].MaxConnections, n))
	}
}

// list is what /members shows.
func (m *members) list() []admin.Member {
	all := m.gossip.Members()
	out := make([]admin.Member, len(all))
	for i, x := range all {
		out[i] = admin.Member{
			Name: x.Name, Addr: x.Addr, Redis: x.Meta.Redis, Admin: x.Meta.Admin, Version: x.Meta.Version, Boot: x.Meta.Boot,
			Epoch: x.Hint.Epoch, Digest: x.Hint.Digest, State: x.State.String(), Self: x.Self,
		}
	}
	return out
}

// pools is what /pools shows.
func (m *members) pools() []admin.Pool {
	all := m.fleet.Pools()
	out := make([]admin.Pool, len(all))
	for i, p := range all {
		out[i] = admin.Pool{
			Name: p.Name, Budget: p.Budget, Limit: p.Limit, InUse: p.InUse, Idle: p.Idle, Waiting: p.Waiting, OldestWaitMS: p.OldestWait.Milliseconds(),
			Served: p.Served, Shed: p.ShedFull + p.ShedLate, State: "up", LastError: p.LastError,
			Diagnosis: string(p.Diagnosis), Refused: p.Refused, SpareShed: p.SpareShed,
		}
		if !p.DownSince.IsZero() {
			out[i].State = "down"
		}
	}
	return out
}

// gossipConfig is the part of the configuration that gossip needs. The addresses it was checked for have been checked.
func gossipConfig(cfg *config.Config, version, boot string) (membership.Config, error) {
	host, port, err := net.SplitHostPort(cfg.Gossip.Listen)
	if err != nil {
		return membership.Config{}, err
	}
	g := membership.DefaultConfig()
	g.Name, g.BindAddr, g.Join, g.Cluster = cfg.Name, host, cfg.Gossip.Join, cfg.Gossip.Cluster
	if g.BindPort, err = strconv.Atoi(port); err != nil {
		return g, err
	}
	if cfg.Catalog.DSN != "" {
		g.RequestAfter = 2 * time.Second // the catalog is read meanwhile
	}
	g.Advertise = cfg.Gossip.Advertise
	if g.Keys, err = gossipKeys(cfg.Gossip.Keys); err != nil {
		return g, err
	}
	g.Meta = membership.Meta{Boot: boot, Version: version, Redis: cfg.Redis.Listen, Admin: cfg.Admin.Listen}
	return g, nil
}

func gossipKeys(secrets []config.Secret) ([][]byte, error) {
	var keys [][]byte
	for i, k := range secrets {
		key, err := base64.StdEncoding.DecodeString(string(k))
		if err != nil {
			return nil, fmt.Errorf("keys[%d] is not base64", i) // the error itself would show some of it
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// SetGossipKeys replaces the keys of a running sidecar: the first encrypts, all decrypt. The error says why they stay as they were. Any goroutine.
func (s *Sidecar) SetGossipKeys(secrets []config.Secret) error {
	keys, err := gossipKeys(secrets)
	if err != nil {
		return fmt.Errorf("gossip: %w", err)
	}
	return s.gossip.SetKeys(keys)
}
