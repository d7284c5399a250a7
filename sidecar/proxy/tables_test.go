package proxy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ringside/cache"
	"ringside/resp"
	"ringside/shard"
	"ringside/shard/keyspace"
)

func TestErrorReplies(t *testing.T) {
	whole, _ := rowsOf(t)
	cause := errors.New("connection refused")
	wrap := func(err error) error { return fmt.Errorf("reading: %w", err) }
	for _, c := range []struct {
		err  error
		code code
		text string
	}{
		{resp.Refusal("WRONGTYPE no"), "WRONGTYPE", "WRONGTYPE no"},
		{resp.Refusal("ODD"), "ODD", "ODD"},
		{wrap(resp.Refusal("ERR x")), codeErr, "ERR x"},
		{&keyspace.BadKeyError{Key: "user:01", Keyspace: whole, Reason: "write user:1"}, codeBadKey, ""},
		{&shard.BadRowError{Column: "c", Reason: "is wrong"}, codeBadRow, `BADROW column "c": is wrong`},
		{shard.ErrOverloaded, codeOverloaded, ""},
		{wrap(errManyRequests), codeOverloaded, ""},
		{errManyRowOps, codeOverloaded, ""},
		{&CacheDownError{Server: "c1", Err: cause}, codeCacheDown, "CACHEDOWN c1 connection refused"},
		{wrap(&CacheDownError{Server: "c1", Err: cause}), codeCacheDown, "CACHEDOWN c1 connection refused"},
		{&WrittenError{Err: &CacheDownError{Server: "c1", Err: cause}}, codeCacheDown,
			"CACHEDOWN c1 the write may have been made but could not be acknowledged; read the row before you repeat it: connection refused"},
		{&shard.DownError{Shard: "s1", Err: cause}, codeShardDown, "SHARDDOWN s1 connection refused"},
		{wrap(&WrittenError{Err: &shard.DownError{Shard: "s1", Err: cause}}), codeShardDown,
			"SHARDDOWN s1 the write may have been made but could not be acknowledged; read the row before you repeat it: connection refused"},
		// What tells clients to repeat the command is never said of a write that may have been made, whatever it failed of afterwards.
		{wrap(&WrittenError{Err: context.DeadlineExceeded}), codeErr,
			"ERR the write may have been made but could not be acknowledged; read the row before you repeat it: context deadline exceeded"},
		{&WrittenError{Err: wrap(shard.ErrOverloaded)}, codeErr, ""},
		{&WrittenError{Err: wrap(&shard.StaleViewError{Shard: "s1"})}, codeErr, ""},
		{&WrittenError{Err: shard.ErrNotOwner}, codeErr, ""},
		{&WrittenError{Err: &CacheDownError{Server: "c1", Err: cache.ErrBusy}}, codeCacheDown, ""},
		{shard.ErrFrozen, codeTryAgain, ""},
		{&shard.StaleViewError{Shard: "s1"}, codeTryAgain, ""},
		{wrap(shard.ErrNotOwner), codeTryAgain, ""},
		{wrap(context.DeadlineExceeded), codeOverloaded, "OVERLOADED the request waited too long"},
		{&CacheDownError{Server: "c1", Err: context.DeadlineExceeded}, codeCacheDown, "CACHEDOWN c1 context deadline exceeded"},
		{cause, codeErr, "ERR connection refused"},
		{errNoTopology, codeErr, "ERR the sidecar has no topology yet"},
	} {
		code, text := errorReply(c.err)
		if code != c.code || c.text != "" && text != c.text || !strings.HasPrefix(text, string(c.code)) {
			t.Errorf("%v: %s %q, want %s %q", c.err, code, text, c.code, c.text)
		}
		if _, written := errors.AsType[*WrittenError](c.err); written && !strings.Contains(text, "may have been made") {
			t.Errorf("%v: %q does not warn", c.err, text)
		}
	}
}

