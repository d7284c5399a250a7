package membership

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// Nobody takes anything out (Run was never called, so no callback is made and nothing is sent): what memberlist calls returns all the
// same, at once, and what it left behind is bounded.
func TestDelegatesNeverBlock(t *testing.T) {
	t.Parallel()
	g := New(Config{Name: "me", BindAddr: "127.0.0.1"}, Callbacks{}, nil, nil)
	d := delegate{g}
	deflated, err := deflate([]byte("a topology"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	const n = 3 * maxEarly
	go func() {
		defer close(done)
		for i := range n {
			known := record{Name: fmt.Sprintf("peer-%d", i%50), Boot: "b", Seq: uint64(i + 1), Hint: Hint{Epoch: uint64(i)}, Votes: []string{"c"}, VotesSeq: 1}
			stranger := record{Name: fmt.Sprintf("stranger-%d", i), Boot: "b", Seq: 1}
			meta, _ := Meta{Boot: "b"}.encode()
			node := &memberlist.Node{Name: known.Name, Addr: net.IPv4(127, 0, 0, 1), Port: 7946, Meta: meta}
			d.NotifyJoin(node)
			d.NotifyUpdate(node)
			for _, r := range []record{known, stranger} {
				hints, _ := encodeHints([]record{r}, maxPacket)
				d.NotifyMsg(hints)
				d.MergeRemoteState(hints, i%2 == 0)
				d.NotifyMsg(encodeRequest(r))
				topology, _ := encodeTopology(r, deflated)
				d.NotifyMsg(topology)
			}
			d.NotifyConflict(&memberlist.Node{Name: "me"}, node)
			_ = d.NotifyMerge([]*memberlist.Node{node})
			if msgs := d.GetBroadcasts(3, maxPacket); len(msgs) > 1 || len(msgs) == 1 && len(msgs[0]) > maxPacket {
				t.Errorf("%d messages to gossip, the first of %d bytes", len(msgs), len(msgs[0]))
			}
			_, _ = d.LocalState(false), d.NodeMeta(maxMeta)
			if i%2 == 0 {
				d.NotifyLeave(node)
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("a delegate blocks")
	}
	for what, limit := range map[string]int{
		"members": 50, "early": maxEarly, "askedEarly": maxAskedEarly, "queue": 51, "fresh": 51,
		"hints to deliver": 50, "topologies to deliver": maxParcels, "waiting sends": 50,
	} {
		if got := g.remembered()[what]; got > limit || got == 0 && what == "early" {
			t.Errorf("%s: %d, at most %d", what, got, limit)
		}
	}
}

// A partition that outlasts our own memory of the other side heals through the seeds.
func TestPartitionThatOutlastsAllMemoryHeals(t *testing.T) {
	t.Parallel()
	forgetful := func(name string, opts ...option) *node {
		n := prepare(t, name, append(opts, rejoinEvery(time.Second))...)
		n.keep = retention{gone: time.Second, sweepEvery: 200 * time.Millisecond}
		n.run()
		<-n.Ready()
		return n
	}
	a := forgetful("a1")
	nodes := []*node{a, forgetful("a2", seeds(a.Addr())), forgetful("a3", seeds(a.Addr())), forgetful("a4", seeds(a.Addr()))}
	stopTogether(t, nodes)
	whole(t, nodes, "at first")
	split(nodes[:2], nodes[2:])
	knowsOnly := func(n *node, names ...string) bool {
		return slices.EqualFunc(n.Members(), names, func(m Member, name string) bool { return m.Name == name })
	}
	eventually(t, 60*time.Second, "each side has forgotten the other", func() bool {
		return knowsOnly(nodes[0], "a1", "a2") && knowsOnly(nodes[1], "a1", "a2") && knowsOnly(nodes[2], "a3", "a4") && knowsOnly(nodes[3], "a3", "a4")
	})
	// memberlist forgets at the end of a round of probes after it has stopped talking to the dead.
	time.Sleep(2 * time.Second)
	nodes[1].SetVotes([]string{"cache-1"})
	mend(nodes)
	took := whole(t, nodes, "again")
	eventually(t, time.Minute, "votes of the other side are known", func() bool {
		m, _ := nodes[3].member("a2")
		return slices.Equal(m.Votes, []string{"cache-1"})
	})
	t.Logf("healed through a seed after %v (re-join every second)", took.Round(time.Millisecond))
}
