package admin

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"ringside/sidecar/topology"
)

func post(s *Server, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.RemoteAddr, r.Host = here, "127.0.0.1:6381"
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	return answer(s, r)
}

const withToken = "Authorization: Bearer " + token

func TestChanges(t *testing.T) {
	s := newSetup(t, small(t))
	var asked Change
	var fails error
	s.deps.Change = func(_ context.Context, c Change) (Changed, error) {
		asked = c
		return Changed{Epoch: 8, State: "joining"}, fails
	}
	server := s.server(t)
	const changed = `{"epoch":8,"state":"joining"}`
	for _, test := range []struct {
		path, body string
		fails      error
		code       int
		want       string
		asked      Change
	}{
		{"/caches/add", `{"name":"c4","addr":"h:1"}`, nil, 200, changed, Change{AddCache, "c4", "h:1", 1, false}},
		{"/caches/add", `{"name":"c4","addr":"h:1","weight":0,"flush":true}`, nil, 200, changed, Change{AddCache, "c4", "h:1", 0, true}},
		{"/caches/drain", `{"name":"c1"}`, nil, 200, changed, Change{DrainCache, "c1", "", 1, false}},
		{"/caches/weight", `{"name":"c1","weight":-1}`, nil, 200, changed, Change{WeighCache, "c1", "", -1, false}},
		{"/caches/remove", `{"name":""}`, nil, 200, changed, Change{RemoveCache, "", "", 1, false}},
		{"/caches/drain", `{"name":"c1"}`, &BadChangeError{"bad name"}, 400, `{"error":"bad name"}`, Change{DrainCache, "c1", "", 1, false}},
		{"/caches/drain", `{"name":"c1"}`, &topology.Refusal{Unknown: true, Reason: "there is no c1"}, 404, `{"error":"there is no c1"}`, Change{DrainCache, "c1", "", 1, false}},
		{"/caches/drain", `{"name":"c1"}`, &topology.Refusal{Reason: "not now"}, 409, `{"error":"not now"}`, Change{DrainCache, "c1", "", 1, false}},
		{"/caches/drain", `{"name":"c1"}`, errors.New("no catalog"), 503, `{"error":"no catalog"}`, Change{DrainCache, "c1", "", 1, false}},
		{"/caches/add", ``, nil, 400, `{"error":"the body must be a JSON object such as {\"name\":\"c4\",\"addr\":\"10.0.0.4:6379\",\"weight\":1,\"flush\":false}: EOF"}`, Change{}},
		{"/caches/add", `{"name":"c4"}`, nil, 400, `{"error":"addr is missing: write {\"name\":\"c4\",\"addr\":\"10.0.0.4:6379\",\"weight\":1,\"flush\":false}"}`, Change{}},
		{"/caches/weight", `{"name":"c4"}`, nil, 400, `{"error":"weight is missing: write {\"name\":\"c4\",\"weight\":2}"}`, Change{}},
		{"/caches/drain", `{}`, nil, 400, `{"error":"name is missing: write {\"name\":\"c4\"}"}`, Change{}},
		{"/caches/drain", `{"name":"c4","flush":true}`, nil, 400, `{"error":"drain has no flush: write {\"name\":\"c4\"}"}`, Change{}},
		{"/caches/drain", `{"nam":"c4"}`, nil, 400, `{"error":"the body must be a JSON object such as {\"name\":\"c4\"}: unknown field \"nam\""}`, Change{}},
		{"/caches/drain", `{"name":"c4"} {}`, nil, 400, `{"error":"the body must be one JSON object such as {\"name\":\"c4\"}"}`, Change{}},
		{"/caches/weight", `{"name":"c4","weight":1.5}`, nil, 400,
			`{"error":"the body must be a JSON object such as {\"name\":\"c4\",\"weight\":2}: cannot unmarshal number 1.5 into Go struct field .weight of type int64"}`, Change{}},
	} {
		asked, fails = Change{}, test.fails
		w := post(server, test.path, test.body, withToken)
		if got := strings.TrimSpace(w.Body.String()); w.Code != test.code || got != test.want || asked != test.asked {
			t.Errorf("%s %s: %d %s, asked %+v\nwant %d %s, %+v", test.path, test.body, w.Code, got, asked, test.code, test.want, test.asked)
		}
	}
	asked, fails = Change{}, nil
	if w := post(server, "/caches/drain", `{"name":"`+strings.Repeat("x", maxChange)+`"}`, withToken); w.Code != 400 || asked != (Change{}) {
		t.Errorf("a body without end: %d", w.Code)
	}
	if log := s.logs.String(); !strings.Contains(log, "changed by an operator") || !strings.Contains(log, "server=c4") || strings.Contains(log, token) {
		t.Errorf("the log:\n%s", log)
	}
}

