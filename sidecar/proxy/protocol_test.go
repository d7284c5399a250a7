package proxy

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ringside/resp"
	"ringside/ring"
)

// newWorkerForTest returns a worker without a loop: enough for decisions that send nothing.
func newWorkerForTest(t testing.TB) *worker {
	t.Helper()
	return &worker{server: &Server{keyspaces: testKeyspaces(t)}, hasher: ring.NewHasher()}
}

// The same pipeline, cut in two at every byte, gets the same replies: encoded and inline commands mixed, rows and plain keys, several
// servers, binary arguments.
func TestPipelineCutAtEveryByte(t *testing.T) {
	b := start(t, 3, nil)
	b.rows.set("user:1", `{"id":1}`)
	var out []byte
	out = resp.AppendCommandString(out, "SET", "a", "\r\n*1\r\n$4\r\nPING\r\n")
	out = append(out, "GET a\r\n"...)
	out = resp.AppendCommandString(out, "MGET", "a", "user:1", "none")
	out = append(out, "\r\nPING \"in line\"\nECHO 'x y'\r\n*0\r\n*-1\r\n"...)
	out = resp.AppendCommandString(out, "GET", "user:1")
	out = resp.AppendCommandString(out, "DEL", "a", "b", "c")
	out = append(out, "NOSUCH\r\nGET\r\nSET a 1\r\nINCR a\r\n"...)
	out = resp.AppendCommandString(out, "PING", "the end")
	a := bulk("\r\n*1\r\n$4\r\nPING\r\n")
	want := "+OK\r\n" + a + "*3\r\n" + a + bulk(`{"id":1}`) + "$-1\r\n" + bulk("in line") + bulk("x y") + bulk(`{"id":1}`) + ":1\r\n" +
		"-ERR unknown command 'NOSUCH', with args beginning with: \r\n-ERR wrong number of arguments for 'get' command\r\n+OK\r\n:2\r\n" + bulk("the end")
	w := b.dial()
	for cut := range len(out) + 1 {
		w.write(string(out[:cut]))
		if cut%3 == 0 {
			time.Sleep(200 * time.Microsecond) // else the kernel may put the halves together
		}
		w.write(string(out[cut:]))
		var got strings.Builder
		for got.Len() < len(want) {
			got.WriteString(w.reply())
		}
		if got.String() != want {
			t.Fatalf("cut at %d:\n%q, want\n%q", cut, got.String(), want)
		}
	}
	// Byte by byte.
	for i := range out {
		w.write(string(out[i : i+1]))
	}
	var got strings.Builder
	for got.Len() < len(want) {
		got.WriteString(w.reply())
	}
	if got.String() != want {
		t.Errorf("byte by byte:\n%q, want\n%q", got.String(), want)
	}
}

func TestUnixSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "rs") // t.TempDir may be too long a path for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	b := start(t, 1, func(c *Config) { c.Listen = "unix:" + path })
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode(); mode&fs.ModeSocket == 0 || mode.Perm() != 0o600 {
		t.Errorf("mode %v, want a socket for this user only", mode)
	}
	w := b.dial()
	w.want("SET k v", "+OK\r\n")
	w.want("GET k", bulk("v"))
	if got := w.do("CLIENT INFO"); !strings.Contains(got, "id=") {
		t.Errorf("%q", got)
	}
	if got := w.do("INFO server"); !strings.Contains(got, "tcp_port:0\r\n") {
		t.Errorf("%q", got)
	}
	w.send("GET k", "QUIT")
	if got := w.rest(); got != bulk("v")+"+OK\r\n" {
		t.Errorf("%q", got)
	}
}

func TestPermits(t *testing.T) {
	for _, c := range []struct {
		configured, user, password string
		want                       bool
	}{
		{"secret", "default", "secret", true}, {"secret", "default", "secre", false}, {"secret", "default", "", false}, {"secret", "default", "secrets", false},
		{"secret", "other", "secret", false}, {"secret", "", "secret", false}, {"", "default", "anything", true}, {"", "other", "anything", false},
	} {
		s := &Server{cfg: Config{Password: c.configured}}
		if got := s.permits([]byte(c.user), []byte(c.password)); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestPatternStays(t *testing.T) {
	w := newWorkerForTest(t)
	vnode := w.hasher.Vnode([]byte("t"))
	for pattern, want := range map[string]bool{
		"nosort": true, "#": true, "{t}w_*": true, "a{t}b*c": true, "{t}w_*->f": true, "w_*": false, "{u}w_*": false, "*{t}": false, "{t*}": false, "{*}t": false, "{}*": false, "t*": false,
	} {
		if got := w.patternStays([]byte(pattern), vnode); got != want {
			t.Errorf("%q: %v", pattern, got)
		}
	}
}

// RING answers what the topology says, and is open to nobody who has not given the password (TestAuthentication).
func TestRing(t *testing.T) {
	b := start(t, 2, nil)
	w := b.dial()
	for command, wants := range map[string][]string{
		"RING LOOKUP user:1":  {"cache_vnode", "shard_vnode", "shard_key", "epoch"},
		"ring lookup plain":   {"cache_vnode", "epoch"},
		"RING NODES":          {"c1", "c2", "s1", "active"},
		"RING INFO":           {"epoch", "digest", "65536", "sidecars"},
		"RING LOOKUP user:01": {"-BADKEY"},
		"RING":                {"-ERR syntax"}, "RING NOSUCH": {"-ERR syntax"}, "RING LOOKUP": {"-ERR syntax"}, "RING NODES x": {"-ERR syntax"},
	} {
		got := w.do(command)
		for _, want := range wants {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q has no %q", command, got, want)
			}
		}
	}
}
