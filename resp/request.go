package resp

import "bytes"

// What Redis allows a client that has yet to authenticate.
const (
	unauthenticatedElements = 10
	unauthenticatedBulk     = 16384
)

// keepArgs is the longest argument slice that a parser keeps for the next command.
const keepArgs = 1024

// Command is one parsed request. It is valid until the next call of the parser's Next or Release, and as long as the buffer it was
// parsed from is left alone.
type Command struct {
	// Args is the command's name and its arguments; empty when the frame was consumed but carries no command (an empty line,
	// "*0", "*-1"). The slice is reused by the parser; its elements alias the buffer, except those of an inline command with quotes.
	Args [][]byte
	// Raw is the frame as received, fit to be passed on. It is nil when Args have to be encoded anew: for inline commands, and
	// for the odd frame whose line breaks are not all CR LF (Redis never looks at them, other servers may).
	Raw []byte
}

// Parser finds commands in what one client sends. The zero value is ready. It remembers how far it has looked, so that neither a long
// argument nor a long list of arguments that arrives in pieces is looked at again and again.
type Parser struct {
	// Limits bound a command; nil means DefaultLimits.
	Limits *Limits
	// Unauthenticated turns on the tighter limits that Redis sets for clients that have yet to authenticate.
	Unauthenticated bool

	odd    bool // a line break of the present frame is not CR LF
	args   [][]byte
	want   int
	pos    int // next unread token of the present frame; 0: nothing read yet
	seen   int // this many bytes of the token at pos hold no line break
	total  int // arguments of the present frame; 0: not known yet
	got    int // arguments passed already
	bulkIn int // 1 + length of the argument whose body begins at pos; 0: its header comes next
}

// Next looks for one command at the start of buf, which must hold all input from the first byte of the frame on: after (_, 0, nil),
// which means that the frame is incomplete, the same bytes with more behind them. n is the length of the frame; the next call begins
// behind it. n > 0 with no Args is a frame without a command. The error is a *ProtocolError; the parser is of no use afterwards.
func (p *Parser) Next(buf []byte) (cmd Command, n int, err error) {
	if cap(p.args) > keepArgs {
		p.args = nil
	}
	if len(buf) == 0 {
		p.Release()
		p.want = 1
		return Command{}, 0, nil
	}
	limits := p.Limits
	if limits == nil {
		limits = &builtinLimits
	}
	if buf[0] != '*' {
		return p.inline(buf, limits)
	}
	fresh := p.pos == 0
	if p.total == 0 {
		done, err := p.count(buf, limits)
		if !done {
			return Command{}, 0, err
		}
		if p.total == 0 {
			n = p.pos
			p.reset()
			return Command{}, n, nil
		}
	}
	done, err := p.bulks(buf, limits, fresh)
	if !done {
		return Command{}, 0, err
	}
	if !fresh {
		p.collect(buf)
	}
	n = p.pos
	cmd.Args = p.args
	if !p.odd {
		cmd.Raw = buf[:n:n]
	}
	p.reset()
	return cmd, n, nil
}

// Want returns how many bytes buf must hold at least before another call of Next can find a command or an error: exact inside a long
// argument, so that a buffer can be grown once. At least 1.
func (p *Parser) Want() int { return max(p.want, 1) }

// Release lets go of the last command's arguments, which keep the buffer they alias from being collected. Call it when a connection
// falls idle; Next with an empty buffer does the same.
func (p *Parser) Release() {
	const keep = 16
	if cap(p.args) > keep {
		p.args = nil
		return
	}
	clear(p.args)
	p.args = p.args[:0]
}

var builtinLimits = DefaultLimits()

func (p *Parser) reset() {
	p.odd = false
	p.want, p.pos, p.seen, p.total, p.got, p.bulkIn = 1, 0, 0, 0, 0, 0
}

// count reads "*<n>\r\n". After true, p.total is the number of arguments to come, 0 for none.
func (p *Parser) count(buf []byte, limits *Limits) (bool, error) {
	if n, next := shortHeader(buf, 0); next > 0 && n <= limits.MaxElements && !p.Unauthenticated {
		p.pos, p.seen, p.total = next, 0, n
		return true, nil
	}
	line, ok := p.line(buf, limits.MaxInline)
	if !ok {
		if p.seen > limits.MaxInline {
			return false, protocolError("too big mbulk count string").beyond(InlineLimit)
		}
		return false, nil
	}
	n, ok := parseInt(line[1:])
	switch {
	case !ok:
		return false, protocolError("invalid multibulk length")
	case n > int64(limits.MaxElements):
		return false, protocolError("invalid multibulk length").beyond(ElementsLimit)
	case n > unauthenticatedElements && p.Unauthenticated:
		return false, protocolError("unauthenticated multibulk length").beyond(UnauthenticatedLimit)
	}
	p.total = int(max(n, 0))
	return true, nil
}