// TestOnlyTheTokenChangesAnything guards I6: no web page has it, and it counts in its header only.
func TestOnlyTheTokenChangesAnything(t *testing.T) {
	for _, test := range []struct {
		name, token string
		headers     []string
		code        int
		want        string
	}{
		{"the token", token, []string{withToken}, 200, ""},
		{"the token, by a program in a browser that was given it", token, []string{withToken, "Sec-Fetch-Site: cross-site", "Origin: https://evil.example"}, 200, ""},
		{"this machine alone is not enough", token, nil, 401, "changes need the token (Authorization: Bearer TOKEN)"},
		{"a wrong one", token, []string{withToken + "x"}, 401, "the token is wrong"},
		{"none is configured", "", nil, 403, "no admin.token is configured, so nothing can be changed: configure one and restart the sidecar"},
		{"none is configured, and an empty one given", "", []string{"Authorization: Bearer "}, 403, "no admin.token is configured, so nothing can be changed: configure one and restart the sidecar"},
		{"our own page", token, []string{"Sec-Fetch-Site: same-origin", "Origin: http://127.0.0.1:6381"}, 401, "changes need the token (Authorization: Bearer TOKEN)"},
		{"another page", token, []string{"Sec-Fetch-Site: cross-site", "Content-Type: text/plain"}, 403, "other web pages may not read this: open it by its address"},
		{"a cookie", token, []string{"Cookie: token=" + token}, 401, "changes need the token (Authorization: Bearer TOKEN)"},
	} {
		s := newSetup(t, small(t))
		s.cfg.Token = test.token
		made := false
		s.deps.Change = func(context.Context, Change) (Changed, error) {
			made = true
			return Changed{}, nil
		}
		w := post(s.server(t), "/caches/drain", `{"name":"c1"}`, test.headers...)
		if w.Code != test.code || made != (test.code == 200) || !strings.Contains(w.Body.String(), test.want) {
			t.Errorf("%s: %d %s", test.name, w.Code, w.Body)
		}
		for name := range w.Header() {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s: a browser is told that others may: %s", test.name, name)
			}
		}
	}
	server := newSetup(t, small(t)).server(t)
	for _, method := range []string{http.MethodGet, http.MethodOptions, http.MethodPut} {
		w := answer(server, request(method, "/caches/add", withToken))
		if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "POST" {
			t.Errorf("%s: %d, Allow %q", method, w.Code, w.Header().Get("Allow"))
		}
	}
	if w := post(newSetup(t, nil).server(t), "/caches/drain", `{"name":"c1"}`, withToken); w.Code != http.StatusServiceUnavailable {
		t.Errorf("without a topology: %d", w.Code)
	}
}

func TestProgress(t *testing.T) {
	s := newSetup(t, small(t))
	server := s.server(t)
	const nothing = `{"epoch":0,"changing":false,"summary":"","shards":[],"handovers":[],"servers":[],"lost":[]}`
	if got := strings.TrimSpace(get(server, "/changes").Body.String()); got != nothing {
		t.Errorf("nothing: %s", got)
	}
	s.deps.Progress = func() Progress {
		return Progress{
			Epoch: 9, Changing: true, Summary: "keys from c1: 5 <carried>",
			Shards:    []ShardProgress{{Name: "s1", Epoch: 9, Phase: "active"}},
			Handovers: []HandoverProgress{{From: "c1", Since: 9, Step: "handed", Seen: 7, Carried: 5, Swept: 1, Dropped: 1, Fault: "slow"}},
			Servers:   []ServerProgress{{Name: "c1", State: topology.Draining, Well: true, Needed: 2}, {Name: "c2", State: topology.Active, Fault: "gone", Votes: []string{"a1"}, Needed: 2}},
			Lost:      []Loss{{From: "c2", Since: 7, Epoch: 8}},
		}
	}
	server = s.server(t)
	const want = `{"epoch":9,"changing":true,"summary":"keys from c1: 5 \u003ccarried\u003e","shards":[{"name":"s1","epoch":9,"phase":"active","done":false,"down":0}],` +
		`"handovers":[{"from":"c1","since":9,"step":"handed","done":false,"keys_seen":7,"keys_carried":5,"keys_swept":1,"keys_dropped":1,"fault":"slow"}],` +
		`"servers":[{"name":"c1","state":"draining","well":true,"fault":"","votes":[],"needed":2},{"name":"c2","state":"active","well":false,"fault":"gone","votes":["a1"],"needed":2}],"lost":[{"from":"c2","since":7,"epoch":8}]}`
	if got := strings.TrimSpace(get(server, "/changes").Body.String()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	body, _ := pageOfServer(t, s, "/ring")
	contains(t, body, `<p class="change">keys from c1: 5 &lt;carried&gt;</p>`)
	s.deps.Progress = func() Progress { return Progress{Epoch: 9} }
	if body, _ := pageOfServer(t, s, "/ring"); strings.Contains(body, `class="change"`) {
		t.Error("the page shows a change that is none")
	}
}
