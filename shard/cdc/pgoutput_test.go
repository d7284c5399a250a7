package cdc

import (
	"encoding/binary"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringside/shard/keyspace"
)

// Messages as the server makes them.

func u16(n int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(n)) }
func u32(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
func u64(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func join(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch p := p.(type) {
		case byte:
			b = append(b, p)
		case rune:
			b = append(b, byte(p))
		case string:
			b = append(b, p...)
		case []byte:
			b = append(b, p...)
		}
	}
	return b
}

func begin(xid int) []byte  { return join('B', u64(1), u64(2), u32(xid)) }
func commit(end int) []byte { return join('C', byte(0), u64(1), u64(end), u64(3)) }

func describeTable(id int, schema, table string, columns ...string) []byte {
	b := join('R', u32(id), schema, byte(0), table, byte(0), 'd', u16(len(columns)))
	for _, c := range columns {
		b = join(b, byte(1), c, byte(0), u32(25), u32(-1))
	}
	return b
}

// tuple makes a row of texts; "\x00n" is NULL, "\x00u" not sent.
func tuple(values ...string) []byte {
	b := u16(len(values))
	for _, v := range values {
		if len(v) == 2 && v[0] == 0 {
			b = append(b, v[1])
			continue
		}
		b = join(b, 't', u32(len(v)), v)
	}
	return b
}

func insert(id int, values ...string) []byte { return join('I', u32(id), 'N', tuple(values...)) }
func remove(id int, values ...string) []byte { return join('D', u32(id), 'K', tuple(values...)) }
func emitted(transactional byte, prefix, content string) []byte {
	return join('M', transactional, u64(9), prefix, byte(0), u32(len(content)), content)
}

func TestDecodeMessage(t *testing.T) {
	text := func(s string) value { return value{'t', []byte(s)} }
	for _, c := range []struct {
		data []byte
		want any // nil: malformed
	}{
		{begin(7), beginMsg{7}},
		{commit(99), commitMsg{99}},
		{join('O', u64(1), "somebody", byte(0)), originMsg{[]byte("somebody")}},
		{join('Y', u32(1), "s", byte(0), "t", byte(0)), ignoredMsg{}},
		{describeTable(3, "public", "t", "a", "b"), relationMsg{3, []byte("public"), []byte("t"), [][]byte{[]byte("a"), []byte("b")}}},
		{describeTable(3, "", "t"), relationMsg{3, []byte("pg_catalog"), []byte("t"), nil}},
		{insert(3, "1", "\x00n", "\x00u"), rowMsg{op: 'I', relation: 3, after: []value{text("1"), {kind: 'n'}, {kind: 'u'}}}},
		{join('U', u32(3), 'N', tuple("1")), rowMsg{op: 'U', relation: 3, after: []value{text("1")}}},
		{join('U', u32(3), 'K', tuple("0"), 'N', tuple("1")), rowMsg{'U', 3, []value{text("0")}, []value{text("1")}}},
		{join('U', u32(3), 'O', tuple("0"), 'N', tuple("")), rowMsg{'U', 3, []value{text("0")}, []value{text("")}}},
		{remove(3, "1"), rowMsg{op: 'D', relation: 3, before: []value{text("1")}}},
		{join('T', u32(2), byte(1), u32(3), u32(4)), truncateMsg{[]uint32{3, 4}}},
		{emitted(1, "p", "content"), emittedMsg{true, []byte("p"), []byte("content")}},
		{emitted(0, "", ""), emittedMsg{false, []byte(""), []byte("")}},

		{nil, nil},
		{[]byte("Z"), nil},
		{begin(7)[:20], nil},
		{join(begin(7), byte(0)), nil},
		{join('O', u64(1), "without end"), nil},
		{join('T', u32(1<<31), byte(1), u32(3)), nil},
		{join('T', u32(2), byte(1), u32(3)), nil},
		{join('I', u32(3), 'K', tuple("1")), nil},
		{join('I', u32(3), 'N', u16(2), 't', u32(1), "1"), nil},
		{join('I', u32(3), 'N', u16(1), 't', u32(-1), "1"), nil},
		{join('I', u32(3), 'N', u16(1), 'b', u32(1), "1"), nil},
		{join('D', u32(3), 'N', tuple("1")), nil},
		{join('U', u32(3), 'K', tuple("1")), nil},
		{describeTable(3, "public", "t", "a", "b")[:30], nil},
	} {
		got, err := decodeMessage(c.data)
		if _, malformed := errors.AsType[*malformedError](err); malformed != (c.want == nil) || err != nil && !malformed {
			t.Errorf("%q: error %v", c.data, err)
		} else if err == nil && !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %#v, want %#v", c.data, got, c.want)
		}
	}
}

