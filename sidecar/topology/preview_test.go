package topology

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"ringside/ring"
)

func weight(w uint32) *uint32 { return &w }

// TestPreviewIsWhatTheChangeDoes: promise P2 as somebody sees it before deciding. What the preview says moves is what moves.
func TestPreviewIsWhatTheChangeDoes(t *testing.T) {
	five := fleetOf(t, 5)
	heavy := finished(t, must(t)(WeighCache(five, "c2", 3)))
	drained := finished(t, must(t)(DrainCache(five, "c5")))
	joining := must(t)(AddCache(five, Cache{Name: "c6", Addr: "127.0.0.1:6", Weight: 2}))
	add := func(name string, w uint32) func(*Topology) (*Topology, error) {
		return func(from *Topology) (*Topology, error) {
			next, err := AddCache(from, Cache{Name: name, Addr: "127.0.0.1:99", Weight: w})
			if err != nil {
				return nil, err
			}
			return Activate(next, map[string]string{name: "run"})
		}
	}
	for _, test := range []struct {
		name     string
		from     *Topology
		proposal Proposal
		change   func(*Topology) (*Topology, error)
		share    float64 // of the ring that moves, about
	}{
		{"add", five, Proposal{CacheFleet, ProposeAdd, "new", nil}, add("new", 1), 1. / 6},
		{"add a heavy one", five, Proposal{CacheFleet, ProposeAdd, "a", weight(5)}, add("a", 5), 0.5},
		{"add without weight", five, Proposal{CacheFleet, ProposeAdd, "new", weight(0)}, add("new", 0), 0},
		{"add one that is joining", joining, Proposal{CacheFleet, ProposeAdd, "c6", nil}, func(from *Topology) (*Topology, error) {
			return Activate(from, map[string]string{"c6": "run"})
		}, 2. / 7},
		{"drain", five, Proposal{CacheFleet, ProposeDrain, "c3", nil}, func(from *Topology) (*Topology, error) { return DrainCache(from, "c3") }, 0.2},
		{"drain again", drained, Proposal{CacheFleet, ProposeDrain, "c5", nil}, func(from *Topology) (*Topology, error) { return DrainCache(from, "c5") }, 0},
		{"weigh up", five, Proposal{CacheFleet, ProposeWeigh, "c1", weight(2)}, func(from *Topology) (*Topology, error) { return WeighCache(from, "c1", 2) }, 1./3 - 0.2},
		{"weigh down", heavy, Proposal{CacheFleet, ProposeWeigh, "c2", weight(1)}, func(from *Topology) (*Topology, error) { return WeighCache(from, "c2", 1) }, 3./7 - 0.2},
		{"back from draining", drained, Proposal{CacheFleet, ProposeWeigh, "c5", weight(1)}, func(from *Topology) (*Topology, error) { return WeighCache(from, "c5", 1) }, 0.2},
	} {
		t.Run(test.name, func(t *testing.T) {
			o, err := test.from.Preview(test.proposal)
			if err != nil {
				t.Fatal(err)
			}
			next := must(t)(test.change(test.from))
			var moving [ring.Vnodes / 8]byte
			moved := 0
			for v := range ring.Vnodes {
				if test.from.ownerName(uint16(v)) != next.ownerName(uint16(v)) {
					moved++
					moving[v/8] |= 1 << (v % 8)
				}
			}
			if o.Moved != moved || o.Moving != moving {
				t.Errorf("the preview moves %d vnodes, the change %d", o.Moved, moved)
			}
			if share := ring.Share(o.Moved); share < test.share-0.02 || share > test.share+0.02 {
				t.Errorf("%.3f of the ring moves, want about %.3f", share, test.share)
			}
			if o.Collateral > ring.Vnodes/500 {
				t.Errorf("%d vnodes go between servers that stay", o.Collateral)
			}
			if o.Wait != "" {
				t.Errorf("would have to wait: %s", o.Wait)
			}
			counts := ring.Counts(next.CacheTable(), len(next.Caches))
			for _, p := range o.Servers {
				if p.VnodesAfter != counts[next.CacheIndex(p.Name)] || p.VnodesAfter != p.VnodesBefore+p.Gained-p.Lost {
					t.Errorf("%+v, but the change gives it %d", p, counts[next.CacheIndex(p.Name)])
				}
				if p.Proposed != (p.Name == test.proposal.Name) || p.Existed != (test.from.CacheIndex(p.Name) >= 0) {
					t.Errorf("%+v is not who it is", p)
				}
			}
		})
	}
}

