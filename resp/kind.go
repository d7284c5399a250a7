package resp

import "bytes"

// Kind is the first byte of a reply.
type Kind byte

// The kinds of RESP2 (the first five) and those that RESP3 adds.
const (
	KindSimple    Kind = '+'
	KindError     Kind = '-'
	KindInt       Kind = ':'
	KindBulk      Kind = '$'
	KindArray     Kind = '*'
	KindNull      Kind = '_'
	KindBool      Kind = '#'
	KindDouble    Kind = ','
	KindBigNumber Kind = '('
	KindBulkError Kind = '!'
	KindVerbatim  Kind = '='
	KindMap       Kind = '%'
	KindSet       Kind = '~'
	KindPush      Kind = '>'
	KindAttribute Kind = '|'
)

// String names the kind in words; empty for a byte that begins none.
func (k Kind) String() string {
	switch k {
	case KindSimple:
		return "status"
	case KindError:
		return "error"
	case KindInt:
		return "integer"
	case KindBulk:
		return "bulk string"
	case KindArray:
		return "array"
	case KindNull:
		return "null"
	case KindBool:
		return "boolean"
	case KindDouble:
		return "double"
	case KindBigNumber:
		return "big number"
	case KindBulkError:
		return "bulk error"
	case KindVerbatim:
		return "verbatim string"
	case KindMap:
		return "map"
	case KindSet:
		return "set"
	case KindPush:
		return "push"
	case KindAttribute:
		return "attribute"
	}
	return ""
}

func (k Kind) known() bool {
	switch k {
	case KindSimple, KindError, KindInt, KindBulk, KindArray, KindNull, KindBool, KindDouble, KindBigNumber, KindBulkError,
		KindVerbatim, KindMap, KindSet, KindPush, KindAttribute:
		return true
	}
	return false
}

// The questions below are about one whole reply, as Scanner.Next or Elements.Next delimits it. They look at its first line only and
// answer "no" to anything else, never panic.

// KindOf returns the kind of a reply, KindAttribute for one that has attributes before it.
func KindOf(frame []byte) Kind {
	if len(frame) == 0 {
		return 0
	}
	return Kind(frame[0])
}

// IsError tells an error reply.
func IsError(frame []byte) bool {
	k := KindOf(frame)
	return k == KindError || k == KindBulkError
}

// IsNull tells any null: RESP3's, and the null bulk string and null array of RESP2.
func IsNull(frame []byte) bool {
	if len(frame) < 3 {
		return false
	}
	return frame[0] == '_' || frame[1] == '-' && (frame[0] == '$' || frame[0] == '*')
}

// ErrorText returns the text of an error reply, code first, without '-' and line break; nil when frame is not an error.
func ErrorText(frame []byte) []byte {
	switch KindOf(frame) {
	case KindError:
		return bytes.TrimSuffix(frame[1:], crlf)
	case KindBulkError:
		text, _ := body(frame)
		return text
	}
	return nil
}

// ErrorCode returns the first word of an error reply ("ERR", "MOVED"); nil when frame is not an error.
func ErrorCode(frame []byte) []byte {
	text := ErrorText(frame)
	if i := bytes.IndexByte(text, ' '); i >= 0 {
		return text[:i]
	}
	return text
}

// IntOf returns the value of an integer reply.
func IntOf(frame []byte) (int64, bool) {
	if KindOf(frame) != KindInt {
		return 0, false
	}
	return parseInt(bytes.TrimSuffix(frame[1:], crlf))
}

// BulkOf returns the bytes of a bulk string, aliasing frame; false when frame is something else or a null.
func BulkOf(frame []byte) ([]byte, bool) {
	if KindOf(frame) != KindBulk {
		return nil, false
	}
	return body(frame)
}

var crlf = []byte{'\r', '\n'}

// body returns what stands between the first line of a frame and its last line break.
func body(frame []byte) ([]byte, bool) {
	n, start, ok := frameHeader(frame)
	if !ok || n < 0 || len(frame)-start != n+2 {
		return nil, false
	}
	return frame[start : start+n : start+n], true
}

// frameHeader reads the count in the first line of a frame and says where the line ends.
func frameHeader(frame []byte) (n, next int, ok bool) {
	i := bytes.IndexByte(frame, '\n')
	if i < 2 || frame[i-1] != '\r' {
		return 0, 0, false
	}
	v, ok := parseInt(frame[1 : i-1])
	return int(v), i + 1, ok
}
