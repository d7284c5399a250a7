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