func TestPreviewOfShards(t *testing.T) {
	shards := []Shard{{Name: "s1", DSN: "d1", Weight: 1}, {Name: "s2", DSN: "d2", Weight: 1}}
	two, err := Bootstrap(nil, shards)
	if err != nil {
		t.Fatal(err)
	}
	third := must(t)(AddShard(two, Shard{Name: "s0", DSN: "d0", Weight: 2}))
	for _, test := range []struct {
		name              string
		from              *Topology
		proposal          Proposal
		moved, collateral int
		after             []int
	}{
		{"add", two, Proposal{ShardFleet, ProposeAdd, "s3", weight(2)}, 32768, 0, []int{16384, 16384, 32768}},
		{"drain", two, Proposal{ShardFleet, ProposeDrain, "s1", nil}, 32768, 0, []int{0, 65536}},
		{"weigh", two, Proposal{ShardFleet, ProposeWeigh, "s2", weight(3)}, 16384, 0, []int{16384, 49152}},
		// What the weights ask for already, and was not moved yet, would be moved with it.
		{"beside what is owed", third, Proposal{ShardFleet, ProposeDrain, "s1", nil}, 43691, 10923, []int{43691, 0, 21845}},
	} {
		t.Run(test.name, func(t *testing.T) {
			o, err := test.from.Preview(test.proposal)
			if err != nil {
				t.Fatal(err)
			}
			var after []int
			for _, p := range o.Servers {
				after = append(after, p.VnodesAfter)
			}
			if o.Moved != test.moved || o.Collateral != test.collateral || !slices.Equal(after, test.after) {
				t.Errorf("moves %d, %d of them collateral, to %v; want %d, %d, %v", o.Moved, o.Collateral, after, test.moved, test.collateral, test.after)
			}
		})
	}
}

func TestPreviewRefuses(t *testing.T) {
	one := fleetOf(t, 1)
	two := fleetOf(t, 2)
	joining := must(t)(AddCache(two, Cache{Name: "c3", Addr: "127.0.0.1:3", Weight: 1}))
	changing := must(t)(DrainCache(fleetOf(t, 3), "c3"))
	shard, err := Bootstrap(nil, []Shard{{Name: "s1", DSN: "d1", Weight: 1}})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		from     *Topology
		proposal Proposal
		unknown  bool
		want     string
	}{
		{one, Proposal{CacheFleet, ProposeDrain, "c1", nil}, false, "is the last one that owns anything"},
		{one, Proposal{CacheFleet, ProposeWeigh, "c1", weight(0)}, false, "is the last one that owns anything"},
		{one, Proposal{CacheFleet, ProposeDrain, "c9", nil}, true, "there is no cache server c9"},
		{one, Proposal{CacheFleet, ProposeAdd, "c1", nil}, false, "there is a cache server c1 already (active)"},
		{one, Proposal{CacheFleet, ProposeAdd, "", nil}, false, "empty name"},
		{one, Proposal{CacheFleet, ProposeWeigh, "c1", nil}, false, "which weight"},
		{one, Proposal{CacheFleet, "burn", "c1", nil}, false, `"burn" is no change`},
		{joining, Proposal{CacheFleet, ProposeDrain, "c3", nil}, false, "is still joining and owns nothing"},
		{one, Proposal{ShardFleet, ProposeAdd, "s1", nil}, false, "has no shards"},
		{shard, Proposal{ShardFleet, ProposeAdd, "s1", nil}, false, "there is a shard s1 already"},
		{shard, Proposal{ShardFleet, ProposeDrain, "s1", nil}, false, "is the last one with a weight"},
		{shard, Proposal{ShardFleet, ProposeWeigh, "s2", weight(1)}, true, "there is no shard s2"},
		{shard, Proposal{ShardFleet, "burn", "s1", nil}, false, `"burn" is no change`},
		{shard, Proposal{"fleet", ProposeAdd, "s1", nil}, false, "it must be cache or shard"},
	} {
		_, err := test.from.Preview(test.proposal)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want %q", test.proposal, err, test.want)
			continue
		}
		var refusal *Refusal
		if test.proposal.Name != "" && (!errors.As(err, &refusal) || refusal.Unknown != test.unknown) {
			t.Errorf("%+v: %#v", test.proposal, err)
		}
	}
	// One that only has to wait is shown nevertheless.
	o, err := changing.Preview(Proposal{CacheFleet, ProposeDrain, "c2", nil})
	if err != nil || !strings.Contains(o.Wait, "another change is still being carried out") || o.Moved == 0 {
		t.Errorf("while another change is being carried out: %v %+v", err, o)
	}
}
