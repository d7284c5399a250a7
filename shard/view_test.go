package shard

import (
	"testing"
	"time"
)

func TestTrust(t *testing.T) {
	now := time.Now()
	const ttl = time.Second
	view := View{5, Active, 4}
	for _, c := range []struct {
		name  string
		asked time.Time
		want  Standing
	}{
		{"just asked", now, Current},
		{"at the last moment", now.Add(-ttl), Current},
		{"too long ago", now.Add(-ttl - 1), Expired},
	} {
		var k Confirmation
		k.Confirm(view, c.asked)
		if v, got := k.Trust(now, ttl); v != view || got != c.want {
			t.Errorf("%s: view %v, standing %d, want %v, %d", c.name, v, got, view, c.want)
		}
	}
	var k Confirmation
	if v, got := k.Trust(now, ttl); v != (View{}) || got != Unheard {
		t.Errorf("never heard: view %v, standing %d", v, got)
	}
	k.Confirm(view, now)
	k.Forget()
	if v, got := k.Trust(now, ttl); v != (View{}) || got != Unheard {
		t.Errorf("forgotten: view %v, standing %d", v, got)
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
