package proxy

import (
	"net"
	"strings"
	"testing"
	"time"

	"ringside/resp"
)

// wire is a client that sees every byte.
type wire struct {
	t    testing.TB
	conn net.Conn
	in   []byte
	scan resp.Scanner
}

func dial(t testing.TB, addr string) *wire {
	t.Helper()
	network := "tcp"
	if strings.HasPrefix(addr, "/") {
		network = "unix"
	}
	c, err := net.DialTimeout(network, addr, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // a test may have closed it
	return &wire{t: t, conn: c}
}

func (b *bench) dial() *wire { b.t.Helper(); return dial(b.t, b.addr) }

func (w *wire) write(raw string) {
	w.t.Helper()
	if err := w.conn.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.conn.Write([]byte(raw)); err != nil {
		w.t.Fatal(err)
	}
}

// send sends commands, each a line of words; words may be quoted with single quotes.
func (w *wire) send(commands ...string) {
	w.t.Helper()
	var out []byte
	for _, c := range commands {
		out = resp.AppendCommandString(out, words(c)...)
	}
	w.write(string(out))
}

// words splits at spaces outside of single quotes.
func words(line string) []string {
	var out []string
	var word strings.Builder
	quoted, some := false, false
	for _, c := range []byte(line) {
		switch {
		case c == '\'':
			quoted, some = !quoted, true
		case c == ' ' && !quoted:
			if some {
				out = append(out, word.String())
			}
			word.Reset()
			some = false
		default:
			word.WriteByte(c)
			some = true
		}
	}
	if some {
		out = append(out, word.String())
	}
	return out
}

// reply reads one reply, as received.
func (w *wire) reply() string {
	w.t.Helper()
	frame, err := w.tryReply()
	if err != nil {
		w.t.Fatalf("reading a reply: %v (so far %q)", err, w.in)
	}
	return frame
}

func (w *wire) tryReply() (string, error) {
	for {
		n, err := w.scan.Next(w.in)
		if err != nil {
			return "", err
		}
		if n > 0 {
			frame := string(w.in[:n])
			w.in = w.in[n:]
			return frame, nil
		}
		if err := w.conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			return "", err
		}
		buf := make([]byte, max(64<<10, w.scan.Want()-len(w.in)))
		n, err = w.conn.Read(buf)
		w.in = append(w.in, buf[:n]...)
		if err != nil && n == 0 {
			return "", err
		}
	}
}

// do sends one command and returns its reply.
func (w *wire) do(command string) string {
	w.t.Helper()
	w.send(command)
	return w.reply()
}

// want fails unless the command's reply is exactly that.
func (w *wire) want(command, reply string) {
	w.t.Helper()
	if got := w.do(command); got != reply {
		w.t.Errorf("%s: %q, want %q", command, got, reply)
	}
}

// closed fails unless the connection ends now.
func (w *wire) closed() {
	w.t.Helper()
	if frame, err := w.tryReply(); err == nil {
		w.t.Errorf("the connection should have been closed, got %q", frame)
	}
}
