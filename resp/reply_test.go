package resp

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// scanPieces gives the input to a scanner in pieces that end at the given offsets, spoiling whatever the scanner has passed of the
// present reply: if it looked twice, it would stumble.
func scanPieces(t testing.TB, input string, ends ...int) (lengths []int, broken string) {
	t.Helper()
	var s Scanner
	used := 0
	for _, end := range append(ends, len(input)) {
		for {
			buf := []byte(input[used:max(end, used)])
			for i := range min(s.pos, len(buf)) {
				buf[i] = 0
			}
			want := s.Want()
			n, err := s.Next(buf)
			if (n > 0 || err != nil) && len(buf) < want {
				t.Fatalf("wanted %d bytes of %.100q, but found something in %d", want, input, len(buf))
			}
			var protocol *ProtocolError
			if errors.As(err, &protocol) {
				return lengths, protocol.Text
			}
			if n == 0 {
				if s.Want() <= len(buf) {
					t.Fatalf("wants %d bytes of %.100q, has %d", s.Want(), input, len(buf))
				}
				break
			}
			lengths = append(lengths, n)
			used += n
		}
	}
	return lengths, ""
}

var replies = []string{
	"+OK\r\n", "+\r\n", "-ERR no\r\n", ":1\r\n", ":-9223372036854775808\r\n", "$-1\r\n", "$0\r\n\r\n", "$5\r\na\r\nbc\r\n", "*-1\r\n", "*0\r\n",
	"*2\r\n$1\r\na\r\n*1\r\n:1\r\n", "_\r\n", "#t\r\n", "#f\r\n", ",1.5\r\n", ",-inf\r\n", ",nan\r\n", ",1e+20\r\n", "(123456789012345678901234567890\r\n",
	"!5\r\nERR x\r\n", "=8\r\ntxt:abcd\r\n", "%1\r\n+k\r\n:1\r\n", "%0\r\n", "~2\r\n:1\r\n:2\r\n", ">2\r\n+message\r\n$1\r\nx\r\n",
	"|1\r\n+ttl\r\n:5\r\n$1\r\na\r\n", "*2\r\n|1\r\n+a\r\n+b\r\n:1\r\n:2\r\n", "*1\r\n|1\r\n+a\r\n*0\r\n*1\r\n*0\r\n", "|0\r\n:1\r\n",
	"*3\r\n*0\r\n%1\r\n*1\r\n_\r\n~0\r\n$-1\r\n",
}

func TestScanner(t *testing.T) {
	for _, reply := range replies {
		t.Run(fmt.Sprintf("%q", reply), func(t *testing.T) {
			for cut := range len(reply) + 1 {
				if got, broken := scanPieces(t, reply+reply, cut, len(reply)+cut); broken != "" || len(got) != 2 || got[0] != len(reply) {
					t.Fatalf("cut at %d: replies of %d bytes, %q", cut, got, broken)
				}
			}
		})
	}
}

func TestScannerRefuses(t *testing.T) {
	deep := strings.Repeat("*1\r\n", maxDepth)
	for _, test := range []struct{ input, want string }{
		{"x", "no reply begins with byte 'x'"},
		{"+OK\n", "does not end with CR LF"},
		{"\r\n", "no reply begins with byte"},
		{":x\r\n", "invalid integer"},
		{":\r\n", "invalid integer"},
		{"$-2\r\n", "invalid length of bulk string"},
		{"$x\r\n", "invalid length of bulk string"},
		{"$1\r\nabc", "longer than announced"},
		{"$9999999999\r\n", "invalid length of bulk string"},
		{"$2147483647\r\n", "longer than the limit of 1073741824 bytes"},
		{"*1073741825\r\n", "longer than the limit"},
		{"*-2\r\n", "invalid length of array"},
		{"%-1\r\n", "invalid length of map"},
		{"=3\r\ntxt\r\n", "invalid length of verbatim string"},
		{"#x\r\n", "invalid boolean"},
		{"_x\r\n", "invalid null"},
		{",0x10\r\n", "invalid double"},
		{",1.\r\n", "invalid double"},
		{"(1.5\r\n", "invalid big number"},
		{"*?\r\n", "invalid length of array"},
		{deep + "*1\r\n", "nested too deeply"},
		{"+" + strings.Repeat("x", maxReplyLine+1), "a line of the reply is longer than"},
		{"+" + strings.Repeat("x", maxReplyLine+1) + "\r\n", "a line of the reply is longer than"},
	} {
		whole, broken := scanPieces(t, test.input)
		if len(whole) != 0 || !strings.Contains(broken, test.want) {
			t.Errorf("%.50q: %d, %q, want %q", test.input, whole, broken, test.want)
		}
	}
	if got, broken := scanPieces(t, deep+":1\r\n"); len(got) != 1 {
		t.Errorf("%d levels are refused: %q", maxDepth, broken)
	}
	if _, err := (&Scanner{MaxReply: 5}).Next([]byte("+12345\r\n")); err == nil {
		t.Error("8 bytes are accepted under a limit of 5")
	}
	small := Scanner{MaxReply: 20}
	if _, err := small.Next([]byte("*2\r\n$3\r\nabc\r\n$3\r\nabc\r\n")); err == nil || !strings.Contains(err.Error(), "limit of 20 bytes") {
		t.Errorf("22 bytes under a limit of 20: %v", err)
	}
}

