package systemtest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// suite is what the tests of this binary share. It is process-wide because a test binary has no other place that its tests and
// its TestMain both reach.
var suite struct {
	sync.Mutex
	dir     string // of the program; removed at the end
	program string
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
func program(t *testing.T) string {
	t.Helper()
	suite.Lock()
	defer suite.Unlock()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// build is called with suite locked.
func build() (string, error) {
	if suite.program != "" || suite.err != nil {
		return suite.program, suite.err
	}
	dir, err := os.MkdirTemp("", "ringside-systemtest-")
	if err != nil {
		return "", err
	}
	suite.dir = dir
	path := filepath.Join(dir, "ringside")
	if err := lookAtSources(); err != nil {
		return "", err
	}
	args := []string{"build", "-o", path}
	if raceDetector {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, "ringside/cmd/ringside")...).CombinedOutput(); err != nil {
		suite.err = fmt.Errorf("go build: %w\n%s", err, out)
		return "", suite.err
	}
	suite.program = path
	return path, nil
}

// lookAtSources looks at every source file of the module. A result of go test is kept until a file changes that the test has looked at, and
// what go build reads is not seen: without this an old result would stand for a new program.
func lookAtSources() error {
	return filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != "..":
			return fs.SkipDir
		case d.IsDir() || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		_, err = os.Stat(path)
		return err
	})
}
