package page

import (
	"fmt"
	"math"
)

// The drawing, in the units of its own coordinates.
const (
	width, height           = 960.0, 250.0
	left, right, top, below = 66.0, 14.0, 34.0, 30.0 // margins, for labels
)

// scale places values on the vertical axis.
type scale struct {
	low, high float64
	log       bool
	ticks     []tick
}

// tick is a line of the grid with its label.
type tick struct {
	At    float64 // coordinate
	Label string
}

// y is the coordinate of a value. What is beyond the scale is drawn at its edge.
func (s scale) y(v float64) float64 {
	low, high := s.low, s.high
	if s.log {
		low, high, v = math.Log10(low), math.Log10(high), math.Log10(max(v, s.low))
	}
	share := min(max((v-low)/(high-low), 0), 1)
	return height - below - share*(height-below-top)
}

// linear is a scale from 0 to at least highest, with about four steps of 1, 2, 2.5 or 5 times a power of ten. A highest of 0 gets a step too.
func linear(highest float64, label func(float64) string) scale {
	if highest <= 0 {
		highest = 1
	}
	step := math.Pow(10, math.Floor(math.Log10(highest/4)))
	for _, m := range []float64{1, 2, 2.5, 5, 10} {
		if m*step*4 >= highest {
			step *= m
			break
		}
	}
	s := scale{high: math.Ceil(highest/step-1e-9) * step}
	for v := 0.0; v <= s.high+step/2; v += step {
		s.ticks = append(s.ticks, tick{s.y(v), label(v)})
	}
	return s
}

// logarithmic is a scale of powers of ten around what is shown.
func logarithmic(lowest, highest float64, label func(float64) string) scale {
	first, last := math.Floor(math.Log10(lowest)), math.Ceil(math.Log10(highest))
	if last <= first {
		last = first + 1
	}
	s := scale{low: math.Pow(10, first), high: math.Pow(10, last), log: true}
	for e := first; e <= last; e++ {
		v := math.Pow(10, e)
		s.ticks = append(s.ticks, tick{s.y(v), label(v)})
	}
	return s
}

// x is the coordinate of a time, in seconds, of a load that lasts so many.
func x(at, seconds float64) float64 {
	return left + min(max(at/seconds, 0), 1)*(width-left-right)
}

// timeTicks are about eight, at whole seconds.
func timeTicks(seconds float64) []tick {
	step := 1.0
	for _, step = range []float64{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800} {
		if seconds/step <= 10 {
			break
		}
	}
	var ticks []tick
	for at := 0.0; at <= seconds+1e-9; at += step {
		ticks = append(ticks, tick{x(at, seconds), fmt.Sprintf("%.0f s", at)})
	}
	return ticks
}

// The labels.
func count(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.4gM", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.4gk", v/1e3)
	}
	return fmt.Sprintf("%.4g", v)
}

func percent(v float64) string { return fmt.Sprintf("%.4g%%", 100*v) }

// micros labels a time given in microseconds.
func micros(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.3g s", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%.3g ms", v/1e3)
	}
	return fmt.Sprintf("%.3g µs", v)
}
