package resp

import "math"

// parseInt reads a decimal integer as Redis's string2ll does: an optional minus, no plus, no leading zeros, no "-0", no blanks, and
// it must fit in 64 bits.
func parseInt(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 20 {
		return 0, false
	}
	if len(b) == 1 && b[0] == '0' {
		return 0, true
	}
	neg := b[0] == '-'
	if neg {
		b = b[1:]
	}
	if len(b) == 0 || b[0] < '1' || b[0] > '9' {
		return 0, false
	}
	var n uint64
	for _, c := range b {
		d := c - '0'
		if d > 9 || n > (math.MaxUint64-uint64(d))/10 {
			return 0, false
		}
		n = n*10 + uint64(d)
	}
	if neg {
		if n > -math.MinInt64 {
			return 0, false
		}
		return -int64(n-1) - 1, true
	}
	if n > math.MaxInt64 {
		return 0, false
	}
	return int64(n), true
}

// shortHeader reads a header line that is there as a whole and has a count of one to seven digits: the kind's byte at pos, the count, CR
// LF. next is where the line ends, 0 for every other line: those are left to slower and stricter code.
func shortHeader(buf []byte, pos int) (n, next int) {
	const digits = 7
	i := pos + 1
	for end := min(i+digits, len(buf)); i < end; i++ {
		d := buf[i] - '0'
		if d > 9 {
			break
		}
		n = n*10 + int(d)
	}
	if i == pos+1 || i+1 >= len(buf) || buf[i] != '\r' || buf[i+1] != '\n' || buf[pos+1] == '0' && i > pos+2 {
		return 0, 0
	}
	return n, i + 2
}
