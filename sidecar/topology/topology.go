package topology

import (
	"fmt"
	"slices"
	"sort"
	"sync"

	"ringside/ring"
)

// State is where a server or shard stands in its life.
type State string

// The states. Only active cache servers with a weight own vnodes.
const (
	Joining  State = "joining"
	Active   State = "active"
	Draining State = "draining"
	Down     State = "down"
)

// Cache is one cache server. Its name places it on the ring; its address is only where to find it (promise P2).
type Cache struct {
	Name   string `json:"name"`
	Addr   string `json:"addr"`
	Weight uint32 `json:"weight"`
	State  State  `json:"state"`
	// RunID is the run_id of the incarnation whose entries count. Empty: none was met yet, and the server holds no rows.
	RunID string `json:"run_id,omitempty"`
	// Gen is the epoch in which that incarnation was adopted.
	Gen uint64 `json:"gen,omitempty"`
}

// Shard is one shard. DSN never carries a password: each sidecar adds what its own configuration says for that name.
type Shard struct {
	Name           string `json:"name"`
	DSN            string `json:"dsn"`
	Weight         uint32 `json:"weight"`
	State          State  `json:"state"`
	MaxConnections int    `json:"max_connections"`
}

// Override places one shard key on a shard of its own choice.
type Override struct {
	ShardKey string `json:"shard_key"`
	Shard    string `json:"shard"`
}

// Topology is one state of the cluster. It is immutable once New has returned it: fields are read, never written.
type Topology struct {
	Epoch     uint64
	Params    ring.Params
	Caches    []Cache    // sorted by name
	Shards    []Shard    // sorted by name
	Overrides []Override // sorted by shard key
	Handovers []Handover

	content   Content
	body      []byte // canonical JSON
	digest    Digest
	encoded   func() []byte
	cacheOf   []uint16 // vnode -> index into Caches
	shardOf   []uint16 // vnode -> index into Shards
	appointed []uint64
	flush     []uint64
	former    *former  // nil: nothing is being handed over
	handing   []uint64 // by vnode: number of its hand-over, from 1; nil: none
	overrides map[string]uint16
	placement *ring.Placement
}

// New works out everything that follows from content and checks it. The error names the fault.
func New(content Content) (*Topology, error) { return newBeside(content) }

// newBeside is New beside topologies, some of which may be nil, whose placements need not be computed anew: a placement takes much of the time that
// New takes, and most changes leave it as it was, or only have what was there before as the former one.
func newBeside(content Content, known ...*Topology) (*Topology, error) {
	c := content.clone()
	sort.Slice(c.Caches, func(i, j int) bool { return c.Caches[i].Name < c.Caches[j].Name })
	sort.Slice(c.Overrides, func(i, j int) bool { return c.Overrides[i].ShardKey < c.Overrides[j].ShardKey })
	if err := c.check(); err != nil {
		return nil, err
	}
	placement, err := placeCaches(c.Caches, c.Params, known)
	if err != nil {
		return nil, fmt.Errorf("placing the cache servers: %w", err)
	}
	t := &Topology{
		Epoch: c.Epoch, Params: c.Params, Caches: c.Caches, Shards: c.Shards, Overrides: c.Overrides, Handovers: c.Handovers,
		content: c, cacheOf: placement.Table(), placement: placement,
		shardOf: c.ShardMap.expand16(), appointed: c.Appointed.expand(), flush: c.Flush.expand(),
	}
	if c.Former != nil {
		if t.former, err = newFormer(c.Former, c.Caches, c.Params, known); err != nil {
			return nil, err
		}
	}
	if len(c.Handovers) > 0 {
		t.handing = c.Handing.expand()
	}
	if len(c.Overrides) > 0 {
		t.overrides = make(map[string]uint16, len(c.Overrides))
		for _, o := range c.Overrides {
			t.overrides[o.ShardKey] = uint16(t.ShardIndex(o.Shard))
		}
	}
	t.body, t.digest = c.encode()
	t.encoded = sync.OnceValue(t.compress)
	return t, nil
}

// Digest identifies the content, whoever computes it.
func (t *Topology) Digest() Digest { return t.digest }

// Content returns a copy of what the topology was made from, to make the next one of.
func (t *Topology) Content() Content { return t.content.clone() }

// CacheOf returns the index in Caches of the server that owns a cache vnode, or ring.None.
func (t *Topology) CacheOf(vnode uint16) uint16 { return t.cacheOf[vnode] }

// ShardOf returns the index in Shards of the shard that a shard key lives on, or ring.None. vnode is the key's shard vnode.
func (t *Topology) ShardOf(shardKey []byte, vnode uint16) uint16 {
	if t.overrides != nil {
		if i, ok := t.overrides[string(shardKey)]; ok {
			return i
		}
	}
	return t.shardOf[vnode]
}

// Apart reports whether an override places a shard key, instead of its vnode.
func (t *Topology) Apart(shardKey []byte) bool {
	_, apart := t.overrides[string(shardKey)]
	return apart
}

// Generation is the g of the entry names of a cache vnode; 0 when the vnode has no owner whose entries count.
func (t *Topology) Generation(vnode uint16) uint64 {
	i := t.cacheOf[vnode]
	if i == ring.None || t.Caches[i].RunID == "" {
		return 0
	}
	return max(t.appointed[vnode], t.Caches[i].Gen)
}

// Flush is the f of the entry names of a shard vnode.
func (t *Topology) Flush(vnode uint16) uint64 { return t.flush[vnode] }

// CacheTable and ShardTable map vnodes to indexes into Caches and Shards. They are shared: read only.
func (t *Topology) CacheTable() []uint16 { return t.cacheOf }

// ShardTable maps vnodes to indexes into Shards, overrides aside. It is shared: read only.
func (t *Topology) ShardTable() []uint16 { return t.shardOf }

// CacheIndex returns the position of a cache server, or -1.
func (t *Topology) CacheIndex(name string) int { return indexOf(t.Caches, name) }

// ShardIndex returns the position of a shard, or -1.
func (t *Topology) ShardIndex(name string) int {
	for i := range t.Shards {
		if t.Shards[i].Name == name {
			return i
		}
	}
	return -1
}

// Owned lists the vnodes that the shard map gives to a shard.
func (t *Topology) Owned(name string) []uint16 {
	var out []uint16
	index := t.ShardIndex(name)
	for v, i := range t.shardOf {
		if int(i) == index {
			out = append(out, uint16(v))
		}
	}
	return out
}

// Holding returns the vnodes of which a shard has rows: those that it owns, and those of shard keys that an override gives it.
func (t *Topology) Holding(name string) []uint16 {
	out := t.Owned(name)
	hasher := ring.NewHasher()
	for _, o := range t.Overrides {
		if v := hasher.Vnode([]byte(o.ShardKey)); o.Shard == name && !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// Supersedes reports whether t is the one to keep where no catalog decides: the higher epoch, and of two
// equal epochs the higher digest, so that all sidecars keep the same one.
func (t *Topology) Supersedes(other *Topology) bool {
	if other == nil {
		return true
	}
	if t.Epoch != other.Epoch {
		return t.Epoch > other.Epoch
	}
	return t.digest.compare(other.digest) > 0
}