// bulks reads arguments until all are there (true) or the input ends. Those that it passes go to p.args when the frame is read in one go.
func (p *Parser) bulks(buf []byte, limits *Limits, fresh bool) (bool, error) {
	args := p.args[:0]
	if fresh && cap(args) < p.total {
		// As many as the input can hold, whatever was announced.
		args = make([][]byte, 0, min(p.total, len(buf)/len("$0\r\n\r\n")+1))
	}
	for p.got < p.total {
		if p.bulkIn == 0 {
			if err := p.bulkHeader(buf, limits); err != nil {
				return false, err
			}
			if p.bulkIn == 0 {
				break
			}
		}
		start, end := p.pos, p.pos+p.bulkIn-1
		if len(buf) < end+2 {
			p.want = end + 2
			break
		}
		if fresh {
			args = append(args, buf[start:end:end])
		}
		if buf[end] != '\r' || buf[end+1] != '\n' {
			p.odd = true
		}
		p.pos, p.bulkIn = end+2, 0
		p.got++
	}
	p.args = args
	return p.got == p.total, nil
}

// bulkHeader reads the header line of an argument, "$<n>\r\n", and sets p.bulkIn when it is whole.
func (p *Parser) bulkHeader(buf []byte, limits *Limits) error {
	if p.pos < len(buf) && buf[p.pos] == '$' {
		n, next := shortHeader(buf, p.pos)
		if next > 0 && n <= limits.MaxBulk && n <= limits.MaxRequest-next-2 && !p.Unauthenticated {
			p.pos, p.seen, p.bulkIn = next, 0, 1+n
			return nil
		}
	}
	line, ok := p.line(buf, limits.MaxInline)
	if ok {
		return p.openBulk(line, limits)
	}
	if p.seen > limits.MaxInline {
		return protocolError("too big bulk count string").beyond(InlineLimit)
	}
	return nil
}

// openBulk checks the header line of an argument, "$<n>".
func (p *Parser) openBulk(line []byte, limits *Limits) error {
	if len(line) == 0 || line[0] != '$' {
		got := byte('\r')
		if len(line) > 0 {
			got = line[0]
		}
		return protocolError("expected '$', got '" + string([]byte{got}) + "'")
	}
	n, ok := parseInt(line[1:])
	switch {
	case !ok || n < 0:
		return protocolError("invalid bulk length")
	case n > int64(limits.MaxBulk):
		return protocolError("invalid bulk length").beyond(BulkLimit)
	case n > unauthenticatedBulk && p.Unauthenticated:
		return protocolError("unauthenticated bulk length").beyond(UnauthenticatedLimit)
	case n+2 > int64(limits.MaxRequest-p.pos):
		return protocolError("too big request").beyond(RequestLimit)
	}
	p.bulkIn = 1 + int(n)
	return nil
}

// line returns the line at p.pos without its break and moves behind it. Not there yet: p.want and p.seen are set, and p.seen is
// more than longest when the line is too long to wait for. As in Redis a line ends at CR and whatever byte follows.
func (p *Parser) line(buf []byte, longest int) ([]byte, bool) {
	start := p.pos
	i := bytes.IndexByte(buf[start+p.seen:], '\r')
	switch {
	case i < 0:
		p.seen = len(buf) - start
		p.want = len(buf) + 1
		return nil, false
	case p.seen+i > longest:
		p.seen += i
		return nil, false
	case start+p.seen+i+1 >= len(buf):
		p.seen += i
		p.want = len(buf) + 1
		return nil, false
	}
	end := start + p.seen + i
	if buf[end+1] != '\n' {
		p.odd = true
	}
	p.pos, p.seen = end+2, 0
	return buf[start:end], true
}

// collect fills p.args from a whole frame of p.total arguments that has been checked before, in pieces.
func (p *Parser) collect(buf []byte) {
	args := p.args[:0]
	if cap(args) < p.total {
		args = make([][]byte, 0, p.total)
	}
	pos := bytes.IndexByte(buf, '\r') + 2
	for range p.total {
		cr := pos + bytes.IndexByte(buf[pos:], '\r')
		n, _ := parseInt(buf[pos+1 : cr])
		end := cr + 2 + int(n)
		args = append(args, buf[cr+2:end:end])
		pos = end + 2
	}
	p.args = args
}
