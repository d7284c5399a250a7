package mover

import (
	"testing"
	"time"
)

// A shard that others use is left to them for half of the time, also while it is not known whether they do.
func TestAShardThatIsInUseIsTreatedGently(t *testing.T) {
	p := &part{cfg: Config{Page: 100 * time.Millisecond}, from: &side{}, to: &side{}}
	now := time.Now()
	for i, c := range []struct {
		from, to uint64 // requests by then, a second later each
		gently   bool
	}{
		{1000, 0, true}, // not known yet
		{1000 + usedFrom, usedFrom, false},
		{1001 + 2*usedFrom, 2 * usedFrom, true},
		{1001 + 3*usedFrom, 3*usedFrom + 1, true},
		{1001 + 3*usedFrom, 3*usedFrom + 1, false},
		{0, 0, false}, // a new pool counts from 0
	} {
		p.from.counts(c.from, now.Add(time.Duration(i)*time.Second))
		p.to.counts(c.to, now.Add(time.Duration(i)*time.Second))
		if p.gently() != c.gently || (p.page() < p.cfg.Page) != c.gently {
			t.Errorf("second %d: gently is %t, a page takes %v", i, p.gently(), p.page())
		}
	}
}
