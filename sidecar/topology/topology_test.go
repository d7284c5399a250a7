package topology

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ringside/ring"
	"ringside/shard/keyspace"
)

func sample(t *testing.T) *Topology {
	t.Helper()
	topo, err := Bootstrap(
		[]Cache{{Name: "c2", Addr: "127.0.0.1:2", Weight: 1, RunID: "r2", Gen: 1}, {Name: "c1", Addr: "127.0.0.1:1", Weight: 1, RunID: "r1", Gen: 1}, {Name: "c3", Addr: "127.0.0.1:3", Weight: 1}},
		[]Shard{{Name: "s2", DSN: "postgres://u@h2/app", Weight: 1, MaxConnections: 64}, {Name: "s1", DSN: "postgres://u@h1/app", Weight: 3, MaxConnections: 64}})
	if err != nil {
		t.Fatal(err)
	}
	return topo
}

func TestBootstrapIsTheSameWhoeverMakesIt(t *testing.T) {
	a := sample(t)
	c := a.Content()
	b, err := Bootstrap([]Cache{c.Caches[2], c.Caches[0], c.Caches[1]}, []Shard{c.Shards[0], c.Shards[1]})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.JSON(), b.JSON()) || a.Digest() != b.Digest() {
		t.Error("the order of the configuration shows in the topology")
	}
	if a.Epoch != 1 || a.Caches[0].Name != "c1" || a.Shards[0].Name != "s1" || a.Caches[0].State != Active {
		t.Errorf("epoch %d, caches %v, shards %v", a.Epoch, a.Caches, a.Shards)
	}
	counts := ring.Counts(a.ShardTable(), 2)
	if counts[0] != 49152 || counts[1] != 16384 {
		t.Errorf("shards of weight 3 and 1 own %v vnodes", counts)
	}
	if n := len(a.Owned("s2")); n != 16384 {
		t.Errorf("s2 owns %d", n)
	}
}

