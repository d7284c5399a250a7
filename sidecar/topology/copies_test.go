package topology

import (
	"fmt"
	"slices"
	"testing"

	"ringside/ring"
	"ringside/shard"
)

// TestWhichCopiesCount is the table of section "Planned changes" of docs/ARCHITECTURE.md.
func TestWhichCopiesCount(t *testing.T) {
	before := fleetOf(t, 3)
	drained := must(t)(DrainCache(before, "c1"))
	down := must(t)(MarkDown(before, []string{"c1"}))
	var moved, stays uint16
	for v := range ring.Vnodes {
		if before.ownerName(uint16(v)) == "c1" {
			moved = uint16(v)
		} else {
			stays = uint16(v)
		}
	}
	old := Copy{Server: before.CacheOf(moved), Generation: 1}
	drainedTo := Copy{Server: drained.CacheOf(moved), Generation: 2}
	downTo := Copy{Server: down.CacheOf(moved), Generation: 2}
	same := Copy{Server: before.CacheOf(stays), Generation: 1}
	settledOn := func(c Copy) Copies { return Copies{Read: c, Clean: [2]Copy{c}, Cleans: 1} }
	view := func(epoch uint64, p shard.Phase, from uint64) shard.View {
		return shard.View{Epoch: epoch, Phase: p, From: from}
	}
	// Epochs that move nothing may be skipped.
	joining := must(t)(AddCache(before, Cache{Name: "c9", Addr: "127.0.0.1:9", Weight: 1}))
	later := must(t)(DrainCache(joining, "c1"))
	laterTo := Copy{Server: later.CacheOf(moved), Generation: 3}
	for _, c := range []struct {
		name  string
		by    *Topology
		view  shard.View
		vnode uint16
		want  Copies
	}{
		{"before", before, view(1, shard.Done, 0), moved, settledOn(old)},
		{"drain, preparing", drained, view(2, shard.Preparing, 1), moved, Copies{Read: old, Clean: [2]Copy{old, drainedTo}, Cleans: 2}},
		{"drain, active", drained, view(2, shard.Active, 1), moved, Copies{Read: drainedTo, Carry: old, Clean: [2]Copy{old, drainedTo}, Cleans: 2}},
		{"drain, done", drained, view(2, shard.Done, 1), moved, settledOn(drainedTo)},
		{"drain, a vnode that stays", drained, view(2, shard.Preparing, 1), stays, settledOn(same)},
		{"down, preparing", down, view(2, shard.Preparing, 1), moved, Copies{Frozen: true}},
		{"down, active", down, view(2, shard.Active, 1), moved, settledOn(downTo)},
		{"down, done", down, view(2, shard.Done, 1), moved, settledOn(downTo)},
		{"down, a vnode that stays", down, view(2, shard.Preparing, 1), stays, settledOn(same)},
		{"skipped, preparing", later, view(3, shard.Preparing, 1), moved, Copies{Read: old, Clean: [2]Copy{old, laterTo}, Cleans: 2}},
		{"skipped, active", later, view(3, shard.Active, 1), moved, Copies{Read: laterTo, Carry: old, Clean: [2]Copy{old, laterTo}, Cleans: 2}},
		// The shard has missed epochs, so what was before is not known.
		{"missed, preparing", drained, view(2, shard.Preparing, 0), moved, Copies{Frozen: true}},
		{"missed, a vnode that stays", drained, view(2, shard.Preparing, 0), stays, Copies{Frozen: true}},
		{"missed, done", drained, view(2, shard.Done, 0), moved, settledOn(drainedTo)},
	} {
		got := c.by.Copies(c.view, c.vnode, 0)
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		if read := c.by.ReadCopy(c.view, c.vnode, 0); read != got.Read {
			t.Errorf("%s: an event loop reads %+v", c.name, read)
		}
		from, to, moves := got.Moves()
		if want := c.want.Cleans == 2; moves != want || want && (from != old || to != c.by.present(c.vnode)) {
			t.Errorf("%s: taken over from %+v to %+v: %v", c.name, from, to, moves)
		}
	}
}

func TestAServerThatNobodyHasMetHoldsNoRows(t *testing.T) {
	topo := sample(t) // c3 was not met
	for v := range ring.Vnodes {
		if v := uint16(v); topo.ownerName(v) == "c3" {
			if c := topo.Copies(shard.View{Epoch: 1, Phase: shard.Done}, v, 0); !c.Read.IsNone() || c.Cleans != 0 || c.Frozen {
				t.Fatalf("%+v", c)
			}
		}
	}
}

