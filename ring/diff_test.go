package ring

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestDiff(t *testing.T) {
	for _, c := range []struct {
		what          string
		before, after []uint16
		want          Delta
	}{
		{"nothing", nil, nil, Delta{}},
		{"equal", []uint16{0, 1, None}, []uint16{0, 1, None}, Delta{}},
		{"flows are ordered", []uint16{1, 0, 0, 0}, []uint16{0, 2, 1, 2}, Delta{4, []Flow{{0, 1, 1}, {0, 2, 2}, {1, 0, 1}}}},
		{"from and to nobody", []uint16{None, 3}, []uint16{3, None}, Delta{2, []Flow{{3, None, 1}, {None, 3, 1}}}},
		{"a table that ends", []uint16{1, 1, None}, []uint16{1}, Delta{1, []Flow{{1, None, 1}}}},
		{"a table that begins", nil, []uint16{5, 5}, Delta{2, []Flow{{None, 5, 2}}}},
	} {
		got := Diff(c.before, c.after)
		if got.Moved != c.want.Moved || !slices.Equal(got.Flows, c.want.Flows) {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
	}
}

func TestDiffAddsUp(t *testing.T) {
	owners := rapid.SliceOfN(rapid.SampledFrom([]uint16{0, 1, 2, 9, None}), 0, 30)
	rapid.Check(t, func(t *rapid.T) {
		before, after := owners.Draw(t, "before"), owners.Draw(t, "after")
		d, back := Diff(before, after), Diff(after, before)
		sum := 0
		for _, f := range d.Flows {
			sum += f.Vnodes
			if !slices.Contains(back.Flows, Flow{From: f.To, To: f.From, Vnodes: f.Vnodes}) {
				t.Fatalf("%v does not flow back in %v", f, back.Flows)
			}
		}
		if sum != d.Moved || d.Moved != back.Moved {
			t.Fatalf("%d moved, %d back, the flows add up to %d", d.Moved, back.Moved, sum)
		}
	})
}

func TestReindex(t *testing.T) {
	table := []uint16{0, 1, 2, None, 1}
	got, err := Reindex(table, []string{"a", "c", "d"}, []string{"a", "b", "c"})
	if err != nil || !slices.Equal(got, []uint16{0, 2, None, None, 2}) {
		t.Errorf("%v, %v", got, err)
	}
	if !slices.Equal(table, []uint16{0, 1, 2, None, 1}) {
		t.Error("Reindex changed its argument")
	}
	_, err = Reindex([]uint16{0, 3}, []string{"a", "b", "c"}, nil)
	if err == nil || !strings.Contains(err.Error(), "vnode 1 belongs to server number 3") {
		t.Errorf("an index outside the names: %v", err)
	}
}

func TestCounts(t *testing.T) {
	if got := Counts([]uint16{0, 2, 2, None, 7}, 3); !slices.Equal(got, []int{1, 0, 2}) {
		t.Errorf("%v", got)
	}
	if Share(Vnodes) != 1 || Share(0) != 0 || Share(Vnodes/4) != 0.25 {
		t.Error("a share is not its part of the ring")
	}
}
