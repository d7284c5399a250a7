package proxy

import (
	"net"
	"strings"
	"testing"
	"time"

	"ringside/resp"
	"ringside/sidecar/topology"
)

// Whoever is ended by the size of a request finds the limit's name in the metrics; what is no matter of size is not counted there.
func TestRequestLimitsAreCounted(t *testing.T) {
	b := start(t, 1, func(c *Config) {
		c.Password, c.Limits = "pw", resp.Limits{MaxBulk: 1000, MaxElements: 20, MaxInline: 100, MaxRequest: 1500}
	})
	for limit, requests := range map[string][]string{
		"bulk":            {"*1\r\n$1001\r\n", "*1\r\n$9999999999999\r\n"},
		"elements":        {"*21\r\n"},
		"inline":          {strings.Repeat("x", 101), "*" + strings.Repeat("1", 200), "*1\r\n$" + strings.Repeat("1", 200)},
		"request":         {"*3\r\n" + bulk(strings.Repeat("x", 900)) + "$900\r\n"},
		"unauthenticated": {"*11\r\n", "*1\r\n$16385\r\n"},
		"":                {"*x\r\n", "*1\r\n$-1\r\n", "*1\r\n$x\r\n", "*1\r\n!\r\n", "GET \"k\r\n"},
	} {
		if limit == "unauthenticated" {
			continue // below: this proxy's own limits are lower
		}
		before, all := b.count("client_request_limit_total", "limit="+limit), b.count("client_protocol_errors_total", "")
		for _, request := range requests {
			w := b.dial()
			w.want("AUTH pw", "+OK\r\n")
			w.write(request)
			if got := w.rest(); !strings.HasPrefix(got, "-ERR Protocol error: ") {
				t.Errorf("%.30q: %q", request, got)
			}
		}
		n := float64(len(requests))
		if got := b.count("client_protocol_errors_total", "") - all; got != n {
			t.Errorf("%s: %v protocol errors counted, want %v", limit, got, n)
		}
		if got := b.count("client_request_limit_total", "limit="+limit) - before; limit != "" && got != n {
			t.Errorf("%s: %v counted, want %v", limit, got, n)
		}
	}
	if all := b.count("client_request_limit_total", ""); all != 7 {
		t.Errorf("%v counted in all, want 7", all)
	}

	b = start(t, 1, func(c *Config) { c.Password = "pw" })
	for _, request := range []string{"*11\r\n", "*1\r\n$16385\r\n"} {
		w := b.dial()
		w.write(request)
		if got := w.rest(); !strings.HasPrefix(got, "-ERR Protocol error: unauthenticated ") {
			t.Errorf("%q: %q", request, got)
		}
	}
	if n := b.count("client_request_limit_total", "limit=unauthenticated"); n != 2 {
		t.Errorf("%v counted, want 2", n)
	}
}

// Every other limit of the data plane, reached once: what the client is told, and what is counted.
func TestLimitsAreToldAndCounted(t *testing.T) {
	mute := func(t *testing.T) string {
		return fake(t, func(args []string) string {
			if args[0] == "GET" {
				return silence
			}
			return ""
		}).addr
	}
	refusing := func(t *testing.T) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().String()
	}
	for _, c := range []struct {
		name      string
		server    func(t *testing.T) string
		change    func(*Config)
		connected bool
		gets      int    // 0: another client comes
		told      string // the last reply
		metric    string
		count     float64
	}{
		{"reply", mute, nil, false, 1, "-CACHEDOWN c1 no reply in time\r\n", "upstream_timeouts_total", 1},
		{"connect", refusing, nil, false, 1, "-CACHEDOWN c1 dial tcp ", "upstream_connect_failures_total", 1},
		{"upstream queue", mute, func(c *Config) { c.UpstreamCalls = 4 }, true, 6,
			"-OVERLOADED too many requests wait for the cache server\r\n", "upstream_requests_refused_total", 2},
		{"clients", mute, func(c *Config) { c.MaxClients = 1 }, false, 0, "-ERR max number of clients reached\r\n", "clients_refused_total", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // it waits
			b := startBefore(t, []topology.Cache{{Name: "c1", Addr: c.server(t), Weight: 1, RunID: fakeRunID}}, func(cfg *Config) {
				cfg.Loops, cfg.ReplyTimeout = 1, 3*time.Second
				if c.change != nil {
					c.change(cfg)
				}
			})
			w := b.dial()
			w.want("PING", "+PONG\r\n")
			if c.connected {
				w.want("SET k v", "+OK\r\n") // the handshake does not wait in the queue any more
			}
			var last string
			for range c.gets {
				w.send("GET k")
			}
			for range c.gets {
				last = w.reply()
			}
			if c.gets == 0 {
				last = b.dial().rest()
			}
			if !strings.HasPrefix(last, c.told) {
				t.Errorf("told %q, want %q", last, c.told)
			}
			if got := b.count(c.metric, ""); got != c.count {
				t.Errorf("%s is %v, want %v", c.metric, got, c.count)
			}
		})
	}
}

// A client at its window is not read, and shows as such, until it has its replies.
func TestClientsHeldBack(t *testing.T) {
	release := make(chan struct{})
	s := fake(t, func(args []string) string {
		if args[0] == "GET" {
			<-release
			return "$-1\r\n"
		}
		return ""
	})
	b := startBefore(t, []topology.Cache{{Name: "c1", Addr: s.addr, Weight: 1, RunID: fakeRunID}}, func(c *Config) { c.InFlight = 4 })
	w := b.dial()
	for range 10 {
		w.send("GET k")
	}
	eventually(t, "it is held back", func() bool { return b.count("clients_held_back", "") == 1 })
	if n := b.count("upstream_waiting_requests", ""); n > 7 {
		t.Errorf("%v requests wait for the server, want 4 and three of the handshake at most", n)
	}
	close(release)
	for range 10 {
		if got := w.reply(); got != "$-1\r\n" {
			t.Fatalf("%q", got)
		}
	}
	eventually(t, "it is read again", func() bool { return b.count("clients_held_back", "") == 0 })
}

func TestRowOperationsRefusedAreCounted(t *testing.T) {
	b := start(t, 1, func(c *Config) { c.RowOps = 1 })
	release := make(chan struct{})
	b.rows.mu.Lock()
	b.rows.read = func(string) *Row { <-release; return &Row{} }
	b.rows.mu.Unlock()
	first, second := b.dial(), b.dial()
	first.send("GET user:1")
	eventually(t, "it is under way", func() bool { return b.count("row_operations", "") == 1 })
	second.want("GET user:2", "-OVERLOADED too many misses and writes are under way in this sidecar\r\n")
	second.want("EXISTS user:2 user:3", "-OVERLOADED too many misses and writes are under way in this sidecar\r\n")
	close(release)
	if got := first.reply(); got != "$-1\r\n" {
		t.Errorf("%q", got)
	}
	if n := b.count("row_operations_refused_total", ""); n != 2 {
		t.Errorf("%v counted, want 2", n)
	}
}
