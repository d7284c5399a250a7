package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main() // which exits
	}
	goleak.VerifyTestMain(m)
}

// asProgram in its environment makes this test program ringside itself, for tests that need it as a process.
const asProgram = "RINGSIDE_TEST_AS_PROGRAM"

// result is what a run of the program did.
type result struct {
	code           int
	stdout, stderr string
}

func (r result) String() string {
	return fmt.Sprintf("exit %d\nstdout:\n%sstderr:\n%s", r.code, r.stdout, r.stderr)
}

func ringside(t *testing.T, env map[string]string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), args, func(name string) string { return env[name] }, &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// want compares a whole run.
func (r result) want(t *testing.T, code int, stdout, stderr string) {
	t.Helper()
	if w := (result{code, stdout, stderr}); r != w {
		t.Errorf("got %v\nwant %v", r, w)
	}
}

const (
	ringJSON = `{"epoch":7,"vnodes":65536,
"caches":[{"name":"c1","addr":"127.0.0.1:16301","weight":1,"state":"active","vnodes":43690,"share":0.66666},
{"name":"cache-2","addr":"10.0.0.2:6379","weight":0,"state":"draining","vnodes":21846,"share":0.33334}],
"shards":[{"name":"s1","weight":2,"state":"active","vnodes":65536,"share":1}],
"overrides":[{"shard_key":"big\ntenant","shard":"s1"}],"owners":{"cache":"AAAA","shard":"AAAA"}}`
	membersJSON = `{"members":[
{"name":"a1","addr":"127.0.0.1:16201","redis":"127.0.0.1:16001","admin":"127.0.0.1:16101","version":"v1","boot":"b1","epoch":7,"digest":"0011","state":"alive","self":true},
{"name":"a2","addr":"127.0.0.1:16202","redis":"","admin":"127.0.0.1:16102","version":"v1","boot":"b2","epoch":6,"digest":"0022","state":"suspect","self":false}]}`
	poolsJSON = `{"shards":[{"name":"s1","limit":32,"in_use":3,"idle":5,"waiting":2,"oldest_wait_ms":12.4,"served":1000,"shed":1,"state":"up","last_error":"connection reset","diagnosis":"protecting"}]}`
)

