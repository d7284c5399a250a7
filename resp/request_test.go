package resp

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// feed gives the input to a parser in pieces that end at the given offsets, always in a fresh buffer, as a connection whose buffer moves
// does. It checks what Want promises on the way.
func feed(t testing.TB, p *Parser, input string, ends ...int) parsed {
	t.Helper()
	var out parsed
	for _, end := range append(ends, len(input)) {
		buf := bytes.Clone([]byte(input[out.used:end]))
		for {
			want := p.Want()
			cmd, n, err := p.Next(buf)
			if (n > 0 || err != nil) && len(buf) < want {
				t.Fatalf("wanted %d bytes of %.100q, but found something in %d", want, input, len(buf))
			}
			var broken *ProtocolError
			if errors.As(err, &broken) {
				out.err = broken.Text
				return out
			}
			if n == 0 {
				if p.Want() <= len(buf) {
					t.Fatalf("wants %d bytes of %.100q, has %d", p.Want(), input, len(buf))
				}
				break
			}
			var args []string
			for _, a := range cmd.Args {
				args = append(args, string(a))
			}
			out.add(args, string(cmd.Raw))
			out.used += n
			buf = buf[n:]
		}
	}
	return out
}

func TestParser(t *testing.T) {
	big := strings.Repeat("x", 64<<10)
	for _, test := range []struct {
		name, input string
		want        parsed
	}{
		{"nothing", "", parsed{}},
		{"GET", "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", parsed{[][]string{{"GET", "k"}}, []string{"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"}, 20, ""}},
		{"empty argument", "*2\r\n$3\r\nGET\r\n$0\r\n\r\n", parsed{[][]string{{"GET", ""}}, []string{"*2\r\n$3\r\nGET\r\n$0\r\n\r\n"}, 19, ""}},
		{"incomplete", "*2\r\n$3\r\nGET\r\n$1\r\nk\r", parsed{}},
		{"no arguments", "*0\r\n*-1\r\n*-7\r\n", parsed{[][]string{nil, nil, nil}, []string{"", "", ""}, 14, ""}},
		{"empty lines", "\r\n\n  \r\n", parsed{[][]string{nil, nil, nil}, []string{"", "", ""}, 7, ""}},
		{"inline", "PING\r\nGET  k \n", parsed{[][]string{{"PING"}, {"GET", "k"}}, []string{"", ""}, 14, ""}},
		{"mixed", "PING\r\n*1\r\n$4\r\nPING\r\nPING\n", parsed{[][]string{{"PING"}, {"PING"}, {"PING"}}, []string{"", "*1\r\n$4\r\nPING\r\n", ""}, 25, ""}},
		{"quotes", `SET "a b" 'c"d' e"f"` + "\n", parsed{[][]string{{"SET", "a b", `c"d`, "ef"}}, []string{""}, 21, ""}},
		{"escapes", `E "\x41\n\q\x4" '\n\''` + "\n", parsed{[][]string{{"E", "A\nqx4", `\n'`}}, []string{""}, 23, ""}},
		{"odd breaks", "*1\rx$1\rxaxx", parsed{[][]string{{"a"}}, []string{""}, 11, ""}},
		{"open quote", "GET \"k\n", parsed{err: "Protocol error: unbalanced quotes in request"}},
		{"text behind a quote", "GET \"k\"k\n", parsed{err: "Protocol error: unbalanced quotes in request"}},
		{"count no number", "*x\r\n", parsed{err: "Protocol error: invalid multibulk length"}},
		{"count empty", "*\r\n", parsed{err: "Protocol error: invalid multibulk length"}},
		{"count with a plus", "*+1\r\n", parsed{err: "Protocol error: invalid multibulk length"}},
		{"count with a zero", "*01\r\n", parsed{err: "Protocol error: invalid multibulk length"}},
		{"count -0", "*-0\r\n", parsed{err: "Protocol error: invalid multibulk length"}},
		{"count too big", "*1048577\r\n", parsed{err: "Protocol error: invalid multibulk length"}},
		{"count beyond 64 bits", "*9223372036854775808\r\n", parsed{err: "Protocol error: invalid multibulk length"}},
		{"length missing", "*1\r\nx\r\n", parsed{err: "Protocol error: expected '$', got 'x'"}},
		{"length is not text", "*1\r\n\xff\r\n", parsed{err: "Protocol error: expected '$', got '\xff'"}},
		{"line missing", "*1\r\n\r\n", parsed{err: "Protocol error: expected '$', got '\r'"}},
		{"length negative", "*1\r\n$-1\r\n", parsed{err: "Protocol error: invalid bulk length"}},
		{"length too big", "*1\r\n$67108865\r\n", parsed{err: "Protocol error: invalid bulk length"}},
		{"after a command", "PING\n*1\r\n$x\r\n", parsed{[][]string{{"PING"}}, []string{""}, 5, "Protocol error: invalid bulk length"}},
		{"longest inline", big[1:] + "\r\n", parsed{[][]string{{big[1:]}}, []string{""}, len(big) + 1, ""}},
		{"inline too long", big + "x", parsed{err: "Protocol error: too big inline request"}},
		{"count too long", "*" + big, parsed{err: "Protocol error: too big mbulk count string"}},
		{"length too long", "*1\r\n$" + big, parsed{err: "Protocol error: too big bulk count string"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := feed(t, new(Parser), test.input); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %.300v\nwant %.300v", got, test.want)
			}
			if got := referenceParse(test.input); !reflect.DeepEqual(got, test.want) {
				t.Errorf("the reference is wrong: got %.300v\nwant %.300v", got, test.want)
			}
		})
	}
}

