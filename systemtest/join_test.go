package systemtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"ringside/internal/childproc"
	"ringside/internal/localcluster"
)

// Guards P1: a sidecar that comes later joins, answers, and shows the same ring byte for byte; one that says goodbye is known to have left, and one that is
// killed comes back under its name.
func TestASidecarComesAndGoes(t *testing.T) {
	c := shared(t)
	third := c.NewSidecar("a3", 3)
	begun := time.Now()
	if err := third.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := third.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("a3 answers after %v", time.Since(begun))
	all := append(append([]*localcluster.Sidecar(nil), c.Sidecars...), third)
	together := func(name string) {
		t.Helper()
		for _, s := range all {
			eventually(t, time.Minute, fmt.Sprintf("%s knows three living sidecars", s.Name), func() bool {
				m, err := members(s)
				return err == nil && m["a1"].State == "alive" && m["a2"].State == "alive" && m["a3"].State == "alive" && m[s.Name].Self
			})
		}
		first := get(t, all[0], "/ring")
		if !json.Valid(first) || len(first) < 100_000 {
			t.Fatalf("%s: /ring has %d bytes", name, len(first))
		}
		for _, s := range all[1:] {
			if got := get(t, s, "/ring"); !bytes.Equal(got, first) {
				t.Errorf("%s: the ring of %s has %d bytes and differs from that of a1, %d bytes", name, s.Name, len(got), len(first))
			}
		}
	}
	together("joined")
	key := "user:3400"
	row := dial(t, c.Sidecars[0].Redis).do(t, "GET", key)
	w := dial(t, third.Redis)
	w.want(t, row, "GET", key)
	w.want(t, "OK", "SET", key, `{"name":"by the third"}`)
	dial(t, c.Sidecars[1].Redis).want(t, "by the third", "HGET", key, "name")

	if err := third.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := third.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	together("killed and started again")
	dial(t, third.Redis).want(t, "by the third", "HGET", key, "name")

	begun = time.Now()
	if err := third.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for _, s := range c.Sidecars {
		eventually(t, time.Minute, s.Name+" knows that a3 has left", func() bool { return state(s, "a3") == "left" })
	}
	known := time.Since(begun)
	select {
	case <-third.Done():
	case <-time.After(time.Minute):
		t.Error("a3 has not ended a minute after everybody knew that it had left")
	}
	t.Logf("known to all %v after the signal, ended after %v", known, time.Since(begun))
}

