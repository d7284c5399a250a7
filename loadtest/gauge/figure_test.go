package gauge

import (
	"math"
	"strings"
	"testing"
)

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		limit Limit
		value float64
		want  bool
		text  string
	}{
		{Limit{Most: 0.9}, 0.9, true, "<= 0.9"},
		{Limit{Most: 0.9}, 0.91, false, "<= 0.9"},
		{Limit{Least: 2}, 2, true, ">= 2"},
		{Limit{Least: 2}, 1.99, false, ">= 2"},
		{Limit{Exact: true}, 0, true, "0"},
		{Limit{Exact: true}, 1, false, "0"},
		{Limit{}, 99, true, "-"},
	} {
		if got := c.limit.Reached(c.value); got != c.want {
			t.Errorf("%v reached by %v: %v", c.limit, c.value, got)
		}
		if got := c.limit.String(); got != c.text {
			t.Errorf("%+v is shown as %q, want %q", c.limit, got, c.text)
		}
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   Span
	}{
		{nil, Span{}},
		{[]float64{3}, Span{3, 3, 3}},
		{[]float64{3, 1}, Span{1, 2, 3}},
		{[]float64{9, 1, 2}, Span{1, 2, 9}},
	} {
		if got := Spread(c.values); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.values, got, c.want)
		}
	}
	values := []float64{2, 1}
	Spread(values)
	if values[0] != 2 {
		t.Error("the values were sorted in place: the order of the rounds is lost")
	}
}

// A figure is the median of the rounds' ratios, not the ratio of the medians: what disturbs a round disturbs both of its turns.
func TestFiguresCompareRoundByRound(t *testing.T) {
	got := Judge("x", Limit{Most: 0.5}, Ratios([]float64{1, 10, 3}, []float64{2, 20, 4}), "%d rounds", 3)
	want := Figure{What: "x", Target: "<= 0.5", Value: 0.5, Low: 0.5, High: 0.75, OK: true, Detail: "3 rounds"}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestTheTableNamesWhatIsMissed(t *testing.T) {
	r := Report{Figures: []Figure{
		Judge("a", Limit{Most: 1}, []float64{2}, "d"), Judge("b", Limit{Most: 1}, []float64{1}, "d"), Judge("c", Limit{}, []float64{5}, "d"),
	}}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(text.String(), "missed"); n != 2 || !strings.Contains(text.String(), "1 of 3 figures missed") {
		t.Errorf("the table says:\n%s", text.String())
	}
}

func TestOptions(t *testing.T) {
	names := []string{"get1"}
	good := Options{Rounds: 5, Scale: 1, Only: []string{"get1"}}
	if err := good.Validate(names); err != nil {
		t.Error(err)
	}
	for _, bad := range []Options{{Rounds: 0, Scale: 1}, {Rounds: 5, Scale: math.NaN()}, {Rounds: 5, Scale: 1, Only: []string{"get2"}}} {
		if bad.Validate(names) == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}
