package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"ringside/cache"
	"ringside/resp"
	"ringside/sidecar/topology"
)

// echoServer is a cache server that costs next to nothing: after the handshake it takes everything for requests of one size and sends
// the same reply to each. It allocates nothing, so that what a benchmark counts is the proxy's.
func echoServer(b testing.TB, size *int, reply *[]byte) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				greeting := resp.AppendCommandString(nil, "CLIENT", "SETNAME", topology.Caller{Sidecar: "test", Epoch: 1}.Name())
				greeting = resp.AppendCommandString(greeting, "INFO", "server")
				greeting = resp.AppendCommandString(greeting, "GET", topology.MarkerName)
				buf := make([]byte, 1<<20)
				if _, err := io.ReadFull(c, buf[:len(greeting)]); err != nil || !bytes.Equal(buf[:len(greeting)], greeting) {
					return
				}
				if _, err := io.WriteString(c, "+OK\r\n"+bulk("# Server\r\nrun_id:"+fakeRunID+"\r\n")+"$-1\r\n"); err != nil {
					return
				}
				n, have := 0, 0
				out := bytes.Repeat(*reply, len(buf) / *size + 1)
				for {
					if whole := have / *size; whole > 0 {
						if _, err := c.Write(out[:whole*len(*reply)]); err != nil {
							return
						}
						have -= whole * *size
					}
					if n, err = c.Read(buf); err != nil {
						return
					}
					have += n
				}
			}()
		}
	}()
	return l.Addr().String()
}

// benchPath is one way through the proxy: a request, what reaches the cache server for it, its reply, and what the client gets.
type benchPath struct {
	name            string
	request, asked  []byte
	reply, answered []byte
}

func paths(tb testing.TB, t *topology.Topology) []benchPath {
	value := strings.Repeat("v", 100)
	get := resp.AppendCommandString(nil, "GET", "key:000000000000000042")
	set := resp.AppendCommandString(nil, "SET", "key:000000000000000042", value)
	l, err := t.Locate(testKeyspaces(tb), []byte("user:42"))
	if err != nil {
		tb.Fatal(err)
	}
	row := `{"name":"` + value + `"}`
	entry := cache.AppendValue(nil, time.Now(), time.Now(), []byte(row))
	name := cache.AppendName(nil, t.Generation(l.CacheVnode), t.Flush(*l.ShardVnode), []byte("user:42"))
	del := resp.AppendCommandString(nil, "DEL", "key:000000000000000042")
	return []benchPath{
		{"plain GET", get, get, []byte(bulk(value)), []byte(bulk(value))},
		{"plain SET", set, set, []byte("+OK\r\n"), []byte("+OK\r\n")},
		{"plain DEL", del, del, []byte(":1\r\n"), []byte(":1\r\n")},
		{"row hit", resp.AppendCommandString(nil, "GET", "user:42"), resp.AppendCommand(nil, []byte("GET"), name), []byte(bulk(string(entry))), []byte(bulk(row))},
		{"PING", resp.AppendCommandString(nil, "PING"), nil, nil, []byte("+PONG\r\n")},
	}
}

// client sends depth requests at a time and reads their replies.
func (p benchPath) client(tb testing.TB, addr string, depth int) func() {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	out, in, want := bytes.Repeat(p.request, depth), make([]byte, depth*len(p.answered)), bytes.Repeat(p.answered, depth)
	return func() {
		if _, err := c.Write(out); err != nil {
			tb.Fatal(err)
		}
		if _, err := io.ReadFull(c, in); err != nil {
			tb.Fatal(err)
		}
		if !bytes.Equal(in, want) {
			tb.Fatalf("%q, want %q", in, want)
		}
	}
}

// eachPath calls run with a proxy before an echo server for each path.
func eachPath(run func(p benchPath, addr string), tb testing.TB) {
	size, reply := 1, []byte(nil)
	server := echoServer(tb, &size, &reply)
	b := startBefore(tb, []topology.Cache{{Name: "c1", Addr: server, Weight: 1, RunID: fakeRunID}}, func(c *Config) { c.Loops = 1 })
	for _, p := range paths(tb, b.holder.Current()) {
		if p.asked != nil {
			// The server reads these when a connection begins; a new address makes a new connection.
			s, r := len(p.asked), p.reply
			next, err := topology.Bootstrap([]topology.Cache{{Name: "c1", Addr: echoServer(tb, &s, &r), Weight: 1, RunID: fakeRunID}}, []topology.Shard{{Name: "s1", Weight: 1, MaxConnections: 4}})
			if err != nil {
				tb.Fatal(err)
			}
			b.holder.Publish(next)
		}
		run(p, b.addr)
	}
}

// BenchmarkRequest measures a request's whole way over loopback and back, the client's and the server's share included.
func BenchmarkRequest(b *testing.B) {
	eachPath(func(p benchPath, addr string) {
		for _, depth := range []int{1, 16, 128} {
			b.Run(fmt.Sprintf("%s/P=%d", p.name, depth), func(b *testing.B) {
				round := p.client(b, addr, depth)
				for range 100 {
					round()
				}
				b.ReportAllocs()
				b.ResetTimer()
				for range (b.N + depth - 1) / depth {
					round()
				}
			})
		}
	}, b)
}

// The promise that the benchmark shows, as a test: in the steady state a request on these paths allocates nothing.
func TestNoAllocationPerRequest(t *testing.T) {
	eachPath(func(p benchPath, addr string) {
		for _, depth := range []int{1, 64} {
			round := p.client(t, addr, depth)
			for range 200 / depth {
				round()
			}
			// A garbage collection or a timer may cost a few in all, and more of them the longer a busy machine takes; one per request would be far more, always.
			per := 1.0
			for chance := 0; per > 0.05 && chance < 8; chance++ {
				per = testing.AllocsPerRun(max(512/depth, 20), round) / float64(depth)
			}
			if per > 0.05 {
				t.Errorf("%s, %d at a time: %.2f allocations per request", p.name, depth, per)
			}
		}
	}, t)
}
