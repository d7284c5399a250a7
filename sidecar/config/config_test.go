package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// designed is the example of docs/CONFIGURATION.md.
const designed = `
name: app-1
redis:   { listen: "127.0.0.1:6380", password: "env:RINGSIDE_PASSWORD", max_clients: 10000 }
admin:   { listen: "127.0.0.1:6381", token: "file:token" }
gossip:  { listen: "0.0.0.0:7946", join: ["ringside.default.svc:7946"], keys: [], cluster: prod }
catalog: { dsn: "postgres://ringside@pg-0/app" }
caches:
  - { name: c1, addr: "10.0.0.1:6379", weight: 1 }
  - { name: c2, addr: "10.0.0.2:6379", weight: 0, username: u, password: own-secret, tls: { ca: ca.pem } }
default_cache: { username: ringside, password: "env:CACHE_PASSWORD", tls: { server_name: cache } }
shards:
  - { name: s1, dsn: "postgres://ringside:pw1@pg-1/app", weight: 1, max_connections: 64 }
  - { name: s2, dsn: "env:S2_DSN", max_size: 200GiB }
keyspaces:
  - { name: user,  pattern: "user:{id:int}", table: users, value: row, ttl: 10m, negative_ttl: 5s }
  - { name: order, pattern: "order:{tenant}:{id:int}", shard_by: tenant, table: orders, ttl: 1m }
view_ttl: 2s
limits: { value: 1MiB, shard_queue_wait: 1.5s, connect_timeout: 50ms, reply_timeout: 10s, upstream_requests: 1000, private_connections: 20, sweep_timeout: 5m, cache_down_after: 3s, slow_from: 1ms }
`

// testMachine is one on which a file "token" and a few variables exist.
func testMachine() machine {
	env := map[string]string{
		"RINGSIDE_PASSWORD": "red1s-secret", "CACHE_PASSWORD": "cache-secret", "HOME": "/home/ada",
		"S2_DSN": "host=pg-2 user=ringside password='two secrets' dbname=app",
	}
	return machine{host: "App-1", getenv: func(name string) string { return env[name] }}
}

// folder returns the path of a configuration in a folder that has the files of the designed one.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"token": "t0ken-secret\n", "ca.pem": "", "empty": "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "ringside.yaml")
}

