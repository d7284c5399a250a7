package realpg

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
)

// TB is what the functions for tests need of *testing.T, *testing.B and *testing.F. It is an interface so that the demo, which
// uses this package too, does not link testing.
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// shared is the server that the tests of one binary share (R4): initdb and a start cost a second or two, a database 50 ms.
// It is process-wide because a test binary has no other place that its tests and its TestMain both reach.
var shared struct {
	sync.Mutex
	owned  bool // by Main, which will stop it
	server *Server
	err    error // why it could not start; once is enough
}

// Tests is the run of a test binary whose tests share a server; see Main.
type Tests struct{ m interface{ Run() int } }

// Main wraps the *testing.M of a test binary so that the shared server is stopped after the tests:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(realpg.Main(m)) }
func Main(m interface{ Run() int }) Tests { return Tests{m} }

// Run runs the tests, then stops the shared server. It returns the exit code.
func (r Tests) Run() int {
	shared.Lock()
	shared.owned = true
	shared.Unlock()
	code := r.m.Run()
	shared.Lock()
	defer shared.Unlock()
	shared.owned = false
	if shared.server == nil {
		return code
	}
	err := shared.server.Stop()
	shared.server = nil
	if err != nil {
		fmt.Fprintln(os.Stderr, "stop the shared PostgreSQL:", err)
		return max(code, 1)
	}
	return code
}

// Run is Main(m).Run, for a TestMain that checks nothing else: os.Exit(realpg.Run(m)).
func Run(m interface{ Run() int }) int { return Main(m).Run() }

// T returns the server that all tests of this binary share, started by the first of them. Use Database for a database of your
// own, and Alone for a server to kill, pause or configure. TestMain must call Main or Run.
func T(t TB) *Server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if !shared.owned {
		t.Fatalf("TestMain must wrap its *testing.M in realpg.Main, which stops the shared server")
	}
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = Start(context.Background(), Options{Settings: testSettings(nil)})
	}
	if shared.err != nil {
		t.Fatalf("%v", shared.err)
	}
	return shared.server
}

// Alone starts a server for one test and stops it at the end of that test. settings are added to the usual ones of tests.
func Alone(t TB, settings map[string]string) *Server {
	t.Helper()
	s, err := Start(context.Background(), Options{Settings: testSettings(settings)})
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("stop PostgreSQL: %v", err)
		}
	})
	return s
}

// Standby starts a standby that streams from s, for one test, and stops it at the end of that test. Until it is promoted (pg_promote) it answers reads only.
func (s *Server) Standby(t TB) *Server {
	t.Helper()
	standby := &Server{bin: s.bin, account: s.account, settings: s.settings}
	t.Cleanup(func() {
		if err := standby.Stop(); err != nil {
			t.Errorf("stop the standby: %v", err)
		}
	})
	beside, err := filepath.EvalSymlinks(filepath.Join(s.bin, "postgres")) // in PATH may be a link to it alone
	if err != nil {
		t.Fatalf("%v", err)
	}
	if standby.root, err = s.account.temp(); err != nil {
		t.Fatalf("%v", err)
	}
	standby.dir = filepath.Join(standby.root, "data")
	if err = s.account.own(standby.root); err == nil {
		err = s.account.run(context.Background(), filepath.Join(filepath.Dir(beside), "pg_basebackup"), standby.root,
			"--pgdata", standby.dir, "--dbname", s.AdminDSN(), "--write-recovery-conf", "--checkpoint", "fast", "--no-sync")
	}
	if err == nil {
		err = standby.startOnSomePort(context.Background(), 0)
	}
	if err != nil {
		t.Fatalf("a standby: %v", err)
	}
	return standby
}

// testSettings give up what only a crash of the machine could lose. synchronous_commit stays on: a commit that was
// acknowledged survives Kill.
func testSettings(more map[string]string) map[string]string {
	settings := map[string]string{"fsync": "off", "full_page_writes": "off", "shared_buffers": "32MB"}
	maps.Copy(settings, more)
	return settings
}
