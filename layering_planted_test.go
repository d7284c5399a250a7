package ringside_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// sound is a module that keeps every rule; each case below breaks one.
func sound() map[string]string {
	return map[string]string{
		"doc.go":                            "// Package ringside is a map.\npackage ringside\n",
		"ring/doc.go":                       "// Package ring places.\npackage ring\n",
		"ring/hash.go":                      "package ring\nimport \"github.com/spaolacci/murmur3\"\nvar _ = murmur3.New32\n",
		"ring/hash_test.go":                 "package ring\nimport (\n\t\"os\"\n\t\"testing\"\n)\nfunc TestA(t *testing.T) { os.Exit(0) }\n",
		"cache/doc.go":                      "// Package cache caches.\npackage cache\nimport (\n\t_ \"ringside/shard\"\n\t_ \"github.com/redis/go-redis/v9\"\n)\n",
		"cache/cache_test.go":               "package cache_test\nimport (\n\t_ \"ringside/cache\"\n\t_ \"ringside/ring\"\n\t_ \"ringside/internal/realredis\"\n)\n",
		"examples/hello/doc.go":             "// Hello says hello.\npackage main\nimport _ \"github.com/redis/go-redis/v9\"\n",
		"internal/evloop/doc.go":            "// Package evloop loops.\npackage evloop\n",
		"internal/evloop/poll_linux.go":     "package evloop\nimport _ \"golang.org/x/sys/unix\"\n",
		"internal/evloop/poll_darwin.go":    "//go:build darwin\n\npackage evloop\n",
		"deps.go":                           "//go:build ignored\n\npackage ringside\nimport _ \"github.com/jackc/pgx/v5\"\n",
		"ring/testdata/broken.go":           "this is no Go",
		"scripts/setup":                     "#!/bin/sh\n",
		"docs/picture.png":                  "\x00" + "TO" + "DO",
		"README.md":                         "autoTO" + "DOlist is a word that only contains it\n",
		"cmd/ringside/doc.go":               "// Command ringside runs.\npackage main\nimport _ \"ringside/internal/localcluster\"\n",
		"shard/doc.go":                      "// Package shard shards.\npackage shard\n",
		"internal/evloop/loop.go":           "package evloop\nimport _ \"unsafe\"\n" + strings.Repeat("\n", wishedLines-2),
		"internal/evloop/loop_test.go":      "package evloop\n" + strings.Repeat("\n", mostLines),
		"internal/evloop/explained_long.go": "package evloop\n" + strings.Repeat("\n", wishedLines),
	}
}

func brokenRules(t *testing.T, files map[string]string) []string {
	t.Helper()
	tree := fstest.MapFS{}
	for name, text := range files {
		tree[name] = &fstest.MapFile{Data: []byte(text)}
	}
	s, err := readTree(tree)
	if err != nil {
		t.Fatal(err)
	}
	return checkAll(s, floors(), outsides(), map[string]string{"internal/evloop/explained_long.go": "one table"})
}

func TestASoundModuleBreaksNoRule(t *testing.T) {
	if broken := brokenRules(t, sound()); len(broken) > 0 {
		t.Fatal(strings.Join(broken, "\n"))
	}
}

