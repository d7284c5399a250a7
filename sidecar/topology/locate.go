package topology

import (
	"ringside/ring"
	"ringside/shard/keyspace"
)

// Location says where a key lives, and why. Its JSON is the answer of /ring/lookup.
type Location struct {
	Key        string `json:"key"`
	Keyspace   string `json:"keyspace"` // "plain" when no table keyspace matches
	CacheVnode uint16 `json:"cache_vnode"`
	Cache      string `json:"cache"` // name; empty: no server owns the vnode
	// The following are about rows only.
	ShardKey   *string `json:"shard_key,omitempty"`
	ShardVnode *uint16 `json:"shard_vnode,omitempty"`
	Shard      *string `json:"shard,omitempty"`
	Epoch      uint64  `json:"epoch"`
}

// Plain is the keyspace that a Location names for keys that are no rows.
const Plain = "plain"

// Locate works out where a key lives. The error is a *keyspace.BadKeyError.
func (t *Topology) Locate(keyspaces *keyspace.Set, key []byte) (Location, error) {
	var k keyspace.Key
	h := ring.NewHasher()
	isRow, err := keyspaces.Match(h, key, &k)
	if err != nil {
		return Location{}, err
	}
	l := Location{Key: string(key), Keyspace: Plain, CacheVnode: h.Vnode(ring.CacheKey(key)), Epoch: t.Epoch}
	if i := t.CacheOf(l.CacheVnode); i != ring.None {
		l.Cache = t.Caches[i].Name
	}
	if !isRow {
		return l, nil
	}
	shardKey, vnode, name := string(k.ShardKey), k.ShardVnode, ""
	if i := t.ShardOf(k.ShardKey, k.ShardVnode); i != ring.None {
		name = t.Shards[i].Name
	}
	l.Keyspace, l.ShardKey, l.ShardVnode, l.Shard = k.Keyspace.Name, &shardKey, &vnode, &name
	return l, nil
}
