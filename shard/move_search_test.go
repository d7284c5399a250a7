//go:build !race

package shard

import "testing"

// Promise P4, and P3 as far as the shards answer: in no order of steps is anything lost, are there two owners, is an old row read, or is anything left behind.
func TestSearchOfAMove(t *testing.T) {
	e := moveExplorer{moveRules: allMoveRules(), faulty: true}
	if wrong, way := e.explore(); wrong != "" {
		t.Errorf("%s after\n\t%s", wrong, way)
	}
	if len(e.nodes) < 100_000 {
		t.Errorf("only %d states were looked at", len(e.nodes))
	}
	t.Logf("%d states", len(e.nodes))
}

// Each rule is needed: without it the search finds what goes wrong. Those about changes that are missed are looked at without the comparison, which would
// find that something is missing and call the move off.
func TestSearchNeedsEachRuleOfAMove(t *testing.T) {
	for _, c := range []struct {
		name, want string
		off        func(r *moveRules)
		faulty     bool
	}{
		{"the fence", "lost write", func(r *moveRules) { r.fence = false }, false},
		{"the barrier before capture", "lost write", func(r *moveRules) { r.barrier, r.compare = false, false }, false},
		{"the barrier after it", "left behind", func(r *moveRules) { r.leave = false }, false},
		{"noting changes", "lost write", func(r *moveRules) { r.log, r.compare = false, false }, false},
		{"waiting for those inside", "lost write", func(r *moveRules) { r.freeze = false }, false},
		{"applying all that was noted", "lost write", func(r *moveRules) { r.drain, r.compare = false, false }, false},
		{"the token", "two owners", func(r *moveRules) { r.token = false }, false},
		{"closing", "stale read", func(r *moveRules) { r.close = false }, false},
		{"undoing a cut-over that was begun by another driver", "lost write", func(r *moveRules) { r.ignore, r.compare = false, false }, false},
		{"deleting what was copied in vain", "left behind", func(r *moveRules) { r.wipe = false }, false},
		{"deleting what was moved", "left behind", func(r *moveRules) { r.clean = false }, false},
		{"comparing", "lost write", func(r *moveRules) { r.compare = false }, true},
	} {
		e := moveExplorer{moveRules: allMoveRules(), faulty: c.faulty}
		c.off(&e.moveRules)
		switch wrong, _ := e.explore(); {
		case wrong == "":
			t.Errorf("without %s nothing is found in %d states", c.name, len(e.nodes))
		case wrong != c.want:
			t.Errorf("without %s: %s, want %s", c.name, wrong, c.want)
		}
	}
}
