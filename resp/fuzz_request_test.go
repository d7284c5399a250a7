package resp

import (
	"reflect"
	"strings"
	"testing"
)

// fuzzCuts is the longest input that is cut at every offset; longer ones are cut at some.
const fuzzCuts = 256

// checkCuts demands that an input gives the same however it is cut in two, and byte by byte.
func checkCuts(t *testing.T, input string, want parsed) {
	t.Helper()
	if got := feed(t, new(Parser), input); !reflect.DeepEqual(got, want) {
		t.Fatalf("%q whole:\n got %q %s\nwant %q %s", input, got.commands, got.err, want.commands, want.err)
	}
	step := 1 + len(input)/fuzzCuts
	var ends []int
	for cut := 0; cut < len(input); cut += step {
		ends = append(ends, cut)
		if got := feed(t, new(Parser), input, cut); !reflect.DeepEqual(got, want) {
			t.Fatalf("%q cut at %d:\n got %q %s\nwant %q %s", input, cut, got.commands, got.err, want.commands, want.err)
		}
	}
	if got := feed(t, new(Parser), input, ends...); !reflect.DeepEqual(got, want) {
		t.Fatalf("%q in pieces of %d:\n got %q %s\nwant %q %s", input, step, got.commands, got.err, want.commands, want.err)
	}
}

// FuzzParser compares the parser with the reference.
func FuzzParser(f *testing.F) {
	for _, seed := range []string{
		"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
		"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$10\r\n0123456789\r\nPING\r\n",
		"*1\r\n$4\r\nPING\r\n*0\r\n*-1\r\n\r\nPING \"a\\x41\" 'b'\n*1\r\n$0\r\n\r\n",
		"*1\rx$1\rxaxx", "*01\r\n", "*1\r\n$-1\r\n", "*1\r\nx\r\n", "*1048577\r\n", "*\r\n", "GET \"k\n", "*1\r\n$00\r\n", "*2\r\n$1\r\n\r\r\n$1\r\n\n\r\n",
		strings.Repeat("*1\r\n$1\r\na\r\n", 20), "*3\r\n$67108864\r\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, input string) { checkCuts(t, input, referenceParse(input)) })
}

// FuzzInline compares the splitting of one line with the reference.
func FuzzInline(f *testing.F) {
	for _, seed := range []string{
		"PING", "SET  k\tv", `SET "a b" 'c"d' e"f"`, `E "\x41\n\q\x4" '\n\''`, `"`, `'`, `"\`, `"\x`, `"\x4`, `a"b"'c'`, `"a"b`, "a\vb \vc\f", "\"a\"\v", "''", `""`, "a\x00b", "\r \r",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		line, _, _ = strings.Cut(line, "\n")
		if strings.HasPrefix(line, "*") {
			return
		}
		checkCuts(t, line+"\n", referenceParse(line+"\n"))
		before := []byte(line)
		if _, ok := splitInline(before, nil); string(before) != line {
			t.Fatalf("%q was changed to %q (%v)", line, before, ok)
		}
	})
}
