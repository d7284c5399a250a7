package systemtest

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// go-redis with its default options: pipelines, pools and the handshake of its own.
func TestGoRedis(t *testing.T) {
	c := shared(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: c.Sidecars[0].Redis})
	defer func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := client.Set(ctx, "go:1", "x", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := client.Get(ctx, "go:1").Result(); err != nil || got != "x" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := client.Get(ctx, "go:none").Result(); err != redis.Nil {
		t.Errorf("a missing key: %v", err)
	}
	if got, err := client.HGet(ctx, "user:3700", "name").Result(); err != nil || got != "user 3700" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := client.HGetAll(ctx, "user:3701").Result(); err != nil || got["email"] != "user3701@example.com" || got["id"] != "3701" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := client.Get(ctx, "user:03700").Result(); err == nil || !strings.HasPrefix(err.Error(), "BADKEY ") {
		t.Errorf("a key that is not canonical: %v", err)
	}
	if err := client.MSet(ctx, "go:2", "b", "go:3", "c").Err(); err != nil {
		t.Error(err)
	}
	if got, err := client.MGet(ctx, "go:3", "go:none", "go:2").Result(); err != nil || fmt.Sprint(got) != "[c <nil> b]" {
		t.Errorf("%v, %v", got, err)
	}
	pipe := client.Pipeline()
	var replies []*redis.StringCmd
	for i := range 200 {
		pipe.Set(ctx, fmt.Sprintf("go:p:%d", i), i, 0)
		replies = append(replies, pipe.Get(ctx, fmt.Sprintf("go:p:%d", i)))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	for i, r := range replies {
		if r.Val() != fmt.Sprint(i) {
			t.Errorf("reply %d of the pipeline is %q", i, r.Val())
		}
	}
	if n, err := client.Del(ctx, "go:1", "go:2", "go:3", "go:none").Result(); err != nil || n != 3 {
		t.Errorf("%d, %v", n, err)
	}
}

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
