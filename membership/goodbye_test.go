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
					eventually(t, time.Minute, n.name+" saw "+gone.name+" leave", func() bool { return n.sees(gone.name, Left) })
				}
				eventually(t, time.Minute, "memberlist knows", func() bool { return n.ml.Load().NumMembers() == c.nodes-c.leave })
				if found := strings.Count(n.logs.String(), "as failed, suspect timeout reached"); found > 0 {
					t.Logf("%s had to find out by itself of %d", n.name, found)
				}
			}
		})
	}
}

// Whoever cannot be told does not hold up the farewell longer than it may take.
func TestGoodbyeIsBounded(t *testing.T) {
	t.Parallel()
	a := prepare(t, "a", func(_ *node, c *Config) { c.LeaveTimeout = 300 * time.Millisecond }).run()
	<-a.Ready()
	delegate{a.Gossip}.NotifyJoin(&memberlist.Node{Name: "nowhere"})
	if took := goodbyeTook(t, a); took < 300*time.Millisecond || !strings.Contains(a.logs.String(), "may not have been heard") {
		t.Errorf("ended after %v without a word", took)
	}
}
