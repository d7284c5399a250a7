package proxy

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/resp"
)

// FuzzSplit makes a program of commands on several keys from its input, sends it as one pipeline, cut in pieces, through a proxy before three real
// servers, and compares with a map. Keys come several times in one command and lie on all servers; among them are rows that are there, are
// not, cannot be asked for or are badly written, and names that are refused.
func FuzzSplit(f *testing.F) {
	b := start(f, 3, nil)
	var direct []*wire
	for _, c := range b.caches {
		direct = append(direct, dial(f, c.Addr()))
	}
	b.rows.mu.Lock()
	b.rows.read = func(key string) *Row {
		if key == "user:9" {
			return &Row{Err: resp.Refusal("SHARDDOWN s1: made up")}
		}
		return nil
	}
	b.rows.mu.Unlock()
	w := b.dial()
	mset, mget, del := byte(3), byte(2), byte(4)
	for _, seed := range [][]byte{
		{mset, 6, 0, 1, 2, 3, 4, 5, mget, 7, 0, 1, 2, 3, 4, 5, 6, del, 8, 0, 0, 1, 1, 2, 3, 4, 5},
		{mset, 4, 0, 0, 1, 0, mget, 3, 0, 16, 17, mget, 2, 16, 16, del, 5, 19, 0, 20, 20, 21, mget, 2, 18, 0, mget, 2, 22, 0, mset, 2, 16, 0, mset, 1, 23, mget, 2, 24, 0},
		{1, 16, mget, 2, 16, 17, 4, 2, 16, 20, 5, 3, 16, 20, 21, 1, 20, 0, 20, 0, 16},
		{1, 0, 1, 1, 1, 2, 0, 0, 0, 9, 5, 3, 0, 9, 0, 6, 4, 9, 9, 0, 0, 7, 2, 0, 1, 8, 9, mget | inline, 4, 0, 1, 2, 3, mset | inline, 2, 4, 5, 0, 17},
		slices.Concat([]byte{mset, 40}, make([]byte, 40), []byte{mget, 40}, make([]byte, 40)),
	} {
		f.Add(seed, []byte{}, false)
		f.Add(seed, []byte{0, 0, 1, 200, 7, 3, 90}, true)
	}
	f.Fuzz(func(t *testing.T, program, cuts []byte, resp3 bool) {
		w.t = t
		for _, d := range direct {
			d.t = t
			d.want("FLUSHALL", "+OK\r\n")
		}
		m := &model{plain: map[string]string{}, rows: map[string]string{}, proto: 2}
		for _, id := range []string{"1", "2", "5", "6"} {
			m.rows["user:"+id] = `{"id":` + id + "}"
		}
		b.rows.mu.Lock()
		b.rows.rows = maps.Clone(m.rows)
		b.rows.mu.Unlock()
		if resp3 {
			m.proto = 3
		}
		w.want("RESET", "+RESET\r\n")
		w.do(fmt.Sprintf("HELLO %d", m.proto))
		m.run(program)
		writePieces(t, w.conn, m.out, cuts)
		for i, want := range m.want {
			got := w.reply()
			if got == want || want[0] == '-' && strings.HasPrefix(got, want+" ") {
				continue
			}
			t.Fatalf("command %d of\n%q\n got %q\nwant %q", i, m.out, got, want)
		}
		for key, value := range m.plain { // what was said is what is there
			w.write(string(resp.AppendCommandString(nil, "GET", key)))
			if got := w.reply(); got != bulk(value) {
				t.Fatalf("%q is %q after\n%q\nwant %q", key, got, m.out, value)
			}
		}
		b.rows.mu.Lock()
		defer b.rows.mu.Unlock()
		if !maps.Equal(b.rows.rows, m.rows) {
			t.Fatalf("the rows are %q, want %q", b.rows.rows, m.rows)
		}
	})
}

func writePieces(t *testing.T, c net.Conn, out, cuts []byte) {
	const mostCuts = 12
	if err := c.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for _, n := range append(slices.Clone(cuts[:min(len(cuts), mostCuts)]), 0) {
		at := len(out)
		if n > 0 {
			at = min(int(n), len(out))
		}
		if _, err := c.Write(out[:at]); err != nil {
			t.Fatal(err)
		}
		out = out[at:]
		time.Sleep(100 * time.Microsecond) // else the kernel may put the pieces together
	}
}

// inline in an operation asks for an inline command.
const inline = 0x80

// pool is where the keys come from: plain ones on all three servers, rows, and names that are refused. user:9 can be written but not read.
var pool = []string{
	"a", "b", "c", "{t}d", "{t}e", "f", "g", "hh", "iii", "jjjj", "k:1", "user", "user:x", "", "\r\n\x00\xff", "long" + strings.Repeat("-", 600),
	"user:1", "user:2", "user:9", "user:404", "user:5", "user:6",
	"user:01", "user:", "rs:1",
}
