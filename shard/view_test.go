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
		k.Confirm(view, c.asked, nil)
		if v, got := k.Trust(now, ttl, 0); v != view || got != c.want {
			t.Errorf("%s: view %v, standing %d, want %v, %d", c.name, v, got, view, c.want)
		}
	}
	var k Confirmation
	if v, got := k.Trust(now, ttl, 0); v != (View{}) || got != Unheard {
		t.Errorf("never heard: view %v, standing %d", v, got)
	}
	k.Confirm(view, now, nil)
	k.Forget()
	if v, got := k.Trust(now, ttl, 0); v != (View{}) || got != Unheard {
		t.Errorf("forgotten: view %v, standing %d", v, got)
	}
}

func TestConfirmNeverGoesBack(t *testing.T) {
	now := time.Now()
	var k Confirmation
	k.Confirm(View{Epoch: 5, Phase: Preparing, From: 4}, now, nil)
	for _, older := range []View{{Epoch: 4, Phase: Done}, {Epoch: 5}} {
		k.Confirm(older, now.Add(time.Hour), nil)
		if v, _ := k.View(); v.Epoch != 5 || v.Phase != Preparing {
			t.Errorf("%v replaced a newer view: %v", older, v)
		}
	}
	k.Confirm(View{Epoch: 5, Phase: Preparing, From: 4}, now.Add(-time.Second), nil)
	if _, asked := k.View(); !asked.Equal(now) {
		t.Error("an older question replaced a newer one")
	}
	k.Confirm(View{Epoch: 5, Phase: Done, From: 4}, now.Add(-time.Minute), nil)
	if v, _ := k.View(); v.Phase != Done {
		t.Error("a newer view must count even when it was asked for earlier")
	}
}

// What the shard withholds counts as long as the rest of its word, and before it.
func TestWithheldRowsAreAvoided(t *testing.T) {
	now := time.Now()
	const ttl = time.Second
	view := View{5, Done, 4}
	var k Confirmation
	k.Confirm(view, now, Withhold([]uint16{9, 7, 7, 65535}))
	for vnode, want := range map[uint16]Standing{7: Avoided, 9: Avoided, 65535: Avoided, 0: Current, 8: Current} {
		if v, got := k.Trust(now, ttl, vnode); v != view || got != want {
			t.Errorf("vnode %d: %v, standing %d, want %d", vnode, v, got, want)
		}
	}
	late := now.Add(ttl + 1)
	for vnode, want := range map[uint16]Standing{7: Avoided, 8: Expired} {
		if _, got := k.Trust(late, ttl, vnode); got != want {
			t.Errorf("vnode %d, later: standing %d, want %d", vnode, got, want)
		}
	}
	if w, asked := k.Withheld(); w.Len() != 3 || !asked.Equal(now) {
		t.Errorf("%d vnodes as of %v", w.Len(), asked)
	}
	k.Confirm(view, late, nil)
	if _, got := k.Trust(late, ttl, 7); got != Current {
		t.Errorf("what is not withheld any more stands %d", got)
	}
}

// A view that somebody learns of without hearing what is withheld confirms nothing, and prolongs nothing.
func TestLearnIsNoConfirmation(t *testing.T) {
	now := time.Now()
	const ttl = time.Second
	var k Confirmation
	first, second := View{1, Done, 0}, View{2, Preparing, 1}
	k.Learn(first)
	if v, got := k.Trust(now, ttl, 0); v != first || got != Unheard {
		t.Errorf("%v, standing %d", v, got)
	}
	k.Confirm(first, now, Withhold([]uint16{7}))
	k.Learn(second)
	k.Learn(first)
	if v, got := k.Trust(now.Add(ttl), ttl, 0); v != second || got != Current {
		t.Errorf("%v, standing %d", v, got)
	}
	if _, got := k.Trust(now.Add(ttl), ttl, 7); got != Avoided {
		t.Errorf("a row that was withheld stands %d", got)
	}
	if v, got := k.Trust(now.Add(ttl+1), ttl, 0); v != second || got != Expired {
		t.Errorf("%v, standing %d", v, got)
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
