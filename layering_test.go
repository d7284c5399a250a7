package ringside_test

import (
	"os"
	"slices"
	"testing"
)

// A place is what the house rules say of one package, or of a folder of them when its path ends in "/...".
type place struct {
	floor int
	// may are the packages of this module that its production code may import. Tests may also import any lower floor and the real
	// servers.
	may []string
	why string // why it may import no more
}

// together are what tests of a package may import besides, because they search through what several packages decide together.
func together() map[string][]string {
	return map[string][]string{"cache": {"sidecar/topology"}}
}

// beside is the floor of the packages that are no part of what serves; only programs and tests import them.
const beside = -1

func floors() map[string]place {
	const (
		pure   = "pure packages know nothing of the rest, so that everything else may stand on them"
		single = "packages of floor 1 do one thing each and never import each other; what they share is a type of floor 0"
		narrow = "it sees the topology and the small interfaces that it declares itself, so that it can be tested without the rest"
	)
	serving := []string{
		"ring", "resp", "shard", "shard/keyspace", "internal/evloop", "internal/failpoint", "internal/heat", "sidecar/topology", "sidecar/config", "cache", "membership",
		"shard/catalog", "shard/origin", "shard/cdc", "shard/mover", "sidecar/proxy", "sidecar/handover", "sidecar/admin",
	}
	return map[string]place{
		"":                 {0, nil, "the root is a map, not a package to use"},
		"ring":             {0, nil, pure},
		"ring/simulate":    {1, []string{"ring"}, single + "; it works on paper"},
		"resp":             {0, nil, pure},
		"shard":            {0, nil, pure},
		"shard/keyspace":   {0, []string{"ring", "shard"}, pure},
		"internal/evloop":  {0, nil, "the event loop knows no Redis and no ring"},
		"sidecar/topology": {1, []string{"ring", "shard", "shard/keyspace"}, single},
		"sidecar/config":   {1, []string{"shard/keyspace"}, single + "; each component has its own Config, which sidecar fills"},
		"cache":            {1, []string{"shard", "shard/keyspace", "internal/failpoint"}, single + "; a cache knows neither placement nor PostgreSQL"},
		"membership":       {1, []string{"shard", "internal/failpoint"}, single + "; a list of members is not a placement"},
		"shard/catalog":    {1, []string{"ring", "shard", "internal/failpoint"}, single},
		"shard/origin":     {1, []string{"ring", "shard", "shard/keyspace", "internal/failpoint"}, single},
		"shard/cdc":        {1, []string{"shard", "shard/keyspace", "internal/failpoint"}, single + "; it tells of changes and knows no cache"},
		"shard/mover":      {2, []string{"ring", "shard", "shard/keyspace", "shard/catalog", "shard/origin", "shard/cdc"}, "a move concerns shards only"},
		"sidecar/proxy":    {2, []string{"ring", "resp", "shard", "shard/keyspace", "internal/evloop", "internal/failpoint", "internal/heat", "sidecar/topology", "cache"}, narrow},
		"sidecar/handover": {2, []string{"ring", "sidecar/topology", "cache"}, "it carries plain keys between cache servers and knows no client, no row and no shard"},
		"sidecar/admin":    {2, []string{"ring", "shard", "shard/keyspace", "sidecar/topology", "sidecar/config"}, narrow + "; the rules for names and weights are the configuration's"},
		"sidecar":          {3, serving, "it composes what serves, and starts no server of others"},
		"cmd/ringside":     {4, append([]string{"sidecar", "loadtest", "loadtest/page", "internal/localcluster", "ring/simulate"}, serving...), "nothing imports a program"},
		"loadtest":         {4, []string{"ring", "resp", "internal/childproc", "internal/realredis", "internal/twemproxy", "loadtest/gauge"}, "it looks from outside: it must be able to test another build, and must not share our mistakes"},
		"loadtest/sidebyside": {4, []string{"resp", "internal/localcluster", "internal/childproc", "internal/realredis", "internal/twemproxy", "loadtest/gauge"},
			"it compares programs over the wire: it must be able to measure any build of them"},
		"loadtest/rowcost": {4, []string{"resp", "internal/localcluster", "internal/realpg", "loadtest/gauge"},
			"it asks the program and PostgreSQL from outside: it must be able to measure any build"},
		"loadtest/movecost": {4, []string{"internal/localcluster", "loadtest", "loadtest/gauge"},
			"it asks the program from outside: it must be able to measure any build"},
		"loadtest/overload": {4, []string{"resp", "internal/localcluster", "loadtest/gauge"}, "it measures from outside: it must not share our mistakes"},
		"loadtest/page":     {beside, []string{"loadtest"}, "it draws what was measured, and measures nothing"},
		"loadtest/gauge":    {beside, []string{"resp"}, "it measures from outside: it must not share our mistakes"},
		"examples/...":      {4, append([]string{"sidecar"}, serving...), "examples show the API, not the tools of the tests"},
		"systemtest": {4, []string{"internal/localcluster", "internal/realredis", "internal/realpg", "resp", "ring", "shard/keyspace", "sidecar/topology", "internal/failpoint"},
			"it asks the real program from outside, and must not link what it tests"},
		"internal/heat": {0, nil, pure},
		"internal/failpoint": {0, nil,
			"points of failure are named where they are, and know nothing of it"},
		"systemtest/history": {beside, nil, "it must not share the mistakes of what it judges"},
		"internal/localcluster": {beside, []string{"internal/childproc", "internal/realredis", "internal/realpg"},
			"it runs the program from outside, as an operator would"},
		"internal/realbrowser": {beside, []string{"internal/childproc"},
			"it looks at pages from outside, as people do"},
		"internal/childproc": {beside, nil, "it runs programs and knows none of them"},
		"internal/twemproxy": {beside, []string{"internal/childproc"}, "it runs what ringside is compared with"},
		"internal/realredis": {beside, []string{"internal/childproc"}, "it must not use what the tests that use it check"},
		"internal/realpg":    {beside, []string{"internal/childproc"}, "it must not use what the tests that use it check"},
	}
}

