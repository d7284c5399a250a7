package topology

import (
	"fmt"
	"sort"

	"ringside/ring"
)

// Bootstrap is the first topology of a cluster, made from the configuration of whichever sidecar starts first.
// Two sidecars with the same configuration make the same one, byte for byte.
func Bootstrap(caches []Cache, shards []Shard) (*Topology, error) {
	c := Content{Epoch: 1, Params: ring.DefaultParams(), Appointed: Same(1), Flush: Same(1), ShardMap: Same(uint64(ring.None))}
	c.Caches = append(c.Caches, caches...)
	c.Shards = append(c.Shards, shards...)
	sort.Slice(c.Shards, func(i, j int) bool { return c.Shards[i].Name < c.Shards[j].Name })
	for i := range c.Caches {
		c.Caches[i].State = Active
	}
	nodes := make([]ring.Node, len(c.Shards))
	for i := range c.Shards {
		c.Shards[i].State = Active
		nodes[i] = ring.Node{Name: c.Shards[i].Name, Weight: c.Shards[i].Weight}
	}
	if len(nodes) > 0 {
		owners, err := ring.PlanShards(nil, nodes, ring.ShardSalt)
		if err != nil {
			return nil, fmt.Errorf("placing the shards: %w", err)
		}
		c.ShardMap = Each(owners)
	}
	return New(c)
}
