package keyspace

import (
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner walks JSON text (RFC 8259) strictly: what it accepts is what encoding/json calls valid (a fuzz test compares the two), in
// valid UTF-8 and without lone surrogates. It exists beside encoding/json because that rounds numbers, replaces broken text, loses
// the order and the repetition of keys, and cannot hand out the raw text of a value without allocating for it.
type scanner struct {
	b []byte
	i int // next byte
}

// brokenError is a fault in the text itself.
type brokenError struct {
	at     int // byte offset
	reason string
}

func (e *brokenError) Error() string {
	return fmt.Sprintf("JSON is broken at byte %d: %s", e.at, e.reason)
}

func (s *scanner) broken(reason string) error { return &brokenError{s.i, reason} }

// maxDepth bounds the nesting of a value, and with it the scanner's stack. PostgreSQL's own limit is near.
const maxDepth = 1000

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// peek returns the next byte, 0 at the end (where 0 is no part of JSON either).
func (s *scanner) peek() byte {
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

// expect skips space and takes c.
func (s *scanner) expect(c byte, where string) error {
	s.space()
	if s.peek() != c {
		return s.unexpected(fmt.Sprintf("wanted %q %s", c, where))
	}
	s.i++
	return nil
}

func (s *scanner) unexpected(wanted string) error {
	if s.i >= len(s.b) {
		return s.broken("it ends too early, " + wanted)
	}
	return s.broken(fmt.Sprintf("found %q, %s", s.b[s.i], wanted))
}

// text is a JSON string as scanned.
type text struct {
	raw     []byte // between the quotes
	escaped bool   // raw has escapes
	nul     bool   // one of them is \u0000
}

// value takes one value and returns its raw text, and whether a string in it contains \u0000.
func (s *scanner) value(depth int) (raw []byte, nul bool, err error) {
	s.space()
	start := s.i
	switch c := s.peek(); {
	case c == '"':
		var t text
		t, err = s.str()
		nul = t.nul
	case c == '{' || c == '[':
		if depth >= maxDepth {
			return nil, false, s.broken(fmt.Sprintf("it is nested deeper than %d", maxDepth))
		}
		nul, err = s.container(depth)
	case c == '-' || isDigit(c):
		err = s.number()
	case c == 't':
		err = s.word("true")
	case c == 'f':
		err = s.word("false")
	case c == 'n':
		err = s.word("null")
	default:
		err = s.unexpected("wanted a value")
	}
	return s.b[start:s.i], nul, err
}

// container takes an object or array, whose bracket is next.
func (s *scanner) container(depth int) (nul bool, err error) {
	object := s.b[s.i] == '{'
	closing := byte(']')
	if object {
		closing = '}'
	}
	s.i++
	for first := true; ; first = false {
		s.space()
		switch {
		case s.peek() == closing:
			if !first {
				return nul, s.unexpected("wanted another value after the comma")
			}
			s.i++
			return nul, nil
		case object:
			name, err := s.str()
			if err != nil {
				return nul, err
			}
			nul = nul || name.nul
			if err := s.expect(':', "after the name"); err != nil {
				return nul, err
			}
		}
		_, inner, err := s.value(depth + 1)
		if err != nil {
			return nul, err
		}
		nul = nul || inner
		s.space()
		switch s.peek() {
		case ',':
			s.i++
		case closing:
			s.i++
			return nul, nil
		default:
			return nul, s.unexpected(fmt.Sprintf("wanted a comma or %q", closing))
		}
	}
}

func (s *scanner) word(w string) error {
	for i := range len(w) {
		if s.peek() != w[i] {
			return s.unexpected("wanted " + w)
		}
		s.i++
	}
	return nil
}

func (s *scanner) number() error {
	if s.peek() == '-' {
		s.i++
	}
	if s.peek() == '0' {
		s.i++
	} else if err := s.digits(); err != nil {
		return err
	}
	if s.peek() == '.' {
		s.i++
		if err := s.digits(); err != nil {
			return err
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.i++
		if c := s.peek(); c == '+' || c == '-' {
			s.i++
		}
		return s.digits()
	}
	return nil
}

func (s *scanner) digits() error {
	if !isDigit(s.peek()) {
		return s.unexpected("wanted a digit")
	}
	for isDigit(s.peek()) {
		s.i++
	}
	return nil
}

// str takes a string, with its quotes.
func (s *scanner) str() (text, error) {
	var t text
	if s.peek() != '"' {
		return t, s.unexpected("wanted a string in double quotes")
	}
	s.i++
	start := s.i
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			t.raw = s.b[start:s.i]
			s.i++
			return t, nil
		case c == '\\':
			t.escaped = true
			r, err := s.escape()
			if err != nil {
				return t, err
			}
			t.nul = t.nul || r == 0
		case c < ' ':
			return t, s.broken(fmt.Sprintf("found the control character %q in a string, escape it", c))
		case c < utf8.RuneSelf:
			s.i++
		default:
			r, size := utf8.DecodeRune(s.b[s.i:])
			if r == utf8.RuneError && size <= 1 {
				return t, s.broken("it is not valid UTF-8")
			}
			s.i += size
		}
	}
	return t, s.unexpected("wanted the end of a string")
}

// escape takes one escape sequence, or two that are one character, and returns that character.
func (s *scanner) escape() (rune, error) {
	if s.i+1 >= len(s.b) {
		s.i = len(s.b)
		return 0, s.unexpected("wanted the end of an escape sequence")
	}
	c := s.b[s.i+1]
	if c == 'u' {
		return s.unicodeEscape()
	}
	r, ok := simpleEscape(c)
	if !ok {
		return 0, s.broken(fmt.Sprintf("found the unknown escape sequence \\%c", c))
	}
	s.i += 2
	return r, nil
}

func simpleEscape(c byte) (rune, bool) {
	switch c {
	case '"', '\\', '/':
		return rune(c), true
	case 'b':
		return '\b', true
	case 'f':
		return '\f', true
	case 'n':
		return '\n', true
	case 'r':
		return '\r', true
	case 't':
		return '\t', true
	}
	return 0, false
}

func (s *scanner) unicodeEscape() (rune, error) {
	r, ok := hex4(s.b[s.i:])
	if !ok {
		return 0, s.broken(`wanted four hexadecimal digits after \u`)
	}
	if !utf16.IsSurrogate(r) {
		s.i += 6
		return r, nil
	}
	second, ok := hex4(s.b[s.i+6:])
	if r = utf16.DecodeRune(r, second); !ok || r == utf8.RuneError {
		return 0, s.broken("found half of a surrogate pair")
	}
	s.i += 12
	return r, nil
}

// hex4 reads \uXXXX at the start of b.
func hex4(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case isDigit(c):
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = (c | 0x20) - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// decoded returns what the string says. It aliases the scanned text when there is nothing to decode.
func (t text) decoded() []byte {
	if !t.escaped {
		return t.raw
	}
	out := make([]byte, 0, len(t.raw))
	s := scanner{b: t.raw}
	for s.i < len(s.b) {
		if c := s.b[s.i]; c != '\\' {
			out = append(out, c)
			s.i++
			continue
		}
		r, err := s.escape()
		if err != nil {
			panic("keyspace: a string that was scanned does not decode: " + err.Error())
		}
		out = utf8.AppendRune(out, r)
	}
	return out
}
