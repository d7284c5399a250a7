package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ringside/internal/localcluster"
	"ringside/loadtest"
)

// startDemo starts a small cluster, of which this test program is the sidecar, and returns it with the file that the demo would have printed.
func startDemo(t *testing.T, rows int) (*localcluster.Cluster, string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := localcluster.DefaultOptions()
	o.Binary, o.Caches, o.Shards, o.Rows, o.Config = self, 2, 1, rows, "limits: { cache_down_after: 20s }\nview_ttl: 400ms\ninvalidation: off\n"
	o.Env = func(*localcluster.Cluster, string) []string { return []string{asProgram + "=1"} }
	if o.BasePort, err = localcluster.FreeBase(o); err != nil {
		t.Fatal(err)
	}
	c, err := localcluster.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	text, err := json.Marshal(readyOf(c))
	if err != nil {
		t.Fatal(err)
	}
	return c, writeFile(t, "demo.json", string(text))
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestLoadtestOfACluster(t *testing.T) {
	cluster, demo := startDemo(t, 400)
	t.Run("exercise", func(t *testing.T) { loadtestExercise(t, cluster, demo) })
	t.Run("scenario", func(t *testing.T) { loadtestScenario(t, cluster, demo) })
}

// The known exercise: with modulo routing the rows that get another server are read from the shards once more, with ringside next to none, and
// the fleet is afterwards what it was before.
func loadtestExercise(t *testing.T, cluster *localcluster.Cluster, demo string) {
	file := filepath.Join(t.TempDir(), "report.html")
	got := ringside(t, nil, "loadtest", "--demo", demo, "--exercise", "--compare", "postgres", "--rate", "800", "--duration", "3s", "--keys", "400",
		"--connections", "8", "--request-timeout", "30s", "--html", file, "--json")
	var r loadtest.Report
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil || got.code != exitDone || len(r.Results) != 3 {
		t.Fatalf("%v: %v", err, got)
	}
	own, postgres, modulo := r.Results[0], r.Results[1], r.Results[2]
	for _, x := range r.Results {
		if x.Requests != 2400 || x.Failed > 120 || x.Check.Reads+x.Failed != 2400 || x.Check.Stale+x.Check.Lost != 0 {
			t.Errorf("%s: %d requests, errors %v, check %+v", x.Name, x.Requests, x.Errors, x.Check)
		}
	}
	// 1600 reads after the change of 400 rows: two of a hundred are not among them.
	moved := loadtest.Rerouted(400, 2, 3)
	if modulo.ShardReads < 0.9*float64(moved) || modulo.ShardReads > 1.5*float64(moved) {
		t.Errorf("modulo routing reads %v rows once more, want about %d", modulo.ShardReads, moved)
	}
	// On a machine that is much too busy a shard is now and then not heard of in time, and its rows are read from it for a moment.
	if own.ShardReads >= modulo.ShardReads || own.HitRatio < 0.85 || postgres.ShardReads != float64(postgres.Check.Reads) || postgres.HitRatio != -1 {
		t.Errorf("ringside reads %v rows, with a hit ratio of %v; PostgreSQL alone reads %v", own.ShardReads, own.HitRatio, postgres.ShardReads)
	}
	html, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(html), "cache add spare at ") || !strings.Contains(string(html), "modulo routing") {
		t.Errorf("the report: %v, %d bytes", err, len(html))
	}
	if ring := ringside(t, nil, "ring", "--admin", cluster.Sidecars[0].Admin); strings.Contains(ring.stdout, "spare") {
		t.Errorf("the spare server was not taken away again: %v", ring)
	}
}