// Two sidecars that start at the same moment on an empty catalog act by one topology.
func TestTwoFirstSidecarsAgree(t *testing.T) {
	c := shared(t)
	admin := sql(t, c.Shards[0].AdminDSN())
	for round := range 5 {
		database := fmt.Sprintf("first%d", round)
		execute(t, admin, "create database "+database+" owner ringside")
		dsn := strings.Replace(c.Shards[0].DSN(), "/app?", "/"+database+"?", 1)
		ports := freePorts(t, 6)
		var processes []*childproc.Process
		var sides []*localcluster.Sidecar
		for i := range 2 {
			s := &localcluster.Sidecar{Name: fmt.Sprintf("f%d", i+1), Redis: local(ports[3*i]), Admin: local(ports[3*i+1]), Gossip: local(ports[3*i+2])}
			sides = append(sides, s)
			s.ConfigFile = configFile(t, fmt.Sprintf(`name: %s
data_dir: %q
redis: { listen: %q }
admin: { listen: %q }
gossip: { listen: %q, join: [%q], cluster: %s }
catalog: { dsn: %q }
caches:
  - { name: x%d, addr: %q }
shards:
  - { name: only, dsn: %q }
`, s.Name, t.TempDir(), s.Redis, s.Admin, s.Gossip, local(ports[2]), database, dsn, i, c.Spares[0].Addr(), dsn))
		}
		for _, s := range sides {
			processes = append(processes, start(t, "serve", "-c", s.ConfigFile))
		}
		t.Cleanup(func() {
			for _, p := range processes {
				if t.Failed() {
					t.Logf("a first sidecar printed: %s", p.Output())
				}
			}
		})
		var rings [2][]byte
		for i, s := range sides {
			eventually(t, time.Minute, s.Name+" is ready", func() bool {
				_, err := tryGet(s, "/readyz")
				return err == nil
			})
			rings[i] = get(t, s, "/ring")
		}
		if !bytes.Equal(rings[0], rings[1]) {
			t.Errorf("round %d: the rings differ: %.300s\n%.300s", round, rings[0], rings[1])
		}
		for _, s := range sides {
			eventually(t, time.Minute, s.Name+" knows both", func() bool { return state(s, "f1") == "alive" && state(s, "f2") == "alive" })
		}
		if got := query(t, sql(t, dsn), "select count(*) || '/' || max(epoch) from ringside.catalog"); got != "1/1" {
			t.Errorf("the catalog has %s topologies/epoch", got)
		}
		for _, p := range processes {
			if err := p.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
}

// withoutTheCatalog is part of the test whose cluster it breaks: the catalog's shard is down. A sidecar that has kept a topology starts with a
// warning and serves what it can; one that has none says so in one line. When the shard is back all is well without a restart.
func withoutTheCatalog(t *testing.T, c *cluster) {
	a1, a2 := c.Sidecars[0], c.Sidecars[1]
	on := map[string]int{}
	for id := 3500; len(on) < 2; id++ {
		on[lookup(t, a1, fmt.Sprintf("user:%d", id)).Shard] = id
	}
	lost, there := fmt.Sprintf("user:%d", on["s1"]), fmt.Sprintf("user:%d", on["s2"])
	if err := a2.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := c.Shards[0].Kill(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := a2.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("started without the catalog in %v", time.Since(begun))
	if out := a2.Output(); !strings.Contains(out, "level=WARN") || !strings.Contains(out, "the catalog cannot be asked: starting with the topology kept from the last time") {
		t.Errorf("it did not warn: %s", out)
	}
	w := dial(t, a2.Redis)
	for _, each := range []struct {
		through *wire
		want    string
		command []string
	}{
		{w, fmt.Sprintf("user %d", on["s2"]), []string{"HGET", there, "name"}},
		{w, ":0", []string{"HSET", there, "name", "written without the catalog"}},
		{dial(t, a1.Redis), "written without the catalog", []string{"HGET", there, "name"}},
		{w, "OK", []string{"SET", "plain:without", "x"}},
	} {
		if got := each.through.patiently(t, each.command...); got != each.want {
			t.Errorf("%q: got %s, want %s", each.command, got, each.want)
		}
	}
	if got := w.do(t, "GET", lost); !strings.HasPrefix(got, "-SHARDDOWN s1 ") {
		t.Errorf("GET %s: %s", lost, got)
	}
	if got := w.do(t, "SET", lost, `{"visits":1}`); !strings.HasPrefix(got, "-SHARDDOWN s1 ") {
		t.Errorf("SET %s: %s", lost, got)
	}
	if !bytes.Equal(get(t, a1, "/ring"), get(t, a2, "/ring")) {
		t.Error("the rings differ")
	}

	fresh := c.NewSidecar("a4", 4)
	text := fresh.Config()
	file := configFile(t, text)
	p := start(t, "serve", "-c", file)
	if code := exit(t, p, time.Minute); code != 1 {
		t.Errorf("a sidecar without any topology: exit %d", code)
	}
	line := 1 + strings.Count(text[:strings.Index(text, "catalog:")], "\n")
	wantLine(t, p.Output(), file, line, "the catalog cannot be asked and no topology is kept")

	begun = time.Now()
	if err := c.Shards[0].Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	for _, s := range []*localcluster.Sidecar{a1, a2} {
		w := dial(t, s.Redis)
		eventually(t, time.Minute, "a row of s1 through "+s.Name, func() bool {
			return w.do(t, "HGET", lost, "name") == fmt.Sprintf("user %d", on["s1"]) && w.do(t, "HSET", lost, "visits", "5") == ":0"
		})
	}
	t.Logf("s1 was back after %v, its rows %v later", back.Sub(begun), time.Since(back))
	if got := query(t, sql(t, c.Shards[0].DSN()), "select visits::text from users where id = $1", on["s1"]); got != "5" {
		t.Errorf("the shard has %s", got)
	}
}
