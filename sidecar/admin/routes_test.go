package admin

import (
	"net/http"
	"strings"
	"testing"

	"ringside/sidecar/topology"
)

func TestAnswers(t *testing.T) {
	s := newSetup(t, overridden(t))
	s.deps.Members = func() []Member {
		return []Member{{Name: "a1", Addr: "10.0.0.1:7946", Redis: "127.0.0.1:6380", Admin: "127.0.0.1:6381", Version: "v1", Boot: "b1", Epoch: 7, Digest: "00ff", State: "alive", Self: true}}
	}
	s.deps.Pools = func() []Pool {
		return []Pool{{Name: "s1", Budget: 64, Limit: 32, InUse: 1, Idle: 2, Waiting: 3, OldestWaitMS: 4, Served: 5, Shed: 6, State: "down", LastError: "refused", Diagnosis: "down", Refused: 7, SpareShed: 8}}
	}
	server := s.server(t)
	const paths = "/ /caches/add /caches/drain /caches/remove /caches/weight /changes /healthz /history /hotkeys /invalidation /members /metrics /moves /moves/cancel /moves/plan /moves/start /moves/verify /overrides/clear /overrides/set /pools /readyz /ring /ring/lookup /ring/preview /shards/add /shards/attach /shards/remove /shards/weight /topology /verify"
	for _, test := range []struct {
		method, target string
		code           int
		kind, body     string
	}{
		{"GET", "/members", 200, typeJSON, `{"members":[{"name":"a1","addr":"10.0.0.1:7946","redis":"127.0.0.1:6380","admin":"127.0.0.1:6381","version":"v1",` +
			`"boot":"b1","epoch":7,"digest":"00ff","state":"alive","self":true}]}`},
		{"GET", "/pools", 200, typeJSON, `{"shards":[{"name":"s1","budget":64,"limit":32,"in_use":1,"idle":2,"waiting":3,"oldest_wait_ms":4,"served":5,"shed":6,` +
			`"state":"down","last_error":"refused","diagnosis":"down","refused":7,"spare_shed":8}]}`},
		{"GET", "/moves", 200, typeJSON, `{"moves":[]}`},
		{"GET", "/healthz", 200, typeText, "ok"},
		{"GET", "/readyz", 200, typeText, "ready"},
		{"HEAD", "/healthz", 200, typeText, ""},
		{"GET", "/ring/lookup?key=user:42", 200, typeJSON,
			`{"key":"user:42","keyspace":"user","cache_vnode":51110,"cache":"c2","shard_key":"42","shard_vnode":48216,"shard":"s2","epoch":7}`},
		{"GET", "/ring/lookup?key=order:acme:1", 200, typeJSON,
			`{"key":"order:acme:1","keyspace":"order","cache_vnode":63582,"cache":"c1","shard_key":"acme","shard_vnode":42041,"shard":"s1","epoch":7}`},
		{"GET", "/ring/lookup?key=hello", 200, typeJSON, `{"key":"hello","keyspace":"plain","cache_vnode":9355,"cache":"c2","epoch":7}`},
		{"GET", "/ring/lookup?key=a%26b%20%7Bhello%7D", 200, typeJSON, `{"key":"a\u0026b {hello}","keyspace":"plain","cache_vnode":9355,"cache":"c2","epoch":7}`},
		{"GET", "/ring/lookup?key=", 200, typeJSON, `{"key":"","keyspace":"plain","cache_vnode":0,"cache":"c2","epoch":7}`},
		{"GET", "/ring/lookup?key=user:042", 400, typeJSON, `{"error":"key \"user:042\" of keyspace user: field id is \"042\": write 42"}`},
		{"GET", "/ring/lookup", 400, typeJSON, `{"error":"0 keys are given: write /ring/lookup?key=KEY, percent-encoded"}`},
		{"GET", "/ring/lookup?key=a&key=b", 400, typeJSON, `{"error":"2 keys are given: write /ring/lookup?key=KEY, percent-encoded"}`},
		{"GET", "/ring/lookup?key=%zz", 400, typeJSON, `{"error":"the query is malformed: invalid URL escape \"%zz\""}`},
		{"GET", "/ring?format=xml", 400, typeJSON, `{"error":"format is \"xml\": it must be json or html"}`},
		{"GET", "/hotkey", 404, typeJSON, `{"error":"there is no \"/hotkey\" here, but: ` + paths + `"}`},
		{"GET", "/debug/pprof/", 404, typeJSON, `{"error":"there is no \"/debug/pprof/\" here, but: ` + paths + `"}`},
		{"GET", "/ring/", 404, typeJSON, `{"error":"there is no \"/ring/\" here, but: ` + paths + `"}`},
		{"POST", "/ring", 405, typeJSON, `{"error":"/ring can only be read: GET or HEAD, not \"POST\""}`},
		{"OPTIONS", "/metrics", 405, typeJSON, `{"error":"/metrics can only be read: GET or HEAD, not \"OPTIONS\""}`},
	} {
		w := answer(server, request(test.method, test.target))
		if got := strings.TrimSuffix(w.Body.String(), "\n"); w.Code != test.code || got != test.body || w.Header().Get("Content-Type") != test.kind {
			t.Errorf("%s %s: %d %s\n%s\nwant %d\n%s", test.method, test.target, w.Code, w.Header().Get("Content-Type"), got, test.code, test.body)
		}
		if allow := w.Header().Get("Allow"); (allow == "GET, HEAD") != (test.code == 405) {
			t.Errorf("%s %s: Allow is %q", test.method, test.target, allow)
		}
	}
}