func TestDecodeFrame(t *testing.T) {
	for _, c := range []struct {
		data []byte
		want any
	}{
		{join('w', u64(1), u64(2), u64(3), "message"), dataFrame{[]byte("message")}},
		{join('w', u64(1), u64(2), u64(3)), dataFrame{[]byte{}}},
		{join('k', u64(77), u64(3), byte(1)), keepaliveFrame{77, true}},
		{join('k', u64(77), u64(3), byte(0)), keepaliveFrame{77, false}},
		{nil, nil},
		{join('k', u64(77), u64(3)), nil},
		{join('k', u64(77), u64(3), byte(0), byte(0)), nil},
		{join('w', u64(1), u64(2)), nil},
		{[]byte("x"), nil},
	} {
		got, err := decodeFrame(c.data)
		if (err != nil) != (c.want == nil) || err == nil && !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %#v, %v, want %#v", c.data, got, err, c.want)
		}
	}
	want := join('d', u32(4+34), 'r', u64(5), u64(5), u64(5), u64(8), byte(1))
	if got := appendStatus(nil, 5, 8); !slices.Equal(got, want) {
		t.Errorf("status %q, want %q", got, want)
	}
}

func TestLSN(t *testing.T) {
	for _, text := range []string{"0/0", "1/ABCDEF01", "FFFFFFFF/FFFFFFFF"} {
		lsn, err := parseLSN(text)
		if err != nil || lsn.String() != text {
			t.Errorf("%s: %s, %v", text, lsn, err)
		}
	}
	if _, err := parseLSN("nonsense"); err == nil {
		t.Error("nonsense is a position")
	}
}

func testCounters() *counters {
	return newMetrics(prometheus.NewRegistry(), func() []State { return nil }).forShard("s1")
}

func newTestAssembler(t testing.TB, pieceKeys int) (*assembler, *keyspace.Keyspace) {
	ks := compile(t, keyspace.Spec{Name: "order", Pattern: "order:{tenant}:{id:int}", Table: "orders", ShardBy: "tenant"})
	c := coverage{byName: map[tableName][]*keyspace.Keyspace{{"public", "orders"}: {ks}}, byOID: map[uint32][]*keyspace.Keyspace{5: {ks}}}
	return newAssembler(c, pieceKeys, "token:", testCounters()), ks
}

