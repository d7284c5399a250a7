package proxy

import (
	"fmt"
	"strings"
	"testing"

	"ringside/resp"
)

// Rows that are missed at the same time are read together, and one whose shard is slow keeps no other waiting.
func TestMissesOfATurnAreReadTogether(t *testing.T) {
	b := start(t, 2, nil)
	released := make(chan struct{})
	b.rows.mu.Lock()
	b.rows.read = func(key string) *Row {
		if key == "user:50" {
			<-released
		}
		return &Row{Found: true, Body: []byte(`"` + key + `"`)}
	}
	b.rows.mu.Unlock()
	w := b.dial()
	const n = 50
	var pipeline strings.Builder
	for i := range n {
		pipeline.Write(resp.AppendCommandString(nil, "GET", fmt.Sprintf("user:%d", 1+i)))
	}
	w.write(pipeline.String())
	for i := range n - 1 {
		if got, want := w.reply(), bulk(fmt.Sprintf(`"user:%d"`, 1+i)); got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	}
	close(released)
	if got, want := w.reply(), bulk(`"user:50"`); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	b.rows.mu.Lock()
	defer b.rows.mu.Unlock()
	if b.rows.reads != n || b.rows.calls > n/3 {
		t.Errorf("%d rows were read by %d calls", b.rows.reads, b.rows.calls)
	}
	eventually(t, "none is under way", func() bool { return b.server.rowOps.Load() == 0 })
}