func TestParse(t *testing.T) {
	path := folder(t)
	c, err := parse(path, []byte(designed), testMachine())
	if err != nil {
		t.Fatal(err)
	}
	equal := func(what string, got, want any) {
		t.Helper()
		if got != want {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	equal("name", c.Name, "app-1")
	equal("data_dir", c.DataDir, "/home/ada/.local/state/ringside/app-1")
	equal("redis.password", string(c.Redis.Password), "red1s-secret")
	equal("admin.token", string(c.Admin.Token), "t0ken-secret")
	equal("gossip.join", strings.Join(c.Gossip.Join, " "), "ringside.default.svc:7946")
	equal("gossip.cluster", c.Gossip.Cluster, "prod")
	equal("caches[0].password", string(c.Caches[0].Password), "cache-secret")
	equal("caches[0].username", c.Caches[0].Username, "ringside")
	equal("caches[0].tls", *c.Caches[0].TLS, TLS{ServerName: "cache"})
	equal("caches[1].password", string(c.Caches[1].Password), "own-secret")
	equal("caches[1].username", c.Caches[1].Username, "u")
	equal("caches[1].tls", *c.Caches[1].TLS, TLS{CA: filepath.Join(filepath.Dir(path), "ca.pem")})
	equal("caches[1].weight", c.Caches[1].Weight, 0)
	equal("shards[0].dsn", string(c.Shards[0].DSN), "postgres://ringside:pw1@pg-1/app")
	equal("shards[1]", c.Shards[1], Shard{"s2", "host=pg-2 user=ringside password='two secrets' dbname=app", 1, 64, 200 * gib})
	equal("keyspaces[0].negative_ttl", c.Keyspaces[0].NegativeTTL, 5*time.Second)
	equal("keyspaces[1]", c.Keyspaces[1], Keyspace{"order", "order:{tenant}:{id:int}", "orders", "row", "tenant", time.Minute, 0})
	equal("compiled", c.Set().ByName("user").String(), "user (user:{id:int})")
	equal("compiled shard_by", c.Set().ByName("user").ShardBy, "id")
	limits := Default().Limits
	limits.Value, limits.ShardQueueWait = 1<<20, 1500*time.Millisecond
	limits.ConnectTimeout, limits.ReplyTimeout, limits.UpstreamRequests = 50*time.Millisecond, 10*time.Second, 1000
	limits.PrivateConnections, limits.SweepTimeout, limits.CacheDownAfter, limits.SlowFrom = 20, 5*time.Minute, 3*time.Second, time.Millisecond
	equal("limits", c.Limits, limits)
	equal("view_ttl", c.ViewTTL, 2*time.Second)
	equal("consistency", c.Consistency, "bounded")
}

func TestAt(t *testing.T) {
	path := folder(t)
	c, err := parse(path, []byte(designed), testMachine())
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("no column id")
	for at, want := range map[string]string{
		"keyspaces[0].table":   "15:53",
		"keyspaces[1].value":   "16:5", // a default: the keyspace
		"catalog.dsn":          "6:17",
		"log.level":            "2:1", // nothing around it is in the file
		"shards[1]":            "13:5",
		"keyspaces[7].pattern": "15:3",
	} {
		err := c.At(at, cause)
		if want := path + ":" + want + ": no column id"; err.Error() != want || !errors.Is(err, cause) {
			t.Errorf("%s: got %v, want %s", at, err, want)
		}
	}
	if err := c.At("catalog.dsn", errors.New("two\n\tlines")); err.Error() != path+":6:17: two lines" {
		t.Errorf("got %q", err)
	}
}

// A wrong line is one fault, however many shards complain of it; what stands nowhere in the file stays beside the faults.
func TestJoin(t *testing.T) {
	path := folder(t)
	c, err := parse(path, []byte(designed), testMachine())
	if err != nil {
		t.Fatal(err)
	}
	first, second, third := errors.New("no table on s1"), errors.New("no table on s2"), errors.New("another shard's database")
	err = Join(c.At("keyspaces[0].table", first), nil, Join(c.At("keyspaces[0].table", second), c.At("catalog.dsn", third)))
	if want := path + ":6:17: another shard's database\n" + path + ":15:53: no table on s1"; err == nil || err.Error() != want || !errors.Is(err, first) || errors.Is(err, second) {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, ok := errors.AsType[Errors](err); !ok {
		t.Errorf("%T", err)
	}
	if err := Join(nil, nil); err != nil {
		t.Errorf("%v", err)
	}
	if err := Join(first, c.At("catalog.dsn", third)); !errors.Is(err, first) || !errors.Is(err, third) {
		t.Errorf("%v", err)
	}
}

func TestDefaults(t *testing.T) {
	c, err := parse("f", []byte("redis: {}\n"), testMachine())
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "app-1" {
		t.Errorf("name is %q, want the host name in lower case", c.Name)
	}
	if c.Redis.Listen != "127.0.0.1:6380" || c.Admin.Listen != "127.0.0.1:6381" || c.Gossip.Listen != "0.0.0.0:7946" || c.Redis.MaxClients != 10000 {
		t.Errorf("listens by default on %+v, %+v, %+v", c.Redis, c.Admin, c.Gossip)
	}
	if c.Set() == nil || len(c.Set().Keyspaces()) != 0 {
		t.Error("no set of keyspaces, want an empty one")
	}
}

func TestListenIsMadeNumeric(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"localhost:1", "127.0.0.1:1"}, {"[::1]:1", "[::1]:1"}, {":1", "0.0.0.0:1"}, {"127.0.0.1:0", "127.0.0.1:0"},
		{"unix:/run/r.sock", "unix:/run/r.sock"},
	} {
		text := fmt.Sprintf("redis: { listen: %q, password: x }\n", test.in)
		c, err := parse("f", []byte(text), testMachine())
		if err != nil || c.Redis.Listen != test.want {
			t.Errorf("%s: %+v, %v", test.in, c, err)
		}
	}
}

func TestDataDir(t *testing.T) {
	for _, test := range []struct {
		env  string
		root bool
		text string
		want string
	}{
		{"HOME=/h", false, "name: a", "/h/.local/state/ringside/a"},
		{"HOME=/h", true, "name: a", "/var/lib/ringside/a"},
		{"XDG_STATE_HOME=/x", true, "name: a", "/x/ringside/a"},
		{"STATE_DIRECTORY=/s", false, "name: a", "/s"},
		{"HOME=/h", false, "data_dir: /d", "/d"},
		{"HOME=/h", false, "data_dir: d", "etc/d"},
	} {
		key, value, _ := strings.Cut(test.env, "=")
		m := machine{host: "h", root: test.root, getenv: func(name string) string {
			return map[string]string{key: value}[name]
		}}
		c, err := parse("etc/f", []byte(test.text), m)
		if err != nil || c.DataDir != test.want {
			t.Errorf("%s: %v, %v; want %s", test.env, c, err, test.want)
		}
	}
}

func TestMasked(t *testing.T) {
	path := folder(t)
	if _, err := parse(path, []byte(designed+"gossip: {}"), testMachine()); err == nil {
		t.Fatal("a key given twice was accepted")
	}
	c, err := parse(path, []byte(designed), testMachine())
	if err != nil {
		t.Fatal(err)
	}
	text := string(c.Masked())
	want := strings.ReplaceAll(`name: app-1
data_dir: /home/ada/.local/state/ringside/app-1
redis:
  listen: 127.0.0.1:6380
  password: '***'
  max_clients: 10000
admin:
  listen: 127.0.0.1:6381
  token: '***'
  pprof: false
gossip:
  listen: 0.0.0.0:7946
  join:
    - ringside.default.svc:7946
  cluster: prod
catalog:
  dsn: postgres://ringside@pg-0/app
default_cache:
  username: ringside
  password: '***'
  tls:
    server_name: cache
caches:
  - {name: c1, addr: '10.0.0.1:6379', weight: 1, username: ringside, password: '***', tls: {server_name: cache}}
  - {name: c2, addr: '10.0.0.2:6379', weight: 0, username: u, password: '***', tls: {ca: DIR/ca.pem}}
shards:
  - {name: s1, dsn: 'postgres://ringside:***@pg-1/app', weight: 1, max_connections: 64, max_size: "0"}
  - {name: s2, dsn: host=pg-2 user=ringside password=*** dbname=app, weight: 1, max_connections: 64, max_size: 200GiB}
keyspaces:
  - {name: user, pattern: 'user:{id:int}', table: users, value: row, shard_by: id, ttl: 10m, negative_ttl: 5s}
  - {name: order, pattern: 'order:{tenant}:{id:int}', table: orders, value: row, shard_by: tenant, ttl: 1m, negative_ttl: 0s}
view_ttl: 2s
when_shard_unreachable: serve
consistency: bounded
invalidation: wal
verify_rate: 1
loops: 0
limits:
  value: 1MiB
  request: 128MiB
  output: 256MiB
  pipeline: 1024
  client_idle: 0s
  upstream_idle: 5m
  row_operations: 8192
  shard_queue: 1024
  shard_queue_wait: 1.5s
  shard_connect_timeout: 1s
  shard_read_timeout: 2s
  shard_write_timeout: 3s
  shard_lock_timeout: 1s
  connect_timeout: 50ms
  reply_timeout: 10s
  upstream_requests: 1000
  private_connections: 20
  sweep_timeout: 5m
  cache_down_after: 3s
  slow_from: 1ms
log:
  level: info
  format: text
  slow_requests: off
`, "DIR", filepath.Dir(path))
	if text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	again, err := parse(path, []byte(text), testMachine())
	if err != nil {
		t.Fatalf("what is printed is no configuration: %v", err)
	}
	if string(again.Masked()) != text {
		t.Errorf("what is printed does not stay the same:\n%s", again.Masked())
	}
}

// TestNoSecretIsPrinted formats a configuration in every way that a log line might.
func TestNoSecretIsPrinted(t *testing.T) {
	c, err := parse(folder(t), []byte(designed), testMachine())
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		text := fmt.Sprintf(verb, *c) + fmt.Sprintf(verb, c.Shards) + fmt.Sprintf(verb, c.Redis.Password)
		for _, secret := range []string{"red1s-secret", "t0ken-secret", "cache-secret", "pw1", "two secrets", "own-secret", "72656431732d736563726574"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s prints %q", verb, secret)
			}
		}
	}
}

func TestLoad(t *testing.T) {
	path := folder(t)
	if _, err := Load(path, os.Getenv); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("a missing file: %v", err)
	}
	if err := os.WriteFile(path, []byte("name: a\ndata_dir: d\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path, os.Getenv)
	if err != nil || c.DataDir != filepath.Join(filepath.Dir(path), "d") {
		t.Errorf("got %v, %v", c, err)
	}
	if err := os.WriteFile(path, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path, os.Getenv); err == nil || !strings.HasSuffix(err.Error(), "is longer than 1048576 bytes") {
		t.Errorf("a file that is too long: %v", err)
	}
}
