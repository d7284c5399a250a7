package topology

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestMarkers(t *testing.T) {
	for text, want := range map[string]Marker{
		"":                    {},
		"12":                  {Epoch: 12},
		"12 9:handed 12:open": {Epoch: 12, Steps: map[uint64]Step{9: Handed, 12: Open}},
		"3 3:held":            {Epoch: 3, Steps: map[uint64]Step{3: Held}},
	} {
		got, err := ParseMarker(text)
		if err != nil || got.Epoch != want.Epoch || !maps.Equal(got.Steps, want.Steps) {
			t.Errorf("%q: %+v %v", text, got, err)
		}
		if text != "" && got.String() != text {
			t.Errorf("%q became %q", text, got.String())
		}
	}
	for _, text := range []string{"x", "12 ", "12 9", "12 9:odd", "12 x:open", "-1", " "} {
		if _, err := ParseMarker(text); err == nil {
			t.Errorf("%q was taken for a marker", text)
		}
	}
}

func TestCallers(t *testing.T) {
	for _, c := range []Caller{{"a1", 12, nil}, {"a:b", 3, []uint64{3}}, {"", 1, []uint64{1, 2}}} {
		got, ok := ParseCaller(c.Name())
		if !ok || got.Sidecar != c.Sidecar || got.Epoch != c.Epoch || !slices.Equal(got.Held, c.Held) {
			t.Errorf("%+v became %q, %+v", c, c.Name(), got)
		}
	}
	if name := (Caller{"my pod\n", 1, nil}).Name(); strings.ContainsAny(name, " \n") {
		t.Errorf("%q is no connection name", name)
	}
	for _, name := range []string{"", "ringside", "ringside:x::a", "ringside:1:y:a", "other:1::a"} {
		if _, ok := ParseCaller(name); ok {
			t.Errorf("%q was taken for ours", name)
		}
	}
}

func TestWhoHindersAHandOver(t *testing.T) {
	h := Handover{From: "c1", Since: 5}
	for _, c := range []struct {
		caller Caller
		to     Step
		want   bool
	}{
		{Caller{Epoch: 4}, Held, true},
		{Caller{Epoch: 5}, Held, false},
		{Caller{Epoch: 5}, Handed, true},
		{Caller{Epoch: 6, Held: []uint64{4}}, Handed, true},
		{Caller{Epoch: 6, Held: []uint64{4, 5}}, Handed, false},
		{Caller{Epoch: 4, Held: []uint64{5}}, Handed, true},
	} {
		if got := c.caller.Hinders(h, c.to); got != c.want {
			t.Errorf("%+v on the way to %v: %v", c.caller, c.to, got)
		}
	}
}
