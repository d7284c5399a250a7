package realredis

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// do sends one inline command on a connection of its own and returns the first line of the reply.
func do(s *Server, command string, limit time.Duration) (string, error) {
	c, err := net.DialTimeout("tcp", s.Addr(), limit)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, command+"\r\n"); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line), err
}

func must(t *testing.T, s *Server, command, want string) {
	t.Helper()
	got, err := do(s, command, 5*time.Second)
	if err != nil || got != want {
		t.Fatalf("%s: got %q, %v; want %q", command, got, err, want)
	}
}

func TestAnswersAndIsEmptyAfterAKill(t *testing.T) {
	s := T(t)
	must(t, s, "PING", "+PONG")
	must(t, s, "SET a 1", "+OK")
	addr, pid := s.Addr(), s.PID()
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := do(s, "PING", time.Second); err == nil {
		t.Fatal("a killed server answers")
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.Addr() != addr || s.PID() == pid {
		t.Fatalf("%s pid %d, before %s pid %d", s.Addr(), s.PID(), addr, pid)
	}
	must(t, s, "EXISTS a", ":0")
}

func TestRestartOfARunningServer(t *testing.T) {
	s := T(t)
	pid := s.PID()
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.PID() == pid {
		t.Fatal("the same process")
	}
	must(t, s, "PING", "+PONG")
}

func TestPauseKeepsConnectionsAndResumeAnswers(t *testing.T) {
	s := T(t)
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	_, err := do(s, "PING", 100*time.Millisecond)
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("a paused server: %v; want a timeout", err)
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	must(t, s, "PING", "+PONG")
}

func TestArgumentsOverride(t *testing.T) {
	s := T(t, "--requirepass", "secret")
	got, err := do(s, "PING", 5*time.Second)
	if err != nil || !strings.HasPrefix(got, "-NOAUTH") {
		t.Fatalf("got %q, %v", got, err)
	}
}

func TestPersistenceInAGivenDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "c1")
	s, err := Start(t.Context(), Options{Dir: dir, Args: []string{"--appendonly", "yes"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop() })
	must(t, s, "SET a 1", "+OK")
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	must(t, s, "EXISTS a", ":1")
}

func TestStopRemovesATemporaryDirectoryTwice(t *testing.T) {
	s := T(t)
	dir := s.dir
	for range 2 {
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("%s: %v", dir, err)
	}
}

// Guards R1.
func TestATakenPortIsAnError(t *testing.T) {
	first := T(t)
	_, err := Start(t.Context(), Options{Port: first.Port()})
	if err == nil {
		t.Fatal("two servers on one port")
	}
	must(t, first, "PING", "+PONG")
}

func TestABadArgumentIsNamed(t *testing.T) {
	_, err := Start(t.Context(), Options{Args: []string{"--no-such-directive", "1"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-directive") {
		t.Fatalf("got %v", err)
	}
}

func TestTheContextBoundsTheStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, Options{}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}

func TestCheckInfo(t *testing.T) {
	for name, c := range map[string]struct {
		reply string
		ok    bool
	}{
		"ours":        {"$16\r\nprocess_id:42\r\n\r\n", true},
		"loading":     {"$28\r\nprocess_id:42\r\nloading:1\r\n\r\n", false},
		"loaded":      {"$28\r\nprocess_id:42\r\nloading:0\r\n\r\n", true},
		"a stranger":  {"$16\r\nprocess_id:43\r\n\r\n", false},
		"no id":       {"$2\r\nab\r\n", false},
		"password":    {"-NOAUTH Authentication required.\r\n", true},
		"refused yet": {"-LOADING Redis is loading\r\n", false},
		"empty line":  {"\r\n", false},
		"not a size":  {"$x\r\n", false},
		"nil":         {"$-1\r\n", false},
		"cut short":   {"$100\r\nprocess_id:42\r\n", false},
		"closed":      {"", false},
		"wrong shape": {"12\r\n", false},
	} {
		if err := checkInfo(bufio.NewReader(strings.NewReader(c.reply)), 42); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
