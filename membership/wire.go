package membership

import "encoding/binary"

// reader takes fields off the front of a message. After the first field that is not there, bad is set and all further fields are
// zero, so a decoder checks once, at its end.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n < 0 || n > len(r.b) {
		r.bad = true
		return nil
	}
	head := r.b[:n]
	r.b = r.b[n:]
	return head
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	if r.bad {
		return 0
	}
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

// string takes a string with a one-byte length, which must not exceed limit. The result is a copy.
func (r *reader) string(limit int) string {
	n := int(r.byte())
	if n > limit {
		r.bad = true
	}
	return string(r.take(n))
}

// appendString appends a string of at most 255 bytes with its length in front; callers have checked the length.
func appendString(b []byte, s string) []byte {
	return append(append(b, byte(len(s))), s...)
}
