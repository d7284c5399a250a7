package ring

import "math/bits"

const (
	logFraction  = 58 // fraction bits of a logarithm; 6 bits are left for the integer part
	logIndexBits = 12 // the table has 2^12 segments per octave
	logSegments  = 1 << logIndexBits
	mantissaBits = 63 // fraction bits of a number normalised to [1,2)
)

// logTable holds log2 of 1 + i/4096 in fixed point. Between two entries logarithms are interpolated; the error is below 2^-26.
type logTable [logSegments + 1]uint64

// newLogTable computes the table by repeated squaring: x² >= 2 says that the next binary digit of log2(x) is 1.
func newLogTable() *logTable {
	t := new(logTable)
	for i := range logSegments {
		x := uint64(logSegments+i) << (mantissaBits - logIndexBits)
		var log uint64
		for range logFraction {
			high, low := bits.Mul64(x, x)
			log <<= 1
			if high>>63 == 1 {
				log |= 1
				x = high
			} else {
				x = high<<1 | low>>63
			}
		}
		t[i] = log
	}
	t[logSegments] = 1 << logFraction
	return t
}

// log2 returns log2(x) for x >= 1. It never decreases, and it strictly increases for x < 2^50, where a step of x is wider than a unit.
func (t *logTable) log2(x uint64) uint64 {
	exponent := uint64(bits.Len64(x) - 1)
	mantissa := x << (63 - exponent) << 1 // without the leading 1
	i := mantissa >> (64 - logIndexBits)
	within, _ := bits.Mul64(t[i+1]-t[i], mantissa<<logIndexBits)
	return exponent<<logFraction + t[i] + within
}
