package systemtest

import (
	"context"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// run runs a program against a sidecar and returns what it printed.
func run(t *testing.T, stdin, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func TestRedisCli(t *testing.T) {
	c := shared(t)
	host, port, err := net.SplitHostPort(c.Sidecars[1].Redis)
	if err != nil {
		t.Fatal(err)
	}
	got := run(t, "PING\nSET cli:1 x EX 100\nGET cli:1\nGET cli:none\nHGET user:3710 name\nEXISTS user:3710 cli:1\nGET user:03710\nHGETALL order:tenant1:1\n", "redis-cli", "-h", host, "-p", port)
	want := "PONG\nOK\nx\n\nuser 3710\n2\nBADKEY key \"user:03710\" of keyspace user: field id is \"03710\": write 3710\n\ntenant\ntenant1\nid\n1\nitem\nitem 1\ncents\n"
	if !strings.HasPrefix(got, want) {
		t.Errorf("redis-cli printed\n%s\nwant\n%s", got, want)
	}
	if got := run(t, "", "redis-cli", "-3", "-h", host, "-p", port, "HGET", "user:3710", "email"); got != "user3710@example.com\n" {
		t.Errorf("redis-cli -3 printed %q", got)
	}
	if got := run(t, "", "redis-cli", "-h", host, "-p", port, "RING", "LOOKUP", "user:3710"); !strings.Contains(got, "\nuser\n") {
		t.Errorf("RING LOOKUP printed %q", got)
	}
}

func TestRedisBenchmark(t *testing.T) {
	c := shared(t)
	host, port, err := net.SplitHostPort(c.Sidecars[0].Redis)
	if err != nil {
		t.Fatal(err)
	}
	got := run(t, "", "redis-benchmark", "-h", host, "-p", port, "-t", "set,get,incr,lpush,mset", "-n", "20000", "-q")
	var lines []string
	for l := range strings.Lines(strings.ReplaceAll(got, "\r", "\n")) {
		if strings.Contains(l, "requests per second") {
			lines = append(lines, strings.TrimSpace(l))
		}
	}
	if len(lines) != 5 || strings.Contains(strings.ToLower(got), "error") || strings.Contains(got, "WARNING") {
		t.Errorf("redis-benchmark printed %q", got)
	}
	for _, l := range lines {
		t.Log(l)
	}
}