func TestWhatIsEncodedIsDecoded(t *testing.T) {
	a := sample(t)
	c := a.Content()
	c.Epoch = 9
	c.Overrides = []Override{{ShardKey: "tenant7", Shard: "s2"}}
	flush := make([]uint64, ring.Vnodes)
	for v := range flush {
		flush[v] = uint64(v % 3)
	}
	c.Flush = Each(flush)
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Decode(a.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if a.Digest() != b.Digest() || !bytes.Equal(a.JSON(), b.JSON()) {
		t.Error("another topology came back")
	}
	for v := range ring.Vnodes {
		v := uint16(v)
		if b.Flush(v) != uint64(v%3) || b.CacheOf(v) != a.CacheOf(v) || b.ShardTable()[v] != a.ShardTable()[v] || b.Generation(v) != a.Generation(v) {
			t.Fatalf("vnode %d differs", v)
		}
	}
	if b.ShardOf([]byte("tenant7"), 0) != 1 || b.ShardOf([]byte("tenant8"), 5) != b.ShardTable()[5] {
		t.Error("the override is not followed")
	}
	if size := len(a.Encode()); size > 64<<10 {
		t.Errorf("two shards take %d bytes", size)
	}
}

func TestDecodeRefusesWhatIsNoTopology(t *testing.T) {
	good := sample(t).Content()
	for name, change := range map[string]func(*Content){
		"without an epoch":            func(c *Content) { c.Epoch = 0 },
		"unknown state":               func(c *Content) { c.Caches[0].State = "odd" },
		"same address":                func(c *Content) { c.Caches[0].Addr = c.Caches[1].Addr },
		"used twice":                  func(c *Content) { c.Shards[0].Name = c.Shards[1].Name },
		"not sorted":                  func(c *Content) { c.Shards[0].Name = "zz" },
		"unknown shard":               func(c *Content) { c.Overrides = []Override{{"k", "s9"}} },
		"names shard":                 func(c *Content) { c.ShardMap = Same(2) },
		"values and no index":         func(c *Content) { c.Flush = PerVnode{Values: []uint64{1, 2}} },
		"bytes of index":              func(c *Content) { c.Flush = PerVnode{Values: []uint64{1, 2}, Index: "AAAA"} },
		"murmur3":                     func(c *Content) { c.Params.Hash = "crc32" },
		"placing the cache servers: ": func(c *Content) { c.Caches[0].Name = c.Caches[1].Name },
	} {
		c := good.clone()
		change(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, body := range [][]byte{nil, []byte("x"), sample(t).Encode()[:100]} {
		if _, err := Decode(body); err == nil {
			t.Errorf("%.10q was taken for a topology", body)
		}
	}
}

func TestGenerationsRiseWithTheIncarnation(t *testing.T) {
	a := sample(t)
	if next, err := AdoptRuns(a, map[string]string{"c1": "r1"}); err != nil || next != a {
		t.Errorf("the same incarnation made a new topology: %v", err)
	}
	if _, err := AdoptRuns(a, map[string]string{"c9": "x"}); err == nil {
		t.Error("an unknown server was adopted")
	}
	if _, err := AdoptRuns(a, map[string]string{"c1": ""}); err == nil {
		t.Error("an empty run_id was adopted")
	}
	next, err := AdoptRuns(a, map[string]string{"c1": "r1b", "c3": "r3"})
	if err != nil {
		t.Fatal(err)
	}
	if next.Epoch != 2 {
		t.Errorf("epoch %d", next.Epoch)
	}
	for v := range ring.Vnodes {
		v := uint16(v)
		if next.CacheOf(v) != a.CacheOf(v) {
			t.Fatal("an adoption moved a vnode")
		}
		want, before := uint64(2), uint64(1)
		switch a.Caches[a.CacheOf(v)].Name {
		case "c2":
			want = 1
		case "c3":
			before = 0 // no incarnation was known: no rows there
		}
		if a.Generation(v) != before || next.Generation(v) != want {
			t.Fatalf("vnode %d: generation %d then %d, want %d then %d", v, a.Generation(v), next.Generation(v), before, want)
		}
	}
	if !next.Supersedes(a) || a.Supersedes(next) || a.Supersedes(a) || !a.Supersedes(nil) {
		t.Error("the higher epoch does not win")
	}
	other, err := AdoptRuns(a, map[string]string{"c1": "elsewhere"})
	if err != nil {
		t.Fatal(err)
	}
	if next.Supersedes(other) == other.Supersedes(next) {
		t.Error("of two topologies of one epoch not exactly one wins")
	}
}

func TestLocate(t *testing.T) {
	ks, err := keyspace.Compile(keyspace.Spec{Name: "order", Pattern: "order:{tenant}:{id:int}", Table: "orders", ShardBy: "tenant", TTL: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	set, err := keyspace.NewSet([]*keyspace.Keyspace{ks})
	if err != nil {
		t.Fatal(err)
	}
	topo := sample(t)
	l, err := topo.Locate(set, []byte("order:acme:7"))
	if err != nil {
		t.Fatal(err)
	}
	if l.Keyspace != "order" || *l.ShardKey != "acme" || *l.ShardVnode != ring.Vnode([]byte("acme")) || l.CacheVnode != ring.Vnode([]byte("order:acme:7")) ||
		*l.Shard != topo.Shards[topo.ShardTable()[*l.ShardVnode]].Name || l.Cache != topo.Caches[topo.CacheOf(l.CacheVnode)].Name || l.Epoch != 1 {
		t.Errorf("%+v", l)
	}
	if l, err = topo.Locate(set, []byte("a{tag}b")); err != nil || l.Keyspace != Plain || l.Shard != nil || l.CacheVnode != ring.Vnode([]byte("tag")) {
		t.Errorf("%+v %v", l, err)
	}
	if _, err = topo.Locate(set, []byte("order:acme:07")); err == nil {
		t.Error("a key that is not canonical was located")
	} else if _, ok := errors.AsType[*keyspace.BadKeyError](err); !ok {
		t.Errorf("%T", err)
	}
}

func TestTheLastTopologyIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "topology")
	if got, err := LoadFile(path); got != nil || err != nil {
		t.Errorf("%v %v", got, err)
	}
	a := sample(t)
	for range 2 {
		if err := Save(path, a); err != nil {
			t.Fatal(err)
		}
	}
	got, err := LoadFile(path)
	if err != nil || got.Digest() != a.Digest() {
		t.Errorf("%v", err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("%v %v", left, err)
	}
	if err := os.WriteFile(path, a.Encode()[:50], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadFile(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a broken file: %v", err)
	}
}

// Guards P1: a topology is the same whatever else was known when it was made; only the time that it takes differs.
func TestKnownTopologiesChangeNothing(t *testing.T) {
	before := fleetOf(t, 3)
	joining := must(t)(AddCache(before, Cache{Name: "c9", Addr: "127.0.0.1:9", Weight: 2}))
	active := must(t)(Activate(joining, map[string]string{"c9": "r9"}))
	done := finished(t, active)
	weighed := must(t)(WeighCache(done, "c1", 3))
	drained := must(t)(DrainCache(finished(t, weighed), "c2"))
	down := must(t)(MarkDown(drained, []string{"c3"}))
	all := []*Topology{before, joining, active, done, weighed, drained, down, nil}
	for _, top := range all[:len(all)-1] {
		alone := must(t)(New(top.Content()))
		for i, known := range all {
			beside := must(t)(Decode(top.Encode(), known))
			if beside.Digest() != alone.Digest() || !slices.Equal(beside.CacheTable(), alone.CacheTable()) || (beside.former == nil) != (alone.former == nil) {
				t.Fatalf("epoch %d is another one beside topology %d", top.Epoch, i)
			}
			if f := alone.former; f != nil && (!slices.Equal(beside.former.owner, f.owner) || !slices.Equal(beside.former.generation, f.generation)) {
				t.Fatalf("epoch %d has another former placement beside topology %d", top.Epoch, i)
			}
			if !bytes.Equal(beside.Encode(), top.Encode()) {
				t.Errorf("epoch %d was compressed anew", top.Epoch)
			}
		}
	}
	if active.placement != done.placement || must(t)(Decode(done.Encode(), active)).placement != active.placement {
		t.Error("a placement was computed anew although nothing has changed")
	}
}
