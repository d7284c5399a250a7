package systemtest

import (
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestAReloadDropsNoConnection: a sidecar reads its configuration again on SIGHUP, takes over what can be changed, for clients that are connected too, and
// refuses the rest as a whole.
func TestAReloadDropsNoConnection(t *testing.T) {
	c := shared(t)
	s := c.NewSidecar("a5", 5)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}()
	original, err := os.ReadFile(s.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	reload := func(want string, pairs ...string) {
		t.Helper()
		for i := 0; i < len(pairs); i += 2 {
			if !strings.Contains(string(original), pairs[i]) {
				t.Fatalf("the configuration has no %q:\n%s", pairs[i], original)
			}
		}
		if err := os.WriteFile(s.ConfigFile, []byte(strings.NewReplacer(pairs...).Replace(string(original))), 0o600); err != nil {
			t.Fatal(err)
		}
		had := strings.Count(s.Output(), want)
		if err := s.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		eventually(t, time.Minute, "the log says "+want, func() bool { return strings.Count(s.Output(), want) > had })
	}

	started := metric(t, s, "ringside_config_last_reload_success_timestamp_seconds")
	// ended wants the metrics to tell how the last reload ended, and returns when one went well.
	ended := func(successful float64) float64 {
		t.Helper()
		if got := metric(t, s, "ringside_config_last_reload_successful"); got != successful {
			t.Errorf("config_last_reload_successful is %v, want %v", got, successful)
		}
		return metric(t, s, "ringside_config_last_reload_success_timestamp_seconds")
	}

	client, waiting := dial(t, s.Redis), dial(t, s.Redis)
	id := client.do(t, "CLIENT", "ID")
	popped := make(chan string, 1)
	go func() {
		if v, err := waiting.ask([]string{"BLPOP", "reload:list", "0"}); err != nil {
			popped <- err.Error()
		} else {
			popped <- show(v[0])
		}
	}()
	client.want(t, "(nil)", "GET", "person:1234")

	listen, limits, ttl := `listen: "`+s.Redis+`"`, "limits: { ", "ttl: 10m"
	added := "  - { name: order,"
	reload(`changed="[redis.max_clients limits.slow_from log.slow_requests keyspaces[0].ttl keyspaces[1]]"`,
		listen, listen+", max_clients: 77", limits, "log: { slow_requests: masked }\nlimits: { slow_from: 1ms, ", ttl, "ttl: 5m",
		added, "  - { name: person, pattern: \"person:{id:int}\", table: users, ttl: 1m }\n"+added)
	taken := ended(1)
	if taken <= started {
		t.Errorf("the last reload that went well was at %v, and the start at %v", taken, started)
	}
	if again := client.do(t, "CLIENT", "ID"); again != id {
		t.Errorf("the connection is another one: %s, was %s", again, id)
	}
	client.want(t, "[slowlog-log-slower-than 1000]", "CONFIG", "GET", "slowlog-log-slower-than")
	client.want(t, "[maxclients 77]", "CONFIG", "GET", "maxclients")
	if got := client.do(t, "HGET", "person:1234", "email"); got != "user1234@example.com" {
		t.Errorf("a row of the new keyspace: %s", got)
	}
	client.want(t, ":0", "HSET", "user:1235", "visits", "9") // so that it is cold
	client.do(t, "GET", "user:1235")
	// A write takes longer than 1 ms; which of them is logged is a matter of luck, as a line that is being written holds others back.
	logged := regexp.MustCompile(`msg="slow request" command=HSET took_ms=[0-9.]+ client=127\.0\.0\.1:\d+ key=#[0-9a-f]{16} keyspace=user cache_vnode=\d+ cache=c\d shard_vnode=\d+ shard=s\d cache_ms=[0-9.]+ row_ms=[0-9.]+ reply_ms=`)
	eventually(t, time.Minute, "a slow write is logged", func() bool {
		client.want(t, ":0", "HSET", "user:1235", "visits", "9")
		return logged.MatchString(s.Output())
	})
	if strings.Contains(s.Output(), "key=user") {
		t.Errorf("a key is shown:\n%s", s.Output())
	}
	// Whoever follows the shard's changes does not know the new keyspace, so until it does its rows are cached for a moment only.
	if got := client.do(t, "TTL", "user:1235"); got != ":1" && got != ":0" && got != ":-1" {
		t.Errorf("it is cached for %s s", got)
	}

	reload("redis.listen, keyspaces[1].table cannot be changed while the sidecar runs", listen, `listen: "127.0.0.1:1", max_clients: 78`,
		added, "  - { name: person, pattern: \"person:{id:int}\", table: orders, ttl: 1m }\n"+added, limits, limits, ttl, ttl)
	if at := ended(0); at != taken {
		t.Errorf("a refused reload went well at %v", at)
	}
	client.want(t, "[maxclients 77]", "CONFIG", "GET", "maxclients")

	reload("table nowhere", added, "  - { name: person, pattern: \"person:{id:int}\", table: users, ttl: 1m }\n  - { name: more, pattern: \"more:{id:int}\", table: nowhere, ttl: 1m }\n"+added)
	client.want(t, "(nil)", "GET", "more:1")

	reload("unknown key", ttl, "tttl: 1m") // which cannot even be read
	ended(0)
	reload(`msg="the configuration was read again" changed=`, added, "  - { name: person, pattern: \"person:{id:int}\", table: users, ttl: 1m }\n"+added)
	if at := ended(1); at <= taken {
		t.Errorf("the last reload that went well was at %v, and the one before at %v", at, taken)
	}

	client.want(t, ":1", "RPUSH", "reload:list", "x")
	if got := <-popped; got != "[reload:list x]" {
		t.Errorf("the client that waited all the while got %s", got)
	}
}