// sidecar is a server that answers as the admin interface does.
func fakeSidecar(t *testing.T) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	answer := func(path, body string) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Accept"); got != "application/json" {
				t.Errorf("%s: Accept is %q", path, got)
			}
			fmt.Fprintln(w, body)
		})
	}
	answer("/ring", ringJSON)
	answer("/members", membersJSON)
	answer("/pools", poolsJSON)
	answer("/healthz", "ok")
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not ready: no topology yet\nmore", http.StatusServiceUnavailable)
	})
	mux.HandleFunc("GET /ring/lookup", func(w http.ResponseWriter, r *http.Request) {
		switch key := r.URL.Query().Get("key"); key {
		case "user:42":
			fmt.Fprintln(w, `{"key":"user:42","keyspace":"user","cache_vnode":5,"cache":"c1","shard_key":"42","shard_vnode":48217,"shard":"s1","epoch":7}`)
		case "user:042":
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintln(w, `{"error":"key \"user:042\" of keyspace user: field id is \"042\": write 42"}`)
		default:
			reply, err := json.Marshal(map[string]any{"key": key, "keyspace": "plain", "cache_vnode": 9, "cache": "cache-2", "epoch": 7})
			if err != nil {
				t.Error(err)
			}
			_, _ = w.Write(reply)
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func TestRing(t *testing.T) {
	admin := "--admin=" + fakeSidecar(t).Listener.Addr().String()
	ringside(t, nil, "ring", admin).want(t, 0, `epoch 7, 65536 vnodes

CACHE    ADDRESS          STATE     WEIGHT  VNODES  SHARE
c1       127.0.0.1:16301  active    1       43690   66.67%
cache-2  10.0.0.2:6379    draining  0       21846   33.33%

SHARD  STATE   WEIGHT  VNODES  SHARE
s1     active  2       65536   100.00%

OVERRIDE       SHARD
"big\ntenant"  s1
`, "")
	ringside(t, nil, "ring", admin, "--json").want(t, 0, ringJSON+"\n", "")
}

func TestLookup(t *testing.T) {
	s := fakeSidecar(t)
	admin := "--admin=" + s.URL // a URL is as good as an address
	ringside(t, nil, "lookup", "user:42", admin).want(t, 0, `key        user:42
keyspace   user
cache      c1 (vnode 5)
shard      s1 (vnode 48217)
shard key  42
epoch      7
`, "")
	ringside(t, nil, "lookup", admin, "--", "-a b&c\x00").want(t, 0, `key       "-a b&c\x00"
keyspace  plain
cache     cache-2 (vnode 9)
epoch     7
`, "")
	ringside(t, nil, "lookup", "user:042", admin).want(t, 1, "",
		"ringside: key \"user:042\" of keyspace user: field id is \"042\": write 42\n")
	ringside(t, nil, "lookup", "x", admin, "--json").want(t, 0,
		`{"cache":"cache-2","cache_vnode":9,"epoch":7,"key":"x","keyspace":"plain"}`+"\n", "")
}

func TestNodes(t *testing.T) {
	admin := "--admin=" + fakeSidecar(t).Listener.Addr().String()
	ringside(t, nil, "nodes", admin).want(t, 0, `SIDECAR  STATE    REDIS            ADMIN            GOSSIP           VERSION  EPOCH  DIGEST
a1 *     alive    127.0.0.1:16001  127.0.0.1:16101  127.0.0.1:16201  v1       7      0011
a2       suspect  -                127.0.0.1:16102  127.0.0.1:16202  v1       6      0022

CACHE    ADDRESS          STATE     WEIGHT  VNODES  SHARE
c1       127.0.0.1:16301  active    1       43690   66.67%
cache-2  10.0.0.2:6379    draining  0       21846   33.33%

SHARD  STATE   WEIGHT  VNODES  SHARE
s1     active  2       65536   100.00%

CONNECTIONS TO  STATE  LIMIT  IN USE  IDLE  WAITING  OLDEST  SERVED  SHED  DIAGNOSIS   LAST ERROR
s1              up     32     3       5     2        12ms    1000    1     protecting  connection reset
`, "")

	got := ringside(t, nil, "nodes", admin, "--json")
	var all struct {
		Epoch   int              `json:"epoch"`
		Members []map[string]any `json:"members"`
		Caches  []map[string]any `json:"caches"`
		Shards  []map[string]any `json:"shards"`
		Pools   struct {
			Shards []map[string]any `json:"shards"`
		} `json:"pools"`
	}
	if err := json.Unmarshal([]byte(got.stdout), &all); err != nil || got.code != 0 || strings.Count(got.stdout, "\n") != 1 {
		t.Fatalf("%v: %v", err, got)
	}
	if all.Epoch != 7 || len(all.Members) != 2 || len(all.Caches) != 2 || len(all.Shards) != 1 || all.Pools.Shards[0]["served"] != 1000.0 {
		t.Errorf("got %v", got)
	}
}

func TestHealth(t *testing.T) {
	s := fakeSidecar(t)
	host := s.Listener.Addr().String()
	ringside(t, nil, "health", "--admin", host).want(t, 0, "ok\n", "")
	ringside(t, nil, "health", "--ready", "--admin", host).want(t, 1, "",
		"ringside: "+host+" answers 503 Service Unavailable: not ready: no topology yet\n")
}

func TestCheckConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ringside.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("name: a1\ndata_dir: /d\nredis: { password: \"env:P\" }\n")
	got := ringside(t, map[string]string{"P": "hunter2"}, "check-config", path)
	if got.code != 0 || got.stderr != "" || !strings.HasPrefix(got.stdout, "name: a1\ndata_dir: /d\nredis:\n") || strings.Contains(got.stdout, "hunter2") {
		t.Errorf("got %v", got)
	}
	write("nam: a1\ncaches: [{ name: c1, addr: x }]\n")
	ringside(t, nil, "check-config", path).want(t, 1, "", fmt.Sprintf(`%[1]s:1:1: unknown key "nam" (did you mean "name"?)
%[1]s:2:28: caches[0].addr is "x": it must be host:port, such as 10.0.0.1:6379
`, path))
	ringside(t, nil, "check-config", path+"x").want(t, 1, "",
		fmt.Sprintf("ringside: configuration: open %sx: no such file or directory\n", path))
}

func TestVersion(t *testing.T) {
	if got := ringside(t, nil, "version"); got.code != 0 || !strings.HasPrefix(got.stdout, "ringside ") || !strings.Contains(got.stdout, "go1.") {
		t.Errorf("got %v", got)
	}
	var v version
	if got := ringside(t, nil, "version", "--json"); json.Unmarshal([]byte(got.stdout), &v) != nil || v != buildVersion() {
		t.Errorf("got %v", got)
	}
	noted := &debug.BuildInfo{Main: debug.Module{Version: "v0.9.0"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}, {Key: "vcs.modified", Value: "true"}}}
	for _, test := range []struct {
		info               *debug.BuildInfo
		released, revision string
		want               string
	}{
		{&debug.BuildInfo{}, "", "", "devel "},
		{noted, "", "", "v0.9.0 0123456789ab+"},
		{noted, "v1", "fedcba987654", "v1 fedcba987654"},
		{&debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "v1-3-gfedcba9", "fedcba987654+", "v1-3-gfedcba9 fedcba987654+"},
	} {
		if v := versionOf(test.info, test.released, test.revision); v.Version+" "+v.Revision != test.want {
			t.Errorf("got %+v, want %s", v, test.want)
		}
	}
	build := exec.Command("make", "-n", "-C", "../..", "build", "VERSION=v1", "REVISION=fedcba987654+")
	if out, err := build.CombinedOutput(); err != nil || !strings.Contains(string(out), "-X main.released=v1 -X main.revision=fedcba987654+'") {
		t.Errorf("make build: %v %s", err, out)
	}
	if got := (version{"v1.2.3", "abc+", "go1.26", "linux/amd64"}).String(); got != "ringside v1.2.3 (abc+, go1.26, linux/amd64)" {
		t.Errorf("got %s", got)
	}
}

func TestUsage(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
		help string // whose
	}{
		{nil, `expected one of "`, "ringside"},
		{[]string{"bogus"}, "unexpected argument bogus", "ringside"},
		{[]string{"cache"}, `expected one of "add"`, "ringside cache"},
		{[]string{"cache", "add", "c4"}, `expected "<addr>"`, "ringside cache add"},
		{[]string{"lookup"}, `expected "<key>"`, "ringside lookup"},
		{[]string{"lookup", "-1"}, "unknown flag -1", "ringside lookup"},
		{[]string{"ring", "--json", "false"}, "unexpected argument false", "ringside ring"},
		{[]string{"ring", "--timeout", "10"}, `--timeout`, "ringside ring"},
		{[]string{"ring", "--tokn", "x"}, `unknown flag --tokn, did you mean "--token"?`, "ringside ring"},
	} {
		got := ringside(t, nil, test.args...)
		if got.code != exitUsage || got.stdout != "" || !strings.HasPrefix(got.stderr, "ringside: "+test.want) ||
			!strings.HasSuffix(got.stderr, "\nringside: try "+test.help+" --help\n") {
			t.Errorf("%q: %v", test.args, got)
		}
	}
	for _, args := range [][]string{{"--help"}, {"ring", "--help"}} {
		if got := ringside(t, nil, args...); got.code != 0 || !strings.HasPrefix(got.stdout, "Usage: ringside") || got.stderr != "" {
			t.Errorf("%q: %v", args, got)
		}
	}
}

