package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestBroken lists broken files and every fault that must be reported, in the order of the file.
func TestBroken(t *testing.T) {
	const key16, rows = "MDEyMzQ1Njc4OWFiY2RlZg==", `
catalog: { dsn: "postgres://c/app" }
shards: [{ name: s1, dsn: "postgres://s1/app" }]
keyspaces:
`
	for _, test := range []struct {
		name string
		text string
		want []string
	}{
		// The text.
		{"empty", "", []string{"1:1: the file is empty"}},
		{"only a comment", "# nothing\n", []string{"1:1: the file is empty"}},
		{"null", "---\n", []string{"2:1: the file is empty"}},
		{"a list", "- name: a\n", []string{"1:1: the configuration must be a mapping of keys to values, not a list"}},
		{"text", "hello", []string{"1:1: the configuration must be a mapping of keys to values, not text"}},
		{"second document", "name: a\n---\nname: b\n", []string{"2:1: a second document: a configuration is one"}},
		{"tab", "name: a\nredis:\n\tlisten: x\n", []string{"3: this is not YAML: found character that cannot start any token"}},
		{"unclosed", "redis: { listen: x\nname: a\n", []string{"1: this is not YAML: did not find expected ',' or '}'"}},
		{"unknown alias", "redis: { password: *hunter2 }\n",
			[]string{"1: this is not YAML: aliases are not supported; text that begins with * must stand in quotes"}},
		{"alias", "name: &n a\ngossip: { cluster: *n }\n", []string{"2:20: gossip.cluster: aliases are not supported, write the value out"}},
		{"merge key", "redis: &r { max_clients: 1 }\nadmin: { <<: *r }\n", []string{"2:10: merge keys are not supported, write the values out"}},
		{"broken UTF-8", "name: \xff\n", []string{"1: this is not YAML: invalid leading UTF-8 octet"}},

		// Keys.
		{"unknown keys", "nmae: a\nredis: { port: 1, lissten: x }\nzzz: 1\n", []string{
			`1:1: unknown key "nmae" (did you mean "name"?)`,
			`2:10: unknown key "port" in redis (known: listen, password, max_clients)`,
			`2:19: unknown key "lissten" in redis (did you mean "listen"?)`,
			`3:1: unknown key "zzz" (known: name, data_dir, redis, admin, gossip, catalog, default_cache, caches, shards, keyspaces, ` +
				`view_ttl, when_shard_unreachable, consistency, invalidation, verify_rate, loops, limits, log)`,
		}},
		{"case and hyphen", "Name: a\nview-ttl: 1s\n", []string{
			`1:1: unknown key "Name" (did you mean "name"?)`, `2:1: unknown key "view-ttl" (did you mean "view_ttl"?)`,
		}},
		{"unknown key in a list", rows + "  - { name: user, patern: \"user:{id:int}\", table: users, ttl: 1m }\n", []string{
			`5:5: keyspaces[0].pattern is missing`,
			`5:19: unknown key "patern" in keyspaces[0] (did you mean "pattern"?)`,
		}},
		{"twice", "name: a\nlog: { level: info, level: debug }\nname: b\n", []string{
			"2:21: log.level is given twice, first at line 2", "3:1: name is given twice, first at line 1",
		}},
		{"a secret that lost its space", "redis: { password:hunter2 }\n", []string{`1:10: write a space after "password:" in redis`}},
		{"a secret that lost its key", "redis: { hunter2 }\n",
			[]string{"1:10: unknown key without a value in redis (known: listen, password, max_clients)"}},
		{"a mapping as key", "? {a: b}\n: c\n", []string{"1:3: a key must be text, not a mapping"}},
		{"no value", "name:\nredis:\ncaches:\n", []string{
			"1:6: name has no value: give it one, or remove the key",
			"2:7: redis has no value: give it one, or remove the key",
			"3:8: caches has no value: give it one, or remove the key",
		}},

		// Types.
		{"types", "name: 42\nredis: x\nadmin: [x]\ncaches: { name: c1 }\nlog: { level: {}, format: yes }\nloops: two\n", []string{
			"1:7: name must be text, and this is a number: put it in quotes",
			"2:8: redis must be a mapping of keys to values, not text",
			"3:8: admin must be a mapping of keys to values, not a list",
			"4:9: caches must be a list, not a mapping",
			"5:15: log.level must be text, not a mapping",
			`5:27: log.format must be one of text, json, not "yes"`,
			"6:8: loops must be a whole number, not text",
		}},
		{"quotes needed", "redis: { password: 0123 }\nadmin: { token: 2024-01-02 }\nname: true\n", []string{
			"1:20: redis.password must be text, and this is a number: put it in quotes",
			"2:17: admin.token must be text, and this is a date: put it in quotes",
			"3:7: name must be text, and this is true or false: put it in quotes",
		}},
		{"a tag", "name: !vault x\n", []string{"1:7: name must be text, and this is a value with a tag: put it in quotes"}},
		{"numbers", "loops: 010\nredis: { max_clients: 1_000 }\nlimits: { pipeline: 99999999999999999999, shard_queue: 1.5, row_operations: 0x10 }\n", []string{
			"1:8: loops must be a whole number in plain digits, without leading zero",
			"2:23: redis.max_clients must be a whole number in plain digits, without leading zero",
			"3:21: limits.pipeline must be a whole number, not a number with a fraction",
			"3:56: limits.shard_queue must be a whole number, not a number with a fraction",
			"3:77: limits.row_operations must be a whole number in plain digits, without leading zero",
		}},
		{"durations", "view_ttl: 10 minutes\nlimits: { shard_queue_wait: 10 }\n", []string{
			"1:11: view_ttl is no duration: write 10m", "2:29: limits.shard_queue_wait needs a unit: write 10s, 10ms or 10m",
		}},
		{"durations in lists", rows + `
  - { name: a, pattern: "a:{id}", table: t, ttl: 2 days, negative_ttl: soon }
  - { name: b, pattern: "b:{id}", table: t, ttl: 1d }
  - { name: c, pattern: "c:{id}", table: t, ttl: 5sec, negative_ttl: [] }
`, []string{
			"6:50: keyspaces[0].ttl is no duration: write 48h",
			"6:72: keyspaces[0].negative_ttl is no duration: write a number and a unit, such as 500ms, 10s, 5m or 1h",
			"7:50: keyspaces[1].ttl is no duration: write 24h",
			"8:50: keyspaces[2].ttl is no duration: write 5s",
			"8:70: keyspaces[2].negative_ttl must be a duration, such as 10m, not a list",
		}},
		{"sizes", "limits: { value: 5 pigs, request: 99999999999GiB, output: 1.5GiB }\n", []string{
			"1:18: limits.value is no size: write a number of bytes, or such as 512KiB, 64MiB, 1GiB",
			"1:35: limits.request is no size: write a number of bytes, or such as 512KiB, 64MiB, 1GiB",
			"1:59: limits.output is no size: write a number of bytes, or such as 512KiB, 64MiB, 1GiB",
		}},
		{"ranges", "view_ttl: 1h\nloops: -1\nredis: { max_clients: 0 }\nlimits: { value: 2MiB, request: 1MiB, shard_queue: 0 }\n", []string{
			"1:11: view_ttl must be from 100ms to 1m0s",
			"2:8: loops must be from 0 to 1024",
			"3:23: redis.max_clients must be from 1 to 1000000",
			"4:33: limits.request must be from 2MiB to 4GiB",
			"4:52: limits.shard_queue must be from 1 to 1000000",
		}},
		{"waits for cache servers", `limits:
  connect_timeout: 1ms
  reply_timeout: 1h
  upstream_requests: 0
  private_connections: 2000000
  sweep_timeout: 0s
  slow_from: 0s
  cache_down_after: 399ms
`, []string{
			"2:20: limits.connect_timeout must be from 10ms to 1m0s",
			"3:18: limits.reply_timeout must be from 100ms to 10m0s",
			"4:22: limits.upstream_requests must be from 1 to 10000000",
			"5:24: limits.private_connections must be from 1 to 1000000",
			"6:18: limits.sweep_timeout must be from 100ms to 24h0m0s",
			"7:14: limits.slow_from must be from 1ms to 1h0m0s",
			"8:21: limits.cache_down_after must be from 400ms to 1m0s",
		}},
		{"idle times", "limits: { client_idle: 500ms, upstream_idle: 0s }\n", []string{
			"1:24: limits.client_idle must be 0s, which is never, or from 1s to 720h0m0s",
			"1:46: limits.upstream_idle must be from 1s to 720h0m0s",
		}},
		{"choices", "consistency: eventual\nwhen_shard_unreachable: hope\nlog: { level: loud, format: xml }\ninvalidation: on\nverify_rate: 1001\n", []string{
			`1:14: consistency must be one of bounded, strict, not "eventual"`,
			`2:25: when_shard_unreachable must be one of serve, refuse, not "hope"`,
			`3:15: log.level must be one of debug, info, warn, error, not "loud"`,
			`3:29: log.format must be one of text, json, not "xml"`,
			`4:15: invalidation must be one of wal, off, not "on"`,
			`5:14: verify_rate must be from 0 to 1000`,
		}},

		// References.
		{"references", `
redis: { password: "env:NOT_SET" }
admin: { token: "file:empty" }
catalog: { dsn: "env:" }
default_cache: { password: "file:/does/not/exist" }
caches: [{ name: c1, addr: "h:1", password: "file:." }]
`, []string{
			"2:20: redis.password refers to the environment variable NOT_SET, which is not set or empty",
			"3:17: admin.token refers to the file empty, which is empty",
			"4:17: catalog.dsn refers to the environment variable , which is not set or empty",
			"5:28: default_cache.password refers to the file /does/not/exist: no such file or directory",
			"6:45: caches[0].password refers to the file .: is a directory",
		}},

		// Names, addresses, listens.
		{"names", `
name: App 1
gossip: { cluster: "-" }
caches:
  - { name: C1, addr: "h:1" }
  - { name: "", addr: "h:2" }
  - { addr: "h:3" }
  - { name: c1, addr: "h:4" }
  - { name: c1, addr: "h:4" }
`, []string{
			`2:7: name is "App 1": a name is 1 to 63 lower-case letters, digits and . _ -, and begins with a letter or digit`,
			`3:20: gossip.cluster is "-": a name is 1 to 63 lower-case letters, digits and . _ -, and begins with a letter or digit`,
			`5:13: caches[0].name is "C1": a name is 1 to 63 lower-case letters, digits and . _ -, and begins with a letter or digit`,
			`6:13: caches[1].name is "": a name is 1 to 63 lower-case letters, digits and . _ -, and begins with a letter or digit`,
			`7:5: caches[2].name is missing`,
			`9:13: caches[4].name "c1" is taken: caches[3].name has it, line 8`,
			`9:23: caches[4].addr "h:4" is taken: caches[3].addr has it, line 8`,
		}},
		{"listens", "redis: { listen: \"6380\" }\nadmin: { listen: \"app:80\" }\ngossip: { listen: \"[::]:99999\", join: [\"h\", \":1\", \"h:0\"] }\n", []string{
			`1:18: redis.listen is "6380": it must be an IP address and a port, such as 127.0.0.1:6380`,
			`2:18: admin.listen is "app:80": it must be an IP address and a port, such as 127.0.0.1:6380 (names are not looked up)`,
			`3:19: gossip.listen is "[::]:99999": a port is a number from 1 to 65535`,
			`3:40: gossip.join[0] is "h": it must be host:port, such as 10.0.0.1:6379`,
			`3:45: gossip.join[1] is ":1": it must be host:port, such as 10.0.0.1:6379`,
			`3:51: gossip.join[2] is "h:0": a port is a number from 1 to 65535`,
		}},
		{"unix socket", "redis: { listen: \"unix:run/sock\" }\nadmin: { listen: \"unix:/run/sock\" }\n", []string{
			`1:18: redis.listen is "unix:run/sock": the path of a Unix socket must be absolute, such as unix:/run/ringside/redis.sock`,
			`2:18: admin.listen is "unix:/run/sock": only redis.listen can be a Unix socket, this must be an IP address and a port, such as 127.0.0.1:6380`,
		}},
		{"long socket path", "redis: { listen: \"unix:/" + strings.Repeat("s", 103) + "\" }\n",
			[]string{"1:18: redis.listen has a path of 104 bytes: a Unix socket's has at most 103"}},
		{"advertised", "gossip: { advertise: \"0.0.0.0:7946\" }\n", []string{
			`1:22: gossip.advertise is "0.0.0.0:7946": it must be an IP address and a port that other sidecars can reach, such as 10.1.2.3:7946`,
		}},
		{"advertised by name", "gossip: { advertise: \"app:7946\" }\n", []string{
			`1:22: gossip.advertise is "app:7946": it must be an IP address and a port that other sidecars can reach, such as 10.1.2.3:7946`,
		}},
		{"one port twice", "redis: { listen: \"127.0.0.1:7000\" }\nadmin: { listen: \"127.0.0.1:7000\" }\ngossip: { listen: \"0.0.0.0:7000\" }\n", []string{
			"2:18: admin.listen 127.0.0.1:7000 is taken by redis.listen, 127.0.0.1:7000",
			"3:19: gossip.listen 0.0.0.0:7000 is taken by redis.listen, 127.0.0.1:7000",
		}},
		{"one port twice by default", "admin: { listen: \"127.0.0.1:6380\" }\n",
			[]string{"1:18: admin.listen 127.0.0.1:6380 is taken by redis.listen, 127.0.0.1:6380"}},
		{"open to the world", "redis: { listen: \"0.0.0.0:6380\" }\n",
			[]string{"1:18: redis.listen 0.0.0.0:6380 can be reached from other machines: set redis.password, or listen on 127.0.0.1"}},
		{"pprof", "admin: { pprof: yes }\n", []string{"1:17: admin.pprof must be true or false, not text"}},
		{"pprof in quotes", "admin: { pprof: \"true\" }\n", []string{"1:17: admin.pprof must be true or false, not text"}},
		{"pprof a number", "admin: { pprof: 1 }\n", []string{"1:17: admin.pprof must be true or false, not a number"}},
		{"token", "admin: { token: \"two words\" }\n", []string{"1:17: admin.token must be printable ASCII without spaces"}},
		{"gossip keys", "gossip: { keys: [hunter2, " + key16 + ", " + key16 + "] }\n", []string{
			"1:18: gossip.keys[0] must be base64 of 16, 24 or 32 bytes: make one with openssl rand -base64 32",
			"1:53: gossip.keys[2] is the same as gossip.keys[1], line 1",
		}},

		// Servers.
		{"caches", `
default_cache: { username: u, tls: { cert: ca.pem } }
caches:
  - { name: c1, weight: -1, tls: { ca: nope.pem } }
  - { name: c2, addr: "user@h:1", weight: 0.5 }
  - { name: c3, addr: "h:1", weight: 1000001 }
`, []string{
			"2:28: default_cache.username needs a password beside it",
			"2:36: default_cache.tls needs both cert and key, or neither",
			"4:5: caches[0].addr is missing",
			"4:25: caches[0].weight must be from 0 to 1000000",
			"4:40: caches[0].tls.ca: stat DIR/nope.pem: no such file or directory",
			`5:23: caches[1].addr is "user@h:1": it must be host:port, such as 10.0.0.1:6379`,
			"5:43: caches[1].weight must be a whole number, not a number with a fraction",
			"6:38: caches[2].weight must be from 0 to 1000000",
		}},
		{"one fault is one line", `
default_cache: { username: u, password: "env:NOT_SET", tls: { cert: 7, key: k.pem } }
caches: [{ name: c1, addr: "h:1", username: u, password: "file:/does/not/exist", weight: -1 }, { name: c2, addr: "h:2", username: u, password: "" }]
limits: { value: 2GiB }
`, []string{
			"2:41: default_cache.password refers to the environment variable NOT_SET, which is not set or empty",
			"2:69: default_cache.tls.cert must be text, and this is a number: put it in quotes",
			"2:77: default_cache.tls.key: stat DIR/k.pem: no such file or directory",
			"3:58: caches[0].password refers to the file /does/not/exist: no such file or directory",
			"3:90: caches[0].weight must be from 0 to 1000000",
			"3:131: caches[1].username needs a password beside it",
			"4:18: limits.value must be from 1KiB to 1GiB",
		}},
		{"all weights 0", "caches: [{ name: c1, addr: \"h:1\", weight: 0 }]\n", []string{"1:9: caches need at least one weight above 0"}},
		{"shards without catalog", "shards: [{ name: s1, dsn: \"postgres://h/app\" }]\n",
			[]string{"1:9: shards need a catalog, which orders their changes: set catalog.dsn"}},
		{"empty catalog", "catalog: {}\n", []string{"1:10: catalog.dsn is missing"}},
		{"shards", `
catalog: { dsn: "pg-0/app" }
shards:
  - { name: s1 }
  - { name: s1, dsn: "postgres://u:hunter2@s1/app", max_connections: 0 }
  - { name: s3, dsn: "postgres://u:hunter2@s1/app" }
  - { name: s4, dsn: "postgres://u:hunter%zz@s1/app" }
`, []string{
			`2:17: catalog.dsn must be a PostgreSQL connection string, such as postgres://user@host:5432/database, or "host=... dbname=..."`,
			"4:5: shards[0].dsn is missing",
			`5:13: shards[1].name "s1" is taken: shards[0].name has it, line 4`,
			"5:70: shards[1].max_connections must be from 1 to 10000",
			"6:22: shards[2].dsn is the same as shards[1].dsn, line 5",
			"7:22: shards[3].dsn must be a PostgreSQL connection string, such as postgres://user@host:5432/database; " +
				"special characters in a password are written as %XX",
		}},

		// Keyspaces.
		{"keyspaces without shards", "keyspaces: [{ name: user, pattern: \"user:{id:int}\", table: users, ttl: 1m }]\n",
			[]string{"1:12: keyspaces need shards, which own their rows: list them under shards"}},
		{"keyspaces", rows + `
  - { name: user, pattern: "user:{id", table: users, ttl: 1m }
  - { name: order, pattern: "order:{tenant}:{id:int}", table: a.b.c, ttl: 0s }
  - { name: item, pattern: "item:{id:int}", shard_by: tenant, table: items, value: "a b", ttl: 1m, negative_ttl: -1s }
  - {}
  - { name: page, pattern: "page:{path}", table: pages, ttl: 1m }
  - { name: page, pattern: "pages:{id:int}", table: pages, ttl: 1m }
  - { name: leaf, pattern: "page:{id:int}", table: pages, ttl: 1m }
`, []string{
			"6:28: keyspaces[0].pattern has a { without a }: write {column} or {column:type}",
			"7:5: keyspaces[1].shard_by is missing: the pattern has several fields, choose one of tenant, id",
			`7:63: keyspaces[1].table "a.b.c" is no table name: write table or schema.table`,
			"7:75: keyspaces[1].ttl must be at least 1ms",
			`8:55: keyspaces[2].shard_by "tenant" is not a field of the pattern: choose one of id`,
			`8:84: keyspaces[2].value "a b" is neither "row" nor a column: a name is made of letters, digits and _, and does not begin with a digit`,
			"8:114: keyspaces[2].negative_ttl must be 0 (absences are not cached) or at least 1ms",
			"9:5: keyspaces[3].name is missing",
			"9:5: keyspaces[3].pattern is missing",
			"9:5: keyspaces[3].table is missing: write the table's name, or schema.table",
			"9:5: keyspaces[3].ttl is missing",
			`11:13: keyspaces[5].name "page" is taken: keyspaces[4].name has it, line 10`,
			`12:28: keyspaces page (page:{path}) and leaf (page:{id:int}) both claim keys such as "page:0": begin their patterns differently`,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := folder(t)
			c, err := parse(path, []byte(test.text), testMachine())
			errs, ok := errors.AsType[Errors](err)
			if !ok || c != nil {
				t.Fatalf("got %v, %v", c, err)
			}
			dir := strings.TrimSuffix(path, "/ringside.yaml")
			var want []string
			for _, line := range test.want {
				want = append(want, path+":"+strings.ReplaceAll(line, "DIR", dir))
			}
			if got, want := errs.Error(), strings.Join(want, "\n"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if strings.Contains(fmt.Sprint(err), "hunter") {
				t.Error("a secret is printed")
			}
		})
	}
}

func TestNoHostName(t *testing.T) {
	m := testMachine()
	m.host, m.getenv = "my host", func(string) string { return "" }
	_, err := parse("f", []byte("redis: {}"), m)
	const want = `f:1:1: name is missing, and the host name "my host" cannot stand in for it: ` + nameRule + `
f:1:1: data_dir is missing, and neither STATE_DIRECTORY, XDG_STATE_HOME nor HOME is set to stand in for it`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestMaskDSN(t *testing.T) {
	for _, test := range []struct{ dsn, want string }{
		{"", ""},
		{"postgres://ringside@pg-0/app", "postgres://ringside@pg-0/app"},
		{"postgres://u:secret@h:5432/app?sslmode=disable", "postgres://u:***@h:5432/app?sslmode=disable"},
		{"postgresql://u:@h/app", "postgresql://u:***@h/app"},
		{"postgres://u:sec%40ret@h,h2/app", "postgres://u:***@h,h2/app"},
		{"postgres://u:sec/ret@h/app", "postgres://u:***@h/app"},
		{"postgres://u:1?secret@h/app", "postgres://u:***@h/app"},
		{"postgres://u:sec@ret@h/app", "postgres://u:***@h/app"},
		{"postgres://u:sec#ret@h/app", "postgres://u:***@h/app"},
		{"postgres://h/app?user=u&password=secret&x=1", "postgres://h/app?user=u&password=***&x=1"},
		{"postgres://h/app?sslpassword=secret", "postgres://h/app?sslpassword=***"},
		{"host=h password=secret dbname=app", "host=h password=*** dbname=app"},
		{"host=h password = 'a secret\\' two' dbname=app", "host=h password =*** dbname=app"},
		{"host=h PGPASSWORD=secret", "host=h PGPASSWORD=***"},
		{"host=h password=secret and more", "***"},
		{"secret", "***"},
	} {
		if got := DSN(test.dsn).String(); got != test.want {
			t.Errorf("%s is shown as %s, want %s", test.dsn, got, test.want)
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"name", "ttl", "negative_ttl", "pattern", "dsn"}
	for _, test := range []struct{ word, want string }{
		{"patern", "pattern"}, {"naem", "name"}, {"nam", "name"}, {"tl", "ttl"}, {"Pattern", "pattern"}, {"negative-ttl", "negative_ttl"},
		{"x", ""}, {"password", ""}, {"dns", "dsn"}, {"", ""},
	} {
		if got := nearest(test.word, known); got != test.want {
			t.Errorf("nearest(%q) = %q, want %q", test.word, got, test.want)
		}
	}
}

func TestDurationText(t *testing.T) {
	for _, text := range []string{"10m", "1h", "1h30m", "1h0m5s", "500ms", "1.5s", "0s", "24h", "1m5s", "10s"} {
		d, err := parseDuration(text)
		if err != nil || formatDuration(d) != text {
			t.Errorf("%s: %v, %v", text, formatDuration(d), err)
		}
	}
}

// FuzzParse wants no panic, and no fault without a line.
func FuzzParse(f *testing.F) {
	f.Add(designed)
	f.Add("a: &a [*a]\n")
	f.Add("? [x]\n: y\n<<: {}\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, err := parse("f", []byte(text), testMachine())
		errs, ok := errors.AsType[Errors](err)
		if err != nil && !ok {
			t.Fatalf("%T: %v", err, err)
		}
		for _, e := range errs {
			if e.Line < 1 || e.Msg == "" {
				t.Fatalf("%+v", e)
			}
		}
	})
}
