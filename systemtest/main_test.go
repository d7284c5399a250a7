package systemtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"ringside/internal/localcluster"
)

// suite is what the tests of this binary share. It is process-wide because a test binary has no other place that its tests and
// its TestMain both reach.
var suite struct {
	sync.Mutex
	dir     string // of the program; removed at the end
	program string
	failing string // likewise, with the points of failure
	shared  *cluster
	err     error // why the program could not be built, or the shared cluster not started; once is enough
}

type tests struct{ m *testing.M }

func TestMain(m *testing.M) { goleak.VerifyTestMain(tests{m}) }

// Run runs the tests and stops what they shared.
func (r tests) Run() int {
	code := r.m.Run()
	suite.Lock()
	defer suite.Unlock()
	var err error
	if suite.shared != nil {
		err = suite.shared.stop()
	}
	if suite.dir != "" {
		err = errors.Join(err, os.RemoveAll(suite.dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "after the tests:", err)
		return max(code, 1)
	}
	return code
}

// program builds ringside, once, and returns its path.
func program(t *testing.T) string { return built(t, &suite.program) }

// failing is the program with its points of failure (package failpoint).
func failing(t *testing.T) string { return built(t, &suite.failing, "-tags", "failpoint") }

// built builds the program to which path leads, once; which is one of suite's.
func built(t *testing.T, path *string, args ...string) string {
	t.Helper()
	suite.Lock()
	defer suite.Unlock()
	if *path == "" && suite.err == nil {
		*path, suite.err = build(args)
	}
	if suite.err != nil {
		t.Fatal(suite.err)
	}
	return *path
}

// build is called with suite locked.
func build(args []string) (path string, err error) {
	if suite.dir == "" {
		if suite.dir, err = os.MkdirTemp("", "ringside-systemtest-"); err != nil {
			return "", err
		}
	}
	if err := localcluster.LookAtSources(".."); err != nil {
		return "", err
	}
	path = filepath.Join(suite.dir, strings.Join(append([]string{"ringside"}, args...), ""))
	args = append([]string{"build", "-o", path}, args...)
	if raceDetector {
		args = append(args, "-race", "-gcflags=ringside/ring=-race=false") // as scripts/test has it
	}
	if out, err := exec.Command("go", append(args, "ringside/cmd/ringside")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}
