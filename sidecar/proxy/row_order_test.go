package proxy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/resp"
	"ringside/shard/keyspace"
)

// Commands of one connection on one row take effect in their order, as in Redis, also when the cache does not have the row and the shard is
// slow to read it: a read that was sent before a write does not see it, and one that was sent after it does.
func TestARowsCommandsKeepTheirOrder(t *testing.T) {
	b := start(t, 2, nil)
	const before, after = `{"name":"before"}`, `{"name":"after"}`
	b.rows.mu.Lock()
	b.rows.read = func(key string) *Row {
		if strings.HasPrefix(key, "user:1") { // it takes what is there in the end
			time.Sleep(3 * time.Millisecond)
		}
		b.rows.mu.Lock()
		defer b.rows.mu.Unlock()
		body, found := b.rows.rows[key]
		return &Row{Found: found, Body: []byte(body)}
	}
	b.rows.write = func(op keyspace.Op) (keyspace.Outcome, error) {
		b.rows.mu.Lock()
		defer b.rows.mu.Unlock()
		if _, found := b.rows.rows[string(op.Key.Text)]; op.Kind == keyspace.Delete {
			delete(b.rows.rows, string(op.Key.Text))
			return keyspace.Outcome{Applied: found}, nil
		}
		b.rows.rows[string(op.Key.Text)] = after
		return keyspace.Outcome{Applied: true, Value: 1}, nil
	}
	b.rows.mu.Unlock()
	var many []string
	for i := range 20 {
		many = append(many, fmt.Sprintf("user:%d", 100+i))
	}
	nulls := strings.Repeat("$-1\r\n", 20)
	reads := []struct{ command, before, after, gone string }{
		{"GET user:1", bulk(before), bulk(after), "$-1\r\n"},
		{"HGET user:1 name", bulk("before"), bulk("after"), "$-1\r\n"},
		{"HGETALL user:1", "*2\r\n" + bulk("name") + bulk("before"), "*2\r\n" + bulk("name") + bulk("after"), "*0\r\n"},
		{"STRLEN user:1", ":17\r\n", ":16\r\n", ":0\r\n"},
		{"EXISTS user:1", ":1\r\n", ":1\r\n", ":0\r\n"},
		{"EXISTS user:1 a user:1", ":2\r\n", ":2\r\n", ":0\r\n"},
		{"MGET a user:1", "*2\r\n$-1\r\n" + bulk(before), "*2\r\n$-1\r\n" + bulk(after), "*2\r\n$-1\r\n$-1\r\n"},
		{"MGET user:1 " + strings.Join(many, " "), "*21\r\n" + bulk(before) + nulls, "*21\r\n" + bulk(after) + nulls, "*21\r\n$-1\r\n" + nulls},
	}
	writes := []struct {
		command, reply string
		removes        bool
	}{
		{`SET user:1 {"name":"after"}`, "+OK\r\n", false},
		{"HSET user:1 name after", ":0\r\n", false},
		{"HINCRBY user:1 n 1", ":1\r\n", false},
		{"DEL user:1", ":1\r\n", true},
		{"UNLINK b user:1 user:2 c", ":1\r\n", true},
	}
	w := b.dial()
	for _, r := range reads {
		for _, write := range writes {
			b.rows.set("user:1", before)
			then := r.after
			if write.removes {
				then = r.gone
			}
			// Others between them neither wait nor are waited for.
			w.send("PING", r.command, "GET x", write.command, "GET user:3", r.command, "PING")
			got := []string{w.reply(), w.reply(), w.reply(), w.reply(), w.reply(), w.reply(), w.reply()}
			want := []string{"+PONG\r\n", r.before, "$-1\r\n", write.reply, "$-1\r\n", then, "+PONG\r\n"}
			if !slices.Equal(got, want) {
				t.Errorf("%.60s, %s:\n got %q\nwant %q", r.command, write.command, got, want)
			}
		}
	}
	// A read by another connection is not waited for.
	released := make(chan struct{})
	b.rows.mu.Lock()
	b.rows.read = func(string) *Row { <-released; return &Row{} }
	b.rows.mu.Unlock()
	reader := b.dial()
	reader.write(string(resp.AppendCommandString(nil, "GET", "user:1")))
	eventually(t, "the read is under way", func() bool { return b.server.rowOps.Load() == 1 })
	w.want("DEL user:1", ":0\r\n")
	close(released)
	if got := reader.reply(); got != "$-1\r\n" {
		t.Errorf("%q", got)
	}
}
