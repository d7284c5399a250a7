//go:build !race

package cache

import "testing"

// spaces are small enough to be searched whole, and large enough that each rule is needed in one of them.
func spaces(t *testing.T) map[string]func() *model {
	both := []uint8{0, 1}
	space := func(down bool, writers, readers, losses int, loseTouch bool, writeBy, firstBy, restBy []uint8) func() *model {
		return func() *model {
			m := newModel(t, down)
			m.writers, m.readers, m.losses, m.loseTouch = writers, readers, losses, loseTouch
			m.writeBy, m.firstBy, m.restBy = writeBy, firstBy, restBy
			return m
		}
	}
	inTurn := func(space func() *model) func() *model {
		return func() *model {
			m := space()
			m.inTurn = true
			return m
		}
	}
	carried := func(space func() *model) func() *model {
		return func() *model {
			m := space()
			m.carrier = true
			return m
		}
	}
	refreshed := func(space func() *model) func() *model {
		return func() *model {
			m := space()
			m.refreshes = true
			return m
		}
	}
	return map[string]func() *model{
		"a reader loses touch":          space(false, 1, 2, 1, true, []uint8{1}, []uint8{0}, []uint8{1}),
		"a writer loses touch":          space(false, 1, 2, 1, true, []uint8{0}, []uint8{1}, []uint8{1}),
		"one loses touch, no losses":    space(false, 1, 2, 0, true, both, []uint8{0}, []uint8{1}),
		"nobody loses touch":            space(false, 1, 2, 0, false, both, both, both),
		"two writers":                   space(false, 2, 1, 0, false, both, []uint8{1}, nil),
		"three readers in turn":         inTurn(space(false, 1, 3, 1, false, []uint8{0}, []uint8{1}, []uint8{1})),
		"carried":                       carried(inTurn(space(false, 1, 2, 1, false, []uint8{0}, []uint8{1}, []uint8{1}))),
		"carried, a writer loses touch": carried(inTurn(space(false, 1, 2, 1, true, []uint8{0}, []uint8{1}, []uint8{1}))),
		"carried, two writers":          carried(space(false, 2, 1, 0, false, []uint8{0}, []uint8{1}, nil)),
		"refreshed":                     refreshed(inTurn(space(false, 1, 3, 0, false, []uint8{0}, []uint8{1}, []uint8{1}))),
		"refreshed, loses touch":        refreshed(space(false, 1, 2, 0, true, []uint8{1}, []uint8{0}, []uint8{1})),
		"refreshed, down":               refreshed(space(true, 1, 2, 1, true, []uint8{1}, []uint8{0}, []uint8{1})),
		"down, a reader loses touch":    space(true, 1, 2, 1, true, []uint8{1}, []uint8{0}, []uint8{1}),
		"down, a writer loses touch":    space(true, 1, 2, 1, true, []uint8{0}, []uint8{1}, []uint8{1}),
		"down, two writers, no losses":  space(true, 2, 1, 0, false, both, both, both),
	}
}

func TestSearchOfAChangeOfTheRing(t *testing.T) {
	for name, space := range spaces(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, states := space().search()
			if found != "" {
				t.Error(found)
			}
			t.Logf("%d states", states)
		})
	}
}

// TestSearchNeedsEachRule shows that the search can fail: with any one rule left out it finds a stale read, in the space that is named.
func TestSearchNeedsEachRule(t *testing.T) {
	for name, off := range map[string]struct {
		where string
		rule  func(r *rules) *bool
	}{
		"lease":   {"carried", func(r *rules) *bool { return &r.lease }},
		"poison":  {"one loses touch, no losses", func(r *rules) *bool { return &r.poison }},
		"fence":   {"carried", func(r *rules) *bool { return &r.fence }},
		"clean":   {"carried", func(r *rules) *bool { return &r.clean }},
		"order":   {"carried", func(r *rules) *bool { return &r.order }},
		"closing": {"carried", func(r *rules) *bool { return &r.closing }},
		"hold":    {"carried", func(r *rules) *bool { return &r.hold }},
		"wait":    {"carried", func(r *rules) *bool { return &r.wait }},
		"claim":   {"refreshed", func(r *rules) *bool { return &r.claim }},
		"guard":   {"carried", func(r *rules) *bool { return &r.guard }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := spaces(t)[off.where]()
			*off.rule(&m.rules) = false
			found, states := m.search()
			if found == "" {
				t.Error("no stale read was found")
			}
			t.Logf("after %d states: %s", states, found)
		})
	}
}
