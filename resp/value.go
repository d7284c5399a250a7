package resp

import (
	"bytes"
	"strconv"
)

// Value is a decoded reply: for tests, tools and administration, where a reply is looked into. The data path passes replies on as they are.
type Value struct {
	Kind Kind
	// Null is set for KindNull, and for KindBulk and KindArray where RESP2 sent a null of that kind.
	Null bool
	// Text of KindSimple, KindError, KindBulk, KindBulkError, KindVerbatim (without its format) and KindBigNumber.
	Text   string
	Format string  // KindVerbatim: three letters
	Int    int64   // KindInt
	Float  float64 // KindDouble
	Bool   bool    // KindBool
	// Elems of KindArray, KindSet and KindPush, and keys and values in turn of KindMap.
	Elems []Value
	// Attrs are the keys and values in turn of the attributes before the reply.
	Attrs []Value
}

// Decode reads the reply at the start of buf and says how long it is; 0 when it is incomplete. The error is a *ProtocolError.
func Decode(buf []byte) (Value, int, error) {
	return decode(buf, 0)
}

func decode(buf []byte, depth int) (Value, int, error) {
	end := bytes.IndexByte(buf, '\n')
	if len(buf) > 0 && !Kind(buf[0]).known() {
		return Value{}, 0, protocolError("no reply begins with byte " + strconv.QuoteRune(rune(buf[0])))
	}
	if end < 0 {
		return Value{}, 0, nil
	}
	if end == 0 || buf[end-1] != '\r' {
		return Value{}, 0, protocolError("a line of the reply does not end with CR LF")
	}
	v := Value{Kind: Kind(buf[0])}
	line := string(buf[1 : end-1])
	n := end + 1
	var ok bool
	switch v.Kind {
	case KindSimple, KindError:
		v.Text, ok = line, true
	case KindInt:
		v.Int, ok = parseInt(buf[1 : end-1])
	case KindNull:
		v.Null, ok = true, line == ""
	case KindBool:
		v.Bool, ok = line == "t", line == "t" || line == "f"
	case KindDouble:
		v.Float, _ = strconv.ParseFloat(line, 64) // out of range is infinite
		ok = isDouble(buf[1 : end-1])
	case KindBigNumber:
		v.Text, ok = line, isDigits(trimSign(buf[1:end-1]))
	case KindBulk, KindBulkError, KindVerbatim:
		return decodeText(v, buf, n)
	default:
		return decodeAggregate(v, buf, n, depth)
	}
	if !ok {
		return Value{}, 0, protocolError("invalid " + v.Kind.String() + " in the reply")
	}
	return v, n, nil
}

// decodeText reads what follows the header line of a text, which ends at n.
func decodeText(v Value, buf []byte, n int) (Value, int, error) {
	count, ok := replyCount(buf[1 : n-2])
	if !ok || count < 0 && v.Kind != KindBulk || count < 4 && v.Kind == KindVerbatim {
		return Value{}, 0, protocolError("invalid length of " + v.Kind.String() + " in the reply")
	}
	if count < 0 {
		v.Null = true
		return v, n, nil
	}
	if len(buf)-n < count+2 {
		return Value{}, 0, nil
	}
	v.Text = string(buf[n : n+count])
	if v.Kind == KindVerbatim {
		v.Format, v.Text = v.Text[:3], v.Text[4:]
	}
	if string(buf[n+count:n+count+2]) != "\r\n" {
		return Value{}, 0, protocolError("a text in the reply is longer than announced")
	}
	return v, n + count + 2, nil
}

// decodeAggregate reads what follows the header line of an aggregate, which ends at n.
func decodeAggregate(v Value, buf []byte, n, depth int) (Value, int, error) {
	count, ok := replyCount(buf[1 : n-2])
	if !ok || count < 0 && v.Kind != KindArray {
		return Value{}, 0, protocolError("invalid length of " + v.Kind.String() + " in the reply")
	}
	if depth >= maxDepth {
		return Value{}, 0, protocolError("the reply is nested too deeply")
	}
	if count < 0 {
		v.Null = true
		return v, n, nil
	}
	if v.Kind == KindMap || v.Kind == KindAttribute {
		count *= 2
	}
	elems := make([]Value, 0, min(count, len(buf)/3))
	for range count {
		elem, m, err := decode(buf[n:], depth+1)
		if m == 0 {
			return Value{}, 0, err
		}
		elems = append(elems, elem)
		n += m
	}
	if v.Kind != KindAttribute {
		v.Elems = elems
		return v, n, nil
	}
	of, m, err := decode(buf[n:], depth)
	if m == 0 {
		return Value{}, 0, err
	}
	of.Attrs = append(elems, of.Attrs...)
	return of, n + m, nil
}

// Append encodes v as it is; what Decode has read comes out with the same meaning.
func (v Value) Append(dst []byte) []byte {
	if len(v.Attrs) > 0 {
		dst = appendHeader(dst, byte(KindAttribute), len(v.Attrs)/2)
		dst = appendValues(dst, v.Attrs)
	}
	switch v.Kind {
	case KindSimple:
		return AppendSimple(dst, v.Text)
	case KindError:
		return AppendError(dst, v.Text)
	case KindInt:
		return AppendInt(dst, v.Int)
	case KindBulk:
		if v.Null {
			return AppendNull(dst, 2)
		}
		return AppendBulk(dst, v.Text)
	case KindArray:
		if v.Null {
			return AppendNullArray(dst, 2)
		}
	case KindNull:
		return AppendNull(dst, 3)
	case KindBool:
		return AppendBool(dst, 3, v.Bool)
	case KindDouble:
		return AppendDouble(dst, 3, v.Float)
	case KindBigNumber:
		return append(append(append(dst, '('), v.Text...), crlf...)
	case KindBulkError:
		dst = appendHeader(dst, byte(KindBulkError), len(v.Text))
		return append(append(dst, v.Text...), crlf...)
	case KindVerbatim:
		return AppendVerbatim(dst, 3, [3]byte([]byte(v.Format)), v.Text)
	case KindMap:
		dst = appendHeader(dst, byte(KindMap), len(v.Elems)/2)
		return appendValues(dst, v.Elems)
	}
	dst = appendHeader(dst, byte(v.Kind), len(v.Elems))
	return appendValues(dst, v.Elems)
}

func appendValues(dst []byte, values []Value) []byte {
	for _, v := range values {
		dst = v.Append(dst)
	}
	return dst
}
