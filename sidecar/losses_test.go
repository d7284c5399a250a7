package sidecar

import (
	"log/slog"
	"slices"
	"testing"

	"ringside/sidecar/admin"
	"ringside/sidecar/handover"
	"ringside/sidecar/topology"
)

func TestLossesAreRemembered(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	top := changed(t)
	down, err := topology.MarkDown(top, []string{"c1"})
	if err != nil {
		t.Fatal(err)
	}
	h := top.Handovers[0]
	done, under := []handover.Progress{{From: h.From, Since: h.Since, Done: true}}, []handover.Progress{{From: h.From, Since: h.Since}}
	one := []admin.Loss{{From: "c1", Since: 2, Epoch: 3}}
	for _, test := range []struct {
		name    string
		was, is *topology.Topology
		driven  []handover.Progress
		want    []admin.Loss
	}{
		{"the first topology", nil, down, nil, nil},
		{"nothing happens", top, top, under, nil},
		{"it was under way", top, down, under, one},
		{"nothing is known of it", top, down, nil, one},
		{"it was carried out", top, down, done, nil},
		{"it ended before", down, down, nil, nil},
	} {
		var l losses
		l.note(test.was, test.is, test.driven, log)
		if got := l.list(); !slices.Equal(got, test.want) {
			t.Errorf("%s: %+v", test.name, got)
		}
	}
	var many losses
	for range 3 * keptLosses {
		many.note(top, down, under, log)
	}
	if n := len(many.list()); n != keptLosses {
		t.Errorf("%d are kept", n)
	}
}
