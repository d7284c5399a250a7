package loadtest

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestSchedule(t *testing.T) {
	flat := Schedule{Rate: 1000}
	ramped := Schedule{Rate: 1000, Ramp: 10 * time.Second}
	for _, c := range []struct {
		s    Schedule
		at   time.Duration
		want float64
	}{
		{flat, 0, 0}, {flat, 1500 * time.Millisecond, 1500},
		{ramped, 5 * time.Second, 1250}, // a quarter of what the whole ramp brings
		{ramped, 10 * time.Second, 5000}, {ramped, 12 * time.Second, 7000}, {ramped, -time.Second, 0},
	} {
		if got := c.s.Due(c.at); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%+v: %v due by %v, want %v", c.s, got, c.at, c.want)
		}
		if c.at > 0 {
			if got := c.s.At(c.want); (got - c.at).Abs() > time.Microsecond {
				t.Errorf("%+v: request %v is due at %v, want %v", c.s, c.want, got, c.at)
			}
		}
	}
}

// Several workers together send exactly what one would.
func TestArrivalsOfWorkersMakeUpTheSchedule(t *testing.T) {
	s := Schedule{Rate: 100, Ramp: time.Second}
	until := func(workers int) []time.Duration {
		var all []time.Duration
		for i := range workers {
			a := newArrivals(s, workers, i, false, nil)
			for due := a.next(); due < 3*time.Second; due = a.next() {
				all = append(all, due)
			}
		}
		slices.Sort(all)
		return all
	}
	one, three := until(1), until(3)
	if len(one) != 250 || !slices.Equal(one, three) {
		t.Errorf("one worker sends %d requests, three send %d; want the same 250", len(one), len(three))
	}
}

func TestPoissonArrivals(t *testing.T) {
	const rate, seconds = 1000, 100
	n, last := 0, time.Duration(0)
	var gaps, squares float64
	for i := range 2 {
		a := newArrivals(Schedule{Rate: rate}, 2, i, true, rand.New(rand.NewPCG(7, uint64(i))))
		for due := a.next(); due < seconds*time.Second; due = a.next() {
			if i == 0 {
				gap := (due - last).Seconds()
				gaps, squares, last = gaps+gap, squares+gap*gap, due
			}
			n++
		}
	}
	// The standard deviation of the count is its root, 316.
	if math.Abs(float64(n)-rate*seconds) > 5*316 {
		t.Errorf("%d requests in %d s, want about %d", n, seconds, rate*seconds)
	}
	// Gaps of a Poisson process are exponential: their mean square is twice the square of their mean.
	half := float64(n) / 2
	if shape := squares / half / (gaps / half * gaps / half); math.Abs(shape-2) > 0.1 {
		t.Errorf("the mean square of gaps is %.3f times the square of their mean, want 2", shape)
	}
}
