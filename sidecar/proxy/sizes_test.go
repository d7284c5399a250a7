package proxy

import (
	"strings"
	"testing"

	"ringside/resp"
)

// Sizes just around every power of two up to 1 MiB, where buffers end: of a value, of a key, of a whole pipeline of small commands, and of an argument that
// begins somewhere in the middle of a buffer.
func TestSizesAroundEveryPowerOfTwo(t *testing.T) {
	b := start(t, 2, nil)
	w := b.dial()
	text := strings.Repeat("0123456789abcdef", 1<<16+1)
	for power := 1; power <= 1<<20; power *= 2 {
		for size := power - 1; size <= power+1; size++ {
			value := text[:size]
			var out []byte
			out = resp.AppendCommandString(out, "PING", text[:size%97])
			out = resp.AppendCommandString(out, "SET", "v", value)
			out = resp.AppendCommandString(out, "MGET", "none", "v", "w")
			out = resp.AppendCommandString(out, "APPEND", "k"+value, "x")
			out = resp.AppendCommandString(out, "DEL", "k"+value, "v", "w")
			want := bulk(text[:size%97]) + "+OK\r\n*3\r\n$-1\r\n" + bulk(value) + "$-1\r\n:1\r\n:2\r\n"
			w.exchange(t, size, string(out), want)
		}
	}
	// The commands of the pipelines end just before, at and behind the powers of two.
	const ping = "PING\r\n"
	for power := 64; power <= 1<<20; power *= 4 {
		for size := power - 1; size <= power+1; size++ {
			n := size / (2 * len(ping))
			last := string(resp.AppendCommandString(nil, "ECHO", text[:size-n*len(ping)]))
			w.exchange(t, size, strings.Repeat(ping, n)+last, strings.Repeat("+PONG\r\n", n)+bulk(text[:size-n*len(ping)]))
		}
	}
}

// exchange sends a pipeline and compares what comes back.
func (w *wire) exchange(t *testing.T, size int, out, want string) {
	t.Helper()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = w.conn.Write([]byte(out)) // failing, it is seen in the replies
	}()
	var got strings.Builder
	for got.Len() < len(want) {
		got.WriteString(w.reply())
	}
	<-sent
	if got.String() != want {
		t.Fatalf("size %d: %d bytes %.80q, want %d bytes %.80q", size, got.Len(), got.String(), len(want), want)
	}
}