// An outside rule says which packages may import something that is not of this module.
type outside struct {
	imports []string // an import path, or one and all below it when it ends in "/..."
	by      []string // packages of this module; "x/..." for those below x
	tests   bool     // tests of any package may too
	why     string
}

func outsides() []outside {
	everybodyButPure := []string{
		"internal/...", "sidecar", "sidecar/...", "cache", "membership", "shard/catalog", "shard/origin", "shard/cdc", "shard/mover",
		"cmd/...", "loadtest", "loadtest/...", "examples/...",
	}
	return []outside{
		{[]string{"github.com/jackc/pgx/v5/..."}, []string{"shard/catalog", "shard/origin", "shard/cdc", "shard/mover", "internal/realpg", "internal/localcluster", "loadtest", "loadtest/rowcost", "loadtest/overload"}, true,
			"PostgreSQL is spoken where rows, catalog, changes and moves are; others use those packages"},
		{[]string{"github.com/hashicorp/memberlist/..."}, []string{"membership"}, false, "gossip stays behind membership"},
		{[]string{"github.com/redis/go-redis/v9/..."}, []string{"cache", "sidecar/handover", "loadtest", "loadtest/...", "examples/..."}, true,
			"the data plane speaks Redis itself; go-redis serves the slow path, and as an application's client"},
		{[]string{"github.com/spaolacci/murmur3"}, []string{"ring"}, false, "one package decides where a key is; use ring.Hash"},
		{[]string{"github.com/prometheus/..."}, everybodyButPure, true, "pure packages count nothing"},
		{[]string{"net/http/..."}, []string{"sidecar/admin", "internal/localcluster", "cmd/...", "loadtest", "loadtest/...", "examples/..."}, true, "HTTP is served by the admin part alone, and asked by programs"},
		{[]string{"net", "net/url/...", "os/...", "log/...", "syscall", "database/sql/..."}, everybodyButPure, true, "pure packages touch nothing outside the process"},
		{[]string{"github.com/alecthomas/kong/..."}, []string{"cmd/...", "loadtest/..."}, false, "flags are parsed only by programs"},
		{[]string{"go.yaml.in/yaml/..."}, []string{"sidecar/config", "loadtest"}, false, "one package reads the configuration file, another the scenarios of load tests"},
		{[]string{"golang.org/x/sys/..."}, []string{"internal/evloop", "internal/childproc", "internal/realredis", "internal/realpg", "cmd/..."}, true,
			"system calls stay in the event loop and in what runs child processes; a test may open sockets by the thousand"},
		{[]string{"unsafe"}, []string{"internal/evloop"}, false, "nothing else is so hot that it may give up memory safety"},
		{[]string{"testing/...", "go.uber.org/goleak/...", "pgregory.net/rapid/..."}, nil, true, "what serves does not link the tools of tests"},
	}
}

// long lists the production files that may have more than 500 lines (never more than 600), with the reason.
func long() map[string]string { return map[string]string{} }

// TestHouseRules guards the map in doc.go and the rules of CONTRIBUTING.md.
func TestHouseRules(t *testing.T) {
	tree, err := readTree(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.goFiles) < 20 {
		t.Fatalf("only %d Go files found: this is not the whole module", len(tree.goFiles))
	}
	for _, broken := range checkAll(tree, floors(), outsides(), long()) {
		t.Error(broken)
	}
}

// The table itself must keep what it promises: downward only, nobody on floor 1 knows another, and nobody stands on a program.
func TestTheTableOfFloorsLeadsDownward(t *testing.T) {
	table := floors()
	for path, p := range table {
		for _, other := range p.may {
			q, ok := table[other]
			switch {
			case !ok:
				t.Errorf("%s may import %s, which is not in the table", path, other)
			case q.floor == beside && p.floor != beside && p.floor != 4:
				t.Errorf("%s serves and may import %s", path, other)
			case p.floor == 0 && (path != "shard/keyspace" || !slices.Contains([]string{"ring", "shard"}, other)):
				t.Errorf("%s is on floor 0 and may import %s; only shard/keyspace imports its neighbours", path, other)
			case p.floor > 0 && q.floor >= p.floor && other != "loadtest":
				t.Errorf("%s (floor %d) may import %s (floor %d)", path, p.floor, other, q.floor)
			}
		}
	}
}
