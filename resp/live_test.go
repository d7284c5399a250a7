package resp

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/internal/realredis"
)

// TestRefusals compares the texts of refusals with a live server's.
func TestRefusals(t *testing.T) {
	s := realredis.T(t)
	long := strings.Repeat("x", 200)
	calls := [][]string{
		{"FOO"}, {"foo", "bar"}, {"FOO", long, "y"}, {long, "a", "b"}, {"FOO", "a\r\nb", "q\x00z", "t"}, {"f\x00o", "a"}, {"f\r\no"}, {""}, {"", ""},
		{"CLIENT"}, {"CLIENT", "foo"}, {"cLiEnT", long}, {"CLIENT", "SETNAME"}, {"client", "a\nb\x00c"}, {"CONFIG", ""}, {"OBJECT", "HELP", "x"},
		{"GET"}, {"get", "a", "b"}, {"SET", "k"}, {"OBJECT", "ENCODING"}, {"MEMORY", "usage"}, {"XGROUP", "create", "k"}, {"PING", "a", "b", "c"},
	}
	for n := range 130 {
		calls = append(calls, []string{"nosuch", long[:n], long[n:]}, slices.Repeat([]string{"w"}, n+1))
	}
	var requests [][]byte
	for _, call := range calls {
		requests = append(requests, request(call...))
	}
	for i, frame := range ask(t, s, requests...) {
		_, err := Resolve(bytesOf(calls[i]))
		if err == nil {
			// PING takes any number of arguments by the table and counts them itself.
			if calls[i][0] != "PING" {
				t.Errorf("%.60q is not refused, the server says %q", calls[i], frame)
			}
			continue
		}
		if got := AppendError(nil, err.Error()); string(got) != string(frame) {
			t.Errorf("%.60q:\n got %q\nwant %q", calls[i], got, frame)
		}
	}
}

func bytesOf(words []string) [][]byte {
	args := make([][]byte, len(words))
	for i, w := range words {
		args[i] = []byte(w)
	}
	return args
}

// TestProtocolErrors compares the texts for broken framing with a live server's.
func TestProtocolErrors(t *testing.T) {
	s := realredis.T(t)
	big := strings.Repeat("x", 70000)
	for _, input := range []string{
		"*x\r\n", "*\r\n", "*01\r\n", "*-0\r\n", "*+1\r\n", "*9223372036854775808\r\n", "*1\r\nx\r\n", "*1\r\n\r\n", "*1\r\n\xff\r\n", "*1\r\n$-1\r\n", "*1\r\n$\r\n", "*1\r\n$00\r\n",
		"*1\r\n$9223372036854775808\r\n", "*3000000000\r\n", "GET \"k\n", "GET 'k\n", "GET \"a\"b\n", big, "*" + big, "*1\r\n$" + big,
	} {
		got := feed(t, new(Parser), input)
		if want := hangUp(t, s, input); string(AppendError(nil, "ERR "+got.err)) != want {
			t.Errorf("%.40q: got %q, want %q", input, got.err, want)
		}
	}
}

// hangUp sends broken input to a server and returns what it says before it closes.
func hangUp(t *testing.T, s *realredis.Server, input string) string {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(conn, input); err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(conn)
	if len(said) == 0 {
		t.Fatalf("%.40q: no answer: %v", input, err)
	}
	return string(said)
}

// TestInlineWords compares the splitting of inline commands with a live server's: COMMAND GETKEYS gives the words back.
func TestInlineWords(t *testing.T) {
	s := realredis.T(t)
	random := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"a", "b", "c", " ", "\t", "\v", "\f", "\r", `"`, `"`, `'`, `\`, `\x4`, `\x41`, `\n`, `\'`, `\"`, "\x7f", "é"}
	for range 2000 {
		var line strings.Builder
		line.WriteString("COMMAND GETKEYS MGET w ")
		for range random.IntN(12) {
			line.WriteString(pieces[random.IntN(len(pieces))])
		}
		words, ok := splitInline([]byte(line.String()), nil)
		if !ok {
			continue // the server would close the connection; TestProtocolErrors sees to those
		}
		var keys []string
		for _, e := range decodeAll(t, ask(t, s, []byte(line.String()+"\n"))[0]).Elems {
			keys = append(keys, e.Text)
		}
		if fmt.Sprintf("%q", words[3:]) != fmt.Sprintf("%q", keys) {
			t.Errorf("%q: got %q, want %q", line.String(), words[3:], keys)
		}
	}
}

// TestDoubles compares doubles with a live server's.
func TestDoubles(t *testing.T) {
	s := realredis.T(t)
	random := rand.New(rand.NewPCG(3, 4))
	doubles := []float64{0, 1, -1, 3, 0.1, 100000, 1e17, 1e16, 123456789012345678, 1e21, 1e-5, 1e300, math.MaxFloat64, math.SmallestNonzeroFloat64, math.Inf(1), math.Inf(-1)}
	for range 500 {
		doubles = append(doubles, random.NormFloat64()*math.Pow(10, float64(random.IntN(60)-30)))
	}
	for proto := 2; proto <= 3; proto++ {
		requests := [][]byte{request("HELLO", fmt.Sprint(proto))}
		for i, f := range doubles {
			requests = append(requests, request("ZADD", "z", fmt.Sprintf("%.17g", f), fmt.Sprint(i)), request("ZSCORE", "z", fmt.Sprint(i)))
		}
		replies := ask(t, s, requests...)
		for i, f := range doubles {
			if got, want := AppendDouble(nil, proto, f), replies[2+2*i]; string(got) != string(want) {
				t.Errorf("%v in RESP%d: got %q, want %q", f, proto, got, want)
			}
		}
	}
}
