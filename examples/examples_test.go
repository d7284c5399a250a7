package examples

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"ringside/internal/localcluster"
)

// limit bounds one example.
const limit = 2 * time.Minute

// TestExamples runs every example against one cluster, each with the command that its README names, or that command's own steps where it would
// write into the sources.
func TestExamples(t *testing.T) {
	programs := build(t)
	c := start(t, filepath.Join(programs, "ringside"))
	environment := []string{
		"RINGSIDE=" + c.Sidecars[0].Redis, "RINGSIDE_ADMIN=" + c.Sidecars[0].Admin, "RINGSIDE_TOKEN=" + c.Token,
		"RINGSIDE_SPARE=" + c.Spares[0].Addr(), "RINGSIDE_PROGRAM=" + filepath.Join(programs, "ringside"), "RINGSIDE_DEMO=" + c.Dir,
	}
	t.Run("configurations", func(t *testing.T) { checkConfigurations(t, filepath.Join(programs, "ringside")) })
	t.Run("systemd", func(t *testing.T) { checkUnit(t, filepath.Join(programs, "ringside")) })
	t.Run("goredis", func(t *testing.T) {
		said(t, run(t, ".", environment, filepath.Join(programs, "goredis")),
			"user:1001 is user 1001, id 1001\n", "now she is Ada, with 42 visits\n", "MGET: session 1001, a row of ", ", and <nil> for a row",
			"an error: BADROW column \"shoe_size\": the table has no such column\n")
	})
	t.Run("node", func(t *testing.T) {
		dir := copied(t, "node")
		run(t, dir, environment, "npm", "run", "--silent", "prestart")
		said(t, run(t, dir, environment, "node", "main.mjs"),
			"user:1002 is user 1002, id 1002\n", "now she is Grace, with 42 visits\n", "MGET: session 1002, and null for a row",
			"an error: BADROW column \"shoe_size\": the table has no such column\n")
	})
	t.Run("python", func(t *testing.T) {
		if _, err := exec.LookPath("python3"); err != nil {
			t.Log("there is no python3 here: the example was not looked at")
			return
		}
		if exec.CommandContext(t.Context(), "python3", "-c", "import redis").Run() != nil {
			t.Log("redis-py is not installed here: only the syntax is checked")
			run(t, copied(t, "python"), nil, "python3", "-m", "py_compile", "main.py")
			return
		}
		said(t, run(t, ".", environment, "python3", "python/main.py"),
			"user:1003 is user 1003, id 1003\n", "now she is Margaret, with 42 visits\n", "MGET: session 1003, and None for a row",
			"an error: BADROW column \"shoe_size\": the table has no such column\n")
	})
	t.Run("shell", func(t *testing.T) {
		said(t, run(t, ".", environment, "shell/run.sh"),
			`"id":1004,"name":"user 1004"`, "> HINCRBY user:1004 visits 1\n42\n", "> MGET session:jkl user:999999999\n1004\n\n",
			"\nshard_key\n1004\n", "BADROW column \"shoe_size\": the table has no such column\n")
	})
	t.Run("attach-table", func(t *testing.T) {
		said(t, run(t, ".", append(pids(c), environment...), "attach-table/run.sh"),
			`{"id":7,"name":"product 7","cents":700}`, "table products is attached on s1, s2\n0\n", `{"id":7,"name":"product 7","cents":650,"ringside_vnode":`)
	})
	t.Run("hot-tenant", func(t *testing.T) {
		said(t, run(t, ".", environment, "hot-tenant/run.sh"), "tenant7 is on s", "tenant7 is on s", "acknowledged: ")
	})
	t.Run("addcache", func(t *testing.T) {
		out := run(t, ".", environment, filepath.Join(programs, "addcache"))
		said(t, out, "adding spare, "+c.Spares[0].Addr()+"\n", "spare is active and owns 2")
		// The very first second may still count what was cold before.
		if _, rest, _ := strings.Cut(out, "\n      1 "); strings.Count(rest, "%") < 6 || strings.Contains(rest, "   0.00%") {
			t.Errorf("the hit ratio was lost:\n%s", out)
		}
	})
	t.Run("metrics", func(t *testing.T) { checkMetrics(t, c) })
}

// build builds ringside and the examples that are written in Go into a folder.
func build(t *testing.T) string {
	t.Helper()
	if err := localcluster.LookAtSources(".."); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	run(t, "..", nil, "go", "build", "-o", dir+string(filepath.Separator), "./cmd/ringside", "./examples/goredis", "./examples/addcache")
	return dir
}

// start starts a cluster like the demo's on ports that are free.
func start(t *testing.T, program string) *localcluster.Cluster {
	t.Helper()
	printed, err := os.Create(filepath.Join(t.TempDir(), "printed"))
	if err != nil {
		t.Fatal(err)
	}
	defer printed.Close()
	o := localcluster.DefaultOptions()
	o.Binary, o.Rows, o.Log = program, 6000, printed
	o.Settings = map[string]string{"fsync": "off", "full_page_writes": "off", "shared_buffers": "32MB"}
	o.Config = "view_ttl: 500ms\nlimits: { cache_down_after: 20s }\n" // changes take less time, and a server that waits for a busy machine is not dead
	var c *localcluster.Cluster
	for range 3 {
		if o.BasePort, err = localcluster.FreeBase(o); err != nil {
			break
		}
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		c, err = localcluster.Start(ctx, o)
		cancel()
		if err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if text, err := os.ReadFile(printed.Name()); t.Failed() {
			t.Logf("the processes printed (%v):\n... %s", err, text[max(0, len(text)-8000):])
		}
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// pids are those of the sidecars, for examples that send them signals.
func pids(c *localcluster.Cluster) []string {
	var all []string
	for _, s := range c.Sidecars {
		all = append(all, strconv.Itoa(s.PID()))
	}
	return []string{"RINGSIDE_PIDS=" + strings.Join(all, " "), "PATH=" + c.Shards[0].Programs() + string(filepath.ListSeparator) + os.Getenv("PATH")}
}

// copied copies an example into a folder of its own, for what would write beside it.
func copied(t *testing.T, example string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(example)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// run runs a program in dir, which must end with status 0, and returns what it printed.
func run(t *testing.T, dir string, environment []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), environment...)
	cmd.WaitDelay = 5 * time.Second // npm's own children may hold its output
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		t.Fatalf("%v: scripts/setup clients metrics installs it", err)
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// said fails unless all that is in what was printed, in that order.
func said(t *testing.T, printed string, want ...string) {
	t.Helper()
	rest := printed
	for _, w := range want {
		_, after, ok := strings.Cut(rest, w)
		if !ok {
			t.Errorf("%q is not in, or not where it should be in:\n%s", w, printed)
			return
		}
		rest = after
	}
}