func TestParserLimits(t *testing.T) {
	small := Limits{MaxBulk: 10, MaxElements: 3, MaxInline: 8, MaxRequest: 30}
	for _, test := range []struct {
		name, input, err string
		parser           Parser
	}{
		{"at the limit", "*1\r\n$10\r\n0123456789\r\n", "", Parser{Limits: &small}},
		{"bulk", "*1\r\n$11\r\n", "Protocol error: invalid bulk length", Parser{Limits: &small}},
		{"elements", "*4\r\n", "Protocol error: invalid multibulk length", Parser{Limits: &small}},
		{"inline", "123456789", "Protocol error: too big inline request", Parser{Limits: &small}},
		{"inline, whole", "123456789\n", "Protocol error: too big inline request", Parser{Limits: &small}},
		{"request", "*2\r\n$10\r\n0123456789\r\n$9\r\n", "Protocol error: too big request", Parser{Limits: &small}},
		{"elements before AUTH", "*11\r\n", "Protocol error: unauthenticated multibulk length", Parser{Unauthenticated: true}},
		{"bulk before AUTH", "*1\r\n$16385\r\n", "Protocol error: unauthenticated bulk length", Parser{Unauthenticated: true}},
		{"allowed before AUTH", "*10\r\n$16384\r\n", "", Parser{Unauthenticated: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := test.parser
			if got := feed(t, &p, test.input); got.err != test.err {
				t.Errorf("got %q, want %q", got.err, test.err)
			}
			ends := make([]int, len(test.input))
			for i := range ends {
				ends[i] = i
			}
			p = test.parser
			if got := feed(t, &p, test.input, ends...); got.err != test.err {
				t.Errorf("byte by byte: got %q, want %q", got.err, test.err)
			}
		})
	}
}