// rowsOf returns two keyspaces: of whole rows and of one column.
func rowsOf(t *testing.T) (whole, column *keyspace.Keyspace) {
	t.Helper()
	var key keyspace.Key
	find := func(text string) *keyspace.Keyspace {
		w := newWorkerForTest(t)
		if _, err := w.server.keyspaces.Match(w.hasher, []byte(text), &key); err != nil {
			t.Fatal(err)
		}
		return key.Keyspace
	}
	return find("user:1"), find("title:1")
}

func TestSetOp(t *testing.T) {
	whole, column := rowsOf(t)
	for _, c := range []struct {
		ks      *keyspace.Keyspace
		args    string
		kind    keyspace.OpKind
		columns int
		err     error // nil with columns -1: any error
	}{
		{whole, `SET user:1 '{"a":1,"b":"x"}'`, keyspace.Upsert, 2, nil},
		{whole, `SET user:1 '{}'`, keyspace.Upsert, 0, nil},
		{whole, `SET user:1 '{"a":1}' NX`, keyspace.Insert, 1, nil},
		{whole, `SET user:1 '{"a":1}' nx nx`, keyspace.Insert, 1, nil},
		{whole, `SET user:1 '{"a":1}' xX`, keyspace.Update, 1, nil},
		{whole, `SET user:1 '{"a":1}' XX NX`, 0, 0, errSyntax},
		{whole, `SET user:1 '{"a":1}' NX XX`, 0, 0, errSyntax},
		{whole, `SET user:1 '{"a":1}' NOSUCH`, 0, 0, errSyntax},
		{whole, `SET user:1 '{"a":1}' GET`, 0, 0, errSetGet},
		{whole, `SET user:1 '{"a":1}' EX 5`, 0, 0, errExpiry},
		{whole, `SET user:1 '{"a":1}' NX px 5`, 0, 0, errExpiry},
		{whole, `SET user:1 '{"a":1}' EXAT 5`, 0, 0, errExpiry},
		{whole, `SET user:1 '{"a":1}' PXAT 5`, 0, 0, errExpiry},
		{whole, `SET user:1 '{"a":1}' KEEPTTL`, 0, 0, errExpiry},
		{whole, `SET user:1 '{"a":1'`, 0, -1, nil},
		{whole, `SET user:1 7`, 0, -1, nil},
		{whole, `SET user:1 '{"a":1,"a":2}'`, 0, -1, nil},
		{column, `SET title:1 'any text {'`, keyspace.Upsert, 1, nil},
		{column, `SET title:1 '' NX`, keyspace.Insert, 1, nil},
		{column, "SET title:1 '\xff'", 0, -1, nil},
	} {
		var args [][]byte
		for _, a := range words(c.args) {
			args = append(args, []byte(a))
		}
		op, err := setOp(c.ks, args)
		switch {
		case c.columns < 0:
			if err == nil {
				t.Errorf("%s: no error", c.args)
			}
		case c.err != nil:
			if err != c.err {
				t.Errorf("%s: error %v, want %v", c.args, err, c.err)
			}
		case err != nil || op.Kind != c.kind || len(op.Columns) != c.columns:
			t.Errorf("%s: %+v %v", c.args, op, err)
		}
	}
}

