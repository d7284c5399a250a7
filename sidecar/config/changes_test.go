package config

import (
	"slices"
	"strings"
	"testing"
)

const reloadable = `name: a
data_dir: /tmp/a
redis: { listen: "127.0.0.1:1", max_clients: 10 }
admin: { token: t }
gossip: { keys: ["MDEyMzQ1Njc4OWFiY2RlZg=="] }
catalog: { dsn: "postgres://u@h/c" }
default_cache: { tls: {} }
caches:
  - { name: c1, addr: "h:1" }
shards:
  - { name: s1, dsn: "postgres://u@h/a" }
keyspaces:
  - { name: user, pattern: "user:{id:int}", table: users, ttl: 1m }
  - { name: item, pattern: "item:{id:int}", table: items, ttl: 1m }
limits: { pipeline: 8, shard_queue: 5 }
log: { level: info }
`

// TestChanged: what may be changed while a sidecar runs is named, what may not is refused at its place.
func TestChanged(t *testing.T) {
	load := func(text string) *Config {
		t.Helper()
		c, err := parse("f.yaml", []byte(text), machine{host: "h", getenv: func(string) string { return "" }})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	const stays = " cannot be changed while the sidecar runs: restart it; everything stays as it was"
	for name, test := range map[string]struct {
		replace []string // pairs
		changed string
		refused string
	}{
		"nothing":                {nil, "", ""},
		"a limit":                {[]string{"pipeline: 8", "pipeline: 9"}, "limits.pipeline", ""},
		"a limit that was not":   {[]string{"pipeline: 8", "pipeline: 8, slow_from: 1s"}, "limits.slow_from", ""},
		"clients, log and keys":  {[]string{"max_clients: 10", "max_clients: 11", "level: info", "level: debug", "MDEyMzQ1Njc4OWFiY2RlZg==", "ZmVkY2JhOTg3NjU0MzIxMA=="}, "gossip.keys[0] log.level redis.max_clients", ""},
		"one key more":           {[]string{`=="]`, `==", "ZmVkY2JhOTg3NjU0MzIxMA=="]`}, "gossip.keys", ""},
		"no key any more":        {[]string{`["MDEyMzQ1Njc4OWFiY2RlZg=="]`, "[]"}, "", "f.yaml:5:17: gossip.keys" + stays},
		"a ttl":                  {[]string{"users, ttl: 1m", "users, ttl: 2m, negative_ttl: 1s"}, "keyspaces[0].negative_ttl keyspaces[0].ttl", ""},
		"a keyspace, in between": {[]string{"  - { name: item", "  - { name: new, pattern: \"new:{id:int}\", table: news, ttl: 1m }\n  - { name: item"}, "keyspaces[1]", ""},
		"a pattern":              {[]string{"user:{id:int}", "u:{id:int}", "pipeline: 8", "pipeline: 9"}, "", "f.yaml:13:28: keyspaces[0].pattern" + stays},
		"a table":                {[]string{"table: items", "table: things"}, "", "f.yaml:14:52: keyspaces[1].table" + stays},
		"a keyspace less":        {[]string{"  - { name: item, pattern: \"item:{id:int}\", table: items, ttl: 1m }\n", ""}, "", "f.yaml:13:3: keyspaces (item is missing)" + stays},
		"an address, a token":    {[]string{"127.0.0.1:1", "127.0.0.1:2", "token: t", "token: secret"}, "", "f.yaml:3:18: redis.listen, admin.token" + stays},
		"a shard":                {[]string{"postgres://u@h/a", "postgres://u@i/a"}, "", "f.yaml:11:22: shards[0].dsn" + stays},
		"a queue of the shards":  {[]string{"shard_queue: 5", "shard_queue: 6"}, "", "f.yaml:15:37: limits.shard_queue" + stays},
		"one server more":        {[]string{"  - { name: c1", "  - { name: c0, addr: \"i:1\" }\n  - { name: c1"}, "", "f.yaml:9:3: caches" + stays},
		"tls":                    {[]string{"tls: {}", "tls: { server_name: x }"}, "", "f.yaml:7:38: default_cache.tls.server_name, caches[0].tls.server_name" + stays},
		"no tls any more":        {[]string{"default_cache: { tls: {} }", "default_cache: {}"}, "", "f.yaml:7:16: default_cache.tls, caches[0].tls" + stays},
	} {
		t.Run(name, func(t *testing.T) {
			changed, err := load(reloadable).Changed(load(strings.NewReplacer(test.replace...).Replace(reloadable)))
			slices.Sort(changed)
			if got := strings.Join(changed, " "); got != test.changed {
				t.Errorf("changed %q, want %q", got, test.changed)
			}
			if got := ""; err != nil {
				if got = err.Error(); got != test.refused || strings.Contains(got, "\n") {
					t.Errorf("refused by %q, want %q", got, test.refused)
				}
			} else if test.refused != "" {
				t.Errorf("not refused, want %q", test.refused)
			}
		})
	}
}
