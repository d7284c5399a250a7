package resp

import "bytes"

// AppendNulls3 copies a whole reply to dst and puts RESP3's null wherever, at any depth, the reply has a null bulk string or null array
// of RESP2: a client that has asked for RESP3 takes those for broken framing. All else stays as it is.
func AppendNulls3(dst, frame []byte) []byte {
	for from, pos := 0, 0; ; {
		i := bytes.IndexByte(frame[pos:], '\n')
		if i < 0 {
			return append(dst, frame[from:]...)
		}
		next := pos + i + 1
		switch Kind(frame[pos]) {
		case KindBulk, KindBulkError, KindVerbatim, KindArray:
			if IsNull(frame[pos:next]) {
				dst = append(dst, frame[from:pos]...)
				dst = append(dst, "_\r\n"...)
				from = next
			} else if Kind(frame[pos]) != KindArray {
				n, _, _ := frameHeader(frame[pos:])
				next += n + 2
			}
		}
		pos = min(next, len(frame))
	}
}
