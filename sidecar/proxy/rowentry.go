package proxy

import (
	"ringside/cache"
	"ringside/ring"
	"ringside/shard"
	"ringside/shard/keyspace"
	"ringside/sidecar/topology"
)

// entryAt is where the entry of a row was asked for, by which the answer is judged.
type entryAt struct {
	topology     *topology.Topology  // the one that governed the row's shard
	confirmation *shard.Confirmation // the shard's
	copy         topology.Copy
	vnode        uint16 // the row's cache vnode
	shardVnode   uint16 // and its shard vnode
	phase        shard.Phase
}

// earlierRoute is what a worker needs of a topology before the present one: a shard that has not come to the present one is governed by it.
type earlierRoute struct {
	topology *topology.Topology
	// upstreams by index of the cache server in it; nil where the present topology does not have that server any more.
	upstreams [][2]*upstream
}

// governing returns the topology of an epoch that is not the present one, and the upstreams by index of its cache servers; nil if it is not
// known here. They are worked out once per present topology.
func (w *worker) governing(epoch uint64) (*topology.Topology, [][2]*upstream) {
	for i := range w.route.earlier {
		if e := &w.route.earlier[i]; e.topology.Epoch == epoch {
			return e.topology, e.upstreams
		}
	}
	t := w.server.deps.Topology.At(epoch)
	if t == nil || w.route.topology == nil {
		return nil, nil
	}
	e := earlierRoute{topology: t, upstreams: make([][2]*upstream, len(t.Caches))}
	for i := range t.Caches {
		if at := w.route.topology.CacheIndex(t.Caches[i].Name); at >= 0 {
			e.upstreams[i] = w.route.upstreams[at]
		}
	}
	w.route.earlier = append(w.route.earlier, e)
	return e.topology, e.upstreams
}

// entry works out where the entry of a row is, by the topology that governs the row's shard, and whether the cache may be asked for it
// (promise P3). The name is in w.name, the place in at.
func (w *worker) entry(k *keyspace.Key, proto int, at *entryAt) (u *upstream, ok bool) {
	t := w.route.topology
	if t == nil || k.Keyspace.TTL == 0 {
		return nil, false
	}
	s := t.ShardOf(k.ShardKey, k.ShardVnode)
	if s == ring.None {
		return nil, false
	}
	confirmation := w.route.confirmations[s]
	view, standing := confirmation.Trust(w.loop.Now(), w.server.cfg.ViewTTL, k.CacheVnode)
	if standing >= shard.Unheard || standing == shard.Expired && !w.server.cfg.ServeUnconfirmed {
		return nil, false
	}
	upstreams := w.route.upstreams
	var copy topology.Copy
	var flush uint64
	if view.Epoch == t.Epoch && view.Phase == shard.Done { // as nearly always
		copy, flush = w.route.copies.at(k.CacheVnode), w.route.flushes.at(k.ShardVnode)
	} else {
		if view.Epoch != t.Epoch {
			if t, upstreams = w.governing(view.Epoch); t == nil {
				return nil, false
			}
		}
		copy, flush = t.ReadCopy(view, k.CacheVnode, k.ShardVnode), t.Flush(k.ShardVnode)
	}
	if copy.IsNone() {
		return nil, false
	}
	u = upstreams[copy.Server][proto-2]
	if u == nil || u.room() != nil || u.doubted || u.behind != nil || u.runID != "" && !u.entryUsable(t.Caches[copy.Server].RunID) {
		return nil, false
	}
	if standing == shard.Expired {
		w.stats.unconfirmed++
	}
	w.nameEntry(copy.Generation, flush, k.Text)
	*at = entryAt{t, confirmation, copy, k.CacheVnode, k.ShardVnode, view.Phase}
	return u, true
}

// prefix is the part of an entry's name before the key: its length, and what it was made of.
type prefix struct {
	generation, flush uint64
	length            int
}

// nameEntry puts an entry's name into w.name. Its prefix is nearly always that of the name before.
func (w *worker) nameEntry(generation, flush uint64, key []byte) {
	if p := &w.prefix; p.length == 0 || p.generation != generation || p.flush != flush {
		w.name = cache.AppendName(w.name[:0], generation, flush, nil)
		*p = prefix{generation, flush, len(w.name)}
	}
	w.name = append(w.name[:w.prefix.length], key...)
}

// trusted reports whether an entry that came by u may be used: the server at the other end is the incarnation that was meant, and that place
// is still the one to read by the shard's present view.
func (w *worker) trusted(u *upstream, at *entryAt) bool {
	was := &at.topology.Caches[at.copy.Server]
	if !u.entryUsable(was.RunID) {
		return false
	}
	view, _ := at.confirmation.View()
	now := at.topology
	if view.Epoch != now.Epoch {
		if now, _ = w.governing(view.Epoch); now == nil {
			return false
		}
	} else if view.Phase == at.phase {
		return true
	}
	copy := now.ReadCopy(view, at.vnode, at.shardVnode)
	if copy.Generation != at.copy.Generation || copy.IsNone() || now.Flush(at.shardVnode) != at.topology.Flush(at.shardVnode) {
		return false
	}
	is := &now.Caches[copy.Server]
	return is.Name == was.Name && is.RunID == was.RunID
}