// A short load of a real cluster while a cache server joins and a sidecar stands still for a moment: everything is accounted for, the pause is
// seen by all requests that were due in it, and no value is older than it may be.
func loadtestScenario(t *testing.T, cluster *localcluster.Cluster, demo string) {
	scenario := writeFile(t, "events.yaml", "events:\n  - { at: 500ms, do: cache add spare }\n  - { at: 2s, do: pause a2 }\n  - { at: 2400ms, do: resume a2 }\n")
	got := ringside(t, nil, "loadtest", "--demo", demo, "--rate", "300", "--duration", "4s", "--keys", "400", "--reads", "0.9", "--connections", "8",
		"--request-timeout", "30s", "--warm", "--scenario", scenario, "--json")
	var r loadtest.Report
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil || got.code != exitDone || len(r.Results) != 1 {
		t.Fatalf("%v: %v", err, got)
	}
	x := r.Results[0]
	if x.Requests != 1200 || x.Reads+x.Writes != 1200 || x.Writes < 60 || x.All.Count != 1200-x.Failed {
		t.Errorf("%d requests, %d reads, %d writes, %d with a latency; want 1200, of which a tenth writes", x.Requests, x.Reads, x.Writes, x.All.Count)
	}
	if x.Failed > 60 || x.Check.Stale != 0 || x.Check.Lost != 0 || x.Check.Reads < x.Reads-x.Failed {
		t.Errorf("%d failed %v, check %+v", x.Failed, x.Errors, x.Check)
	}
	// Of those due while a2 stood still a half went to it: a twentieth of all, of which a closed loop would have seen as many as it has connections.
	paused := (x.Events[2].At - x.Events[1].Until).Microseconds()
	if paused <= 0 || x.All.P99 < paused/2 || x.All.Max < paused*9/10 {
		t.Errorf("a pause of %d us is hidden: %+v", paused, x.All)
	}
	if x.HitRatio < 0.5 || x.HitRatio > 1 || x.ShardReads < 0 || x.ShardReads > float64(x.Reads) {
		t.Errorf("hit ratio %v, shard reads %v of %d reads", x.HitRatio, x.ShardReads, x.Reads)
	}
	var requests uint64
	for _, s := range x.Seconds {
		requests += s.Requests
	}
	if requests != 1200 || len(x.Seconds) != 4 || x.Seconds[1].Requests != 300 {
		t.Errorf("%d requests in %d seconds: %+v", requests, len(x.Seconds), x.Seconds)
	}
	for i, name := range []string{"cache add spare", "pause a2", "resume a2"} {
		if e := x.Events[i]; e.Name != name || e.Error != "" || e.Until < e.At {
			t.Errorf("event %d: %+v", i, e)
		}
	}
	ring := ringside(t, nil, "ring", "--admin", cluster.Sidecars[0].Admin)
	if !strings.Contains(ring.stdout, "spare") || strings.Contains(ring.stdout, "joining") {
		t.Errorf("after the event: %v", ring)
	}
	if x.Generator.Micros <= 0 || x.Generator.Lag.Count != 1200 || x.TargetMicros <= 0 {
		t.Errorf("cost %+v, target %v", x.Generator, x.TargetMicros)
	}
	if strings.Count(got.stderr, " requests  ") < 3 {
		t.Errorf("progress: %s", got.stderr)
	}
}

