package membership

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

const fifty = 50 / crowded / 2 * 2 // even

// startFifty starts that many sidecars at the same time and waits until everybody sees everybody.
func startFifty(t *testing.T, tune func(*memberlist.Config), opts ...option) []*node {
	t.Helper()
	begun := time.Now()
	first := prepare(t, "s01", opts...)
	first.tune = tune
	nodes := []*node{first.run()}
	<-first.Ready()
	for i := 2; i <= fifty; i++ {
		n := prepare(t, fmt.Sprintf("s%02d", i), append(slices.Clone(opts), seeds(first.Addr()))...)
		n.tune = tune
		nodes = append(nodes, n.run())
	}
	stopTogether(t, nodes)
	for _, n := range nodes {
		<-n.Ready()
	}
	whole(t, nodes, "after the start")
	t.Logf("%d sidecars see each other after %v", fifty, time.Since(begun).Round(time.Millisecond))
	return nodes
}

// whole waits until everybody sees everybody alive.
func whole(t *testing.T, nodes []*node, when string) time.Duration {
	t.Helper()
	return eventually(t, 90*time.Second, "everybody sees everybody "+when, func() bool {
		for _, n := range nodes {
			if n.countMembers(Alive) != len(nodes) {
				time.Sleep(20 * time.Millisecond) // fifty times fifty are not counted all the time
				return false
			}
		}
		return true
	})
}

// bytesSent is what all nodes have sent so far.
func bytesSent(nodes []*node) (sum float64) {
	for _, n := range nodes {
		for _, transport := range []string{"packet", "stream"} {
			sum += testutil.ToFloat64(n.met.bytesSent.WithLabelValues(transport))
		}
	}
	return sum
}

// rate measures what a sidecar sends while something happens, in bytes per second.
func rate(nodes []*node, during func()) float64 {
	begun, before := time.Now(), bytesSent(nodes)
	during()
	return (bytesSent(nodes) - before) / float64(len(nodes)) / time.Since(begun).Seconds()
}

// With the settings of production: how soon a change is known to all of fifty, and what gossip costs them.
func TestFiftySidecars(t *testing.T) {
	nodes := startFifty(t, func(*memberlist.Config) {})
	var took []time.Duration
	changing := rate(nodes, func() {
		for i := range 20 {
			h := Hint{Epoch: uint64(i + 1), Digest: fmt.Sprintf("%016x", i)}
			from := nodes[(i*17)%fifty]
			from.SetHint(h)
			took = append(took, eventually(t, time.Minute, "the hint is everywhere", func() bool {
				return !slices.ContainsFunc(nodes, func(n *node) bool { return n != from && n.hintOf(from.name) != h })
			}))
		}
	})
	slices.Sort(took)
	median := took[len(took)/2]
	if median > 5*time.Second { // half a second is what it is
		t.Errorf("half of the changes took more than %v", median)
	}

	// All at once: everybody votes against the same server, as when it dies.
	var voted time.Duration
	voting := rate(nodes, func() {
		votes := []string{"cache-1"}
		for _, n := range nodes {
			n.SetVotes(votes)
		}
		voted = eventually(t, 60*time.Second, "everybody has everybody's vote", func() bool {
			for _, n := range nodes {
				for _, m := range n.Members() {
					if !slices.Equal(m.Votes, votes) {
						time.Sleep(5 * time.Millisecond)
						return false
					}
				}
			}
			return true
		})
	})
	eventually(t, 60*time.Second, "all has been said often enough", func() bool {
		return !slices.ContainsFunc(nodes, func(n *node) bool { return n.countQueued() > 0 })
	})
	idle := rate(nodes, func() { time.Sleep(5 * time.Second) })
	t.Logf("a change of one was known to all %d after %v (median of %d; slowest %v); votes of all after %v",
		fifty, median.Round(time.Millisecond), len(took), took[len(took)-1].Round(time.Millisecond), voted.Round(time.Millisecond))
	t.Logf("sent by each: %.0f bytes/s idle, %.0f during one change after the other, %.0f while all vote", idle, changing, voting)
}

// A partition that lasts until each half has given up and forgotten the other heals without help. RINGSIDE_LONG makes it a minute long, at the
// settings of production.
func TestFiftySidecarsHeal(t *testing.T) {
	lasting, every := 3*time.Second, time.Second
	tune := func(c *memberlist.Config) {
		c.ProbeInterval, c.ProbeTimeout, c.SuspicionMult = time.Second, 800*time.Millisecond, 3
		c.AwarenessMaxMultiplier = 2
		c.GossipToTheDeadTime = time.Second
	}
	if os.Getenv("RINGSIDE_LONG") != "" {
		lasting, every, tune = time.Minute, 30*time.Second, func(*memberlist.Config) {}
	}
	nodes := startFifty(t, tune, rejoinEvery(every))
	left, right := nodes[:fifty/2], nodes[fifty/2:]
	split(left, right)
	begun := time.Now()
	// Each side finds out, and changes go on in it.
	nodes[0].SetHint(Hint{Epoch: 1, Digest: "left"})
	nodes[fifty-1].SetHint(Hint{Epoch: 1, Digest: "right"})
	nodes[fifty-1].SetVotes([]string{"cache-1"})
	gaveUp := eventually(t, 90*time.Second, "each half has given up the other", func() bool {
		for _, n := range nodes {
			if n.countMembers(Alive) > fifty/2 {
				time.Sleep(20 * time.Millisecond)
				return false
			}
		}
		return true
	})
	time.Sleep(max(lasting-time.Since(begun), 3*time.Second)) // that long memberlist still talks to the dead
	apart := time.Since(begun)

	mend(nodes)
	var healed time.Duration
	cost := rate(nodes, func() { healed = whole(t, nodes, "after the partition") })
	told := eventually(t, time.Minute, "each half knows what was said in the other", func() bool {
		for _, n := range nodes {
			first, _ := n.member("s01")
			last, _ := n.member(nodes[fifty-1].name)
			if first.Hint.Digest != "left" || last.Hint.Digest != "right" || !slices.Equal(last.Votes, []string{"cache-1"}) {
				time.Sleep(20 * time.Millisecond)
				return false
			}
		}
		return true
	})
	t.Logf("apart for %v, given up after %v; whole %v after the end, all told %v later; %.0f bytes/s sent by each meanwhile",
		apart.Round(time.Millisecond), gaveUp.Round(time.Millisecond), healed.Round(time.Millisecond), told.Round(time.Millisecond), cost)
}