func TestEmptyLists(t *testing.T) {
	server := newSetup(t, bootstrap(t, nil, nil)).server(t)
	for target, want := range map[string]string{"/members": `{"members":[]}`, "/pools": `{"shards":[]}`} {
		if got := strings.TrimSpace(get(server, target).Body.String()); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
	const start = `{"epoch":1,"vnodes":65536,"caches":[],"shards":[],"overrides":[],"owners":{"cache":"////`
	if got := get(server, "/ring").Body.String(); !strings.HasPrefix(got, start) {
		t.Errorf("/ring begins %.120s", got)
	}
}

func TestRootLeadsToTheRing(t *testing.T) {
	w := get(newSetup(t, small(t)).server(t), "/")
	if w.Code != http.StatusFound || w.Header().Get("Location") != "/ring" {
		t.Errorf("got %d to %q", w.Code, w.Header().Get("Location"))
	}
}

func TestWithoutTopology(t *testing.T) {
	s := newSetup(t, nil)
	s.deps.Ready = func() error { return errStarting }
	server := s.server(t)
	for target, want := range map[string]string{
		"/ring":             "no topology yet: the sidecar is still starting",
		"/ring/lookup?key=": "no topology yet: the sidecar is still starting",
		"/topology":         "no topology yet: the sidecar is still starting",
		"/readyz":           "not ready: shard s1 has not answered yet",
	} {
		w := get(server, target)
		if got := strings.TrimSpace(w.Body.String()); w.Code != http.StatusServiceUnavailable || got != `{"error":"`+want+`"}` {
			t.Errorf("%s: %d %s", target, w.Code, got)
		}
	}
	for _, target := range []string{"/healthz", "/members", "/pools", "/moves", "/metrics"} {
		if w := get(server, target); w.Code != http.StatusOK {
			t.Errorf("%s: %d", target, w.Code)
		}
	}
	w := get(server, "/ring", "Accept: text/html")
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "a1 is starting") {
		t.Errorf("the page: %d\n%s", w.Code, w.Body)
	}
}

func TestMetrics(t *testing.T) {
	w := get(newSetup(t, small(t)).server(t), "/metrics")
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "ringside_test_served_total 3") {
		t.Errorf("got %d\n%s", w.Code, w.Body)
	}
}

func TestProfiles(t *testing.T) {
	s := newSetup(t, small(t))
	s.cfg.Pprof = true
	server := s.server(t)
	for _, target := range []string{"/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=1", "/debug/pprof/symbol"} {
		if w := get(server, target); w.Code != http.StatusOK || w.Body.Len() == 0 {
			t.Errorf("%s: %d", target, w.Code)
		}
	}
	if w := get(server, "/debug/pprof/nothing"); w.Code != http.StatusNotFound {
		t.Errorf("an unknown profile: %d", w.Code)
	}
}

func TestHeaders(t *testing.T) {
	server := newSetup(t, small(t)).server(t)
	for _, target := range []string{"/ring", "/ring?format=html", "/healthz", "/nothing", "/metrics"} {
		h := get(server, target).Header()
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%s: %s is %q", target, name, got)
			}
		}
		policy := h.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; ") || !strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: policy %q", target, policy)
		}
		for name := range h {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s: invites other pages: %s", target, name)
			}
		}
	}
}

// TestPanicIsOneBrokenAnswer: the sidecar goes on.
func TestPanicIsOneBrokenAnswer(t *testing.T) {
	s := newSetup(t, small(t))
	s.deps.Members = func() []Member { panic("members broke") }
	server := s.server(t)
	w := get(server, "/members")
	if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), `{"error":`) || strings.Contains(w.Body.String(), "members broke") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if log := s.logs.String(); !strings.Contains(log, "members broke") || !strings.Contains(log, "routes_test.go") {
		t.Errorf("the log has no cause or no stack:\n%s", log)
	}
	if w := get(server, "/healthz"); w.Code != http.StatusOK {
		t.Errorf("after the panic: %d", w.Code)
	}
}

func TestNewRefuses(t *testing.T) {
	for name, change := range map[string]func(*setup){
		"listen is \"app:80\"":    func(s *setup) { s.cfg.Listen = "app:80" },
		"token must be printable": func(s *setup) { s.cfg.Token = "two words" },
		"must all be given":       func(s *setup) { s.deps.Topology = (*topology.Holder)(nil) },
	} {
		s := newSetup(t, nil)
		change(s)
		if _, err := New(s.cfg, s.deps); err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "two words") {
			t.Errorf("want %q, got %v", name, err)
		}
	}
}
