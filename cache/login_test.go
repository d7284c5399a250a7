package cache

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
	"testing"

	"ringside/internal/realredis"
)

// Rows are read, filled and written by TLS and as whatever user the configuration names. What is refused says why, and the row is read from
// its shard.
func TestTLSAndLogin(t *testing.T) {
	trust := func(a *realredis.Authority) *tls.Config {
		pem, err := os.ReadFile(a.CA)
		if err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	ca, err := realredis.NewAuthority(t.TempDir(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	other, err := realredis.NewAuthority(t.TempDir(), "other")
	if err != nil {
		t.Fatal(err)
	}
	r, addr := realredis.TLS(t, ca, []string{"127.0.0.1"}, "--tls-auth-clients", "no")
	id, db := runIDOf(t, r), admin(t, r)
	if err := db.Do(ctxb, "ACL", "SETUSER", "ringside", "on", ">secret", "~*", "&*", "+@all", "-@dangerous", "+info").Err(); err != nil {
		t.Fatal(err)
	}
	if err := db.ConfigSet(ctxb, "requirepass", "pw").Err(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, username, password string
		tls                      *tls.Config
		want                     string // in the error of a probe; empty: none
	}{
		{"password", "", "pw", trust(ca), ""},
		{"default user", "default", "pw", trust(ca), ""},
		{"ACL user", "ringside", "secret", trust(ca), ""},
		{"no password", "", "", trust(ca), "NOAUTH"},
		{"wrong password", "", "wrong", trust(ca), "WRONGPASS"},
		{"user with the wrong password", "ringside", "wrong", trust(ca), "WRONGPASS"},
		{"another authority", "", "pw", trust(other), "unknown authority"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSidecar(t, testConfig())
			conf := ServerConfig{Name: "c1", Addr: addr, Username: c.username, Password: c.password, TLS: c.tls, RunID: id}
			if err := s.servers.Apply([]ServerConfig{conf}); err != nil {
				t.Fatal(err)
			}
			got, err := s.servers.Probe(ctxb, "c1")
			if c.want == "" && (err != nil || got != id) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("probe: %q, %v; want %q", got, err, c.want)
			}
			reg, ref := new(row), Ref{Server: "c1", Name: "rs:1.0:" + strings.ReplaceAll(c.name, " ", "-")}
			want := []Source{Filled, Hit}
			if c.want != "" {
				want = []Source{Bypassed, Bypassed}
			}
			for i, source := range want {
				v, err := s.Read(ctxb, ref, aMinute, 0, reg.loader)
				wantVersion(t, v, err, 0)
				if v.Source != source {
					t.Errorf("read %d: %s, want %s", i, v.Source, source)
				}
			}
			if err := s.Write(ctxb, []Ref{ref}, reg.writer); (err == nil) != (c.want == "") {
				t.Errorf("write: %v", err)
			}
		})
	}
}
