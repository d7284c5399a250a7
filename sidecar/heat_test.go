package sidecar

import (
	"math"
	"testing"

	"ringside/ring"
	"ringside/shard/catalog"
	"ringside/shard/keyspace"
	"ringside/sidecar/topology"
)

// What an override places counts for its shard and not for its vnode, and a plan tells what each shard has, now and then.
func TestLoadOfVnodesAndOverrides(t *testing.T) {
	top, err := topology.Bootstrap(nil, []topology.Shard{{Name: "s1", Weight: 1, DSN: "a", MaxConnections: 4}, {Name: "s2", Weight: 1, DSN: "b", MaxConnections: 4}})
	if err != nil {
		t.Fatal(err)
	}
	all := make([]uint16, ring.Vnodes)
	for v := range all {
		all[v] = uint16(v)
	}
	if top, err = topology.GiveVnodes(top, all, "s1"); err != nil {
		t.Fatal(err)
	}
	if top, err = topology.SetOverride(top, "big", "s2"); err != nil {
		t.Fatal(err)
	}
	holder := &topology.Holder{}
	holder.Publish(top)
	h := newShardHeat(holder)
	if load, _ := h.load(top); load != nil {
		t.Error("a load is known, and there was none")
	}
	hasher := ring.NewHasher()
	small := keyspace.Key{ShardKey: []byte("small"), ShardVnode: hasher.Vnode([]byte("small"))}
	big := keyspace.Key{ShardKey: []byte("big"), ShardVnode: hasher.Vnode([]byte("big"))}
	for range 8000 {
		h.used(&small)
		h.used(&big)
		h.used(&big)
	}
	load, fixed := h.load(top)
	if load[small.ShardVnode] < 1000*load[big.ShardVnode] || fixed[0] != 0 || math.Abs(fixed[1]/load[small.ShardVnode]-2) > 0.4 {
		t.Errorf("small %v, big's vnode %v, fixed %v", load[small.ShardVnode], load[big.ShardVnode], fixed)
	}
	p := h.planned(top, []catalog.NewPart{{From: "s1", To: "s2", Vnodes: []uint16{small.ShardVnode}}})
	if p[0].Vnodes != ring.Vnodes || p[0].VnodesThen != ring.Vnodes-1 || p[1].VnodesThen != 1 || p[0].LoadThen > p[0].Load/100 || p[1].LoadThen < p[0].Load {
		t.Errorf("%+v", p)
	}
}
