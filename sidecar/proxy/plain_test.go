package proxy

import (
	"fmt"
	"strings"
	"testing"
)

func TestPlainKeysBehaveAsOnOneRedis(t *testing.T) {
	b := start(t, 3, nil)
	w := b.dial()
	for _, c := range [][2]string{
		{"PING", "+PONG\r\n"},
		{"PING 'a b'", bulk("a b")},
		{"ECHO x", bulk("x")},
		{"SET a 1", "+OK\r\n"},
		{"GET a", bulk("1")},
		{"GET nothing", "$-1\r\n"},
		{"INCR a", ":2\r\n"},
		{"SET b x EX 100", "+OK\r\n"},
		{"TTL b", ":100\r\n"},
		{"LPUSH l 1 2 3", ":3\r\n"},
		{"LRANGE l 0 -1", "*3\r\n" + bulk("3") + bulk("2") + bulk("1")},
		{"OBJECT ENCODING a", bulk("int")},
		{"MSET k1 v1 k2 v2 k3 v3 k4 v4 k5 v5", "+OK\r\n"},
		{"MGET k1 k2 none k3 k4 k5 k1", "*7\r\n" + bulk("v1") + bulk("v2") + "$-1\r\n" + bulk("v3") + bulk("v4") + bulk("v5") + bulk("v1")},
		{"EXISTS k1 k2 k3 k4 k5 none k1", ":6\r\n"},
		{"TOUCH k1 k2 k3 none", ":3\r\n"},
		{"UNLINK k1 k2", ":2\r\n"},
		{"DEL k1 k3 k4 k5", ":3\r\n"},
		{"MSET {t}a 1 {t}b 2", "+OK\r\n"},
		{"SUNIONSTORE {s}c {s}a {s}b", ":0\r\n"},
		{"RENAME {t}a {t}c", "+OK\r\n"},
		{"RENAME x1 x2", "-CROSSSLOT Keys in request don't hash to the same slot\r\n"},
		{"EVAL 'return KEYS[1]' 1 a", bulk("a")},
		{"NOSUCH 1 2", "-ERR unknown command 'NOSUCH', with args beginning with: '1' '2' \r\n"},
		{"GET", "-ERR wrong number of arguments for 'get' command\r\n"},
		{"MSET a 1 b", "-ERR wrong number of arguments for 'mset' command\r\n"},
		{"LPUSH a x", "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"},
		{"SELECT 0", "+OK\r\n"},
		{"SELECT 1", "-ERR DB index is out of range\r\n"},
		{"SET rs:1.1:user:1 x", "-ERR keys that begin with rs: are ringside's own\r\n"},
		{"MGET a rs:1.1:user:1", "-ERR keys that begin with rs: are ringside's own\r\n"},
		{"BLPOP none 0.01", "*-1\r\n"},
		{"CLUSTER INFO", "-ERR This instance has cluster support disabled\r\n"},
	} {
		w.want(c[0], c[1])
	}
}

func TestPipelineKeepsTheOrderOfRequests(t *testing.T) {
	b := start(t, 3, nil)
	w := b.dial()
	const n = 2000
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("SET key:%d %d", i, i), fmt.Sprintf("GET key:%d", i))
		if i%10 == 0 {
			out = append(out, "PING", "MGET key:1 none key:2")
		}
	}
	w.send(out...)
	for i := range n {
		if got := w.reply(); got != "+OK\r\n" {
			t.Fatalf("SET %d: %q", i, got)
		}
		if got, want := w.reply(), bulk(fmt.Sprint(i)); got != want {
			t.Fatalf("GET %d: %q", i, got)
		}
		if i%10 == 0 {
			if got := w.reply(); got != "+PONG\r\n" {
				t.Fatalf("PING %d: %q", i, got)
			}
			if got := w.reply(); !strings.HasPrefix(got, "*3\r\n") {
				t.Fatalf("MGET %d: %q", i, got)
			}
		}
	}
}
