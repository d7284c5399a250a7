package resp

import (
	"bytes"
	"strconv"
)

const (
	// DefaultMaxReply is the longest reply that a Scanner accepts unless told otherwise: the largest value that Redis can hold
	// (512 MiB) and as much again around it.
	DefaultMaxReply = 1 << 30
	// maxReplyLine is the longest status, error or number in a reply.
	maxReplyLine = 1 << 20
	// maxDepth is how deeply replies may be nested; COMMAND and XINFO STREAM FULL, the deepest that Redis sends, need less than 10.
	maxDepth = 128
)

// Scanner finds the ends of the replies that one server sends, RESP2 or RESP3. The zero value is ready. It remembers how far it has
// looked, so that a long reply that arrives in pieces is looked at once.
type Scanner struct {
	// MaxReply is the longest reply in bytes with all framing; 0 means DefaultMaxReply.
	MaxReply int

	want int
	pos  int   // next unread token of the present reply
	seen int   // this many bytes of the line at pos hold no line break
	end  int   // where the text whose body begins at pos ends, line break included; 0: no text is open
	left int   // replies still to come at the present depth; 0: nothing read yet
	open []int // the same for each depth outside the present one
}

// Next returns the length of the reply at the start of buf, attributes before it included; 0 when it is incomplete: call again with
// the same bytes and more behind them. Out-of-band messages (KindPush) come out as replies of their own. The error is a
// *ProtocolError; the scanner is of no use afterwards.
//
// What Next accepts is well-formed throughout: counts, line breaks, numbers, nesting.
func (s *Scanner) Next(buf []byte) (int, error) {
	if s.left == 0 {
		s.left = 1
	}
	for s.left > 0 {
		if s.end == 0 && !s.shortText(buf) {
			ok, err := s.token(buf)
			if !ok {
				return 0, err
			}
		}
		if s.end != 0 {
			if len(buf) < s.end {
				s.want = s.end
				return 0, nil
			}
			if buf[s.end-2] != '\r' || buf[s.end-1] != '\n' {
				return 0, protocolError("a text in the reply is longer than announced")
			}
			s.pos, s.end = s.end, 0
			s.left--
		}
		for s.left == 0 && len(s.open) > 0 {
			s.left = s.open[len(s.open)-1]
			s.open = s.open[:len(s.open)-1]
		}
	}
	n := s.pos
	s.want, s.pos, s.seen = 1, 0, 0
	return n, nil
}

// Want returns how many bytes buf must hold at least before another call of Next can find a reply or an error: exact inside a long
// text, so that a buffer can be grown once. At least 1.
func (s *Scanner) Want() int { return max(s.want, 1) }

func (s *Scanner) limit() int {
	if s.MaxReply > 0 {
		return s.MaxReply
	}
	return DefaultMaxReply
}

// shortText opens a text whose header is plain and there as a whole, as nearly all are.
func (s *Scanner) shortText(buf []byte) bool {
	if s.pos >= len(buf) || Kind(buf[s.pos]) != KindBulk {
		return false
	}
	n, next := shortHeader(buf, s.pos)
	if next == 0 || n > s.limit()-next-2 {
		return false
	}
	s.pos, s.seen, s.end = next, 0, next+n+2
	return true
}