func TestRenderRow(t *testing.T) {
	whole, column := rowsOf(t)
	row := []byte(`{"id":7,"name":"A\nB","none":null,"big":12345678901234567890,"list":[1,"x"],"yes":true}`)
	fields := func(names ...string) (out [][]byte) {
		for _, n := range names {
			out = append(out, []byte(n))
		}
		return out
	}
	for _, c := range []struct {
		what         string
		read         rowRead
		ks           *keyspace.Keyspace
		fields       [][]byte
		body         []byte // nil: not found
		resp2, resp3 string
	}{
		{"GET", readGet, whole, nil, row, bulk(string(row)), bulk(string(row))},
		{"GET", readGet, whole, nil, nil, "$-1\r\n", "_\r\n"},
		{"GET", readGet, column, nil, row, bulk("A\nB"), bulk("A\nB")},
		{"GET of a NULL", readGet, column, nil, []byte(`{"name":null}`), "$-1\r\n", "_\r\n"},
		{"STRLEN", readStrlen, column, nil, row, ":3\r\n", ":3\r\n"},
		{"STRLEN", readStrlen, whole, nil, nil, ":0\r\n", ":0\r\n"},
		{"EXISTS", readExists, whole, nil, row, ":1\r\n", ":1\r\n"},
		{"EXISTS", readExists, whole, nil, nil, ":0\r\n", ":0\r\n"},
		{"TYPE", readType, whole, nil, row, "+string\r\n", "+string\r\n"},
		{"TYPE", readType, whole, nil, nil, "+none\r\n", "+none\r\n"},
		{"HGET", readHGet, whole, fields("big"), row, bulk("12345678901234567890"), bulk("12345678901234567890")},
		{"HGET", readHGet, whole, fields("none"), row, "$-1\r\n", "_\r\n"},
		{"HGET", readHGet, whole, fields("id"), nil, "$-1\r\n", "_\r\n"},
		{"HEXISTS", readHExists, whole, fields("none"), row, ":0\r\n", ":0\r\n"},
		{"HEXISTS", readHExists, whole, fields("yes"), row, ":1\r\n", ":1\r\n"},
		{"HMGET", readHMGet, whole, fields("id", "none", "id"), row, "*3\r\n" + bulk("7") + "$-1\r\n" + bulk("7"), "*3\r\n" + bulk("7") + "_\r\n" + bulk("7")},
		{"HMGET", readHMGet, whole, fields("id"), nil, "*1\r\n$-1\r\n", "*1\r\n_\r\n"},
		{"HLEN", readHLen, whole, nil, row, ":5\r\n", ":5\r\n"},
		{"HLEN", readHLen, whole, nil, nil, ":0\r\n", ":0\r\n"},
		{"HKEYS", readHKeys, whole, nil, []byte(`{"a":1,"b":2}`), "*2\r\n" + bulk("a") + bulk("b"), "*2\r\n" + bulk("a") + bulk("b")},
		{"HVALS", readHVals, whole, nil, []byte(`{"a":1,"b":"x"}`), "*2\r\n" + bulk("1") + bulk("x"), "*2\r\n" + bulk("1") + bulk("x")},
		{"HGETALL", readHGetAll, whole, nil, []byte(`{"a":1,"b":null}`), "*2\r\n" + bulk("a") + bulk("1"), "%1\r\n" + bulk("a") + bulk("1")},
		{"HGETALL", readHGetAll, whole, nil, nil, "*0\r\n", "%0\r\n"},
	} {
		for proto, want := range map[int]string{2: c.resp2, 3: c.resp3} {
			if got := string(renderRow(nil, proto, c.read, c.ks, c.fields, c.body != nil, c.body)); got != want {
				t.Errorf("%s %q of %s, RESP%d: %q, want %q", c.what, c.fields, c.body, proto, got, want)
			}
		}
	}
	for _, read := range []rowRead{readHGetAll, readHMGet, readHGet, readHLen} {
		if got := string(renderRow(nil, 3, read, whole, fields("a"), true, []byte(`{"a":`))); !strings.HasPrefix(got, "-ERR ") {
			t.Errorf("read %d of a broken row: %q", read, got)
		}
	}
}

func TestAppendTTL(t *testing.T) {
	for _, c := range []struct {
		read  rowRead
		found bool
		ttl   int64
		want  string
	}{
		{readTTL, true, 1499, ":1\r\n"}, {readTTL, true, 1500, ":2\r\n"}, {readTTL, true, 3, ":0\r\n"}, {readPTTL, true, 1499, ":1499\r\n"},
		{readTTL, false, 1499, ":-2\r\n"}, {readPTTL, false, -2, ":-2\r\n"},
		{readTTL, true, -2, ":-1\r\n"}, {readPTTL, true, -2, ":-1\r\n"}, {readPTTL, true, -1, ":-1\r\n"},
	} {
		if got := string(appendTTL(nil, c.read, c.found, c.ttl)); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// callQueue against a slice.
func TestCallQueueIsAQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q callQueue
		var twin []call
		next := int64(0)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				for range rapid.IntRange(1, 3000).Draw(t, "n") {
					next++
					q.push(call{sent: next})
					twin = append(twin, call{sent: next})
				}
			},
			"pop": func(t *rapid.T) {
				for range min(len(twin), rapid.IntRange(1, 4000).Draw(t, "n")) {
					if front := *q.front(); front != twin[0] {
						t.Fatalf("front %v, want %v", front, twin[0])
					}
					if got := q.pop(); got != twin[0] {
						t.Fatalf("pop %v, want %v", got, twin[0])
					}
					twin = twin[1:]
				}
			},
			"": func(t *rapid.T) {
				if q.len() != len(twin) {
					t.Fatalf("length %d, want %d", q.len(), len(twin))
				}
				if q.len() == 0 && len(q.buf) > keepCalls {
					t.Fatalf("an empty queue keeps room for %d calls", len(q.buf))
				}
			},
		})
	})
}

