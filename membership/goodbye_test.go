package membership

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

func patient(_ *node, c *Config) { c.LeaveTimeout = 8 * time.Second }

// goodbyeTook stops the nodes at the same time and returns how long the slowest took.
func goodbyeTook(t *testing.T, nodes ...*node) time.Duration {
	t.Helper()
	begun := time.Now()
	var wg sync.WaitGroup
	for _, n := range nodes {
		n.stop()
		wg.Go(func() {
			<-n.ended
			if n.err != nil {
				t.Errorf("%s: Run returned %v", n.name, n.err)
			}
		})
	}
	wg.Wait()
	return time.Since(begun)
}

// A goodbye takes as long as saying it often enough, and never waits for those who have left themselves.
func TestGoodbyeIsQuick(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ nodes, leave int }{
		"alone":               {1, 1},
		"the last but one":    {2, 1},
		"both at once":        {2, 2},
		"one of many":         {7, 1},
		"all but one at once": {5, 4},
		"everybody at once":   {7, 7},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := startCluster(t, c.nodes, patient)
			took := goodbyeTook(t, nodes[:c.leave]...)
			if took > 4*time.Second { // half of the timeout, on any machine
				t.Errorf("took %v", took)
			}
			t.Logf("%d of %d left within %v", c.leave, c.nodes, took.Round(time.Millisecond))
			for _, n := range nodes[c.leave:] {
				for _, gone := range nodes[:c.leave] {
					eventually(t, 5*time.Second, n.name+" saw "+gone.name+" leave", func() bool { return n.sees(gone.name, Left) })
				}
				// memberlist has heard it too, so it does not find out by probing.
				eventually(t, 5*time.Second, "memberlist knows", func() bool { return n.ml.Load().NumMembers() == c.nodes-c.leave })
			}
		})
	}
}

// A process whose gossip stands still does not wait for it longer than it may.
func TestGoodbyeIsBounded(t *testing.T) {
	t.Parallel()
	mute := func(n *node) *node {
		n.tune = func(c *memberlist.Config) { c.GossipInterval, c.ProbeInterval = time.Hour, time.Hour }
		n.run()
		<-n.Ready()
		return n
	}
	a := mute(prepare(t, "a", func(_ *node, c *Config) { c.LeaveTimeout = 300 * time.Millisecond }))
	b := mute(prepare(t, "b", seeds(a.Addr())))
	eventually(t, 5*time.Second, "met", func() bool { return a.sees("b", Alive) })
	took := goodbyeTook(t, a)
	if took < 300*time.Millisecond || !strings.Contains(a.logs.String(), "may not have been heard") {
		t.Errorf("ended after %v without a word", took)
	}
	eventually(t, 5*time.Second, "told directly all the same", func() bool { return b.sees("a", Left) })
}
