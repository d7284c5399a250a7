package sidecar

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"ringside/internal/realredis"
)

// run runs a sidecar until the test ends and returns it once it is ready.
func run(t *testing.T, text string) *Sidecar {
	t.Helper()
	dir := t.TempDir()
	if !strings.Contains(text, "redis:") {
		text += "redis: { listen: \"127.0.0.1:0\" }\n"
	}
	if !strings.Contains(text, "admin:") {
		text += "admin: { listen: \"127.0.0.1:0\" }\n"
	}
	s, err := New(load(t, dir, `
gossip: { listen: "127.0.0.1:0" }
`+text), "v0", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	runUntilEnd(t, s)
	return s
}

// A sidecar whose file asks for TLS and a login speaks them with every part of it, and plain text with the application.
func TestSidecarSpeaksTLS(t *testing.T) {
	ca, err := realredis.NewAuthority(t.TempDir(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	me, err := ca.Issue("me")
	if err != nil {
		t.Fatal(err)
	}
	_, addr := realredis.TLS(t, ca, []string{"cache.internal"}, "--requirepass", "pw")
	for password, want := range map[string]string{"pw": "", "wrong": "CACHEDOWN c1 handshake refused: WRONGPASS"} {
		s := run(t, fmt.Sprintf(`
default_cache: { password: %s, tls: { ca: %q, cert: %q, key: %q, server_name: cache.internal } }
caches: [{ name: c1, addr: %q }]
`, password, ca.CA, me.Cert, me.Key, addr))
		for _, protocol := range []int{2, 3} {
			client := redis.NewClient(&redis.Options{Addr: s.proxy.Addr().String(), Protocol: protocol})
			err := client.Set(t.Context(), "k", "v", 0).Err()
			if want == "" && (err != nil || client.Get(t.Context(), "k").Val() != "v") || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
				t.Errorf("password %s, RESP%d: %v, want %q", password, protocol, err, want)
			}
			if err := client.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := s.servers.Probe(t.Context(), "c1"); (err == nil) != (want == "") {
			t.Errorf("password %s: probe: %v", password, err)
		}
	}
}