// Each rule must be able to fail: one planted violation, one complaint that names the file and the matter.
func TestEveryRuleCanFail(t *testing.T) {
	open := openWords()
	for name, c := range map[string]struct{ file, text, want string }{
		"unknown package":            {"cachet/doc.go", "// Package cachet is new.\npackage cachet\n", "not in the table"},
		"floor 0 imports up":         {"ring/up.go", "package ring\nimport _ \"ringside/cache\"\n", "ringside/cache: pure"},
		"floor 0 imports a test aid": {"ring/up.go", "package ring\nimport _ \"ringside/internal/realpg\"\n", "ringside/internal/realpg: pure"},
		"floor 0 imports sideways":   {"resp/doc.go", "// Package resp speaks.\npackage resp\nimport _ \"ringside/ring\"\n", "ringside/ring: pure"},
		"floor 1 imports floor 1":    {"cache/side.go", "package cache\nimport _ \"ringside/membership\"\n", "never import each other"},
		"a test of floor 1 does":     {"cache/side_test.go", "package cache\nimport _ \"ringside/membership\"\n", "never import each other"},
		"cache knows the ring":       {"cache/ring.go", "package cache\nimport _ \"ringside/ring\"\n", "neither placement nor PostgreSQL"},
		"the proxy knows the shards": {"sidecar/proxy/doc.go", "// Package proxy proxies.\npackage proxy\nimport _ \"ringside/shard/origin\"\n", "small interfaces"},
		"the sidecar runs servers":   {"sidecar/doc.go", "// Package sidecar composes.\npackage sidecar\nimport _ \"ringside/internal/realredis\"\n", "starts no server"},
		"a program is imported":      {"sidecar/doc.go", "// Package sidecar composes.\npackage sidecar\nimport _ \"ringside/cmd/ringside\"\n", "ringside/cmd/ringside"},
		"loadtest looks inside":      {"loadtest/doc.go", "// Package loadtest loads.\npackage loadtest\nimport _ \"ringside/cache\"\n", "from outside"},
		"a test of loadtest does":    {"loadtest/load_test.go", "package loadtest\nimport _ \"ringside/cache\"\n", "from outside"},
		"under another system":       {"ring/up_darwin.go", "//go:build darwin && !race\n\npackage ring\nimport _ \"ringside/cache\"\n", "ringside/cache"},
		"the root is used":           {"ring/up.go", "package ring\nimport _ \"ringside\"\n", "imports ringside: pure"},

		"pgx elsewhere":        {"cache/pg.go", "package cache\nimport _ \"github.com/jackc/pgx/v5/pgconn\"\n", "PostgreSQL is spoken"},
		"memberlist elsewhere": {"cache/gossip_test.go", "package cache\nimport _ \"github.com/hashicorp/memberlist\"\n", "gossip stays"},
		"go-redis elsewhere":   {"ring/redis.go", "package ring\nimport _ \"github.com/redis/go-redis/v9\"\n", "slow path"},
		"murmur3 elsewhere":    {"cache/hash.go", "package cache\nimport _ \"github.com/spaolacci/murmur3\"\n", "use ring.Hash"},
		"metrics on floor 0":   {"shard/metrics.go", "package shard\nimport _ \"github.com/prometheus/client_golang/prometheus\"\n", "count nothing"},
		"files on floor 0":     {"ring/file.go", "package ring\nimport _ \"os\"\n", "touch nothing"},
		"sockets on floor 0":   {"shard/net.go", "package shard\nimport _ \"net\"\n", "touch nothing"},
		"HTTP elsewhere":       {"cache/http.go", "package cache\nimport _ \"net/http/pprof\"\n", "HTTP is served"},
		"flags elsewhere":      {"cache/flags.go", "package cache\nimport _ \"github.com/alecthomas/kong\"\n", "flags are parsed"},
		"yaml elsewhere":       {"cache/file.go", "package cache\nimport _ \"go.yaml.in/yaml/v3\"\n", "one package reads"},
		"unsafe elsewhere":     {"cache/fast.go", "package cache\nimport _ \"unsafe\"\n", "memory safety"},
		"unsafe in a test":     {"cache/fast_test.go", "package cache\nimport _ \"unsafe\"\n", "memory safety"},
		"x/sys elsewhere":      {"cache/sys.go", "package cache\nimport _ \"golang.org/x/sys/unix\"\n", "system calls stay"},
		"testing in production": {"cache/aid.go", "package cache\nimport _ \"testing\"\n",
			"does not link"},

		"no package comment":        {"shard/doc.go", "package shard\n", "shard: 0 package comments"},
		"two package comments":      {"ring/other.go", "// Package ring again.\npackage ring\n", "ring: 2 package comments"},
		"comment outside of doc.go": {"ring/other.go", "// Package ring again.\npackage ring\n", "ring/other.go: has a package comment"},
		"comment of another shape":  {"shard/doc.go", "// Shards.\npackage shard\n", "must begin with"},
		"long file":                 {"ring/long.go", "package ring\n" + strings.Repeat("\n", wishedLines), "ring/long.go: 501 lines"},
		"too long with a reason":    {"internal/evloop/explained_long.go", "package evloop\n" + strings.Repeat("\n", mostLines), "601 lines"},
		"drawer":                    {"examples/util/doc.go", "// Package util helps.\npackage util\n", "drawer"},
		"drawer as a folder":        {"examples/common/doc.go", "// Package tools helps.\npackage tools\n", "drawer"},
		"init":                      {"ring/init.go", "package ring\nfunc init() {}\n", "func init"},
		"init in a test":            {"ring/init_test.go", "package ring\nfunc init() {}\n", "func init"},
		"skip":                      {"ring/skip_test.go", "package ring\nfunc TestB(t *testing.T) {\n\tt.Skip()\n}\n", "ring/skip_test.go:3:2: t.Skip"},
		"skip of a fuzz target":     {"ring/skip_test.go", "package ring\nfunc FuzzB(f *testing.F) { f.Skipf(\"\") }\n", "f.Skipf"},
		"short":                     {"ring/skip_test.go", "package ring\nfunc TestB(t *testing.T) { testing.Short() }\n", "testing.Short"},
		"hidden test":               {"ring/slow_test.go", "//go:build integration\n\npackage ring\n", "no plain go test builds it"},
		"open work in Go":           {"ring/open.go", "package ring\n\n// " + string(open[0]) + ": more\n", "ring/open.go:3"},
		"open work elsewhere":       {"scripts/setup", "#!/bin/sh\n# " + string(open[1]) + "\n", "scripts/setup:2"},
		"placeholder":               {"README.md", "see " + string(open[2]) + ".", "README.md:1"},
	} {
		t.Run(name, func(t *testing.T) {
			files := sound()
			files[c.file] = c.text
			broken := brokenRules(t, files)
			if !slices.ContainsFunc(broken, func(line string) bool { return strings.Contains(line, c.want) }) {
				t.Fatalf("no complaint about %q in:\n%s", c.want, strings.Join(broken, "\n"))
			}
		})
	}
}

func TestReadTreeSeesThisModule(t *testing.T) {
	s, err := readTree(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"doc.go", "ring/doc.go", "internal/realpg/server.go", "layering_test.go"} {
		if !slices.ContainsFunc(s.goFiles, func(f goFile) bool { return f.path == want }) {
			t.Errorf("%s was not read", want)
		}
	}
	if !slices.ContainsFunc(s.texts, func(f textFile) bool { return f.path == "scripts/setup" }) {
		t.Error("scripts/setup was not read")
	}
}