func TestLoadtestCalledWrongly(t *testing.T) {
	demo := writeFile(t, "demo.json", `{"sidecars":[{"name":"a1","redis":"127.0.0.1:1","admin":"127.0.0.1:2","pid":0}],"spares":[{"name":"spare","addr":"127.0.0.1:3"}]}`)
	events := func(text string) string { return writeFile(t, "events.yaml", "events:\n  - "+text+"\n") }
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "name what is to be loaded: --demo FILE"},
		{[]string{"--demo", demo, "--addr", "x:1"}, "--demo says where the sidecars are"},
		{[]string{"--demo", demo + "x"}, "--demo: open "},
		{[]string{"--demo", events("x")}, "--demo: "},
		{[]string{"--demo", demo, "--rate", "0"}, "--rate is 0; allowed are 1 to 1000000"},
		{[]string{"--demo", demo, "--duration", "0s"}, "--duration is 0s"},
		{[]string{"--demo", demo, "--value-size", "10-x"}, `--value-size is "10-x"`},
		{[]string{"--demo", demo, "--value-size", "10-5"}, "--value-size is 10-5"},
		{[]string{"--demo", demo, "--pattern", "user"}, `the key pattern is "user"`},
		{[]string{"--demo", demo, "--version-column", "a\"b"}, "--version-column and --text-column"},
		{[]string{"--demo", demo, "--reads", "2"}, "--reads is 2"},
		{[]string{"--demo", demo, "--scenario", "/nonexistent"}, "--scenario: open /nonexistent"},
		{[]string{"--demo", demo, "--scenario", events("{ at: 1s, do: dance }")}, `event "dance": there is no such event`},
		{[]string{"--demo", demo, "--scenario", events("{ at: 1s, do: kill c9 }")}, `event "kill c9": the demo has no process c9: it has a1, spare`},
		{[]string{"--demo", demo, "--scenario", events("{ at: 1s, do: cache dance }")}, `event "cache dance": unexpected argument dance`},
		{[]string{"--demo", demo, "--scenario", events("{ at: 30s, do: cache add spare }")}, `event "cache add spare": it is due at 30s`},
		{[]string{"--addr", "127.0.0.1:1", "--scenario", events("{ at: 1s, do: kill c1 }")}, `event "kill c1": processes are known only with --demo`},
		{[]string{"--addr", "127.0.0.1:1", "--scenario", events("{ at: 1s, do: cache drain c1 }")}, `event "cache drain c1": it needs the admin address`},
		{[]string{"--demo", demo, "--html", "/nonexistent/x.html"}, "--html: open /nonexistent/x.html"},
	} {
		got := ringside(t, nil, append([]string{"loadtest"}, c.args...)...)
		if got.code != exitUsage || got.stdout != "" || !strings.HasPrefix(got.stderr, "ringside: "+c.want) || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%q: %v", c.args, got)
		}
	}
}

// A target that cannot be loaded, or tells nothing, is no success.
func TestLoadtestOfNothing(t *testing.T) {
	dead, mute := closedPort(t), speaking(t, "")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--addr", dead}, "ringside: loading ringside: no connection to 127.0.0.1:"},
		{[]string{"--addr", dead, "--admin", dead}, "ringside: the admin interface at " + dead + " does not tell the metrics: "},
		{[]string{"--addr", dead, "--admin", answering(t, 401, "who?")}, "ringside: the admin interface at 127.0.0.1:"},
		{[]string{"--addr", mute, "--rate", "10", "--duration", "1s"}, "ringside: ringside answered none of 10 requests"},
	} {
		got := ringside(t, nil, append([]string{"loadtest"}, c.args...)...)
		lines := strings.Split(strings.TrimSpace(got.stderr), "\n")
		if got.code != exitFailed || !strings.HasPrefix(lines[len(lines)-1], c.want) {
			t.Errorf("%q: %v", c.args, got)
		}
	}
}

// What the documentation shows can be run on the demo.
func TestTheScenarioOfTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../docs/LOADTEST.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "```yaml\n")
	example, _, ended := strings.Cut(rest, "```")
	if !found || !ended {
		t.Fatal("there is no example of a scenario")
	}
	steps, err := loadtest.ParseScenario([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	l := loaded{demo: demoReady{
		Sidecars: []demoSidecar{{Name: "a1", PID: 2}, {Name: "a2", PID: 3}}, Caches: []demoServer{{Name: "c1", PID: 4}, {Name: "c2", PID: 5}},
		Spares: []demoServer{{Name: "spare", Addr: "127.0.0.1:6", PID: 6}},
	}}
	l.Admin = []string{"127.0.0.1:7"}
	if events, err := l.events(steps, time.Minute); err != nil || len(events) != 5 {
		t.Errorf("%d events, %v", len(events), err)
	}
}
