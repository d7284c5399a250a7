package sidecar

import (
	"slices"
	"testing"
	"time"

	"ringside/cache"
	"ringside/shard"
	"ringside/sidecar/admin"
	"ringside/sidecar/handover"
	"ringside/sidecar/topology"
)

// changed is a topology in which c1 was drained: its keys and rows are being handed over.
func changed(t *testing.T) *topology.Topology {
	t.Helper()
	top, err := topology.Bootstrap([]topology.Cache{
		{Name: "c1", Addr: "h1:1", Weight: 1, RunID: "r1", Gen: 1}, {Name: "c2", Addr: "h2:1", Weight: 1, RunID: "r2", Gen: 1},
	}, []topology.Shard{{Name: "s1", Weight: 1}, {Name: "s2", Weight: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if top, err = topology.DrainCache(top, "c1"); err != nil || top.Epoch != 2 || len(top.Handovers) != 1 {
		t.Fatalf("%+v, %v", top, err)
	}
	return top
}

func TestRowsAreDone(t *testing.T) {
	top := changed(t)
	done, earlier, phase := shard.View{Epoch: 2, Phase: shard.Done}, shard.View{Epoch: 1, Phase: shard.Done}, shard.View{Epoch: 2, Phase: shard.Active}
	later := shard.View{Epoch: 3, Phase: shard.Done}
	for _, test := range []struct {
		name      string
		shards    []standing
		published time.Duration
		heard     bool
		want      bool
	}{
		{"all", []standing{{done, 0}, {later, 0}}, time.Minute, true, true},
		{"no shards", nil, time.Minute, true, true},
		{"one in a phase", []standing{{done, 0}, {phase, 0}}, time.Minute, true, false},
		{"one at the epoch before", []standing{{done, 0}, {earlier, 0}}, time.Minute, true, false},
		{"one never heard", []standing{{done, 0}, {shard.View{}, 0}}, time.Minute, true, false},
		{"one down for a moment", []standing{{done, 0}, {earlier, shardPatience - 1}}, time.Minute, true, false},
		{"one down for long", []standing{{done, 0}, {earlier, shardPatience}}, time.Minute, true, true},
		{"just published", []standing{{done, 0}, {done, 0}}, keepFormer - 1, true, false},
		{"not heard by all", []standing{{done, 0}, {done, 0}}, hearWithin - 1, false, false},
		{"not heard by some for long", []standing{{done, 0}, {done, 0}}, hearWithin, false, true},
	} {
		if got := rowsDone(top, test.shards, test.published, test.heard); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

func TestAChangeEndsInOneStep(t *testing.T) {
	for _, test := range []struct {
		handovers, carried int
		rows               bool
		published          time.Duration
		want               bool
	}{
		{0, 0, true, 0, true},
		{0, 0, false, time.Hour, false},
		{2, 2, true, 0, true},
		{2, 2, false, 0, false},
		{2, 1, true, partlyAfter - 1, false},
		{2, 1, true, partlyAfter, true},
		{2, 1, false, partlyAfter, true},
		{2, 0, true, time.Hour, false},
	} {
		if got := ending(test.handovers, test.carried, test.rows, test.published); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
	top := changed(t)
	h := top.Handovers[0]
	for _, test := range []struct {
		name   string
		driven []handover.Progress
		want   []topology.Handover
	}{
		{"nothing is known", nil, nil},
		{"under way", []handover.Progress{{From: h.From, Since: h.Since}}, nil},
		{"done", []handover.Progress{{From: "c2", Since: 1}, {From: h.From, Since: h.Since, Done: true}}, top.Handovers},
		{"an earlier one is done", []handover.Progress{{From: h.From, Since: h.Since - 1, Done: true}}, nil},
	} {
		if got := carriedOf(top, test.driven); !slices.Equal(got, test.want) {
			t.Errorf("%s: %+v", test.name, got)
		}
	}
}

func TestPendingForgetsWhatIsNotToBeDoneAnyMore(t *testing.T) {
	p := &pending{since: map[string]time.Time{}}
	at := func(seconds int, what string, servers ...string) time.Duration {
		p.begin(t0.Add(time.Duration(seconds) * time.Second))
		defer p.end()
		if what == "" {
			return 0
		}
		return p.of(what, servers)
	}
	for i, got := range []time.Duration{at(0, "down", "c1"), at(1, "down", "c1"), at(2, "down", "c1", "c2"), at(3, "down", "c1", "c2"), at(4, ""), at(5, "down", "c1", "c2"), at(7, "down", "c1", "c2")} {
		if want := []time.Duration{0, 1, 0, 1, 0, 0, 2}[i] * time.Second; got != want {
			t.Errorf("look %d: %v, want %v", i, got, want)
		}
	}
}

func TestHolds(t *testing.T) {
	top := changed(t) // c1 is draining
	for _, test := range []struct {
		want admin.Change
		ok   bool
	}{
		{admin.Change{Verb: admin.AddCache, Name: "c1", Addr: "h1:1"}, true},
		{admin.Change{Verb: admin.AddCache, Name: "c1", Addr: "h9:1"}, false},
		{admin.Change{Verb: admin.AddCache, Name: "c3", Addr: "h3:1"}, false},
		{admin.Change{Verb: admin.DrainCache, Name: "c1"}, true},
		{admin.Change{Verb: admin.DrainCache, Name: "c2"}, false},
		{admin.Change{Verb: admin.DrainCache, Name: "c3"}, true},
		{admin.Change{Verb: admin.WeighCache, Name: "c2", Weight: 1}, true},
		{admin.Change{Verb: admin.WeighCache, Name: "c2", Weight: 2}, false},
		{admin.Change{Verb: admin.RemoveCache, Name: "c2"}, false},
		{admin.Change{Verb: admin.RemoveCache, Name: "c3"}, true},
	} {
		if got := holds(top, test.want); got != test.ok {
			t.Errorf("%+v: %v", test.want, got)
		}
	}
}

func TestAdmissible(t *testing.T) {
	top := changed(t)
	want := admin.Change{Verb: admin.AddCache, Name: "c3", Addr: "h3:1"}
	flush := want
	flush.Flush = true
	for _, test := range []struct {
		want admin.Change
		met  cache.Stranger
		err  string
	}{
		{want, cache.Stranger{RunID: "r3", Mode: "standalone", Role: "master"}, ""},
		{want, cache.Stranger{RunID: "r3", Role: "master"}, ""},
		{want, cache.Stranger{RunID: "r2", Role: "master"}, "the server at h3:1 is c2, which is in the ring already (at h2:1)"},
		{want, cache.Stranger{RunID: "r3", Mode: "sentinel", Role: "master"}, "the server at h3:1 runs in sentinel mode: only a server that runs alone can be a cache server"},
		{want, cache.Stranger{RunID: "r3", Role: "slave"}, "the server at h3:1 is a replica: add the server that takes writes"},
		{want, cache.Stranger{RunID: "r3", Sidecar: true}, "h3:1 is a ringside sidecar: name the Redis server behind it"},
		{want, cache.Stranger{RunID: "r3", Role: "master", Refuses: "OOM"}, "the server at h3:1 takes no writes (OOM): only one that does can be a cache server"},
		{want, cache.Stranger{RunID: "r3", Role: "master", Keys: 7}, "the server at h3:1 holds 7 keys, which joining would delete: if they are not needed, add it with flush (--flush)"},
		{flush, cache.Stranger{RunID: "r3", Role: "master", Keys: 7}, ""},
		{flush, cache.Stranger{RunID: "r3", Role: "slave"}, "the server at h3:1 is a replica: add the server that takes writes"},
	} {
		if got := admissible(top, test.want, test.met); (got == nil) != (test.err == "") || got != nil && got.Error() != test.err {
			t.Errorf("%+v: %v", test.met, got)
		}
	}
}

func TestSummary(t *testing.T) {
	lost := []admin.Loss{{From: "c5", Since: 3, Epoch: 4}, {From: "c6", Since: 5, Epoch: 6}}
	for _, test := range []struct {
		p    admin.Progress
		want string
	}{
		{admin.Progress{Lost: lost}, ""},
		{admin.Progress{Changing: true, Lost: lost}, "c6 went down before all its plain keys were carried over: those are lost"},
		{admin.Progress{Servers: []admin.ServerProgress{{Name: "c1", State: topology.Active, Well: true}}}, ""},
		{admin.Progress{Servers: []admin.ServerProgress{{Name: "c1", State: topology.Active, Votes: []string{"a1"}, Needed: 2}}}, "c1 fails (votes: 1, needed: 2)"},
		{admin.Progress{Servers: []admin.ServerProgress{{Name: "c1", State: topology.Joining, Well: true}}}, "c1 is being made ready"},
		{admin.Progress{Servers: []admin.ServerProgress{{Name: "c1", State: topology.Joining, Fault: "refused"}}}, "c1 waits to be reached (refused)"},
		{admin.Progress{Servers: []admin.ServerProgress{{Name: "c1", State: topology.Joining}}}, "c1 joins"},
		{admin.Progress{Changing: true}, "the last change is being finished"},
		{admin.Progress{Changing: true, Shards: []admin.ShardProgress{{Done: true, Down: 9}, {Name: "s2", Down: 29}}},
			"rows: 1 of 2 shards done, waiting for s2, which is down; at most 30s"},
		{admin.Progress{Changing: true, Shards: []admin.ShardProgress{{Name: "s1", Down: 1}, {Name: "s2", Down: 1}, {Name: "s3", Down: 30}}},
			"rows: 0 of 3 shards done, waiting for 2 that are down, such as s1; at most 30s"},
		{admin.Progress{
			Changing:  true,
			Servers:   []admin.ServerProgress{{Name: "c3", State: topology.Joining, Well: true}},
			Handovers: []admin.HandoverProgress{{From: "c1", Step: "open"}, {From: "c2", Step: "handed", Carried: 5}, {From: "c4", Step: "handed", Fault: "timeout"}},
			Shards:    []admin.ShardProgress{{Done: true}, {}},
		}, "c3 joins when the change before is done; keys from c1: open; keys from c2: 5 carried; keys from c4: stuck (timeout); rows: 1 of 2 shards done"},
	} {
		if got := summary(test.p, 4); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}
