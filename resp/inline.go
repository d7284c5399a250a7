package resp

import "bytes"

// inline reads a command that was typed rather than encoded: words on one line, with quotes and escapes.
func (p *Parser) inline(buf []byte, limits *Limits) (Command, int, error) {
	i := bytes.IndexByte(buf[p.seen:], '\n')
	if i < 0 {
		p.seen = len(buf)
		p.want = len(buf) + 1
	}
	if end := p.seen + max(i, 0); end > limits.MaxInline {
		return Command{}, 0, protocolError("too big inline request").beyond(InlineLimit)
	}
	if i < 0 {
		return Command{}, 0, nil
	}
	line := buf[:p.seen+i]
	n := len(line) + 1
	p.reset()
	args, ok := splitInline(bytes.TrimSuffix(line, []byte{'\r'}), p.args[:0])
	p.args = args
	if !ok {
		return Command{}, 0, protocolError("unbalanced quotes in request")
	}
	return Command{Args: args}, n, nil
}

// splitInline appends the words of line to args, as Redis's sdssplitargs finds them: words are set apart by blanks; in double quotes
// \n \r \t \b \a and \xHH are escapes and any other escaped byte stands for itself; in single quotes only \' is one. A closing quote
// must end its word. It returns false when a quote is left open or does not end its word. Words without quotes alias line.
func splitInline(line []byte, args [][]byte) ([][]byte, bool) {
	var text []byte // unquoted words; never reallocated, because no word grows
	for i := 0; ; {
		for i < len(line) && isSpace(line[i]) {
			i++
		}
		if i == len(line) {
			return args, true
		}
		start := i
		for i < len(line) && !endsWord(line[i]) && line[i] != '"' && line[i] != '\'' {
			i++
		}
		if i == len(line) || endsWord(line[i]) {
			args = append(args, line[start:i:i])
			continue
		}
		if text == nil {
			text = make([]byte, 0, len(line)-start)
		}
		from := len(text)
		text = append(text, line[start:i]...)
		var ok bool
		if text, i, ok = unquote(line, i, text); !ok {
			return args, false
		}
		args = append(args, text[from:len(text):len(text)])
	}
}

// unquote appends what stands in the quotes that open at line[i] to text. It returns the index behind the closing quote, which must be
// the end of the word.
func unquote(line []byte, i int, text []byte) ([]byte, int, bool) {
	quote := line[i]
	for i++; i < len(line); {
		c := line[i]
		i++
		if c == quote {
			return text, i, i == len(line) || isSpace(line[i])
		}
		if c == '\\' && i < len(line) {
			if quote == '"' {
				c, i = unescape(line, i)
			} else if line[i] == '\'' {
				c = '\''
				i++
			}
		}
		text = append(text, c)
	}
	return text, i, false
}

// unescape reads what follows a backslash inside double quotes.
func unescape(line []byte, i int) (byte, int) {
	switch c := line[i]; c {
	case 'n':
		return '\n', i + 1
	case 'r':
		return '\r', i + 1
	case 't':
		return '\t', i + 1
	case 'b':
		return '\b', i + 1
	case 'a':
		return '\a', i + 1
	case 'x':
		if i+2 < len(line) {
			hi, ok1 := hexDigit(line[i+1])
			lo, ok2 := hexDigit(line[i+2])
			if ok1 && ok2 {
				return hi<<4 | lo, i + 3
			}
		}
		return 'x', i + 1
	default:
		return c, i + 1
	}
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return (c | 0x20) - 'a' + 10, true
	}
	return 0, false
}

// isSpace is C's isspace: what is skipped between words and may follow a closing quote.
func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// endsWord is narrower than isSpace: Redis ends an unquoted word at these only, so \v and \f stay inside it.
func endsWord(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }
