package sidecar

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestExposureIsWarnedOf(t *testing.T) {
	for _, c := range []struct {
		redis, admin string
		want         []string // the listeners that are warned of
	}{
		{"127.0.0.1:0", "127.0.0.1:0", nil},
		{"[::1]:0", "localhost:0", nil},
		{"unix:/run/ringside.sock", "127.0.0.1:0", nil},
		{"0.0.0.0:0", "127.0.0.1:0", []string{"redis"}},
		{":0", "10.1.2.3:0", []string{"redis", "admin"}},
		{"[::]:0", "127.0.0.1:0", []string{"redis"}},
	} {
		cfg := load(t, t.TempDir(), "redis: { listen: \""+c.redis+"\", password: pw }\nadmin: { listen: \""+c.admin+"\", token: t }\n")
		var log bytes.Buffer
		warnOfExposure(cfg, slog.New(slog.NewTextHandler(&log, nil)))
		if n := strings.Count(log.String(), "level=WARN"); n != len(c.want) {
			t.Errorf("%s, %s: %d warnings, want %v: %s", c.redis, c.admin, n, c.want, log.String())
		}
		for _, listener := range c.want {
			if !strings.Contains(log.String(), "listener="+listener+" ") {
				t.Errorf("%s, %s: no warning of %s: %s", c.redis, c.admin, listener, log.String())
			}
		}
		if strings.Contains(log.String(), "pw") {
			t.Errorf("the password is in the log: %s", log.String())
		}
	}
}

// Only the sidecar's own user can open its Unix socket, whatever the umask is.
func TestUnixSocketIsPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	run(t, "redis: { listen: \"unix:"+path+"\" }\n")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o600 {
		t.Errorf("mode %v, want 0600", mode)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 7)
	if _, err := c.Read(got); err != nil || string(got) != "+PONG\r\n" {
		t.Errorf("%q, %v", got, err)
	}
}
