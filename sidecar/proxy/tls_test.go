package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"ringside/cache"
	"ringside/internal/realredis"
	"ringside/resp"
	"ringside/sidecar/topology"
)

func authority(t *testing.T, name string) *realredis.Authority {
	t.Helper()
	a, err := realredis.NewAuthority(t.TempDir(), name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// trusting returns how a client trusts an authority, with a certificate of its own if signer is not nil.
func trusting(t *testing.T, a, signer *realredis.Authority) *tls.Config {
	t.Helper()
	pem, err := os.ReadFile(a.CA)
	if err != nil {
		t.Fatal(err)
	}
	cfg := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(0)}
	if !cfg.RootCAs.AppendCertsFromPEM(pem) {
		t.Fatal("no certificate in the authority's file")
	}
	if signer != nil {
		own, err := signer.Issue("ringside")
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.LoadX509KeyPair(own.Cert, own.Key)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg
}

// beforeTLS starts a proxy before one server that speaks TLS at addr.
func beforeTLS(t *testing.T, s *realredis.Server, addr string, cred Credentials, change func(*Config)) *bench {
	t.Helper()
	b := startBefore(t, []topology.Cache{{Name: "c1", Addr: addr, Weight: 1, RunID: runIDAt(t, s.Addr())}}, change)
	b.credentials.Store(&cred)
	b.caches = []*realredis.Server{s}
	return b
}

func TestTLS(t *testing.T) {
	a := authority(t, "ca")
	s, addr := realredis.TLS(t, a, []string{"127.0.0.1"}, "--requirepass", "pw")
	b := beforeTLSBehind(t, s, addr, "pw", Credentials{Password: "pw", TLS: trusting(t, a, a)})
	big := strings.Repeat("0123456789abcdef", 256<<10) // 4 MiB: passed on in pieces, and more than the buffers on the way
	for _, proto := range []string{"2", "3"} {
		w := b.dial()
		w.do("HELLO " + proto)
		w.want("SET k v", "+OK\r\n")
		w.want("GET k", "$1\r\nv\r\n")
		w.write(string(resp.AppendCommandString(nil, "SET", "big", big)))
		if got := w.reply(); got != "+OK\r\n" {
			t.Fatalf("%q", got)
		}
		if got := w.do("GET big"); got != bulk(big) {
			t.Fatalf("RESP%s: a large value came back otherwise (%d bytes)", proto, len(got))
		}
		var out []byte
		const n = 20_000
		for i := range n {
			out = resp.AppendCommandString(out, "ECHO", fmt.Sprint(i))
			out = resp.AppendCommandString(out, "GET", "k")
		}
		go func() { _, _ = w.conn.Write(out) }() // a failure shows in the replies
		for i := range n {
			if got := w.reply() + w.reply(); got != bulk(fmt.Sprint(i))+bulk("v") {
				t.Fatalf("RESP%s: reply %d: %q", proto, i, got)
			}
		}
	}
}

// beforeTLSBehind is beforeTLS for a server that wants a password.
func beforeTLSBehind(t *testing.T, s *realredis.Server, addr, password string, cred Credentials) *bench {
	t.Helper()
	w := dial(t, s.Addr())
	w.want("AUTH "+password, "+OK\r\n")
	id := runIDOf([]byte(w.do("INFO server")))
	b := startBefore(t, []topology.Cache{{Name: "c1", Addr: addr, Weight: 1, RunID: id}}, nil)
	b.credentials.Store(&cred)
	return b
}

// A row's entry is read by TLS too, and only once the server has said which process it is.
func TestTLSRowHit(t *testing.T) {
	a := authority(t, "ca")
	s, addr := realredis.TLS(t, a, []string{"127.0.0.1"}, "--tls-auth-clients", "no")
	b := beforeTLS(t, s, addr, Credentials{TLS: trusting(t, a, nil)}, nil)
	b.rows.set("user:1", `{"id":1}`)
	w := b.dial()
	w.want("GET user:1", bulk(`{"id":1}`))
	b.put("user:1", `{"id":1,"from":"cache"}`, cache.KindValue)
	asked := b.rows.asked()
	w.want("GET user:1", bulk(`{"id":1,"from":"cache"}`))
	if n := b.rows.asked(); n != asked {
		t.Errorf("%d rows were read for a hit", n-asked)
	}
}

// Whatever is wrong with a certificate, every request gets CACHEDOWN with the reason, at once and each time.
func TestTLSRefused(t *testing.T) {
	a, other := authority(t, "ca"), authority(t, "other")
	open, openAddr := realredis.TLS(t, a, []string{"127.0.0.1", "localhost"}, "--tls-auth-clients", "no")
	strict, strictAddr := realredis.TLS(t, a.In(t.TempDir()), []string{"127.0.0.1"})
	named := func(name string) *tls.Config {
		cfg := trusting(t, a, nil)
		cfg.ServerName = name
		return cfg
	}
	_, openPort, _ := net.SplitHostPort(openAddr)
	old := trusting(t, a, nil)
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	for _, c := range []struct {
		name   string
		server *realredis.Server
		addr   string
		cfg    *tls.Config
		want   string // in the reply to GET
	}{
		{"trusted", open, openAddr, trusting(t, a, nil), "$-1"},
		{"a certificate that nobody asked for", open, openAddr, trusting(t, a, a), "$-1"},
		{"by the name of the address", open, "localhost:" + openPort, trusting(t, a, nil), "$-1"},
		{"by a name of its own", open, openAddr, named("localhost"), "$-1"},
		{"another authority", open, openAddr, trusting(t, other, nil), "certificate signed by unknown authority"},
		{"another name", open, openAddr, named("elsewhere"), "not elsewhere"},
		{"old versions only", open, openAddr, old, "tls: "},
		{"plain text where TLS is spoken", open, openAddr, nil, "-CACHEDOWN c1 "},
		{"TLS where plain text is spoken", open, open.Addr(), trusting(t, a, nil), "-CACHEDOWN c1 TLS handshake: "},
		{"no client certificate", strict, strictAddr, trusting(t, a, nil), "-CACHEDOWN c1 remote error: tls: certificate required"},
		{"a client certificate of another authority", strict, strictAddr, trusting(t, a, other), "-CACHEDOWN c1 remote error: tls: "},
		{"a client certificate", strict, strictAddr, trusting(t, a, a), "$-1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := beforeTLS(t, c.server, c.addr, Credentials{TLS: c.cfg}, nil)
			w := b.dial()
			for deadline := time.Now().Add(time.Minute); ; {
				got := w.do("GET k")
				if strings.Contains(got, c.want) && (got[0] == '$' || strings.HasPrefix(got, "-CACHEDOWN c1 ")) {
					break
				}
				// "localhost" may have an address that is tried in vain first.
				if !strings.HasPrefix(c.addr, "localhost") || time.Now().After(deadline) {
					t.Fatalf("%q, want %q", got, c.want)
				}
				time.Sleep(5 * time.Millisecond)
			}
			if c.want[0] != '$' { // in the pause before the next attempt the reason is still told
				if got := w.do("GET k"); !strings.Contains(got, c.want) {
					t.Errorf("again: %q", got)
				}
			}
		})
	}
}

func TestTLSSilentServer(t *testing.T) {
	t.Parallel()                               // it waits
	l, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a := authority(t, "ca")
	b := startBefore(t, []topology.Cache{{Name: "c1", Addr: l.Addr().String(), Weight: 1}}, func(c *Config) { c.ConnectTimeout = 3 * time.Second })
	b.credentials.Store(&Credentials{TLS: trusting(t, a, nil)})
	w := b.dial()
	at := time.Now()
	w.want("GET k", "-CACHEDOWN c1 TLS handshake: context deadline exceeded\r\n")
	if took := time.Since(at); took > time.Minute {
		t.Errorf("it took %v", took)
	}
}

// A server that dies, returns, stands still and goes on: errors meanwhile, then replies, each to its request, and nothing is left over.
func TestTLSServerFails(t *testing.T) {
	a := authority(t, "ca")
	s, addr := realredis.TLS(t, a, []string{"127.0.0.1"}, "--appendonly", "yes")
	b := beforeTLS(t, s, addr, Credentials{TLS: trusting(t, a, a)}, func(c *Config) {
		c.ConnectTimeout, c.ReplyTimeout, c.Loops = 4*time.Second, 4*time.Second, 1
	})
	b.adopts.Store(true)
	w := b.dial()
	w.want("SET k v", "+OK\r\n")
	goroutines, descriptors := runtime.NumGoroutine(), openDescriptors()
	returns := func() {
		t.Helper()
		eventually(t, "the server is used again", func() bool { return w.do("GET k") == "$1\r\nv\r\n" })
	}
	for range 3 {
		for range 50 {
			w.send("GET k")
		}
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		for range 50 {
			if got := w.reply(); got != "$1\r\nv\r\n" && !strings.HasPrefix(got, "-CACHEDOWN c1 ") {
				t.Fatalf("%q", got)
			}
		}
		if got := w.do("GET k"); !strings.HasPrefix(got, "-CACHEDOWN c1 ") {
			t.Fatalf("%q", got)
		}
		if err := s.Restart(context.Background()); err != nil {
			t.Fatal(err)
		}
		returns()
	}
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	// More than all buffers on the way take, so that the goroutines are in the middle of a write.
	w.write(string(resp.AppendCommandString(nil, "SET", "big", strings.Repeat("x", 32<<20))))
	if got := w.reply(); got != "-CACHEDOWN c1 no reply in time\r\n" {
		t.Errorf("%q", got)
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	returns()
	eventually(t, "no goroutine is left over", func() bool { return runtime.NumGoroutine() <= goroutines })
	eventually(t, "no descriptor is left over", func() bool { return openDescriptors() <= descriptors })
}

func openDescriptors() int {
	list, err := os.ReadDir("/dev/fd") // on Linux and macOS alike
	if err != nil {
		return -1
	}
	return len(list)
}
