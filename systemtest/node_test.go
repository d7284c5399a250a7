package systemtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The clients of Node.js, in the versions that systemtest/node/package-lock.json names, with their default options.
func TestNodeClients(t *testing.T) {
	c := shared(t)
	dir := installNode(t)
	own := sixth(t, c)
	control := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := restart(r.Context(), own, r.URL.Query().Get("how")); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	t.Cleanup(control.Close)
	for i, suite := range []string{"ioredis", "noderedis"} {
		t.Run(suite, func(t *testing.T) {
			out := node(t, dir, []string{
				"RINGSIDE=" + c.Sidecars[i].Redis, "RINGSIDE_MINE=" + own.Redis, "RINGSIDE_RESTART=" + control.URL,
				fmt.Sprintf("RINGSIDE_ROWS=%d", 3730+10*i),
			}, "node", "--test-reporter=tap", suite+".mjs")
			if !strings.Contains(out, "\n# fail 0\n") || strings.Contains(out, "\n# pass 0\n") || !strings.Contains(out, "\n# skipped 0\n") {
				t.Errorf("the suite printed\n%s", out)
			}
		})
	}
}

// installNode copies the suites into a folder of their own, has npm install there what they need, and returns the folder.
func installNode(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("node")); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	node(t, dir, nil, "npm", "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier")
	t.Logf("npm ci took %v", time.Since(begun))
	return dir
}

// node runs a program in dir and returns what it printed.
func node(t *testing.T, dir string, environment []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), environment...)
	cmd.WaitDelay = 5 * time.Second // npm's own children may hold its output
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		t.Fatalf("%v: scripts/setup clients installs it", err)
	}
	if err != nil {
		t.Fatalf("%s in %s: %v\n%s", strings.Join(cmd.Args, " "), filepath.Base(dir), err, out)
	}
	return string(out)
}
