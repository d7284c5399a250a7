package gauge

import (
	"fmt"
	"slices"
)

// Limit is what a figure must reach.
type Limit struct {
	Most  float64 // 0: no upper limit, unless exact
	Least float64 // 0: no lower limit
	Exact bool    // the upper Limit is 0
}

func (l Limit) Reached(v float64) bool {
	return (l.Most == 0 && !l.Exact || v <= l.Most) && v >= l.Least
}

func (l Limit) String() string {
	switch {
	case l.Exact:
		return "0"
	case l.Most > 0:
		return fmt.Sprintf("<= %.4g", l.Most)
	case l.Least > 0:
		return fmt.Sprintf(">= %.4g", l.Least)
	}
	return "-" // for information
}

// Figure is one line of the table.
type Figure struct {
	Measure string  `json:"measure"`
	What    string  `json:"what"`
	Target  string  `json:"target"`
	Value   float64 `json:"value"`
	// Low and High are the extremes of the rounds, between which Value is the median.
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	OK     bool    `json:"ok"`
	Detail string  `json:"detail"` // what the ratio is made of
}

func (f Figure) String() string {
	return fmt.Sprintf("%s: %.3g (%.3g to %.3g), target %s, %s; %s", f.What, f.Value, f.Low, f.High, f.Target, f.verdict(), f.Detail)
}

func (f Figure) verdict() string {
	switch {
	case f.Target == "-":
		return ""
	case f.OK:
		return "ok"
	}
	return "missed"
}

// Judge makes the figure of what the rounds gave.
func Judge(what string, l Limit, rounds []float64, detail string, args ...any) Figure {
	s := Spread(rounds)
	return Figure{
		What: what, Target: l.String(), Value: s.Median, Low: s.Low, High: s.High, OK: l.Reached(s.Median),
		Detail: fmt.Sprintf(detail, args...),
	}
}

// Span is a median and the extremes around it.
type Span struct{ Low, Median, High float64 }

// Spread of no values is zero.
func Spread(values []float64) Span {
	if len(values) == 0 {
		return Span{}
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Span{sorted[0], (sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[n-1]}
}

// Median is the middle one.
func Median(values []float64) float64 { return Spread(values).Median }

// Ratios divides what two contestants Reached in the same rounds.
func Ratios(a, b []float64) []float64 {
	out := make([]float64, min(len(a), len(b)))
	for i := range out {
		out[i] = a[i] / b[i]
	}
	return out
}
