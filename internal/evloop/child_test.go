package evloop

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// childEnv has the test binary act as a server that is short of descriptors, rather than run tests.
const childEnv = "EVLOOP_TEST_DESCRIPTORS"

// childDescriptors is how many it may have.
const childDescriptors = "24"

// runChild serves echo until its standard input ends, then prints how it went.
func runChild(limit string) int {
	var n uint64
	if _, err := fmt.Sscan(limit, &n); err != nil {
		return 2
	}
	l, err := New(Config{})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	ln, err := l.Listen(ListenConfig{Network: "tcp", Addr: "127.0.0.1:0"}, func(a *Accepted) {
		if _, err := l.Adopt(a, echo()); err != nil {
			fmt.Println(err)
		}
	})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	rlimit := unix.Rlimit{Cur: n, Max: n}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &rlimit); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(ln.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		l.Stop()
	}()
	if err := l.Run(); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("pauses", l.Stats().AcceptPauses, "turns", l.Stats().Turns)
	return 0
}

// TestOutOfDescriptors (E6): connections that cannot be accepted wait, without the loop spinning, those that are there are
// served, and the waiting ones are accepted when descriptors are free again.
func TestOutOfDescriptors(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+childDescriptors)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	watchdog := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer watchdog.Stop()
	lines := bufio.NewReader(stdout)
	addr, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	const n = 40
	var conns []net.Conn
	for range n {
		c := dial(t, strings.TrimSpace(addr))
		send(t, c, "x")
		conns = append(conns, c)
	}
	served := 0
	for _, c := range conns {
		_ = c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			break
		}
		served++
	}
	if served < 5 || served == n {
		t.Fatalf("%d of %d were served by a process with %s descriptors", served, n, childDescriptors)
	}
	for range 10 { // the ones that are there go on
		send(t, conns[0], "y")
		_ = conns[0].SetReadDeadline(time.Now().Add(patience))
		expect(t, conns[0], "y")
	}
	for _, c := range conns[:served] {
		_ = c.Close()
	}
	for _, c := range conns[served:] {
		_ = c.SetReadDeadline(time.Now().Add(patience))
		expect(t, c, "x")
		_ = c.Close()
	}
	_ = stdin.Close()
	var pauses, turns int
	rest, err := io.ReadAll(lines)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(string(rest), "pauses %d turns %d", &pauses, &turns); err != nil {
		t.Fatalf("the child said %q", rest)
	}
	if pauses == 0 || turns > 1000 {
		t.Errorf("%d pauses, %d turns: want some pauses and few turns", pauses, turns)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