func TestHolderKeepsEarlierTopologies(t *testing.T) {
	var h Holder
	if h.Current() != nil || h.At(1) != nil {
		t.Error("an empty holder holds something")
	}
	all := []*Topology{fleetOf(t, 3)}
	h.Publish(all[0])
	for i := range 9 {
		next := must(t)(WeighCache(finished(t, all[len(all)-1]), "c1", uint32(2+i%2)))
		all = append(all, next)
		h.Publish(next)
	}
	last := all[len(all)-1]
	if h.Current() != last || h.At(last.Epoch) != last || h.At(all[len(all)-2].Epoch) != all[len(all)-2] || h.At(1) != nil {
		t.Error("the last ones are not kept, or the first one is")
	}
	h.Remember(all[0])
	if h.Current() != last || h.At(1) != all[0] {
		t.Error("one that was fetched is not kept")
	}
	h.Publish(all[0]) // where there is no catalog, another one of an epoch may win
	if h.Current() != all[0] {
		t.Error("the one that was published last does not count")
	}
}

// TestAFlushReachesRowsThatAnOverridePlaces: they are named by vnodes that another shard owns.
func TestAFlushReachesRowsThatAnOverridePlaces(t *testing.T) {
	c := sample(t).Content()
	hasher := ring.NewHasher()
	key := ""
	for i := 0; key == ""; i++ { // one that would be on s1
		if k := fmt.Sprint("tenant", i); sample(t).Shards[sample(t).ShardOf([]byte(k), hasher.Vnode([]byte(k)))].Name == "s1" {
			key = k
		}
	}
	c.Overrides = []Override{{ShardKey: key, Shard: "s2"}}
	before := must(t)(New(c))
	vnode := hasher.Vnode([]byte(key))
	for _, name := range []string{"s1", "s2"} {
		after := must(t)(RaiseFlush(before, name))
		if after.Flush(vnode) != after.Epoch || !slices.Contains(before.Holding(name), vnode) {
			t.Errorf("a flush of %s leaves the vnode of %s as it is", name, key)
		}
	}
	if after := must(t)(RaiseFlush(sample(t), "s2")); after.Flush(vnode) == after.Epoch {
		t.Error("so it does without the override")
	}
	if n, owned := len(before.Holding("s2")), len(before.Owned("s2")); n != owned+1 {
		t.Errorf("s2 holds rows of %d vnodes and owns %d", n, owned)
	}
}

// TestAFlushPutsWhatWasCachedOutOfReach: rows of one shard get other names, and nobody uses the former ones while others may still do so.
func TestAFlushPutsWhatWasCachedOutOfReach(t *testing.T) {
	before := sample(t)
	if _, err := RaiseFlush(before, "s9"); err == nil {
		t.Error("an unknown shard was flushed")
	}
	after := must(t)(RaiseFlush(before, "s2"))
	if after.Changing() || !after.ChangesRows(1) || after.HandsOver(1) || after.Epoch != 2 {
		t.Errorf("epoch %d, changing %v", after.Epoch, after.Changing())
	}
	flushed, other := after.Owned("s2")[0], after.Owned("s1")[0]
	if after.Flush(flushed) != 2 || after.Flush(other) != before.Flush(other) {
		t.Errorf("flush generations %d and %d", after.Flush(flushed), after.Flush(other))
	}
	var vnode uint16
	for after.Generation(vnode) == 0 {
		vnode++
	}
	for _, c := range []struct {
		phase      shard.Phase
		shardVnode uint16
		used       bool
	}{
		{shard.Preparing, flushed, false}, {shard.Active, flushed, true}, {shard.Done, flushed, true},
		{shard.Preparing, other, true}, {shard.Done, other, true},
	} {
		view := shard.View{Epoch: 2, Phase: c.phase, From: 1}
		got := after.Copies(view, vnode, c.shardVnode)
		if got.Read.IsNone() == c.used || got.Frozen == c.used || after.ReadCopy(view, vnode, c.shardVnode) != got.Read {
			t.Errorf("%v of vnode %d: %+v", c.phase, c.shardVnode, got)
		}
	}
}
