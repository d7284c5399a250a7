package cdc

import (
	"bytes"
	"slices"

	"ringside/shard/keyspace"
)

// tableName is a table as the shard itself calls it.
type tableName struct{ schema, name string }

// item is one step of the change stream, in the order of commits: a piece of a transaction, or a position that was reached.
type item struct {
	xid   uint32
	gated bool // may be handed out only when the transaction is visible
	keys  []Key
	flush []*keyspace.Keyspace // of which every entry must go
	lsn   LSN                  // when this and all before it are done, everything before lsn may be acknowledged; 0: says nothing
	beat  uint64               // the number of a heartbeat that came by; 0: none
}

// assembler makes items of the messages of one connection. Large transactions come in pieces, which begin to be handed out while the rest
// is still being read: all that is ever sent has been committed. It is pure but for its counters.
type assembler struct {
	coverage  coverage
	pieceKeys int
	token     []byte // begins the content of our own heartbeats
	counts    *counters

	relations map[uint32][]binding

	open   bool // within a transaction
	xid    uint32
	moved  bool // the transaction is the mover's
	keys   []Key
	seen   map[string]struct{} // the texts of keys
	flush  []*keyspace.Keyspace
	beat   uint64
	last   LSN      // the last position that was told of
	values [][]byte // scratch
	text   []byte   // scratch
}

// binding is one keyspace on one table: where its fields are in what is sent of a row.
type binding struct {
	keyspace *keyspace.Keyspace
	fields   []int // nil: not all of its fields are sent
	shardBy  int   // index into fields
}

func newAssembler(c coverage, pieceKeys int, token string, counts *counters) *assembler {
	return &assembler{
		coverage: c, pieceKeys: pieceKeys, token: []byte(token), counts: counts,
		relations: map[uint32][]binding{}, seen: map[string]struct{}{},
	}
}

// keepalive takes in how far the server has read its log. In the middle of a transaction that says nothing.
func (a *assembler) keepalive(end LSN) (item, bool) {
	if a.open || end <= a.last {
		return item{}, false
	}
	a.last = end
	return item{lsn: end}, true
}

// message takes in one decoded message. The item, if there is one, must be queued before the next call. The error is a *malformedError.
func (a *assembler) message(m any) (item, bool, error) {
	if _, begins := m.(beginMsg); begins == a.open {
		switch m.(type) {
		case relationMsg, ignoredMsg, emittedMsg: // may stand outside of transactions
		default:
			return item{}, false, &malformedError{"a message that is out of place"}
		}
	}
	switch m := m.(type) {
	case beginMsg:
		a.open, a.xid, a.moved = true, m.xid, false
	case originMsg:
		a.moved = string(m.name) == MoverOrigin
	case emittedMsg:
		a.emitted(m)
	case relationMsg:
		a.relations[m.id] = a.bind(m)
	case rowMsg:
		if err := a.row(m); err != nil {
			return item{}, false, err
		}
		if len(a.keys) >= a.pieceKeys {
			return a.cut(), true, nil
		}
	case truncateMsg:
		a.counts.truncates.Inc()
		for _, id := range m.relations {
			for _, b := range a.relations[id] {
				a.flushAll(b.keyspace)
			}
		}
	case commitMsg:
		it := a.cut()
		it.lsn, it.beat = m.end, a.beat
		a.open, a.beat, a.last = false, 0, max(a.last, m.end)
		return it, true, nil
	}
	return item{}, false, nil
}

func (a *assembler) emitted(m emittedMsg) {
	if !a.open || !m.transactional {
		return
	}
	switch string(m.prefix) {
	case MoverOrigin:
		a.moved = true
	case heartbeatPrefix:
		if number, ours := bytes.CutPrefix(m.content, a.token); ours {
			a.beat = parseBeat(number)
		}
	}
}

// cut takes what has been gathered of the transaction so far.
func (a *assembler) cut() item {
	it := item{xid: a.xid, keys: a.keys, flush: a.flush, gated: len(a.keys)+len(a.flush) > 0}
	a.keys, a.flush = nil, nil
	clear(a.seen)
	return it
}

func (a *assembler) bind(m relationMsg) []binding {
	var bindings []binding
	for _, ks := range a.coverage.of(m.id, tableName{string(m.schema), string(m.table)}) {
		b := binding{keyspace: ks}
		for i, f := range ks.Fields {
			at := slices.IndexFunc(m.columns, func(c []byte) bool { return string(c) == f.Name })
			if at < 0 {
				b.fields = nil
				break
			}
			b.fields = append(b.fields, at)
			if f.Name == ks.ShardBy {
				b.shardBy = i
			}
		}
		bindings = append(bindings, b)
	}
	return bindings
}

func (a *assembler) row(m rowMsg) error {
	bindings, known := a.relations[m.relation]
	if !known {
		return &malformedError{"a row of a table that was not described"}
	}
	if a.moved {
		a.counts.moved.Inc()
		return nil
	}
	a.counts.row(m.op)
	for _, b := range bindings {
		if b.fields == nil {
			a.counts.unnamed.Inc()
			continue
		}
		if m.before != nil {
			if err := a.add(b, m.before, nil); err != nil {
				return err
			}
		}
		if m.after != nil {
			if err := a.add(b, m.after, m.before); err != nil {
				return err
			}
		}
	}
	return nil
}

// add adds the row's key, unless no key names the row. What was not sent of the row because it has not changed is that of the row before.
func (a *assembler) add(b binding, row, before []value) error {
	a.values = a.values[:0]
	for _, at := range b.fields {
		if at >= len(row) {
			return &malformedError{"a row with fewer columns than its table"}
		}
		v := row[at]
		if v.kind == 'u' && at < len(before) {
			v = before[at]
		}
		switch v.kind {
		case 'u': // the server logs an identity that is stored out of line, so this is not expected; nothing may be missed
			a.flushAll(b.keyspace)
			return nil
		case 'n':
			a.counts.unnamed.Inc()
			return nil
		}
		a.values = append(a.values, v.text)
	}
	var ok bool
	if a.text, ok = b.keyspace.AppendKey(a.text[:0], a.values); !ok {
		a.counts.unnamed.Inc()
		return nil
	}
	if _, twice := a.seen[string(a.text)]; twice {
		return nil
	}
	shardKey := a.values[b.shardBy]
	own := make([]byte, 0, len(a.text)+len(shardKey))
	own = append(append(own, a.text...), shardKey...)
	n := len(a.text)
	a.keys = append(a.keys, Key{Keyspace: b.keyspace, Text: own[:n:n], ShardKey: own[n:]})
	a.seen[string(a.text)] = struct{}{}
	return nil
}

func (a *assembler) flushAll(ks *keyspace.Keyspace) {
	if !a.moved && !slices.Contains(a.flush, ks) {
		a.flush = append(a.flush, ks)
	}
}
