package sidecar

import (
	"math/rand/v2"
	"time"

	"ringside/internal/heat"
	"ringside/ring"
	"ringside/shard/catalog"
	"ringside/shard/keyspace"
	"ringside/sidecar/admin"
	"ringside/sidecar/proxy"
	"ringside/sidecar/topology"
)

const (
	// shardSampledOneIn is of how many rows that are read from shards, or written, one is counted.
	shardSampledOneIn = 8
	hotShardKeys      = 256
)

// shardHeat knows which shard keys and vnodes give the shards work, by what this sidecar asks of them.
type shardHeat struct {
	topology *topology.Holder
	keys     *heat.Keys
	vnodes   *heat.Table // without shard keys that have overrides: they do not go with their vnode
}

func newShardHeat(t *topology.Holder) *shardHeat {
	return &shardHeat{topology: t, keys: heat.NewKeys(hotShardKeys, proxy.HotHalfLife), vnodes: heat.NewTable(ring.Vnodes, proxy.HotHalfLife)}
}

// used takes note of a row that a shard is asked for, or to write. Safe for concurrent use; nil counts nothing.
func (h *shardHeat) used(k *keyspace.Key) {
	if h == nil || rand.Uint32()%shardSampledOneIn != 0 {
		return
	}
	now := time.Now()
	h.keys.Add(k.ShardKey, shardSampledOneIn, now)
	if t := h.topology.Current(); t == nil || !t.Apart(k.ShardKey) {
		h.vnodes.Add(int(k.ShardVnode), shardSampledOneIn, now)
	}
}

// hotKeys implements admin.Deps.
func (s *Sidecar) hotKeys(n int) admin.HotKeys {
	t, now := s.topology.Current(), time.Now()
	out := admin.HotKeys{Sidecar: s.cfg.Name, HalfLife: proxy.HotHalfLife.Seconds()}
	hasher := ring.NewHasher()
	for _, h := range s.proxy.HotKeys(n) {
		k := admin.HotKey{Key: h.Key, Rate: h.Rate, AtLeast: h.AtLeast}
		if i := t.CacheOf(hasher.Vnode(ring.CacheKey([]byte(h.Key)))); i != ring.None {
			k.Cache = t.Caches[i].Name
		}
		out.Keys = append(out.Keys, k)
	}
	nameOf := func(i uint16) string {
		if i == ring.None {
			return ""
		}
		return t.Shards[i].Name
	}
	for _, h := range s.heat.keys.Top(n, now) {
		vnode := hasher.Vnode([]byte(h.Key))
		out.ShardKeys = append(out.ShardKeys, admin.HotShardKey{
			ShardKey: h.Key, Vnode: vnode, Shard: nameOf(t.ShardOf([]byte(h.Key), vnode)), Override: t.Apart([]byte(h.Key)), Rate: h.Rate, AtLeast: h.AtLeast,
		})
	}
	table := t.ShardTable()
	shards := make([]admin.HotShard, len(t.Shards))
	for i := range shards {
		shards[i].Name = t.Shards[i].Name
	}
	for v, rate := range s.heat.vnodes.Rates(now) {
		owner := table[v]
		if owner != ring.None {
			shards[owner].Vnodes++
			shards[owner].Rate += rate
		}
		if rate > 0 {
			out.Vnodes = append(out.Vnodes, admin.HotVnode{Vnode: uint16(v), Shard: nameOf(owner), Rate: rate})
		}
	}
	out.Shards = shards
	return out
}

// load is what each vnode costs its shard, in requests a second, and what each shard has besides by overrides; nil when nothing is known. What holds rows but
// is not asked for counts a little, so that it is not all left to one shard.
func (h *shardHeat) load(t *topology.Topology) (vnodes, fixed []float64) {
	now := time.Now()
	vnodes, fixed = h.vnodes.Rates(now), h.apart(t, now)
	var sum float64
	for _, rate := range vnodes {
		sum += rate
	}
	if sum == 0 {
		return nil, nil
	}
	for v := range vnodes {
		vnodes[v] += sum / ring.Vnodes / 10
	}
	return vnodes, fixed
}

// apart is what each shard has by overrides.
func (h *shardHeat) apart(t *topology.Topology, now time.Time) []float64 {
	out := make([]float64, len(t.Shards))
	hasher := ring.NewHasher()
	for _, k := range h.keys.Top(hotShardKeys, now) {
		key := []byte(k.Key)
		if i := t.ShardOf(key, hasher.Vnode(key)); t.Apart(key) && i != ring.None {
			out[i] += k.AtLeast
		}
	}
	return out
}

// planned is what each shard has, and would have after a move.
func (h *shardHeat) planned(t *topology.Topology, parts []catalog.NewPart) []admin.PlannedShard {
	now := time.Now()
	rates, fixed := h.vnodes.Rates(now), h.apart(t, now)
	out := make([]admin.PlannedShard, len(t.Shards))
	for i, s := range t.Shards {
		out[i] = admin.PlannedShard{Name: s.Name, Weight: s.Weight, Load: fixed[i], LoadThen: fixed[i]}
	}
	for v, owner := range t.ShardTable() {
		if owner != ring.None {
			s := &out[owner]
			s.Vnodes, s.VnodesThen, s.Load, s.LoadThen = s.Vnodes+1, s.VnodesThen+1, s.Load+rates[v], s.LoadThen+rates[v]
		}
	}
	for _, p := range parts {
		from, to := t.ShardIndex(p.From), t.ShardIndex(p.To)
		if p.Key != "" || from < 0 || to < 0 {
			continue
		}
		for _, v := range p.Vnodes {
			out[from].VnodesThen, out[to].VnodesThen = out[from].VnodesThen-1, out[to].VnodesThen+1
			out[from].LoadThen, out[to].LoadThen = out[from].LoadThen-rates[v], out[to].LoadThen+rates[v]
		}
	}
	return out
}