// answering returns the address of a server that answers everything alike.
func answering(t *testing.T, status int, body string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer right" {
			status, body = http.StatusOK, ringJSON
		}
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// speaking returns the address of a server that says something else than HTTP and closes.
func speaking(t *testing.T, text string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 4096)) // else closing would reset the connection
			_, _ = c.Write([]byte(text))
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

// closedPort returns an address that nobody listens on.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestFailures(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // connects, never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, test := range []struct {
		name  string
		admin string
		args  []string
		env   map[string]string
		want  string // HOST stands for the address
	}{
		{"nobody there", closedPort(t), nil, nil, "no sidecar listens on HOST: start one (ringside serve), or name another with --admin"},
		{"silence", silent.Addr().String(), []string{"--timeout=50ms"}, nil,
			"HOST did not answer within 50ms: wait longer with --timeout, or ask another sidecar with --admin"},
		{"Redis", speaking(t, "-ERR unknown command\r\n"), nil, nil, "HOST does not speak HTTP: name the admin address, not the Redis one, with --admin"},
		{"a closed connection", speaking(t, ""), nil, nil, "HOST does not speak HTTP: name the admin address, not the Redis one, with --admin"},
		{"no token", answering(t, 401, "who?"), nil, nil, "HOST wants a token: set RINGSIDE_TOKEN, or --token"},
		{"wrong token", answering(t, 403, `{"error":"wrong token"}`), nil, map[string]string{"RINGSIDE_TOKEN": "x"}, "HOST refuses the token: wrong token"},
		{"another server", answering(t, 404, "404 page not found\n"), nil, nil,
			"HOST does not know /ring (404 page not found): is it the admin address of a sidecar of this version?"},
		{"a failure", answering(t, 500, ""), nil, nil, "HOST answers 500 Internal Server Error: no reason given"},
		{"a redirect", answering(t, 302, ""), nil, nil, "HOST answers 302 Found: no reason given"},
		{"a web page", answering(t, 200, "<html>"), nil, nil,
			"HOST answers /ring with something that is not JSON: is it the admin address of a sidecar?"},
		{"another version", answering(t, 200, `{"epoch":"seven"}`), nil, nil,
			"the answer to /ring is not understood (is the sidecar of another version?): " +
				"json: cannot unmarshal string into Go struct field ringAnswer.epoch of type uint64"},
		{"no address", "", nil, nil, `--admin is "": it must be host:port or the URL of a sidecar's admin interface`},
		{"another scheme", "redis://h:1", nil, nil, `--admin is "redis://h:1": it must be host:port or the URL of a sidecar's admin interface`},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := append([]string{"ring", "--admin=" + test.admin}, test.args...)
			code := exitFailed
			if strings.HasPrefix(test.want, "--admin is ") {
				code = exitUsage
			}
			ringside(t, test.env, args...).want(t, code, "", "ringside: "+strings.ReplaceAll(test.want, "HOST", test.admin)+"\n")
		})
	}
}

