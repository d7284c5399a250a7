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

// AdoptRuns lets new incarnations of cache servers (name -> run_id) hold rows, under a generation of their own, so that nothing which an
// earlier incarnation cached, or brings back from its disk, is ever read again (promise P3). It returns t itself when there is nothing
// to change.
//
// Each shard goes through the phase shard.Preparing with it: rows whose generation has changed are kept out of the cache until
// no sidecar can be using the earlier incarnation any more (it may live on behind an old connection).
func AdoptRuns(t *Topology, met map[string]string) (*Topology, error) {
	c := t.Content()
	changed := false
	for server, runID := range met {
		i := t.CacheIndex(server)
		if i < 0 {
			return nil, fmt.Errorf("cache server %q is not in the topology", server)
		}
		if runID == "" {
			return nil, fmt.Errorf("cache server %s: empty run_id", server)
		}
		if c.Caches[i].RunID != runID {
			c.Caches[i].RunID, c.Caches[i].Gen = runID, t.Epoch+1
			changed = true
		}
	}
	if !changed {
		return t, nil
	}
	c.Epoch = t.Epoch + 1
	return New(c)
}
