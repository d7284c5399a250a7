package admin

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"ringside/sidecar/topology"
)

// What operators ask for reaches what does it, once it is well-formed, and nobody else's does.
func TestOrders(t *testing.T) {
	s := newSetup(t, small(t))
	var done string
	note := func(format string, args ...any) { done = fmt.Sprintf(format, args...) }
	s.deps.Shards.Start = func(_ context.Context, want MoveRequest) (MoveStarted, error) {
		note("%s", strings.TrimSpace(fmt.Sprintf("start %s %d-%d %s", want.To, want.First, want.Last, want.Key)+map[bool]string{true: "by load"}[want.ByLoad]))
		return MoveStarted{ID: 7, Parts: 2, Vnodes: 5}, nil
	}
	s.deps.Shards.Cancel = func(_ context.Context, id int64) error {
		note("cancel %d", id)
		if id != 7 {
			return &topology.Refusal{Unknown: true, Reason: "there is no move 8"}
		}
		return nil
	}
	s.deps.Shards.Add = func(_ context.Context, n NewShard) (Changed, error) {
		note("add %+v", n)
		return Changed{Epoch: 9, State: "active"}, nil
	}
	s.deps.Shards.Weigh = func(_ context.Context, name string, weight int64) (Changed, error) {
		note("weigh %s %d", name, weight)
		return Changed{}, &topology.Refusal{Reason: "no"}
	}
	s.deps.Shards.Remove = func(_ context.Context, name string) (Changed, error) {
		note("remove %s", name)
		return Changed{Epoch: 9, State: "gone"}, nil
	}
	s.deps.Shards.Attach = func(_ context.Context, table string) (Attached, error) {
		note("attach %s", table)
		return Attached{Table: table, Shards: []string{"s1"}}, nil
	}
	server := s.server(t)
	for _, c := range []struct {
		target, body string
		code         int
		did, said    string
	}{
		{"/moves/start", `{}`, 200, "start  0-0", `{"id":7,"parts":2,"vnodes":5,"rows":0}`},
		{"/moves/start", `{"vnodes":"0-1023","to":"s2"}`, 200, "start s2 0-1023", `"id":7`},
		{"/moves/start", `{"vnodes":"65535","to":"s2"}`, 200, "start s2 65535-65535", `"id":7`},
		{"/moves/start", `{"vnodes":"0-65536","to":"s2"}`, 400, "", "from 0 to 65535"},
		{"/moves/start", `{"vnodes":"5-4","to":"s2"}`, 400, "", "from 0 to 65535"},
		{"/moves/start", `{"to":"s2"}`, 400, "", "go together"},
		{"/moves/start", `{"by":"load"}`, 200, "start  0-0 by load", `"id":7`},
		{"/moves/start", `{"by":"load","to":"s2","vnodes":"1"}`, 400, "", "nothing else can be named"},
		{"/moves/start", `{"by":"rows"}`, 400, "", "must be load or vnodes"},
		{"/overrides/set", `{"shard_key":"acme","shard":"s2"}`, 200, "start s2 0-0 acme", `"id":7`},
		{"/overrides/set", `{"shard_key":"acme"}`, 400, "", "shard_key or shard is missing"},
		{"/overrides/clear", `{"shard_key":"acme"}`, 200, "start  0-0 acme", `"id":7`},
		{"/overrides/clear", `{}`, 400, "", "shard_key is missing"},
		{"/shards/remove", `{"name":"s3"}`, 200, "remove s3", `"state":"gone"`},
		{"/moves/start", `{"shard":"s2"}`, 400, "", "unknown field"},
		{"/moves/start", ``, 400, "", "write such as"},
		{"/moves/cancel", `{"id":7}`, 200, "cancel 7", `{"id":7}`},
		{"/moves/cancel", `{"id":8}`, 404, "cancel 8", "no move 8"},
		{"/shards/add", `{"name":"s3","dsn":"d"}`, 200, "add {Name:s3 DSN:d Weight:1 MaxConnections:64}", `{"epoch":9,"state":"active"}`},
		{"/shards/weight", `{"name":"s3"}`, 400, "", "weight is missing"},
		{"/shards/weight", `{"name":"s3","weight":0}`, 409, "weigh s3 0", "no"},
		{"/shards/attach", `{"table":"users"}`, 200, "attach users", `{"table":"users","shards":["s1"]}`},
	} {
		done = ""
		w := post(server, c.target, c.body, withToken)
		if got := w.Body.String(); w.Code != c.code || done != c.did || !strings.Contains(got, c.said) {
			t.Errorf("%s %s: %d, did %q, said %s", c.target, c.body, w.Code, done, got)
		}
		done = ""
		if w := post(server, c.target, c.body); w.Code != http.StatusUnauthorized || done != "" {
			t.Errorf("%s without the token: %d, did %q", c.target, w.Code, done)
		}
		if w := get(server, c.target, withToken); w.Code != http.StatusMethodNotAllowed || done != "" {
			t.Errorf("GET %s: %d, did %q", c.target, w.Code, done)
		}
	}
}

func TestMovesAreShown(t *testing.T) {
	s := newSetup(t, small(t))
	s.deps.Shards.Moves = func(context.Context) ([]MovePart, error) {
		return []MovePart{{Move: 1, Part: 2, From: "s1", State: "running"}}, nil
	}
	s.deps.Shards.Plan = func(_ context.Context, want MoveRequest) (MovePlan, error) {
		return MovePlan{Vnodes: want.Last, Refused: []string{"why not"}}, nil
	}
	s.deps.Shards.Verify = func(context.Context) (MoveVerification, error) { return MoveVerification{Epoch: 3}, nil }
	server := s.server(t)
	for target, want := range map[string]string{
		"/moves":                       `{"moves":[{"move":1,"part":2,"from":"s1"`,
		"/moves/plan?vnodes=0-7&to=s2": `"vnodes":7,"rows":0,"bytes":0,"seconds":0,"refused":["why not"],"notes":[]`,
		"/moves/plan?vnodes=0-7":       `go together`,
		"/moves/verify":                `{"epoch":3,"shards":[],"faults":[]}`,
	} {
		if got := get(server, target).Body.String(); !strings.Contains(got, want) {
			t.Errorf("%s: %s", target, got)
		}
	}
}
