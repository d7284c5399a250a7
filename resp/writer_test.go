package resp

import (
	"math"
	"testing"
)

func TestAppend(t *testing.T) {
	for _, test := range []struct {
		name        string
		write       func(dst []byte, proto int) []byte
		resp2, want string // of RESP2 and RESP3
	}{
		{"simple", func(d []byte, _ int) []byte { return AppendSimple(d, "OK") }, "+OK\r\n", "+OK\r\n"},
		{"simple with breaks", func(d []byte, _ int) []byte { return AppendSimple(d, "a\r\n+b") }, "+a  +b\r\n", "+a  +b\r\n"},
		{"error", func(d []byte, _ int) []byte { return AppendError(d, "ERR no") }, "-ERR no\r\n", "-ERR no\r\n"},
		{"error with breaks", func(d []byte, _ int) []byte { return AppendError(d, "ERR a\nb\r\n") }, "-ERR a b  \r\n", "-ERR a b  \r\n"},
		{"int", func(d []byte, _ int) []byte { return AppendInt(d, math.MinInt64) }, ":-9223372036854775808\r\n", ":-9223372036854775808\r\n"},
		{"bulk", func(d []byte, _ int) []byte { return AppendBulk(d, "a\r\nb") }, "$4\r\na\r\nb\r\n", "$4\r\na\r\nb\r\n"},
		{"bulk of bytes", func(d []byte, _ int) []byte { return AppendBulk(d, make([]byte, 10)) }, "$10\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\r\n", "$10\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\r\n"},
		{"null", AppendNull, "$-1\r\n", "_\r\n"},
		{"null array", AppendNullArray, "*-1\r\n", "_\r\n"},
		{"array", func(d []byte, _ int) []byte { return AppendArray(d, 12345) }, "*12345\r\n", "*12345\r\n"},
		{"map", func(d []byte, p int) []byte { return AppendMap(d, p, 7) }, "*14\r\n", "%7\r\n"},
		{"set", func(d []byte, p int) []byte { return AppendSet(d, p, 0) }, "*0\r\n", "~0\r\n"},
		{"push", func(d []byte, p int) []byte { return AppendPush(d, p, 3) }, "*3\r\n", ">3\r\n"},
		{"true", func(d []byte, p int) []byte { return AppendBool(d, p, true) }, ":1\r\n", "#t\r\n"},
		{"false", func(d []byte, p int) []byte { return AppendBool(d, p, false) }, ":0\r\n", "#f\r\n"},
		{"double", func(d []byte, p int) []byte { return AppendDouble(d, p, 0.1) }, "$19\r\n0.10000000000000001\r\n", ",0.10000000000000001\r\n"},
		{"infinite", func(d []byte, p int) []byte { return AppendDouble(d, p, math.Inf(-1)) }, "$4\r\n-inf\r\n", ",-inf\r\n"},
		{"no number", func(d []byte, p int) []byte { return AppendDouble(d, p, math.NaN()) }, "$3\r\nnan\r\n", ",nan\r\n"},
		{"verbatim", func(d []byte, p int) []byte { return AppendVerbatim(d, p, [3]byte{'t', 'x', 't'}, "ab") }, "$2\r\nab\r\n", "=6\r\ntxt:ab\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for proto, want := range map[int]string{2: test.resp2, 3: test.want} {
				got := test.write([]byte("before"), proto)
				if string(got) != "before"+want {
					t.Errorf("RESP%d: got %q, want %q", proto, got, want)
				}
				room := make([]byte, 0, 100)
				if n := testing.AllocsPerRun(10, func() { test.write(room, proto) }); n != 0 && test.name != "bulk of bytes" {
					t.Errorf("RESP%d: %v allocations", proto, n)
				}
			}
		})
	}
}

func TestAppendCommand(t *testing.T) {
	want := "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"
	if got := AppendCommand(nil, []byte("GET"), []byte("k")); string(got) != want {
		t.Errorf("got %q", got)
	}
	if got := AppendCommandString(nil, "GET", "k"); string(got) != want {
		t.Errorf("got %q", got)
	}
}

func TestAppendBulkHeader(t *testing.T) {
	for n, want := range map[int]string{0: "$0\r\n", 9: "$9\r\n", 10: "$10\r\n", 99: "$99\r\n", 100: "$100\r\n", 1 << 29: "$536870912\r\n"} {
		if got := AppendBulkHeader(nil, n); string(got) != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestParseInt(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1": 1, "-1": -1, "9223372036854775807": math.MaxInt64, "-9223372036854775808": math.MinInt64, "1234567890": 1234567890,
	} {
		if got, ok := parseInt([]byte(text)); !ok || got != want {
			t.Errorf("%s: %d, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "-", "+1", "01", "-0", "00", " 1", "1 ", "1a", "9223372036854775808", "-9223372036854775809", "99999999999999999999", "18446744073709551616", "0x1", "1\x00"} {
		if got, ok := parseInt([]byte(text)); ok {
			t.Errorf("%q: %d", text, got)
		}
	}
}
