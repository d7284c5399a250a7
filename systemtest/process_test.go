package systemtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ringside/internal/childproc"
)

// start runs the program until the end of the test.
func start(t *testing.T, args ...string) *childproc.Process {
	t.Helper()
	p, err := childproc.Start(childproc.Options{Path: program(t), Args: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
		for _, never := range []string{"DATA RACE", "panic:", "fatal error:"} {
			if strings.Contains(p.Output(), never) {
				t.Errorf("%q printed: %s", args, p.Output())
			}
		}
	})
	return p
}

// exit waits for the end of a process and returns its exit code; -1 when a signal ended it.
func exit(t *testing.T, p *childproc.Process, limit time.Duration) int {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(limit):
		t.Fatalf("still running after %v; it printed: %s", limit, p.Output())
	}
	err := p.Err()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return ended.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0
}

// configFile writes a configuration and returns its path.
func configFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ringside.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// freePorts returns n ports of 127.0.0.1.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	ports := make([]int, n)
	for i := range ports {
		var err error
		if ports[i], err = childproc.FreePort(); err != nil {
			t.Fatal(err)
		}
	}
	return ports
}

func local(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
