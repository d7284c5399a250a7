package proxy

import (
	"net"
	"sync"
	"testing"

	"ringside/resp"
	"ringside/sidecar/topology"
)

// fakeServer is a cache server whose answers the test makes up. It answers one request after the other, as Redis does.
type fakeServer struct {
	addr string

	mu    sync.Mutex
	conns map[net.Conn]bool
}

// fakeRunID is the incarnation that a fake server says it is.
const fakeRunID = "fake-run"

// closeIt as an answer closes the connection instead; silence sends nothing.
const (
	closeIt = "close"
	silence = "silence"
)

// fake starts a fake server. answer returns the reply to one request, "" for the usual one: what the handshake wants, else OK. It is not
// asked for the marker, and called for one request of a connection at a time, but for several connections at once.
func fake(t testing.TB, answer func(args []string) string) *fakeServer {
	t.Helper()
	return fakeEach(t, func() func(args []string) string { return answer })
}

// fakeEach is fake with an answer of its own for each connection.
func fakeEach(t testing.TB, answer func() func(args []string) string) *fakeServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &fakeServer{addr: l.Addr().String(), conns: map[net.Conn]bool{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[c] = true
			s.mu.Unlock()
			all.Go(func() { s.serve(c, answer()) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close() // ends Accept; there is nothing else to learn from it
		s.cut()
		all.Wait()
	})
	return s
}

func (s *fakeServer) serve(c net.Conn, answer func(args []string) string) {
	defer func() {
		_ = c.Close() // the peer may have done it
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	var parser resp.Parser
	var in []byte
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		in = append(in, buf[:n]...)
		var out []byte
		for {
			cmd, n, err := parser.Next(in)
			if err != nil {
				return
			}
			if n == 0 {
				break
			}
			args := make([]string, len(cmd.Args))
			for i, a := range cmd.Args {
				args[i] = string(a)
			}
			in = in[n:]
			reply := ""
			if args[0] != "GET" || args[1] != topology.MarkerName {
				reply = answer(args)
			}
			if reply == "" {
				reply = usual(args)
			}
			switch reply {
			case closeIt:
				return
			case silence:
			default:
				out = append(out, reply...)
			}
			if _, err := c.Write(out); err != nil {
				return
			}
			out = out[:0]
		}
	}
}

func usual(args []string) string {
	switch args[0] {
	case "HELLO":
		return "%1\r\n+proto\r\n:3\r\n"
	case "INFO":
		return bulk("# Server\r\nrun_id:" + fakeRunID + "\r\n")
	case "GET":
		if args[1] == topology.MarkerName {
			return "$-1\r\n"
		}
	case "CLIENT":
		if args[1] == "ID" {
			return ":1\r\n"
		}
	}
	return "+OK\r\n"
}

// cut closes all connections.
func (s *fakeServer) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close() // what is being served sees it
	}
}
