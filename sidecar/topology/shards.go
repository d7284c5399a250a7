package topology

import (
	"fmt"
	"slices"
	"strings"

	"ringside/ring"
)

// The functions below change the shards and the shard map, as those of change.go change the cache servers. No row changes its cached copy by them, so they
// wait for no other change.

// AddShard adds a shard. It owns nothing until vnodes are moved to it. The DSN must carry no password.
func AddShard(t *Topology, s Shard) (*Topology, error) {
	if s.Name == "" || s.DSN == "" {
		return nil, refuse("a shard needs a name and a dsn")
	}
	for _, other := range t.Shards {
		switch {
		case other.Name == s.Name:
			return nil, refuse("there is a shard %s already", s.Name)
		case other.DSN == s.DSN:
			return nil, refuse("shard %s has that dsn already", other.Name)
		}
	}
	if len(t.Shards) == 0 {
		return nil, refuse("this cluster has no shards: it was begun without")
	}
	return t.next(func(next *Content) {
		s.State = Active
		at, _ := slices.BinarySearchFunc(next.Shards, s.Name, func(other Shard, name string) int { return strings.Compare(other.Name, name) })
		next.Shards = slices.Insert(next.Shards, at, s)
		owners := slices.Clone(t.shardOf)
		for v, i := range owners {
			if i != ring.None && int(i) >= at {
				owners[v]++
			}
		}
		next.ShardMap = Each(owners)
	})
}

// WeighShard gives a shard another weight. Nothing moves by itself: moves reach what the weights ask for.
func WeighShard(t *Topology, name string, weight uint32) (*Topology, error) {
	at := t.ShardIndex(name)
	if at < 0 {
		return nil, &Refusal{Unknown: true, Reason: fmt.Sprintf("there is no shard %s", name)}
	}
	others := false
	for i, s := range t.Shards {
		others = others || i != at && s.Weight > 0
	}
	if weight == 0 && !others {
		return nil, refuse("shard %s is the last one with a weight: nobody could own its rows", name)
	}
	return t.next(func(next *Content) { next.Shards[at].Weight = weight })
}

// GiveVnodes makes the shard map give vnodes to a shard, which owns them by its own word already.
func GiveVnodes(t *Topology, vnodes []uint16, to string) (*Topology, error) {
	at := t.ShardIndex(to)
	if at < 0 {
		return nil, &Refusal{Unknown: true, Reason: fmt.Sprintf("there is no shard %s", to)}
	}
	return t.next(func(next *Content) {
		owners := slices.Clone(t.shardOf)
		for _, v := range vnodes {
			owners[v] = uint16(at)
		}
		next.ShardMap = Each(owners)
	})
}

// MaxOverrides is how many shard keys can be placed one by one: they travel with each topology, and each shard that has to do with one looks at it.
const MaxOverrides = 1024

// SetOverride places a shard key on a shard, which owns it by its own word already.
func SetOverride(t *Topology, key, to string) (*Topology, error) {
	if t.ShardIndex(to) < 0 {
		return nil, &Refusal{Unknown: true, Reason: fmt.Sprintf("there is no shard %s", to)}
	}
	if _, known := t.overrides[key]; !known && len(t.Overrides) >= MaxOverrides {
		return nil, refuse("there are %d overrides, and may be no more: place whole vnodes instead", len(t.Overrides))
	}
	return t.next(func(next *Content) {
		next.Overrides = slices.DeleteFunc(next.Overrides, func(o Override) bool { return o.ShardKey == key })
		next.Overrides = append(next.Overrides, Override{ShardKey: key, Shard: to})
		slices.SortFunc(next.Overrides, func(a, b Override) int { return strings.Compare(a.ShardKey, b.ShardKey) })
	})
}

// ClearOverride places a shard key by its vnode again, whose shard owns it by its own word already.
func ClearOverride(t *Topology, key string) (*Topology, error) {
	return t.next(func(next *Content) {
		next.Overrides = slices.DeleteFunc(next.Overrides, func(o Override) bool { return o.ShardKey == key })
	})
}

// RemoveShard forgets a shard that owns nothing and is to own nothing.
func RemoveShard(t *Topology, name string) (*Topology, error) {
	at := t.ShardIndex(name)
	if at < 0 {
		return nil, &Refusal{Unknown: true, Reason: fmt.Sprintf("there is no shard %s", name)}
	}
	keys := 0
	for _, o := range t.Overrides {
		if o.Shard == name {
			keys++
		}
	}
	switch owned := len(t.Owned(name)); {
	case t.Shards[at].Weight > 0:
		return nil, refuse("shard %s has weight %d: give it weight 0, and let moves take away what it owns, first", name, t.Shards[at].Weight)
	case owned > 0:
		return nil, refuse("shard %s owns %d vnodes: let moves take them away first (ringside move start)", name, owned)
	case keys > 0:
		return nil, refuse("shard %s has %d shard keys by overrides: clear them, or set them to other shards, first", name, keys)
	}
	return t.next(func(next *Content) {
		next.Shards = slices.Delete(next.Shards, at, at+1)
		owners := slices.Clone(t.shardOf)
		for v, i := range owners {
			if i != ring.None && int(i) > at {
				owners[v]--
			}
		}
		next.ShardMap = Each(owners)
	})
}
