package cdc

import (
	"encoding/binary"
	"fmt"
)

// LSN is a position in the write-ahead log, in bytes.
type LSN uint64

// String is the form that PostgreSQL reads and writes.
func (l LSN) String() string { return fmt.Sprintf("%X/%X", uint32(l>>32), uint32(l)) }

// The messages of pgoutput, protocol version 1: whole transactions, each sent after its commit, in the order of commits. All byte slices alias
// the message that was decoded.
type (
	// beginMsg opens a transaction. Of the id only the low 32 bits are sent; it is that of the top-level transaction.
	beginMsg struct{ xid uint32 }
	// commitMsg ends the transaction. Whoever acknowledges end is never sent it again.
	commitMsg struct{ end LSN }
	// originMsg says that the transaction was replayed under a replication origin. It comes right after the begin.
	originMsg struct{ name []byte }
	// relationMsg describes a table, before its first change and again after it was altered.
	relationMsg struct {
		id            uint32
		schema, table []byte
		columns       [][]byte
	}
	// rowMsg is an INSERT, UPDATE or DELETE. before is there when the row's identity changed, for a DELETE, and with REPLICA IDENTITY FULL.
	rowMsg struct {
		op            byte // 'I', 'U' or 'D'
		relation      uint32
		before, after []value // nil: not sent
	}
	truncateMsg struct{ relations []uint32 }
	// emittedMsg is what pg_logical_emit_message wrote.
	emittedMsg struct {
		transactional   bool
		prefix, content []byte
	}
	// ignoredMsg is a message that says nothing of rows.
	ignoredMsg struct{}
)

// value is one column of a row.
type value struct {
	kind byte // 't': text; 'n': NULL, or not part of the identity; 'u': stored out of line and unchanged, so not sent
	text []byte
}

// malformedError says that the stream is not what the protocol allows. Nothing that follows can be relied on.
type malformedError struct{ what string }

func (e *malformedError) Error() string { return "change stream: " + e.what }

// decodeMessage takes one message of pgoutput apart. The error is a *malformedError.
func decodeMessage(data []byte) (any, error) {
	if len(data) == 0 {
		return nil, &malformedError{"an empty message"}
	}
	r := &reader{rest: data[1:]}
	m := r.message(data[0])
	switch {
	case r.short:
		return nil, &malformedError{fmt.Sprintf("a message %q of %d bytes ends too early", data[0], len(data))}
	case r.fault != "":
		return nil, &malformedError{fmt.Sprintf("a message %q with %s", data[0], r.fault)}
	case len(r.rest) > 0:
		return nil, &malformedError{fmt.Sprintf("a message %q with %d bytes too many", data[0], len(r.rest))}
	}
	return m, nil
}

func (r *reader) message(kind byte) any {
	switch kind {
	case 'B':
		r.skip(8 + 8) // position and time of the commit
		return beginMsg{r.uint32()}
	case 'C':
		r.skip(1 + 8) // flags, position of the commit
		end := LSN(r.uint64())
		r.skip(8) // time
		return commitMsg{end}
	case 'O':
		r.skip(8)
		return originMsg{r.string()}
	case 'R':
		return r.relation()
	case 'Y': // type
		r.skip(4)
		r.string()
		r.string()
		return ignoredMsg{}
	case 'I', 'U', 'D':
		return r.row(kind)
	case 'T':
		n := int(r.uint32())
		r.skip(1) // CASCADE, RESTART IDENTITY
		var m truncateMsg
		for range min(n, len(r.rest)/4+1) { // a wrong count is found out by the bytes that are there
			m.relations = append(m.relations, r.uint32())
		}
		return m
	case 'M':
		var m emittedMsg
		m.transactional = r.byte()&1 != 0
		r.skip(8)
		m.prefix = r.string()
		m.content = r.bytes(int(r.uint32()))
		return m
	}
	r.fault = "an unknown type"
	return nil
}

