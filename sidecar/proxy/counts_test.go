package proxy

import (
	"testing"

	"ringside/cache"
)

// TestCounts is what the history of a sidecar is made of.
func TestCounts(t *testing.T) {
	b := start(t, 1, nil)
	b.put("user:1", `{"id":1}`, cache.KindValue)
	w := b.dial()
	before := b.server.Counts()
	w.want("GET user:1", "$8\r\n{\"id\":1}\r\n") // a hit
	w.want("GET user:2", "$-1\r\n")              // a miss
	w.want("SET plain x", "+OK\r\n")
	w.want("GET user:042", "-BADKEY key \"user:042\" of keyspace user: field id is \"042\": write 42\r\n") // the sidecar's own
	w.want("LPUSH plain y", "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n")      // the cache server's
	now := b.server.Counts()
	got := Counts{now.Requests - before.Requests, now.Errors - before.Errors, now.RowHits - before.RowHits, now.RowMisses - before.RowMisses}
	if want := (Counts{Requests: 5, Errors: 2, RowHits: 1, RowMisses: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