func TestGroups(t *testing.T) {
	var g groups
	ups := []*upstream{{name: "a"}, {name: "b"}, {name: "c"}}
	for round := range 3 {
		for i := range 100 {
			server := (i + round) % 3
			g.of = append(g.of, g.add(ups[server], []byte{byte(i)}))
		}
		if len(g.each) != 3 || len(g.of) != 100 {
			t.Fatalf("%d groups of %d keys", len(g.each), len(g.of))
		}
		seen := make([]int, 3)
		for i, group := range g.of {
			p := g.each[group]
			if p.upstream != ups[(i+round)%3] || p.names[seen[group]][0] != byte(i) {
				t.Fatalf("key %d is in the wrong place", i)
			}
			seen[group]++
		}
		g.done()
	}
	each := g.each[:cap(g.each)]
	for _, p := range each {
		for _, n := range p.names[:cap(p.names)] {
			if n != nil {
				t.Fatal("a name is kept")
			}
		}
	}
	for range 20_000 {
		g.of = append(g.of, g.add(ups[1], nil))
	}
	g.done()
	if g.of != nil || g.each != nil {
		t.Error("the lists of a large command are kept")
	}
}

func TestJoinNames(t *testing.T) {
	for _, n := range []int{0, 1, 5, 8, 9, 500} {
		j := &join{}
		for i := range n {
			j.rows = append(j.rows, joinRow{key: keyspace.Key{Text: fmt.Appendf(nil, "user:%d", i)}})
		}
		for i := range n {
			if !j.names(fmt.Appendf(nil, "user:%d", i)) {
				t.Errorf("%d rows: user:%d is not among them", n, i)
			}
		}
		if j.names(fmt.Appendf(nil, "user:%d", n)) {
			t.Errorf("%d rows: a key that is not among them", n)
		}
	}
}

func TestPrintable(t *testing.T) {
	for key, want := range map[string]string{
		"user:1": "user:1", `a"`: `a\"`, `"`: `\"`, "a\r\nb": `a\r\nb`, "": "", strings.Repeat("k", 65): `"` + strings.Repeat("k", 64) + `"...`,
	} {
		if got := printable([]byte(key)); got != want {
			t.Errorf("%q: %s, want %s", key, got, want)
		}
	}
}

func TestConfigValidate(t *testing.T) {
	good := DefaultConfig()
	good.Listen = "127.0.0.1:0"
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Config){
		"no address": func(c *Config) { c.Listen = "" }, "MaxClients": func(c *Config) { c.MaxClients = 0 }, "Loops": func(c *Config) { c.Loops = -1 },
		"InFlight": func(c *Config) { c.InFlight = 0 }, "OutputSoft": func(c *Config) { c.OutputSoft = 0 }, "OutputHard": func(c *Config) { c.OutputHard = c.OutputSoft - 1 },
		"UpstreamCalls": func(c *Config) { c.UpstreamCalls = 0 }, "ConnectTimeout": func(c *Config) { c.ConnectTimeout = 0 },
		"ReplyTimeout": func(c *Config) { c.ReplyTimeout = -time.Second }, "RowTimeout": func(c *Config) { c.RowTimeout = 0 }, "RowOps": func(c *Config) { c.RowOps = 0 },
		"ViewTTL": func(c *Config) { c.ViewTTL = 0 }, "limit bulk": func(c *Config) { c.Limits.MaxBulk = 0 },
	} {
		c := good
		spoil(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