func TestLimitsValidate(t *testing.T) {
	if err := DefaultLimits().Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Limits){
		"limit bulk is 0, must be at least 1":                                                   func(l *Limits) { l.MaxBulk = 0 },
		"limit elements is -1, must be at least 1":                                              func(l *Limits) { l.MaxElements = -1 },
		"limit inline is 1, must be at least 64":                                                func(l *Limits) { l.MaxInline = 1 },
		"limit request is 0, must be at least 64":                                               func(l *Limits) { l.MaxRequest = 0 },
		"limit bulk is 67108864, more than limit request, 1000: no such argument could be sent": func(l *Limits) { l.MaxRequest = 1000 },
	} {
		limits := DefaultLimits()
		change(&limits)
		if err := limits.Validate(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestParserSizes cuts requests of sizes around every power of two at the places where buffers end.
func TestParserSizes(t *testing.T) {
	for shift := range 21 {
		for _, size := range []int{1<<shift - 1, 1 << shift, 1<<shift + 1} {
			value := strings.Repeat("v", size)
			input := fmt.Sprintf("PING\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n%s\r\nECHO \"a b\"\r\n*1\r\n$4\r\nPING\r\n", size, value)
			want := referenceParse(input)
			if want.used != len(input) || len(want.commands) != 4 {
				t.Fatalf("the reference found %d commands", len(want.commands))
			}
			cuts := map[int]bool{}
			near := 3
			if shift > 12 {
				near = 1 // each cut copies the value
			}
			for off := -near; off <= near; off++ {
				for power := range shift + 1 {
					if shift <= 12 || power > 11 {
						cuts[1<<power+off] = true
					}
				}
				cuts[len(input)-size+off] = true
				cuts[len(input)-34+off] = true // the end of the value
			}
			for i := range 40 {
				if shift <= 16 {
					cuts[i], cuts[len(input)-i] = true, true
				}
			}
			for cut := range cuts {
				if cut < 0 || cut > len(input) {
					continue
				}
				if got := feed(t, new(Parser), input, cut); !reflect.DeepEqual(got, want) {
					t.Fatalf("value of %d bytes cut at %d: got %.200v", size, cut, got)
				}
			}
		}
	}
}

// TestParserLooksOnce spoils everything that the parser has passed: if it looked again before the frame is whole, it would stumble.
func TestParserLooksOnce(t *testing.T) {
	words := make([]string, 4000)
	for i := range words {
		words[i] = fmt.Sprint("key:", i)
	}
	input := request(append([]string{"MGET"}, words...)...)
	var p Parser
	for end := 1; end < len(input); end += 97 {
		buf := bytes.Clone(input[:end])
		for i := 1; i < p.pos; i++ {
			buf[i] = 0
		}
		if _, n, err := p.Next(buf); n != 0 || err != nil {
			t.Fatalf("at %d of %d: %d, %v", end, len(input), n, err)
		}
	}
	cmd, n, err := p.Next(input)
	if n != len(input) || err != nil || len(cmd.Args) != 4001 || string(cmd.Args[4000]) != "key:3999" {
		t.Fatalf("%d arguments in %d of %d bytes: %v", len(cmd.Args), n, len(input), err)
	}
	p.Release()
	if cap(p.args) != 0 {
		t.Errorf("a released parser keeps room for %d arguments", cap(p.args))
	}
}

// TestParserAnnounced: what is set aside depends on what has come, not on what was announced.
func TestParserAnnounced(t *testing.T) {
	var p Parser
	if _, n, err := p.Next([]byte("*1048576\r\n$67108864\r\nx")); n != 0 || err != nil || p.Want() != 21+64<<20+2 {
		t.Fatalf("%d, %v, wants %d", n, err, p.Want())
	}
	if cap(p.args) > 8 {
		t.Errorf("22 bytes made room for %d arguments", cap(p.args))
	}
}

func TestParserDoesNotAllocate(t *testing.T) {
	var p Parser
	for _, input := range [][]byte{getBytes, setBytes, []byte("GET k\r\n"), request(make([]string, keepArgs)...)} {
		if n := testing.AllocsPerRun(100, func() {
			if _, n, err := p.Next(input); n != len(input) || err != nil {
				t.Fatal(n, err)
			}
		}); n != 0 {
			t.Errorf("%.40q: %v allocations", input, n)
		}
	}
}
