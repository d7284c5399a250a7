package resp

import (
	"bytes"
	"strconv"
	"strings"
)

// The reference is written for plainness: one whole input, no resuming, no limits but the defaults, allocation at will. Parser must agree
// with it however the input is cut.

// parsed is what came out of one input: commands, how many bytes they took, and the error that ended it.
type parsed struct {
	commands [][]string
	raw      []string
	used     int
	err      string
}

func (p *parsed) add(args []string, raw string) {
	p.commands = append(p.commands, args)
	p.raw = append(p.raw, raw)
}

func referenceParse(input string) parsed {
	var out parsed
	limits := DefaultLimits()
	for out.used < len(input) {
		rest := input[out.used:]
		var n int
		if rest[0] == '*' {
			n = referenceMultibulk(&out, rest, limits)
		} else {
			n = referenceInline(&out, rest, limits)
		}
		if n == 0 || out.err != "" {
			break
		}
		out.used += n
	}
	return out
}

func referenceInline(out *parsed, rest string, limits Limits) int {
	line, _, found := strings.Cut(rest, "\n")
	if len(line) > limits.MaxInline {
		out.err = "Protocol error: too big inline request"
		return 0
	}
	if !found {
		return 0
	}
	args, ok := referenceSplit(strings.TrimSuffix(line, "\r"))
	if !ok {
		out.err = "Protocol error: unbalanced quotes in request"
		return 0
	}
	out.add(args, "")
	return len(line) + 1
}

// referenceSplit follows sdssplitargs step by step; a step reads the byte at i, 0 behind the end.
func referenceSplit(line string) ([]string, bool) {
	at := func(i int) int {
		if i < len(line) {
			return int(line[i])
		}
		return -1
	}
	space := func(c int) bool { return c >= 0 && strings.IndexByte(" \t\n\v\f\r", byte(c)) >= 0 }
	hex := func(c int) bool { return c >= 0 && strings.IndexByte("0123456789abcdefABCDEF", byte(c)) >= 0 }
	escapes := map[int]byte{'n': '\n', 'r': '\r', 't': '\t', 'b': '\b', 'a': '\a'}
	var words []string
	i := 0
	for {
		for space(at(i)) {
			i++
		}
		if at(i) < 0 {
			return words, true
		}
		var word []byte
		quote := 0
		for done := false; !done; {
			c := at(i)
			switch {
			case quote == 0 && (c < 0 || c == ' ' || c == '\n' || c == '\r' || c == '\t'):
				done = true
			case quote == 0 && (c == '"' || c == '\''):
				quote = c
			case quote == 0:
				word = append(word, byte(c))
			case c < 0:
				return nil, false
			case quote == '"' && c == '\\' && at(i+1) == 'x' && hex(at(i+2)) && hex(at(i+3)):
				v, _ := strconv.ParseUint(line[i+2:i+4], 16, 8)
				word = append(word, byte(v))
				i += 3
			case quote == '"' && c == '\\' && at(i+1) >= 0:
				i++
				if e, ok := escapes[at(i)]; ok {
					word = append(word, e)
				} else {
					word = append(word, line[i])
				}
			case quote == '\'' && c == '\\' && at(i+1) == '\'':
				i++
				word = append(word, '\'')
			case c == quote:
				if at(i+1) >= 0 && !space(at(i+1)) {
					return nil, false
				}
				done = true
			default:
				word = append(word, byte(c))
			}
			if at(i) >= 0 {
				i++
			}
		}
		words = append(words, string(word))
	}
}

// referenceLine cuts a header line: it ends at CR and whatever byte follows.
func referenceLine(rest string) (line string, n int) {
	i := strings.IndexByte(rest, '\r')
	if i < 0 || i+1 >= len(rest) {
		return "", 0
	}
	return rest[:i], i + 2
}

func tooLong(rest string, limits Limits) bool {
	line, _, _ := strings.Cut(rest, "\r")
	return len(line) > limits.MaxInline
}

// referenceNumber accepts exactly the numbers that are printed the way they were read.
func referenceNumber(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == s
}

func referenceMultibulk(out *parsed, rest string, limits Limits) int {
	fail := func(text string) int {
		out.err = "Protocol error: " + text
		return 0
	}
	if tooLong(rest, limits) {
		return fail("too big mbulk count string")
	}
	line, pos := referenceLine(rest)
	if pos == 0 {
		return 0
	}
	count, ok := referenceNumber(line[1:])
	if !ok || count > int64(limits.MaxElements) {
		return fail("invalid multibulk length")
	}
	var args []string
	for range max(count, 0) {
		if tooLong(rest[pos:], limits) {
			return fail("too big bulk count string")
		}
		line, n := referenceLine(rest[pos:])
		if n == 0 {
			return 0
		}
		if !strings.HasPrefix(line, "$") {
			return fail("expected '$', got '" + rest[pos:pos+1] + "'")
		}
		length, ok := referenceNumber(line[1:])
		if !ok || length < 0 || length > int64(limits.MaxBulk) {
			return fail("invalid bulk length")
		}
		pos += n
		if pos+int(length)+2 > limits.MaxRequest {
			return fail("too big request")
		}
		if pos+int(length)+2 > len(rest) {
			return 0
		}
		args = append(args, rest[pos:pos+int(length)])
		pos += int(length) + 2
	}
	raw := rest[:pos]
	var strict bytes.Buffer
	strict.WriteString("*" + strconv.FormatInt(count, 10) + "\r\n")
	for _, a := range args {
		strict.WriteString("$" + strconv.Itoa(len(a)) + "\r\n" + a + "\r\n")
	}
	if raw != strict.String() || len(args) == 0 {
		raw = ""
	}
	out.add(args, raw)
	return pos
}
