//go:build !race

package shard

import "testing"

// Promise P4 for keys that overrides place, in a vnode that moves as well: in no order of steps is a write lost, are there two owners, is anything left behind, or is the
// map wrong in the end.
func TestSearchOfKeysAndTheirVnode(t *testing.T) {
	e := keyExplorer{keyRules: allKeyRules()}
	if wrong, way := e.explore(); wrong != "" {
		t.Errorf("%s after\n\t%s", wrong, way)
	}
	t.Logf("%d states", len(e.nodes))
	if len(e.nodes) < 50_000 {
		t.Errorf("only %d states were looked at", len(e.nodes))
	}
}

// The shards themselves keep parts apart that should not be under way at once, whatever the journal says. That such parts all come to an end is not looked at.
func TestSearchOfKeysWithoutTheJournal(t *testing.T) {
	e := keyExplorer{keyRules: allKeyRules(), small: true}
	e.journal = false
	wrong, way := e.explore()
	switch wrong {
	case "two owners of the key", "two owners of the vnode", "lost write":
		t.Errorf("%s after\n\t%s", wrong, way)
	}
	t.Logf("%d states, %q %s", len(e.nodes), wrong, way)
}

// Each rule is needed.
func TestSearchNeedsEachRuleOfKeys(t *testing.T) {
	for _, c := range []struct {
		name string
		want []string
		off  func(r *keyRules)
	}{
		{"telling who expects a vnode of its overrides", []string{"two owners of the key"}, func(r *keyRules) { r.know = false }},
		{"leaving a key where it is when its vnode moves", []string{"lost write", "left behind"}, func(r *keyRules) { r.apart = false }},
		{"the key's row before its vnode's", []string{"two owners of the key", "lost write"}, func(r *keyRules) { r.fence = false }},
		{"the row that stays at the vnode's owner", []string{"two owners of the key"}, func(r *keyRules) { r.mark = false }},
		{"the token of who changes the map", []string{"the map is wrong about the key", "the map is wrong about the vnode", "the vnode's owner does not know"}, func(r *keyRules) { r.token = false }},
		{"keeping moves apart on each shard, without the journal", []string{"two owners of the key", "lost write"}, func(r *keyRules) { r.journal, r.alone = false, false }},
	} {
		e := keyExplorer{keyRules: allKeyRules()}
		c.off(&e.keyRules)
		e.small = !e.journal
		wrong, _ := e.explore()
		ok := false
		for _, w := range c.want {
			ok = ok || w == wrong
		}
		if !ok {
			t.Errorf("without %s: %q in %d states, want %q", c.name, wrong, len(e.nodes), c.want)
		}
	}
}