// token reads one line at s.pos: a whole reply, the header of a text (s.end is set) or that of an aggregate (a level is opened).
// False without an error: the line is incomplete.
func (s *Scanner) token(buf []byte) (bool, error) {
	start := s.pos
	if start+s.seen >= len(buf) {
		s.want = len(buf) + 1
		return false, nil
	}
	kind := Kind(buf[start])
	if s.seen == 0 && !kind.known() {
		return false, protocolError("no reply begins with byte " + strconv.QuoteRune(rune(kind)))
	}
	i := bytes.IndexByte(buf[start+s.seen:], '\n')
	if i < 0 {
		s.seen = len(buf) - start
		s.want = len(buf) + 1
		if s.seen > maxReplyLine {
			return false, lineTooLong()
		}
		return false, nil
	}
	end := start + s.seen + i
	if end-start > maxReplyLine {
		return false, lineTooLong()
	}
	if end+1 > s.limit() {
		return false, s.tooLong()
	}
	if end == start || buf[end-1] != '\r' {
		return false, protocolError("a line of the reply does not end with CR LF")
	}
	s.pos, s.seen = end+1, 0
	text := buf[start+1 : end-1]
	switch kind {
	case KindBulk, KindBulkError, KindVerbatim:
		return s.text(kind, text)
	case KindArray, KindMap, KindSet, KindPush, KindAttribute:
		return s.aggregate(kind, text)
	}
	if !validLine(kind, text) {
		return false, protocolError("invalid " + kind.String() + " in the reply")
	}
	s.left--
	return true, nil
}

// text reads the length of a text.
func (s *Scanner) text(kind Kind, count []byte) (bool, error) {
	n, ok := replyCount(count)
	switch {
	case !ok || n < 0 && kind != KindBulk || kind == KindVerbatim && n < 4:
		return false, protocolError("invalid length of " + kind.String() + " in the reply")
	case n > s.limit()-s.pos-2:
		return false, s.tooLong()
	}
	if n < 0 {
		s.left--
		return true, nil
	}
	s.end = s.pos + n + 2
	return true, nil
}

// aggregate reads the number of elements of an aggregate and opens its level. Attributes do not count as an element themselves: the
// reply that they belong to follows.
func (s *Scanner) aggregate(kind Kind, count []byte) (bool, error) {
	n, ok := replyCount(count)
	switch {
	case !ok || n < 0 && kind != KindArray:
		return false, protocolError("invalid length of " + kind.String() + " in the reply")
	case n > s.limit():
		return false, s.tooLong()
	case len(s.open) >= maxDepth:
		return false, protocolError("the reply is nested too deeply")
	}
	if kind == KindMap || kind == KindAttribute {
		n *= 2
	}
	if kind != KindAttribute {
		s.left--
	}
	if n > 0 {
		s.open = append(s.open, s.left)
		s.left = n
	}
	return true, nil
}

func (s *Scanner) tooLong() error {
	return protocolError("the reply is longer than the limit of " + strconv.Itoa(s.limit()) + " bytes")
}

func lineTooLong() error {
	return protocolError("a line of the reply is longer than " + strconv.Itoa(maxReplyLine) + " bytes")
}

// replyCount reads the count of a text or aggregate: a number of up to 2^31-1, or -1.
func replyCount(b []byte) (int, bool) {
	n, ok := parseInt(b)
	return int(n), ok && n >= -1 && n <= 1<<31-1
}

// validLine checks what follows the kind in replies of one line.
func validLine(kind Kind, text []byte) bool {
	switch kind {
	case KindInt:
		_, ok := parseInt(text)
		return ok
	case KindNull:
		return len(text) == 0
	case KindBool:
		return len(text) == 1 && (text[0] == 't' || text[0] == 'f')
	case KindDouble:
		return isDouble(text)
	case KindBigNumber:
		return isDigits(trimSign(text))
	}
	return true
}

// isDouble checks [-+]digits[.digits][e[-+]digits], or inf or nan with or without a minus.
func isDouble(b []byte) bool {
	b = trimSign(b)
	if s := string(b); s == "inf" || s == "nan" {
		return true
	}
	if i := bytes.IndexAny(b, "eE"); i >= 0 {
		if !isDigits(trimSign(b[i+1:])) {
			return false
		}
		b = b[:i]
	}
	if i := bytes.IndexByte(b, '.'); i >= 0 {
		if !isDigits(b[i+1:]) {
			return false
		}
		b = b[:i]
	}
	return isDigits(b)
}

func trimSign(b []byte) []byte {
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		return b[1:]
	}
	return b
}

func isDigits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(b) > 0
}
