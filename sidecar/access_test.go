package sidecar

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ringside/internal/realredis"
	"ringside/sidecar/config"
	"ringside/sidecar/proxy"
)

// load writes a configuration into dir and loads it.
func load(t *testing.T, dir, text string) *config.Config {
	t.Helper()
	path := filepath.Join(dir, "ringside.yaml")
	if err := os.WriteFile(path, []byte("name: a1\ndata_dir: "+dir+"\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(path, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAccess(t *testing.T) {
	dir := t.TempDir()
	ca, err := realredis.NewAuthority(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ca.Issue("me"); err != nil {
		t.Fatal(err)
	}
	a, err := newAccess(load(t, dir, `
default_cache: { username: all, password: secret, tls: { ca: ca.pem, cert: me.pem, key: me.key } }
caches:
  - { name: c1, addr: "127.0.0.1:1" }
  - { name: c2, addr: "127.0.0.1:2", password: other, tls: { server_name: cache } }
`))
	if err != nil {
		t.Fatal(err)
	}
	common, own := a.of("c1"), a.of("c2")
	if common.Username != "all" || common.Password != "secret" || len(common.TLS.Certificates) != 1 || common.TLS.RootCAs == nil {
		t.Errorf("c1: %+v", common)
	}
	if a.of("added later") != common {
		t.Error("a server that is not listed does not get what is common")
	}
	want := proxy.Credentials{Password: "other", TLS: own.TLS}
	if own != want || own.TLS.ServerName != "cache" || own.TLS.RootCAs != nil || len(own.TLS.Certificates) != 0 {
		t.Errorf("c2: %+v", own)
	}
	for _, c := range []*tls.Config{common.TLS, own.TLS} {
		if c.MinVersion != tls.VersionTLS12 || c.InsecureSkipVerify {
			t.Error("a version before 1.2, or any certificate, is accepted")
		}
	}
	// It is compared by pointer: another one would replace the connections with every change of the topology.
	if a.of("c1").TLS != common.TLS || a.of("c2").TLS != own.TLS {
		t.Error("the same server is given another tls.Config the next time")
	}
}

func TestAccessWithoutTLS(t *testing.T) {
	a, err := newAccess(load(t, t.TempDir(), "caches: [{ name: c1, addr: \"127.0.0.1:1\" }]\n"))
	if err != nil || a.of("c1") != (proxy.Credentials{}) || a.of("c2") != (proxy.Credentials{}) {
		t.Errorf("%+v, %v", a, err)
	}
}

// Each file that is of no use is reported once, where it stands.
func TestAccessSaysWhichFileIsOfNoUse(t *testing.T) {
	dir := t.TempDir()
	ca, err := realredis.NewAuthority(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"me", "you"} {
		if _, err := ca.Issue(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "junk.pem"), []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := load(t, dir, `default_cache:
  tls:
    ca: junk.pem
caches:
  - name: c1
    addr: "127.0.0.1:1"
    tls: { ca: ca.pem, cert: me.pem, key: you.key }
  - name: c2
    addr: "127.0.0.1:2"
`)
	_, err = newAccess(cfg)
	faults, ok := errors.AsType[config.Errors](err)
	if !ok || len(faults) != 2 {
		t.Fatalf("%v", err)
	}
	for i, want := range []string{"ringside.yaml:5:9: default_cache.tls.ca: there is no PEM certificate in ", "ringside.yaml:9:30: caches[0].tls.cert: tls: private key does not match public key"} {
		if got := faults[i].Error(); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if _, err := New(cfg, "v0", slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), fmt.Sprint(faults[0])) {
		t.Errorf("New: %v", err)
	}
}
