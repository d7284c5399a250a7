package childproc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// parentRole makes this test binary a program that starts a child, says its pid and then waits to be killed.
const parentRole = "CHILDPROC_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentRole) != "" {
		p, err := Start(Options{Path: "sleep", Args: []string{"60"}})
		if err != nil {
			panic(err)
		}
		fmt.Println(p.PID())
		<-p.Done()
		return
	}
	goleak.VerifyTestMain(m)
}

func start(t *testing.T, script string) *Process {
	t.Helper()
	p, err := Start(Options{Path: "sh", Args: []string{"-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.KillTree(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func waitOutput(t *testing.T, p *Process, want string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(p.Output(), want); time.Sleep(pollEvery) {
		if time.Now().After(deadline) {
			t.Fatalf("no %q in the output: %q", want, p.Output())
		}
	}
}

func TestStartNamesAMissingProgram(t *testing.T) {
	_, err := Start(Options{Path: "no-such-program-anywhere"})
	if err == nil || !strings.Contains(err.Error(), "no-such-program-anywhere") {
		t.Fatalf("got %v", err)
	}
}

func TestErrCarriesTheLastOutput(t *testing.T) {
	p := start(t, "echo the reason >&2; exit 3")
	err := p.Err()
	if err == nil || !strings.Contains(err.Error(), "the reason") || !strings.Contains(err.Error(), "exit status 3") {
		t.Fatalf("got %v", err)
	}
}

func TestFilesAreInherited(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	p, err := Start(Options{Path: "sh", Args: []string{"-c", "echo hello >&3"}, Files: []*os.File{out}})
	if err := errors.Join(err, out.Close()); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(in); string(got) != "hello\n" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	if err := p.Err(); err != nil {
		t.Error(err)
	}
}

func TestLogGetsEverythingAndTheTailIsBounded(t *testing.T) {
	var log bytes.Buffer
	p, err := Start(Options{Path: "sh", Args: []string{"-c", "i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done"}, Log: &log})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(log.String(), "line 0\n") || !strings.HasSuffix(log.String(), "line 4999\n") {
		t.Fatalf("the log lost lines: %d bytes", log.Len())
	}
	if out := p.Output(); len(out) > tailSize || !strings.HasSuffix(out, "line 4999\n") {
		t.Fatalf("tail of %d bytes", len(out))
	}
}

func TestStopIsGentleThenFirm(t *testing.T) {
	gentle := start(t, "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done")
	waitOutput(t, gentle, "up")
	if err := gentle.Stop(syscall.SIGTERM, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(gentle.Output(), "bye") {
		t.Fatalf("it was not asked: %q", gentle.Output())
	}
	deaf := start(t, "trap '' TERM; echo up; while :; do sleep 0.01; done")
	waitOutput(t, deaf, "up")
	if err := deaf.Stop(syscall.SIGTERM, 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if deaf.Running() {
		t.Fatal("it still runs")
	}
	if err := deaf.Stop(syscall.SIGTERM, time.Second); err != nil {
		t.Fatalf("a second stop: %v", err)
	}
}

func TestStopReachesAPausedChild(t *testing.T) {
	p := start(t, "trap 'exit 0' TERM; echo up; while :; do sleep 0.01; done")
	waitOutput(t, p, "up")
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	if st, found, err := process(p.PID()); err != nil || !found || !st.stopped {
		t.Fatalf("%+v %v %v", st, found, err)
	}
	if err := p.Stop(syscall.SIGTERM, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := p.Err(); err != nil {
		t.Fatalf("it was killed: %v", err)
	}
}

func TestKillTreeLeavesNoChild(t *testing.T) {
	p := start(t, "sleep 60 & echo child=$!; sleep 60 & echo up; wait")
	waitOutput(t, p, "up")
	line, _, _ := strings.Cut(p.Output(), "\n")
	child, err := strconv.Atoi(strings.TrimPrefix(line, "child="))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.PauseTree(); err != nil {
		t.Fatal(err)
	}
	if st, _, err := process(child); err != nil || !st.stopped {
		t.Fatalf("the grandchild runs on: %+v %v", st, err)
	}
	if err := p.ResumeTree(); err != nil {
		t.Fatal(err)
	}
	if err := p.KillTree(); err != nil {
		t.Fatal(err)
	}
	if st, found, err := process(child); err != nil || (found && !st.zombie) {
		t.Fatalf("the grandchild lives: %+v %v", st, err)
	}
}

// SignalTree knows a process by its id only, as a stranger's.
func TestSignalTreeReachesTheChildren(t *testing.T) {
	p := start(t, "sleep 60 & echo child=$!; sleep 60 & echo up; wait")
	waitOutput(t, p, "up")
	line, _, _ := strings.Cut(p.Output(), "\n")
	child, err := strconv.Atoi(strings.TrimPrefix(line, "child="))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		sig  syscall.Signal
		want func(st status, found bool) bool
	}{
		{syscall.SIGSTOP, func(st status, found bool) bool { return found && st.stopped }},
		{syscall.SIGCONT, func(st status, found bool) bool { return found && !st.stopped }},
		{syscall.SIGKILL, func(st status, found bool) bool { return !found || st.zombie }},
	} {
		if err := SignalTree(p.PID(), c.sig); err != nil {
			t.Fatal(err)
		}
		for _, pid := range []int{p.PID(), child} {
			for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(pollEvery) {
				st, found, err := process(pid)
				if err == nil && c.want(st, found) {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("after %v pid %d is %+v, %v, %v", c.sig, pid, st, found, err)
				}
			}
		}
	}
	<-p.Done()
	if err := SignalTree(p.PID(), syscall.SIGSTOP); err == nil {
		t.Error("a process that is gone was signalled")
	}
}

// Guards C1: the kernel's signal is tied to a thread; a child must survive the threads of those who merely asked for it.
func TestChildOutlivesTheCallersThread(t *testing.T) {
	var p *Process
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		p = start(t, "echo up; sleep 60")
	}()
	<-ended
	waitOutput(t, p, "up")
	time.Sleep(50 * time.Millisecond)
	if !p.Running() {
		t.Fatalf("it died with the caller's thread: %v", p.Err())
	}
}

func TestFreePortIsFree(t *testing.T) {
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}

func TestTailNeverFails(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close() // every write to it fails from here on
	w := &tail{next: f}
	if n, err := w.Write([]byte("x")); n != 1 || err != nil {
		t.Fatalf("%d %v", n, err)
	}
}
