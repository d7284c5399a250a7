package main

import (
	"fmt"
	"slices"
)

// limit is what a figure must reach.
type limit struct {
	most  float64 // 0: no upper limit, unless exact
	least float64 // 0: no lower limit
	exact bool    // the upper limit is 0
}

func (l limit) reached(v float64) bool {
	return (l.most == 0 && !l.exact || v <= l.most) && v >= l.least
}

func (l limit) String() string {
	switch {
	case l.exact:
		return "0"
	case l.most > 0:
		return fmt.Sprintf("<= %.4g", l.most)
	case l.least > 0:
		return fmt.Sprintf(">= %.4g", l.least)
	}
	return "-" // for information
}

// figure is one line of the table.
type figure struct {
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

func (f figure) String() string {
	return fmt.Sprintf("%s: %.3g (%.3g to %.3g), target %s, %s; %s", f.What, f.Value, f.Low, f.High, f.Target, f.verdict(), f.Detail)
}

func (f figure) verdict() string {
	switch {
	case f.Target == "-":
		return ""
	case f.OK:
		return "ok"
	}
	return "missed"
}

// judge makes the figure of what the rounds gave.
func judge(what string, l limit, rounds []float64, detail string, args ...any) figure {
	s := spread(rounds)
	return figure{
		What: what, Target: l.String(), Value: s.median, Low: s.low, High: s.high, OK: l.reached(s.median),
		Detail: fmt.Sprintf(detail, args...),
	}
}

// span is a median and the extremes around it.
type span struct{ low, median, high float64 }

// spread of no values is zero.
func spread(values []float64) span {
	if len(values) == 0 {
		return span{}
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return span{sorted[0], (sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[n-1]}
}

func median(values []float64) float64 { return spread(values).median }

// ratios divides what two contestants reached in the same rounds.
func ratios(a, b []float64) []float64 {
	out := make([]float64, min(len(a), len(b)))
	for i := range out {
		out[i] = a[i] / b[i]
	}
	return out
}
