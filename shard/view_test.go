package shard

import (
	"testing"
	"time"
)

func TestStanding(t *testing.T) {
	now := time.Now()
	const ttl = time.Second
	for _, c := range []struct {
		name       string
		view       View
		asked      time.Time
		epoch      uint64
		generation uint64
		want       Standing
	}{
		{"just asked", View{5, Done, 4}, now, 5, 5, Current},
		{"at the last moment", View{5, Done, 4}, now.Add(-ttl), 5, 5, Current},
		{"too long ago", View{5, Done, 4}, now.Add(-ttl - 1), 5, 5, Expired},
		{"another epoch, newer", View{6, Done, 5}, now, 5, 5, Differs},
		{"another epoch, older", View{4, Done, 3}, now, 5, 5, Differs},
		{"changing, and so is the row", View{5, Preparing, 3}, now, 5, 4, Changing},
		{"changing, the row is not", View{5, Preparing, 3}, now, 5, 3, Current},
		{"changing, the row is not, too long ago", View{5, Active, 3}, now.Add(-2 * ttl), 5, 3, Expired},
	} {
		var k Confirmation
		k.Confirm(c.view, c.asked)
		if got := k.Standing(c.epoch, c.generation, now, ttl); got != c.want {
			t.Errorf("%s: standing %d, want %d", c.name, got, c.want)
		}
	}
	var k Confirmation
	if got := k.Standing(0, 0, now, ttl); got != Unheard {
		t.Errorf("never heard: standing %d", got)
	}
	k.Confirm(View{Epoch: 1, Phase: Done}, now)
	k.Forget()
	if got := k.Standing(1, 1, now, ttl); got != Unheard {
		t.Errorf("forgotten: standing %d", got)
	}
}

func TestConfirmNeverGoesBack(t *testing.T) {
	now := time.Now()
	var k Confirmation
	k.Confirm(View{Epoch: 5, Phase: Preparing, From: 4}, now)
	for _, older := range []View{{Epoch: 4, Phase: Done}, {Epoch: 5}} {
		k.Confirm(older, now.Add(time.Hour))
		if v, _ := k.View(); v.Epoch != 5 || v.Phase != Preparing {
			t.Errorf("%v replaced a newer view: %v", older, v)
		}
	}
	k.Confirm(View{Epoch: 5, Phase: Preparing, From: 4}, now.Add(-time.Second))
	if _, asked := k.View(); !asked.Equal(now) {
		t.Error("an older question replaced a newer one")
	}
	k.Confirm(View{Epoch: 5, Phase: Done, From: 4}, now.Add(-time.Minute))
	if v, _ := k.View(); v.Phase != Done {
		t.Error("a newer view must count even when it was asked for earlier")
	}
}

func TestViewsAreOrdered(t *testing.T) {
	rising := []View{{1, Preparing, 0}, {1, Active, 0}, {1, Done, 0}, {2, Preparing, 1}, {3, Preparing, 1}}
	for i, a := range rising {
		for j, b := range rising {
			if got := a.Less(b); got != (i < j) {
				t.Errorf("%v < %v: %v", a, b, got)
			}
		}
	}
}
