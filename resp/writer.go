package resp

import (
	"math"
	"strconv"
)

// The Append functions add one reply (or the header of one) to dst and return it, as the built-in append does. proto is the protocol
// that the connection speaks, 2 or 3; where RESP2 lacks a type, what Redis sends instead is written.

// AppendSimple writes a status such as OK. Line breaks in s become blanks.
func AppendSimple(dst []byte, s string) []byte {
	return appendLine(append(dst, '+'), s)
}

// AppendError writes an error reply; msg begins with its code ("ERR ..."). Line breaks in msg become blanks.
func AppendError(dst []byte, msg string) []byte {
	return appendLine(append(dst, '-'), msg)
}

func appendLine(dst []byte, s string) []byte {
	from := len(dst)
	dst = append(dst, s...)
	for i, c := range dst[from:] {
		if c == '\r' || c == '\n' {
			dst[from+i] = ' '
		}
	}
	return append(dst, '\r', '\n')
}

// AppendInt writes an integer.
func AppendInt(dst []byte, n int64) []byte {
	dst = append(dst, ':')
	dst = strconv.AppendInt(dst, n, 10)
	return append(dst, '\r', '\n')
}

// AppendBulk writes a bulk string.
func AppendBulk[T string | []byte](dst []byte, v T) []byte {
	dst = AppendBulkHeader(dst, len(v))
	dst = append(dst, v...)
	return append(dst, '\r', '\n')
}

// AppendBulkHeader writes what stands before the n bytes of a bulk string; the caller adds these and CR LF.
func AppendBulkHeader(dst []byte, n int) []byte {
	return appendHeader(dst, '$', n)
}

func appendHeader(dst []byte, kind byte, n int) []byte {
	// Nearly all headers have few digits, and every command and reply has some headers.
	switch {
	case uint(n) < 10:
		return append(dst, kind, '0'+byte(n), '\r', '\n')
	case uint(n) < 100:
		return append(dst, kind, '0'+byte(n/10), '0'+byte(n%10), '\r', '\n')
	case uint(n) < 1000:
		return append(dst, kind, '0'+byte(n/100), '0'+byte(n/10%10), '0'+byte(n%10), '\r', '\n')
	}
	dst = append(dst, kind)
	dst = strconv.AppendInt(dst, int64(n), 10)
	return append(dst, '\r', '\n')
}

// AppendNull writes the answer for "no such key".
func AppendNull(dst []byte, proto int) []byte {
	if proto >= 3 {
		return append(dst, "_\r\n"...)
	}
	return append(dst, "$-1\r\n"...)
}

// AppendNullArray writes the null of commands that answer with an array otherwise (a BLPOP that timed out, an EXEC that was called off).
func AppendNullArray(dst []byte, proto int) []byte {
	if proto >= 3 {
		return append(dst, "_\r\n"...)
	}
	return append(dst, "*-1\r\n"...)
}

// AppendArray writes the header of an array; its n elements follow.
func AppendArray(dst []byte, n int) []byte { return appendHeader(dst, '*', n) }

// AppendMap writes the header of a map of n pairs; 2n replies follow. In RESP2 it is a flat array.
func AppendMap(dst []byte, proto, n int) []byte {
	if proto >= 3 {
		return appendHeader(dst, '%', n)
	}
	return appendHeader(dst, '*', 2*n)
}

// AppendSet writes the header of a set of n elements, an array in RESP2.
func AppendSet(dst []byte, proto, n int) []byte {
	if proto >= 3 {
		return appendHeader(dst, '~', n)
	}
	return appendHeader(dst, '*', n)
}

// AppendPush writes the header of an out-of-band message of n elements, an array in RESP2.
func AppendPush(dst []byte, proto, n int) []byte {
	if proto >= 3 {
		return appendHeader(dst, '>', n)
	}
	return appendHeader(dst, '*', n)
}

// AppendBool writes a truth value, 1 or 0 in RESP2.
func AppendBool(dst []byte, proto int, v bool) []byte {
	switch {
	case proto >= 3 && v:
		return append(dst, "#t\r\n"...)
	case proto >= 3:
		return append(dst, "#f\r\n"...)
	case v:
		return append(dst, ":1\r\n"...)
	default:
		return append(dst, ":0\r\n"...)
	}
}

// AppendDouble writes a floating-point number with 17 significant digits as Redis 7.0 does, a bulk string in RESP2.
func AppendDouble(dst []byte, proto int, f float64) []byte {
	var room [32]byte
	text := room[:0]
	switch {
	case math.IsInf(f, 1):
		text = append(text, "inf"...)
	case math.IsInf(f, -1):
		text = append(text, "-inf"...)
	case math.IsNaN(f):
		text = append(text, "nan"...)
	default:
		text = strconv.AppendFloat(text, f, 'g', 17, 64)
	}
	if proto < 3 {
		return AppendBulk(dst, text)
	}
	dst = append(dst, ',')
	dst = append(dst, text...)
	return append(dst, '\r', '\n')
}

// AppendVerbatim writes text of a format named by three letters ("txt", "mkd"), a bulk string in RESP2.
func AppendVerbatim(dst []byte, proto int, format [3]byte, text string) []byte {
	if proto < 3 {
		return AppendBulk(dst, text)
	}
	dst = appendHeader(dst, '=', len(text)+4)
	dst = append(dst, format[0], format[1], format[2], ':')
	dst = append(dst, text...)
	return append(dst, '\r', '\n')
}

// AppendCommand writes a request.
func AppendCommand(dst []byte, args ...[]byte) []byte {
	dst = appendHeader(dst, '*', len(args))
	for _, a := range args {
		dst = AppendBulk(dst, a)
	}
	return dst
}

// AppendCommandString is AppendCommand for text.
func AppendCommandString(dst []byte, args ...string) []byte {
	dst = appendHeader(dst, '*', len(args))
	for _, a := range args {
		dst = AppendBulk(dst, a)
	}
	return dst
}
