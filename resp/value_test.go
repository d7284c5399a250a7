package resp

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	for _, test := range []struct {
		frame string
		want  Value
	}{
		{"+OK\r\n", Value{Kind: KindSimple, Text: "OK"}},
		{"-ERR x\r\n", Value{Kind: KindError, Text: "ERR x"}},
		{":-5\r\n", Value{Kind: KindInt, Int: -5}},
		{"$3\r\na\r\n\r\n", Value{Kind: KindBulk, Text: "a\r\n"}},
		{"$-1\r\n", Value{Kind: KindBulk, Null: true}},
		{"*-1\r\n", Value{Kind: KindArray, Null: true}},
		{"_\r\n", Value{Kind: KindNull, Null: true}},
		{"#t\r\n", Value{Kind: KindBool, Bool: true}},
		{",2.5\r\n", Value{Kind: KindDouble, Float: 2.5}},
		{"(12345678901234567890123\r\n", Value{Kind: KindBigNumber, Text: "12345678901234567890123"}},
		{"!5\r\nERR x\r\n", Value{Kind: KindBulkError, Text: "ERR x"}},
		{"=6\r\nmkd:ab\r\n", Value{Kind: KindVerbatim, Text: "ab", Format: "mkd"}},
		{"*1\r\n:1\r\n", Value{Kind: KindArray, Elems: []Value{{Kind: KindInt, Int: 1}}}},
		{"~1\r\n:1\r\n", Value{Kind: KindSet, Elems: []Value{{Kind: KindInt, Int: 1}}}},
		{">1\r\n:1\r\n", Value{Kind: KindPush, Elems: []Value{{Kind: KindInt, Int: 1}}}},
		{"%1\r\n+k\r\n:1\r\n", Value{Kind: KindMap, Elems: []Value{{Kind: KindSimple, Text: "k"}, {Kind: KindInt, Int: 1}}}},
		{"|1\r\n+k\r\n:1\r\n:2\r\n", Value{Kind: KindInt, Int: 2, Attrs: []Value{{Kind: KindSimple, Text: "k"}, {Kind: KindInt, Int: 1}}}},
	} {
		got, n, err := Decode([]byte(test.frame + "+next\r\n"))
		if err != nil || n != len(test.frame) || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%q: got %+v (%d, %v)", test.frame, got, n, err)
		}
		if back := got.Append(nil); !bytes.Equal(back, []byte(test.frame)) {
			t.Errorf("%q is encoded as %q", test.frame, back)
		}
		for cut := range len(test.frame) {
			if _, n, err := Decode([]byte(test.frame[:cut])); n != 0 || err != nil {
				t.Errorf("%q cut at %d: %d, %v", test.frame, cut, n, err)
			}
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, frame := range []string{
		"x", "+OK\n", "\r\n", ":x\r\n", "$x\r\n", "$-2\r\n", "*-2\r\n", "%-1\r\n", "=3\r\nabc\r\n", "$1\r\nabc", "_x\r\n", "#\r\n", ",\r\n", "(\r\n", "*1\r\nx",
		strings.Repeat("*1\r\n", maxDepth+1),
	} {
		if v, n, err := Decode([]byte(frame)); n != 0 || err == nil {
			t.Errorf("%.40q: %+v, %d", frame, v, n)
		}
	}
}
