package sidecar

import (
	"errors"
	"testing"
	"time"

	"ringside/cache"
	"ringside/shard/origin"
)

func TestJudge(t *testing.T) {
	now := time.Now()
	value := func(body string) []byte { return cache.AppendValue(nil, now, now, []byte(body)) }
	absent := cache.AppendAbsent(nil, now, now)
	lease := cache.AppendLease(nil, cache.Token{1})
	row := func(body string) origin.Row { return origin.Row{Found: true, Body: []byte(body)} }
	for _, c := range []struct {
		what          string
		before, after []byte
		row           origin.Row
		want          finding
	}{
		{"as on the shard", value("a"), value("a"), row("a"), fresh},
		{"as on the shard, and written since", value("a"), lease, row("a"), fresh},
		{"no row, rightly", absent, absent, origin.Row{}, absentOK},
		{"another row", value("a"), value("a"), row("b"), differs},
		{"another row, but written since", value("a"), value("b"), row("b"), overwritten},
		{"another row, but being written", value("a"), lease, row("b"), overwritten},
		{"another row, but gone since", value("a"), nil, row("b"), overwritten},
		{"the row is gone", value("a"), value("a"), origin.Row{}, differs},
		{"there is a row", absent, absent, row("a"), differs},
		{"there is a row, and filled since", absent, value("a"), row("a"), overwritten},
		{"the shard does not say", value("a"), value("a"), origin.Row{Err: errors.New("not the owner")}, unchecked},
	} {
		if got := judge(c.before, c.after, c.row); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}

func TestFollowing(t *testing.T) {
	for _, c := range []struct {
		usable []bool
		at     int
		want   int
	}{
		{[]bool{true, true, true}, 0, 1},
		{[]bool{true, true, true}, 2, 0},
		{[]bool{true, true, true}, -1, 0}, // none yet
		{[]bool{false, true, false}, 1, 1},
		{[]bool{false, false}, 0, -1},
		{nil, -1, -1},
	} {
		if got := following(len(c.usable), c.at, func(i int) bool { return c.usable[i] }); got != c.want {
			t.Errorf("after %d of %v: %d, want %d", c.at, c.usable, got, c.want)
		}
	}
}