// I4, and what becomes of each message: the items, written as xid[keys]flushes@lsn#beat.
func TestAssemble(t *testing.T) {
	orders := describeTable(3, "public", "orders", "id", "tenant")
	for _, c := range []struct {
		name     string
		messages [][]byte
		want     []item // keys by their text only
		keys     [][]string
		broken   bool
	}{
		{"a row", [][]byte{begin(7), orders, insert(3, "1", "a"), commit(50)}, []item{{xid: 7, gated: true, lsn: 50}}, [][]string{{"order:a:1"}}, false},
		{"the same row again and again", [][]byte{begin(7), orders, insert(3, "1", "a"), insert(3, "1", "a"), remove(3, "1", "a"), commit(50)},
			[]item{{xid: 7, gated: true, lsn: 50}}, [][]string{{"order:a:1"}}, false},
		{"nothing of ours", [][]byte{begin(7), describeTable(4, "public", "other", "id"), insert(4, "1"), commit(50)}, []item{{xid: 7, lsn: 50}}, [][]string{nil}, false},
		{"another schema", [][]byte{begin(7), describeTable(4, "old", "orders", "id", "tenant"), insert(4, "1", "a"), commit(50)}, []item{{xid: 7, lsn: 50}}, [][]string{nil}, false},
		{"the table under a passing name", [][]byte{begin(7), describeTable(5, "public", "orders_", "id", "tenant"), insert(5, "1", "a"), commit(50)},
			[]item{{xid: 7, gated: true, lsn: 50}}, [][]string{{"order:a:1"}}, false},
		{"too few columns published", [][]byte{begin(7), describeTable(3, "public", "orders", "id"), insert(3, "1"), commit(50)}, []item{{xid: 7, lsn: 50}}, [][]string{nil}, false},
		{"a table altered in between", [][]byte{begin(7), orders, insert(3, "1", "a"), describeTable(3, "public", "orders", "tenant", "id"), insert(3, "b", "2"), commit(50)},
			[]item{{xid: 7, gated: true, lsn: 50}}, [][]string{{"order:a:1", "order:b:2"}}, false},
		{"pieces", [][]byte{begin(7), orders, insert(3, "1", "a"), insert(3, "2", "a"), insert(3, "3", "a"), insert(3, "4", "a"), insert(3, "5", "a"), commit(50)},
			[]item{{xid: 7, gated: true}, {xid: 7, gated: true, lsn: 50}}, [][]string{{"order:a:1", "order:a:2", "order:a:3"}, {"order:a:4", "order:a:5"}}, false},
		{"an unchanged value is that of the row before", [][]byte{begin(7), orders, join('U', u32(3), 'K', tuple("1", "a"), 'N', tuple("2", "\x00u")), commit(50)},
			[]item{{xid: 7, gated: true, lsn: 50}}, [][]string{{"order:a:1", "order:a:2"}}, false},
		{"NULL", [][]byte{begin(7), orders, insert(3, "1", "\x00n"), commit(50)}, []item{{xid: 7, lsn: 50}}, [][]string{nil}, false},
		{"the mover's, by origin", [][]byte{begin(7), join('O', u64(1), MoverOrigin, byte(0)), orders, insert(3, "1", "a"), commit(50)}, []item{{xid: 7, lsn: 50}}, [][]string{nil}, false},
		{"the mover's, by a message", [][]byte{begin(7), emitted(1, MoverOrigin, ""), orders, insert(3, "1", "a"), join('T', u32(1), byte(0), u32(3)), commit(50)},
			[]item{{xid: 7, lsn: 50}}, [][]string{nil}, false},
		{"another's origin", [][]byte{begin(7), join('O', u64(1), "pg_1", byte(0)), orders, insert(3, "1", "a"), commit(50)}, []item{{xid: 7, gated: true, lsn: 50}}, [][]string{{"order:a:1"}}, false},
		{"the next one is not the mover's", [][]byte{begin(7), emitted(1, MoverOrigin, ""), commit(50), begin(8), orders, insert(3, "1", "a"), commit(60)},
			[]item{{xid: 7, lsn: 50}, {xid: 8, gated: true, lsn: 60}}, [][]string{nil, {"order:a:1"}}, false},
		{"a heartbeat", [][]byte{begin(7), emitted(1, heartbeatPrefix, "token:12"), commit(50)}, []item{{xid: 7, lsn: 50, beat: 12}}, [][]string{nil}, false},
		{"somebody else's heartbeat", [][]byte{begin(7), emitted(1, heartbeatPrefix, "other:12"), commit(50), emitted(0, heartbeatPrefix, "token:13")}, []item{{xid: 7, lsn: 50}}, [][]string{nil}, false},

		{"a row outside of a transaction", [][]byte{orders, insert(3, "1", "a")}, nil, nil, true},
		{"a commit without a begin", [][]byte{commit(50)}, nil, nil, true},
		{"a begin within a transaction", [][]byte{begin(7), begin(8)}, nil, nil, true},
		{"a row of a table that was not described", [][]byte{begin(7), insert(9, "1")}, nil, nil, true},
		{"a row that is too short", [][]byte{begin(7), orders, insert(3, "1")}, nil, nil, true},
	} {
		a, _ := newTestAssembler(t, 3)
		var items []item
		var keys [][]string
		var failed error
		for _, data := range c.messages {
			m, err := decodeMessage(data)
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			it, ok, err := a.message(m)
			if err != nil {
				failed = err
				break
			}
			if ok {
				var texts []string
				for _, k := range it.keys {
					texts = append(texts, string(k.Text))
				}
				keys = append(keys, texts)
				it.keys = nil
				items = append(items, it)
			}
		}
		if (failed != nil) != c.broken || !reflect.DeepEqual(items, c.want) || !reflect.DeepEqual(keys, c.keys) {
			t.Errorf("%s: %+v %q, error %v; want %+v %q", c.name, items, keys, failed, c.want, c.keys)
		}
	}
}