func TestToken(t *testing.T) {
	host := answering(t, 401, "")
	if got := ringside(t, nil, "ring", "--admin", host, "--token", "right"); got.code != 0 {
		t.Errorf("by flag: %v", got)
	}
	if got := ringside(t, map[string]string{"RINGSIDE_TOKEN": "right"}, "ring", "--admin", answering(t, 401, "")); got.code != 0 {
		t.Errorf("by environment: %v", got)
	}
}

func TestInterrupted(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	code := run(ctx, []string{"ring", "--admin", silent.Addr().String()}, func(string) string { return "" }, &stdout, &stderr)
	result{code, stdout.String(), stderr.String()}.want(t, 1, "", "ringside: interrupted\n")
}

func TestSimulate(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"simulate", "--servers", "3", "--keys", "1000"}, func(string) string { return "" }, &out, &errs); code != exitDone {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	for _, want := range []string{"CHANGE", "modulo moves 66679 (66.68%); 16 buckets, of which 6 move: 37500 (37.50%)", "1000 cache servers are placed in"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	for _, bad := range [][]string{{"--servers", "0"}, {"--keys", "0"}, {"--weights", "5000"}, {"--weights", "0"}} {
		errs.Reset()
		if code := run(t.Context(), append([]string{"simulate"}, bad...), func(string) string { return "" }, &out, &errs); code != exitUsage || strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("%v: exit %d, %q", bad, code, errs.String())
		}
	}
}