func TestScannerSizes(t *testing.T) {
	for shift := range 21 {
		for _, size := range []int{1<<shift - 1, 1 << shift, 1<<shift + 1} {
			reply := string(AppendBulk(nil, strings.Repeat("v", size)))
			input := "+OK\r\n*2\r\n" + reply + reply + ":1\r\n"
			for _, cut := range []int{1, 4, 5, 8, 9, 10, size / 2, size, size + 10, size + 18, size + 20, len(input) - 7, len(input) - 5, len(input) - 1} {
				if cut = max(cut, 0); cut > len(input) {
					continue
				}
				if got, broken := scanPieces(t, input, cut); len(got) != 3 || broken != "" {
					t.Fatalf("%d bytes cut at %d: %d, %q", size, cut, got, broken)
				}
			}
		}
	}
}

func TestElements(t *testing.T) {
	e, ok := ElementsOf([]byte("*4\r\n$1\r\na\r\n$-1\r\n*1\r\n:1\r\n-ERR x\r\n"))
	if !ok || e.Len() != 4 {
		t.Fatalf("%d elements, %v", e.Len(), ok)
	}
	for _, want := range []string{"$1\r\na\r\n", "$-1\r\n", "*1\r\n:1\r\n", "-ERR x\r\n"} {
		if got, ok := e.Next(); !ok || string(got) != want {
			t.Errorf("got %q, %v, want %q", got, ok, want)
		}
	}
	if got, ok := e.Next(); ok {
		t.Errorf("a fifth element: %q", got)
	}
	for _, frame := range []string{"", "*-1\r\n", "$1\r\na\r\n", "*", "*x\r\n", "_\r\n"} {
		if _, ok := ElementsOf([]byte(frame)); ok {
			t.Errorf("%q has elements", frame)
		}
	}
	if e, ok := ElementsOf([]byte("%1\r\n+k\r\n+v\r\n")); !ok || e.Len() != 2 {
		t.Errorf("a map of one pair has %d elements", e.Len())
	}
}

func TestKind(t *testing.T) {
	for _, test := range []struct {
		frame     string
		null, err bool
		code      string
		bulk      string
		number    int64
	}{
		{frame: ""}, {frame: "$"}, {frame: "$-1\r\n", null: true}, {frame: "*-1\r\n", null: true}, {frame: "_\r\n", null: true},
		{frame: ":-1\r\n", number: -1}, {frame: ":7\r\n", number: 7}, {frame: "+OK\r\n"}, {frame: "$3\r\nabc\r\n", bulk: "abc"}, {frame: "$0\r\n\r\n"},
		{frame: "-MOVED 1 x\r\n", err: true, code: "MOVED"}, {frame: "-ERR\r\n", err: true, code: "ERR"}, {frame: "!5\r\nERR x\r\n", err: true, code: "ERR"},
	} {
		frame := []byte(test.frame)
		bulk, _ := BulkOf(frame)
		number, _ := IntOf(frame)
		if IsNull(frame) != test.null || IsError(frame) != test.err || string(ErrorCode(frame)) != test.code || string(bulk) != test.bulk || number != test.number {
			t.Errorf("%q: null %v, error %v %q, bulk %q, number %d", frame, IsNull(frame), IsError(frame), ErrorCode(frame), bulk, number)
		}
	}
}

