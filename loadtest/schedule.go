package loadtest

import (
	"math"
	"math/rand/v2"
	"time"
)

// Schedule says when requests are due: at a rate that rises linearly during the ramp and stays from then on. It does not depend on the answers,
// which is what makes the load open: a slow server does not get fewer requests, and the wait of those behind a slow one is counted.
type Schedule struct {
	Rate float64       // requests a second after the ramp
	Ramp time.Duration // 0: at once
}

// Due is how many requests are due by t after the start.
func (s Schedule) Due(t time.Duration) float64 {
	seconds, ramp := max(t, 0).Seconds(), s.Ramp.Seconds()
	if seconds < ramp {
		return s.Rate * seconds * seconds / (2 * ramp)
	}
	return s.Rate * (seconds - ramp/2)
}

// At is when the k-th request is due: the inverse of Due.
func (s Schedule) At(k float64) time.Duration {
	ramp := s.Ramp.Seconds()
	seconds := k/s.Rate + ramp/2
	if k < s.Rate*ramp/2 {
		seconds = math.Sqrt(2 * k * ramp / s.Rate)
	}
	return time.Duration(seconds * float64(time.Second))
}

// arrivals are the requests of one of several workers, which together make up the schedule.
type arrivals struct {
	schedule Schedule
	workers  float64
	random   *rand.Rand // nil: evenly spaced
	k        float64
}

// newArrivals of worker number index. Poisson arrivals come at random: those of several workers together are Poisson's too.
func newArrivals(s Schedule, workers, index int, poisson bool, random *rand.Rand) *arrivals {
	a := &arrivals{schedule: s, workers: float64(workers), k: float64(index) - float64(workers)}
	if poisson {
		a.random, a.k = random, 0
	}
	return a
}

// next is when the next request is due, counted from the start.
func (a *arrivals) next() time.Duration {
	if a.random != nil {
		a.k += a.random.ExpFloat64() * a.workers
	} else {
		a.k += a.workers
	}
	return a.schedule.At(a.k)
}
