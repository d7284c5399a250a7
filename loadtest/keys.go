package loadtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Keys are the keys that are asked for: a pattern with a number in it, from 1 to Count.
type Keys struct {
	Prefix, Suffix string
	Count          int
}

// ParseKeys reads a pattern such as user:{id}.
func ParseKeys(pattern string, count int) (Keys, error) {
	prefix, rest, opened := strings.Cut(pattern, "{")
	name, suffix, closed := strings.Cut(rest, "}")
	if !opened || !closed || name == "" || strings.ContainsAny(suffix, "{}") || strings.Contains(name, "{") {
		return Keys{}, fmt.Errorf("the key pattern is %q: it must have one {id}, for which numbers from 1 on are put, such as user:{id}", pattern)
	}
	return Keys{prefix, suffix, count}, nil
}

// Append adds the key with this number.
func (k Keys) Append(dst []byte, id uint32) []byte {
	dst = append(dst, k.Prefix...)
	dst = strconv.AppendUint(dst, uint64(id), 10)
	return append(dst, k.Suffix...)
}

// Name is the key with this number.
func (k Keys) Name(id uint32) string { return string(k.Append(nil, id)) }

// distribution draws numbers from 1 to n. It is not written to, so that many may draw from it.
type distribution struct {
	n    float64
	zipf bool
	// What Zipf's law needs (see draw).
	exponent, from, to, squeeze float64
}

// newDistribution is uniform for an exponent of 0. Else the number k comes with a probability proportional to 1/k^exponent.
func newDistribution(n int, exponent float64) distribution {
	d := distribution{n: float64(n), zipf: exponent > 0, exponent: exponent}
	if d.zipf {
		d.from, d.to = d.integral(1.5)-1, d.integral(d.n+0.5)
		d.squeeze = 2 - d.inverse(d.integral(2.5)-d.density(2))
	}
	return d
}

// draw draws one number. Zipf's law is drawn from by rejection-inversion (Hörmann and Derflinger, 1996), which takes any exponent, needs no
// table and few attempts.
func (d distribution) draw(r *rand.Rand) uint32 {
	if !d.zipf {
		return uint32(1 + r.Uint64N(uint64(d.n)))
	}
	for {
		u := d.to + r.Float64()*(d.from-d.to)
		x := d.inverse(u)
		k := min(max(math.Floor(x+0.5), 1), d.n)
		if k-x <= d.squeeze || u >= d.integral(k+0.5)-d.density(k) {
			return uint32(k)
		}
	}
}

func (d distribution) density(x float64) float64 { return math.Exp(-d.exponent * math.Log(x)) }

// integral is that of the density, shifted so that it is defined for an exponent of 1 too.
func (d distribution) integral(x float64) float64 {
	log := math.Log(x)
	y := (1 - d.exponent) * log
	if math.Abs(y) > 1e-8 {
		return math.Expm1(y) / y * log
	}
	return (1 + y/2*(1+y/3)) * log
}

func (d distribution) inverse(x float64) float64 {
	y := max(x*(1-d.exponent), -1)
	if math.Abs(y) > 1e-8 {
		return math.Exp(math.Log1p(y) / y * x)
	}
	return math.Exp((1 - y*(0.5-y/3)) * x)
}