func TestAppendNulls3(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"$-1\r\n", "_\r\n"}, {"*-1\r\n", "_\r\n"}, {"+OK\r\n", "+OK\r\n"}, {"$5\r\n$-1\r\n\r\n", "$5\r\n$-1\r\n\r\n"}, {":-1\r\n", ":-1\r\n"},
		{"*3\r\n$1\r\na\r\n$-1\r\n*2\r\n*-1\r\n$-1\r\n", "*3\r\n$1\r\na\r\n_\r\n*2\r\n_\r\n_\r\n"}, {"-1\r\n", "-1\r\n"}, {"%1\r\n+a\r\n$-1\r\n", "%1\r\n+a\r\n_\r\n"},
	} {
		if got := AppendNulls3([]byte("x"), []byte(test.in)); string(got) != "x"+test.want {
			t.Errorf("%q: got %q, want %q", test.in, got, "x"+test.want)
		}
	}
}

// FuzzScanner compares the scanner with the decoder, cut at every offset.
func FuzzScanner(f *testing.F) {
	for _, reply := range replies {
		f.Add(reply)
	}
	f.Add("*2\r\n$3\r\nabc\r\n|1\r\n+a\r\n:1\r\n>1\r\n%1\r\n_\r\n#t\r\n+OK\r\n")
	f.Add("$1\r\nabc")
	f.Fuzz(func(t *testing.T, input string) {
		var want []int
		rest := []byte(input)
		for len(rest) > 0 {
			v, n, err := Decode(rest)
			if err != nil || n == 0 {
				break
			}
			checkFrame(t, v, rest[:n:n])
			want = append(want, n)
			rest = rest[n:]
		}
		whole, broken := scanPieces(t, input)
		if fmt.Sprint(whole) != fmt.Sprint(want) {
			t.Fatalf("%q: the scanner finds replies of %d bytes (%s), the decoder %d", input, whole, broken, want)
		}
		// Decode looks at a reply from its front like the scanner; that both end in an error has to agree as well.
		// The limit on size is the scanner's alone.
		if _, _, err := Decode(rest); (err != nil) != (broken != "") && !strings.Contains(broken, "longer than the limit") {
			t.Fatalf("%q: the scanner says %q, the decoder %v", input, broken, err)
		}
		step := 1 + len(input)/fuzzCuts
		var ends []int
		for cut := 0; cut < len(input); cut += step {
			ends = append(ends, cut)
			if got, err := scanPieces(t, input, cut); fmt.Sprint(got) != fmt.Sprint(want) || err != broken {
				t.Fatalf("%q cut at %d: %d %q, want %d %q", input, cut, got, err, want, broken)
			}
		}
		if got, err := scanPieces(t, input, ends...); fmt.Sprint(got) != fmt.Sprint(want) || err != broken {
			t.Fatalf("%q in pieces: %d %q, want %d %q", input, got, err, want, broken)
		}
	})
}

// checkFrame checks everything that looks into one whole reply.
func checkFrame(t *testing.T, v Value, frame []byte) {
	t.Helper()
	// Encoding blanks the odd CR inside a status, so it is the encoded forms that are compared.
	encoded := v.Append(nil)
	if again, n, err := Decode(encoded); err != nil || n != len(encoded) || !bytes.Equal(again.Append(nil), encoded) {
		t.Fatalf("%q decodes to %v, is encoded as %q and decoded again (%d, %v) as %v", frame, v, encoded, n, err, again)
	}
	if len(v.Attrs) == 0 && KindOf(frame) != KindAttribute && (v.Kind != KindOf(frame) || v.Null != IsNull(frame)) {
		t.Fatalf("%q is of kind %v, null %v, decoded %v %v", frame, KindOf(frame), IsNull(frame), v.Kind, v.Null)
	}
	_, _ = BulkOf(frame)
	_, _ = IntOf(frame)
	_ = ErrorCode(frame)
	if e, ok := ElementsOf(frame); ok {
		_, next, _ := frameHeader(frame)
		joined := bytes.Clone(frame[:next])
		n := 0
		for element, ok := e.Next(); ok; element, ok = e.Next() {
			joined = append(joined, element...)
			n++
		}
		if !bytes.Equal(joined, frame) || n != len(v.Elems) {
			t.Fatalf("%q has %d elements that join to %q", frame, n, joined)
		}
	}
	if v3, n, err := Decode(AppendNulls3(nil, frame)); n == 0 || err != nil || hasNull2(v3) {
		t.Fatalf("%q with nulls of RESP3: %q, %v", frame, AppendNulls3(nil, frame), err)
	}
}

// hasNull2 looks for a null of RESP2.
func hasNull2(v Value) bool {
	for _, e := range append(v.Elems, v.Attrs...) {
		if hasNull2(e) {
			return true
		}
	}
	return v.Null && v.Kind != KindNull
}