func TestAssembleTruncateAndKeepalive(t *testing.T) {
	a, ks := newTestAssembler(t, 3)
	take := func(data []byte) (item, bool) {
		t.Helper()
		m, err := decodeMessage(data)
		if err != nil {
			t.Fatal(err)
		}
		it, ok, err := a.message(m)
		if err != nil {
			t.Fatal(err)
		}
		return it, ok
	}
	if it, ok := a.keepalive(40); !ok || it.lsn != 40 {
		t.Errorf("an idle position: %+v, %v", it, ok)
	}
	if _, ok := a.keepalive(40); ok {
		t.Error("the same position again")
	}
	take(begin(7))
	if _, ok := a.keepalive(45); ok {
		t.Error("a position in the middle of a transaction")
	}
	take(describeTable(3, "public", "orders", "id", "tenant"))
	take(join('T', u32(2), byte(0), u32(3), u32(9)))
	// What the server did not send although the key needs it is not skipped either.
	take(join('U', u32(3), 'N', tuple("2", "\x00u")))
	if it, _ := take(commit(50)); !it.gated || it.lsn != 50 || !slices.Equal(it.flush, []*keyspace.Keyspace{ks}) {
		t.Errorf("after TRUNCATE %+v", it)
	}
}

// I4: whatever comes is taken in or refused, and what is taken in can be named.
func FuzzStream(f *testing.F) {
	orders := describeTable(3, "public", "orders", "id", "tenant")
	for _, m := range [][]byte{begin(7), orders, insert(3, "1", "a"), remove(3, "1", "a"), commit(9), emitted(1, "ringside", "token:1"), join('T', u32(1), byte(0), u32(3))} {
		f.Add(m, m)
		f.Add(begin(1), join('w', u64(1), u64(2), u64(3), m))
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		a, _ := newTestAssembler(t, 2)
		for _, data := range [][]byte{begin(1), orders, first, second, insert(3, "1", "a"), commit(9)} {
			_, _ = decodeFrame(data) // it must not panic, that is all
			m, err := decodeMessage(data)
			if err != nil {
				if _, malformed := errors.AsType[*malformedError](err); !malformed {
					t.Fatalf("%q: %v", data, err)
				}
				return
			}
			it, _, err := a.message(m)
			if err != nil {
				return
			}
			for _, k := range it.keys {
				if len(k.Text) > keyspace.MaxKeyLen || len(k.ShardKey) == 0 {
					t.Fatalf("%q: key %q, shard key %q", data, k.Text, k.ShardKey)
				}
			}
		}
	})
}

// BenchmarkAssemble is one changed row, from the frame to its key.
func BenchmarkAssemble(b *testing.B) {
	a, _ := newTestAssembler(b, 500)
	frames := [][]byte{begin(7), describeTable(3, "public", "orders", "id", "tenant")}
	for i := range 500 {
		frames = append(frames, insert(3, time.Duration(i).String()[:1], "tenant"))
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, data := range frames {
			m, err := decodeMessage(data)
			if err != nil {
				b.Fatal(err)
			}
			if _, _, err := a.message(m); err != nil {
				b.Fatal(err)
			}
		}
		m, _ := decodeMessage(commit(9))
		if _, _, err := a.message(m); err != nil {
			b.Fatal(err)
		}
	}
}
