package topology

import (
	"errors"
	"testing"

	"ringside/ring"
)

func withShards(t *testing.T) *Topology {
	t.Helper()
	top, err := Bootstrap([]Cache{{Name: "c1", Addr: "a:1", Weight: 1, RunID: "r", Gen: 1}}, []Shard{{Name: "s1", DSN: "d1", Weight: 1}, {Name: "s3", DSN: "d3", Weight: 1}})
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// A shard that comes gets nothing, and nothing changes its owner, wherever its name stands among the others.
func TestAddShardMovesNothing(t *testing.T) {
	for _, name := range []string{"s0", "s2", "s4"} {
		was := withShards(t)
		is, err := AddShard(was, Shard{Name: name, DSN: "d", Weight: 5, MaxConnections: 9})
		if err != nil {
			t.Fatal(err)
		}
		if is.Epoch != was.Epoch+1 || is.ChangesRows(was.Epoch) || is.Changing() {
			t.Errorf("%s: epoch %d, changes rows %v, changing %v", name, is.Epoch, is.ChangesRows(was.Epoch), is.Changing())
		}
		for v := range ring.Vnodes {
			if a, b := was.Shards[was.ShardTable()[v]].Name, is.Shards[is.ShardTable()[v]].Name; a != b {
				t.Fatalf("%s: vnode %d went from %s to %s", name, v, a, b)
			}
		}
		if got := is.Shards[is.ShardIndex(name)]; got.State != Active || got.Weight != 5 || got.MaxConnections != 9 {
			t.Errorf("%+v", got)
		}
	}
	for _, bad := range []Shard{{Name: "s1", DSN: "d"}, {Name: "s2", DSN: "d1"}, {Name: "s2"}, {DSN: "d"}} {
		var refusal *Refusal
		if _, err := AddShard(withShards(t), bad); !errors.As(err, &refusal) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestWeighShard(t *testing.T) {
	top := withShards(t)
	next, err := WeighShard(top, "s3", 0)
	if err != nil || next.Shards[1].Weight != 0 || next.Epoch != 2 || len(next.Owned("s3")) != len(top.Owned("s3")) {
		t.Errorf("%v", err)
	}
	if _, err := WeighShard(next, "s1", 0); err == nil {
		t.Error("the last weight was taken")
	}
	if same, err := WeighShard(top, "s1", 1); err != nil || same != top {
		t.Errorf("no change made epoch %d, %v", same.Epoch, err)
	}
	var refusal *Refusal
	if _, err := WeighShard(top, "s2", 1); !errors.As(err, &refusal) || !refusal.Unknown {
		t.Errorf("unknown: %v", err)
	}
}

// The shard map changes, what is cached does not: names and copies stay (promise P3).
func TestGiveVnodes(t *testing.T) {
	top := withShards(t)
	given := top.Owned("s1")[:100]
	next, err := GiveVnodes(top, given, "s3")
	if err != nil {
		t.Fatal(err)
	}
	if len(next.Owned("s3")) != len(top.Owned("s3"))+100 || next.Epoch != 2 || next.ChangesRows(1) || next.Changing() {
		t.Errorf("s3 owns %d, changes rows %v", len(next.Owned("s3")), next.ChangesRows(1))
	}
	for _, v := range given {
		if next.Flush(v) != top.Flush(v) || next.Generation(v) != top.Generation(v) {
			t.Fatalf("vnode %d has other names", v)
		}
	}
	if same, err := GiveVnodes(next, given, "s3"); err != nil || same != next {
		t.Errorf("given twice: epoch %d, %v", same.Epoch, err)
	}
	if _, err := GiveVnodes(top, given, "s2"); err == nil {
		t.Error("given to nobody")
	}
}
