package ring

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

const (
	// CacheSalt is the salt of the cache servers' placement.
	CacheSalt = "cache"
	// ShardSalt is the salt of the shards' plan. It differs from CacheSalt so that a vnode's two owners are independent.
	ShardSalt = "shard"
	// MaxNodes is the largest number of servers in one fleet: an index is 16 bits wide and None is taken.
	MaxNodes = int(None) - 1

	hashName = "murmur3-x86-32"
	million  = 1_000_000
	maxCap   = million // 100 %: twice the fair share
)

// Params are the constants of placement. They are part of the topology and of its digest, so that two versions of ringside that
// place differently never mix silently. All but CapPPM are fixed in this version; they are stated to be compared.
type Params struct {
	Hash      string `json:"hash"`       // name of the hash of keys; "murmur3-x86-32"
	Seed      uint32 `json:"seed"`       // its seed; 0
	VnodeBits int    `json:"vnode_bits"` // 16: 65,536 vnodes
	// CapPPM is how far above its fair share a cache server may go, in millionths. Higher: less movement between servers that stay.
	// Lower: better balance. From 0 (exact, to a vnode) to 1,000,000.
	CapPPM int `json:"cap_ppm"`
}

// DefaultParams returns the parameters of a new cluster: a cap of 5 %.
func DefaultParams() Params {
	return Params{Hash: hashName, Seed: 0, VnodeBits: Bits, CapPPM: 50_000}
}

// Validate says what in p this version cannot do.
func (p Params) Validate() error {
	switch {
	case p.Hash != hashName:
		return fmt.Errorf("placement: hash %q is unknown; this version has %q", p.Hash, hashName)
	case p.Seed != 0:
		return fmt.Errorf("placement: seed %d: this version has only seed 0, which the shards' SQL shares", p.Seed)
	case p.VnodeBits != Bits:
		return fmt.Errorf("placement: %d vnode bits: this version has only %d", p.VnodeBits, Bits)
	case p.CapPPM < 0 || p.CapPPM > maxCap:
		return fmt.Errorf("placement: cap of %d millionths: allowed are 0 to %d", p.CapPPM, maxCap)
	}
	return nil
}

// Node is a server of one fleet. Its address is no part of it: a server that changes address moves nothing.
type Node struct {
	Name   string // stable, unique within the fleet, not empty
	Weight uint32 // its share is Weight / sum of all; 0 takes nothing
}

// sorted returns the nodes ordered by name, bytewise, in a slice of its own.
func sorted(nodes []Node) ([]Node, error) {
	if len(nodes) > MaxNodes {
		return nil, fmt.Errorf("%d servers: at most %d are allowed", len(nodes), MaxNodes)
	}
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	for i, n := range nodes {
		if n.Name == "" {
			return nil, errors.New("a server has an empty name")
		}
		if i > 0 && n.Name == nodes[i-1].Name {
			return nil, fmt.Errorf("two servers are called %q; a name must be unique", n.Name)
		}
	}
	return nodes, nil
}

// totalWeight fits 64 bits: at most 2^16 nodes of less than 2^32.
func totalWeight(nodes []Node) uint64 {
	var sum uint64
	for _, n := range nodes {
		sum += uint64(n.Weight)
	}
	return sum
}

func names(nodes []Node) []string {
	out := make([]string, len(nodes))
	for i, n := range nodes {
		out[i] = n.Name
	}
	return out
}
