package systemtest

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"ringside/resp"
)

// replyLimit bounds the wait for a reply: longer than any bound of a sidecar.
const replyLimit = 20 * time.Second

// wire is one client connection. Its methods are for one goroutine.
type wire struct {
	conn net.Conn
	in   []byte
}

func open(addr string) (*wire, error) {
	conn, err := net.DialTimeout("tcp", addr, replyLimit)
	if err != nil {
		return nil, err
	}
	return &wire{conn: conn}, nil
}

// dial opens a connection that is closed at the end of the test.
func dial(t *testing.T, addr string) *wire {
	t.Helper()
	w, err := open(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	return w
}

func (w *wire) close() { _ = w.conn.Close() } // it may be closed already

// ask sends commands in one write and reads as many replies.
func (w *wire) ask(commands ...[]string) ([]resp.Value, error) {
	var out []byte
	for _, c := range commands {
		out = resp.AppendCommandString(out, c...)
	}
	if err := w.conn.SetDeadline(time.Now().Add(replyLimit)); err != nil {
		return nil, err
	}
	if _, err := w.conn.Write(out); err != nil {
		return nil, err
	}
	replies := make([]resp.Value, len(commands))
	for i := range replies {
		var err error
		if replies[i], err = w.reply(); err != nil {
			return replies[:i], err
		}
	}
	return replies, nil
}

func (w *wire) reply() (resp.Value, error) {
	for {
		v, n, err := resp.Decode(w.in)
		if err != nil {
			return v, err
		}
		if n > 0 {
			w.in = w.in[n:]
			return v, nil
		}
		buf := make([]byte, 16<<10)
		n, err = w.conn.Read(buf)
		w.in = append(w.in, buf[:n]...)
		if n == 0 && err != nil {
			return v, err
		}
	}
}

// do sends one command and returns its reply as show writes it.
func (w *wire) do(t *testing.T, args ...string) string {
	t.Helper()
	v, err := w.ask(args)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return show(v[0])
}

// patiently is do for when nothing is down: what is refused for want of time is asked again.
func (w *wire) patiently(t *testing.T, args ...string) (reply string) {
	t.Helper()
	eventually(t, time.Minute, fmt.Sprintf("%q is not shed", args), func() bool {
		reply = w.do(t, args...)
		return !strings.HasPrefix(reply, "-OVERLOADED ") && !strings.HasPrefix(reply, "-CACHEDOWN ") && !strings.HasPrefix(reply, "-SHARDDOWN ") && !strings.HasPrefix(reply, "-TRYAGAIN ")
	})
	return reply
}

// want fails unless the command is answered with exactly that.
func (w *wire) want(t *testing.T, reply string, args ...string) {
	t.Helper()
	if got := w.do(t, args...); got != reply {
		t.Errorf("%q: got %s, want %s", args, got, reply)
	}
}

// show writes a reply: text as it is, an error behind "-", a number behind ":", "(nil)", and arrays in brackets.
func show(v resp.Value) string {
	switch {
	case v.Null:
		return "(nil)"
	case v.Kind == resp.KindError:
		return "-" + v.Text
	case v.Kind == resp.KindInt:
		return fmt.Sprintf(":%d", v.Int)
	case v.Kind == resp.KindSimple, v.Kind == resp.KindBulk:
		return v.Text
	case v.Kind == resp.KindArray, v.Kind == resp.KindMap:
		parts := make([]string, len(v.Elems))
		for i, e := range v.Elems {
			parts[i] = show(e)
		}
		return "[" + strings.Join(parts, " ") + "]"
	}
	return fmt.Sprintf("%+v", v)
}
