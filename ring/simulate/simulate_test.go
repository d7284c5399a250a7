package simulate

import (
	"math"
	"testing"

	"ringside/ring"
)

func TestTheKnownExercise(t *testing.T) {
	if got, want := RunExercise(), (Exercise{IDs: 100_000, Modulo: 66_679, Buckets: 37_500}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestCompare(t *testing.T) {
	keys := Keys(100_000)
	for _, weights := range [][]uint32{nil, {1, 2, 3, 4}} {
		for _, c := range Changes(Fleet(10, weights)) {
			for _, s := range Schemes() {
				r, err := Compare(s, c, keys)
				if err != nil {
					t.Fatal(err)
				}
				lo, hi, collateral := 0.9, 1.1, 0.0005 // of the least
				switch s.Name {
				case "ring of 160 points":
					lo, hi = 0.6, 1.5
				case "1024 buckets in a table":
					hi = 1.6 // targets by position round differently before and after
				case "modulo":
					lo, hi, collateral = 2, 20, 1
				}
				if ratio := r.Moved / r.Least; ratio < lo || ratio > hi {
					t.Errorf("%v, %s, %s: moved %.4f, %.2f of the least", weights, c.Name, s.Name, r.Moved, ratio)
				}
				if s.Name != "1024 buckets in a table" && r.Collateral > collateral {
					t.Errorf("%v, %s, %s: collateral %.4f", weights, c.Name, s.Name, r.Collateral)
				}
				if s.Name == "ringside" && r.Balance > 1.06 {
					t.Errorf("%v, %s: balance %.4f", weights, c.Name, r.Balance)
				}
			}
		}
	}
}

func TestLeast(t *testing.T) {
	two := Fleet(2, nil)
	for _, c := range []struct {
		change Change
		want   float64
	}{
		{Change{"join", two, Fleet(3, nil)}, 1.0 / 3},
		{Change{"leave", Fleet(4, nil), Fleet(3, nil)}, 1.0 / 4},
		{Change{"reweight", two, []ring.Node{{Name: "c1", Weight: 1}, {Name: "c2", Weight: 3}}}, 1.0 / 4},
		{Change{"nothing", two, two}, 0},
	} {
		if got := least(c.change); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %f, want %f", c.change.Name, got, c.want)
		}
	}
}

func TestNoWeightIsAnError(t *testing.T) {
	none := []ring.Node{{Name: "a"}}
	for _, s := range Schemes() {
		if _, err := Compare(s, Change{"none", none, none}, Keys(10)); err == nil {
			t.Errorf("%s placed keys on nothing", s.Name)
		}
	}
}