func (r *reader) relation() relationMsg {
	m := relationMsg{id: r.uint32(), schema: r.string(), table: r.string()}
	if len(m.schema) == 0 {
		m.schema = []byte("pg_catalog")
	}
	r.skip(1) // replica identity
	for range int(r.uint16()) {
		r.skip(1) // flags
		name := r.string()
		r.skip(4 + 4) // type and its modifier
		if r.short {
			break
		}
		m.columns = append(m.columns, name)
	}
	return m
}

func (r *reader) row(op byte) rowMsg {
	m := rowMsg{op: op, relation: r.uint32()}
	part := r.byte()
	if op != 'I' && (part == 'K' || part == 'O') {
		m.before = r.tuple()
		if op == 'D' {
			return m
		}
		part = r.byte()
	}
	if part != 'N' || op == 'D' {
		r.fault = fmt.Sprintf("a part %q", part)
		return m
	}
	m.after = r.tuple()
	return m
}

func (r *reader) tuple() []value {
	n := int(r.uint16())
	values := make([]value, 0, min(n, len(r.rest)))
	for range n {
		v := value{kind: r.byte()}
		switch v.kind {
		case 'n', 'u':
		case 't':
			v.text = r.bytes(int(r.uint32()))
		default: // 'b', binary, was not asked for
			r.fault = fmt.Sprintf("a column of kind %q", v.kind)
		}
		if r.short || r.fault != "" {
			break
		}
		values = append(values, v)
	}
	return values
}

// reader reads big-endian numbers and texts. After it was asked for more than there is, short is set and everything it returns is zero.
type reader struct {
	rest  []byte
	short bool
	fault string
}

func (r *reader) bytes(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.short, r.rest = true, nil
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) skip(n int) { r.bytes(n) }

func (r *reader) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint16() uint16 {
	if b := r.bytes(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// string reads up to the NUL that ends a text.
func (r *reader) string() []byte {
	for i, c := range r.rest {
		if c == 0 {
			s := r.rest[:i:i]
			r.rest = r.rest[i+1:]
			return s
		}
	}
	r.short, r.rest = true, nil
	return nil
}

// The frames around them, of the streaming replication protocol.
type (
	// dataFrame carries one message of pgoutput.
	dataFrame struct{ message []byte }
	// keepaliveFrame says how far the server has read its log. Whatever was committed before end and concerns us was sent before.
	keepaliveFrame struct {
		end    LSN
		answer bool // the server wants to hear from us at once
	}
)

// decodeFrame takes one CopyData apart. The error is a *malformedError.
func decodeFrame(data []byte) (any, error) {
	if len(data) == 0 {
		return nil, &malformedError{"an empty frame"}
	}
	r := &reader{rest: data[1:]}
	switch data[0] {
	case 'w':
		r.skip(8 + 8 + 8) // where it stands in the log, how far the log goes, the server's clock
		if !r.short {
			return dataFrame{r.rest}, nil
		}
	case 'k':
		f := keepaliveFrame{end: LSN(r.uint64())}
		r.skip(8)
		f.answer = r.byte() != 0
		if !r.short && len(r.rest) == 0 {
			return f, nil
		}
	default:
		return nil, &malformedError{fmt.Sprintf("a frame of the unknown type %q", data[0])}
	}
	return nil, &malformedError{fmt.Sprintf("a frame %q of %d bytes", data[0], len(data))}
}

// appendStatus appends a whole CopyData message that acknowledges everything before lsn. All three positions are given, since a zero one would
// count as acknowledged as well. The server answers with a keepalive.
func appendStatus(b []byte, lsn LSN, microseconds int64) []byte {
	const body = 1 + 3*8 + 8 + 1
	b = append(b, 'd')
	b = binary.BigEndian.AppendUint32(b, 4+body)
	b = append(b, 'r')
	for range 3 { // written, flushed, applied
		b = binary.BigEndian.AppendUint64(b, uint64(lsn))
	}
	b = binary.BigEndian.AppendUint64(b, uint64(microseconds)) // since 2000
	return append(b, 1)
}
