package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"ringside/internal/realredis"
)

// served is a real sidecar without a catalog, in front of real cache servers c1 to cn.
type served struct {
	admin, redis string
	servers      []*realredis.Server
	env          map[string]string
	log          syncBuffer
}

// syncBuffer may be read while a sidecar writes its log to it.
type syncBuffer struct {
	mu  sync.Mutex // guards the following
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func serve(t *testing.T, n int, token string) *served {
	t.Helper()
	return serveWith(t, n, token, "gossip: { listen: \"127.0.0.1:0\" }\n")
}

// serveWith is serve with more in the configuration.
func serveWith(t *testing.T, n int, token, more string) *served {
	t.Helper()
	s := &served{admin: closedPort(t), redis: closedPort(t), env: map[string]string{"RINGSIDE_TOKEN": token}}
	dir := t.TempDir()
	var text strings.Builder
	// A server that only waits for its share of a busy machine must not look dead.
	text.WriteString("limits: { cache_down_after: 20s }\n")
	fmt.Fprintf(&text, "name: a1\ndata_dir: %q\nredis: { listen: %q }\nadmin: { listen: %q, token: %q }\n%scaches:\n",
		dir, s.redis, s.admin, token, more)
	for i := range n {
		s.servers = append(s.servers, realredis.T(t))
		fmt.Fprintf(&text, "  - { name: c%d, addr: %q }\n", i+1, s.servers[i].Addr())
	}
	path := filepath.Join(dir, "ringside.yaml")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan result, 1)
	go func() {
		var stdout bytes.Buffer
		code := run(ctx, []string{"serve", "-c", path}, func(string) string { return "" }, &stdout, &s.log)
		ended <- result{code, stdout.String(), s.log.String()}
	}()
	t.Cleanup(func() {
		cancel()
		if got := <-ended; got.code != 0 || t.Failed() {
			t.Errorf("serve: %v", got)
		}
	})
	for deadline := time.Now().Add(time.Minute); ringside(t, s.env, "health", "--ready", "--admin", s.admin).code != 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the sidecar is not ready")
		}
	}
	return s
}

func (s *served) cache(t *testing.T, args ...string) result {
	t.Helper()
	return ringside(t, s.env, append(append([]string{"cache"}, args...), "--admin", s.admin)...)
}

// refused wants a command to fail with one line.
func (s *served) refused(t *testing.T, want string, args ...string) {
	t.Helper()
	s.cache(t, args...).want(t, 1, "", "ringside: "+want+"\n")
}

func TestCacheServersComeAndGo(t *testing.T) {
	s := serve(t, 2, "secret")
	client := redis.NewClient(&redis.Options{Addr: s.redis})
	defer client.Close()
	const keys = 500
	for i := range keys {
		if err := client.Set(t.Context(), "k"+strconv.Itoa(i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	all := func(when string) {
		t.Helper()
		for i := range keys {
			if got, err := client.Get(t.Context(), "k"+strconv.Itoa(i)).Int(); err != nil || got != i {
				t.Fatalf("%s: k%d is %d, %v", when, i, got, err)
			}
		}
	}

	spare := realredis.T(t)
	got := s.cache(t, "add", "c3", spare.Addr(), "--wait", "--wait-limit=2m")
	if got.code != 0 || !strings.HasPrefix(got.stdout, "c3 is active, epoch ") {
		t.Fatalf("add: %v", got)
	}
	if !strings.Contains(got.stderr, "c3 is being made ready") && !strings.Contains(got.stderr, "keys from c1: ") {
		t.Errorf("add shows no progress: %v", got)
	}
	all("after c3 was added")
	if ring := ringside(t, s.env, "ring", "--admin", s.admin); !strings.Contains(ring.stdout, "c3     "+spare.Addr()+"  active  1 ") {
		t.Errorf("ring: %v", ring)
	}

	got = s.cache(t, "drain", "c1", "--wait", "--wait-limit=2m", "--json")
	var answer changedAnswer
	if err := json.Unmarshal([]byte(got.stdout), &answer); got.code != 0 || err != nil || answer.State != "draining" || answer.Epoch == 0 {
		t.Fatalf("drain: %v", got)
	}
	all("after c1 was drained")
	s.cache(t, "drain", "c1") // again: nothing to do
	if got := s.cache(t, "remove", "c1", "--wait"); got.code != 0 || !strings.HasPrefix(got.stdout, "c1 is gone, epoch ") {
		t.Fatalf("remove: %v", got)
	}
	if err := s.servers[0].Kill(); err != nil {
		t.Fatal(err)
	}
	all("without c1")

	if got := s.cache(t, "weight", "c2", "3", "--wait", "--wait-limit=2m"); got.code != 0 || !strings.HasPrefix(got.stdout, "c2 is active, epoch ") {
		t.Fatalf("weight: %v", got)
	}
	all("after c2 was given another weight")
}

func TestCacheChangesThatAreRefused(t *testing.T) {
	s := serve(t, 1, "secret")
	c1, spare := s.servers[0], realredis.T(t)
	_, port, _ := net.SplitHostPort(c1.Addr())

	s.refused(t, "there is no cache server c9: ringside ring lists those that there are", "drain", "c9")
	s.refused(t, "there is no cache server c9: ringside ring lists those that there are", "weight", "c9", "1")
	s.refused(t, "there is no cache server c9: ringside ring lists those that there are", "remove", "c9")
	s.refused(t, "cache server c1 is active: drain it first", "remove", "c1")
	s.refused(t, "cache server c1 is the last one that owns anything: add another one first", "drain", "c1")
	s.refused(t, "cache server c1 is the last one that owns anything: add another one first", "weight", "c1", "0")
	s.refused(t, "weight is -1: it must be from 0 to 1000000", "add", "c2", spare.Addr(), "--weight=-1")
	s.refused(t, "weight is -1: it must be from 0 to 1000000", "weight", "c1", "-1", "--wait")
	s.cache(t, "drain", "c9", "--json").want(t, 1, `{"error":"there is no cache server c9: ringside ring lists those that there are"}`+"\n",
		"ringside: there is no cache server c9: ringside ring lists those that there are\n")
	s.refused(t, "weight is 1000001: it must be from 0 to 1000000", "weight", "c1", "1000001")
	s.refused(t, `name is "C 2": a name is 1 to 63 lower-case letters, digits and . _ -, and begins with a letter or digit`, "add", "C 2", spare.Addr())
	s.refused(t, `addr is "6379": it must be host:port, such as 10.0.0.1:6379`, "add", "c2", "6379")
	s.refused(t, `addr is "h:0": a port is a number from 1 to 65535`, "add", "c2", "h:0")
	s.refused(t, "there is a cache server c1 already (active, at "+c1.Addr()+")", "add", "c1", spare.Addr())
	s.refused(t, "cache server c1 has the address "+c1.Addr()+" already", "add", "c2", c1.Addr())
	s.refused(t, "the server at localhost:"+port+" is c1, which is in the ring already (at "+c1.Addr()+")", "add", "c2", "localhost:"+port)
	gone := closedPort(t)
	s.refused(t, "the server at "+gone+" cannot be used by this sidecar: dial tcp "+gone+": connect: connection refused", "add", "c2", gone)

	db := redis.NewClient(&redis.Options{Addr: spare.Addr()})
	defer db.Close()
	if err := db.MSet(t.Context(), "a", 1, "b", 2).Err(); err != nil {
		t.Fatal(err)
	}
	s.refused(t, "the server at "+spare.Addr()+" holds 2 keys, which joining would delete: if they are not needed, add it with flush (--flush)", "add", "c2", spare.Addr())
	if n := db.DBSize(t.Context()).Val(); n != 2 {
		t.Errorf("refusing has left %d keys of 2", n)
	}
	if err := db.ReplicaOf(t.Context(), "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	s.refused(t, "the server at "+spare.Addr()+" is a replica: add the server that takes writes", "add", "c2", spare.Addr(), "--flush")
	if err := db.ReplicaOf(t.Context(), "no", "one").Err(); err != nil {
		t.Fatal(err)
	}
	if got := s.cache(t, "add", "c2", spare.Addr(), "--flush", "--wait", "--wait-limit=2m"); got.code != 0 {
		t.Fatalf("with --flush: %v", got)
	}
	if n := db.Exists(t.Context(), "a", "b").Val(); n != 0 {
		t.Errorf("%d keys have survived --flush", n)
	}
	s.refused(t, s.redis+" is a ringside sidecar: name the Redis server behind it", "add", "c3", s.redis)
	s.refused(t, s.admin+" does not speak the Redis protocol", "add", "c3", s.admin)
	cluster := realredis.T(t, "--cluster-enabled", "yes")
	s.refused(t, "the server at "+cluster.Addr()+" runs in cluster mode: only a server that runs alone can be a cache server", "add", "c3", cluster.Addr())
}

func TestChangesNeedTheToken(t *testing.T) {
	s := serve(t, 1, "secret")
	s.env = nil
	s.refused(t, s.admin+" wants a token: set RINGSIDE_TOKEN, or --token", "drain", "c1")
	s.refused(t, s.admin+" refuses the token: the token is wrong", "drain", "c1", "--token", "other")
	open := serve(t, 1, "")
	open.refused(t, open.admin+" takes no changes: no admin.token is configured, so nothing can be changed: configure one and restart the sidecar", "drain", "c1")
}

func TestOutcomeOfAChange(t *testing.T) {
	for _, test := range []struct {
		verb, state string
		changing    bool
		done        bool
		failed      string
	}{
		{"add", "joining", false, false, ""},
		{"add", "active", true, false, ""},
		{"add", "active", false, true, ""},
		{"add", "down", false, false, ""},
		{"add", gone, false, false, "somebody has removed it"},
		{"add", "draining", false, false, "somebody drains it"},
		{"drain", "draining", true, false, ""},
		{"drain", "draining", false, true, ""},
		{"drain", gone, false, true, ""},
		{"drain", "active", false, false, "somebody has given it work again"},
		{"weight", "active", true, false, ""},
		{"weight", "active", false, true, ""},
		{"weight", "joining", false, false, ""},
		{"weight", "down", false, true, ""},
		{"weight", "draining", false, false, "somebody drains it"},
		{"weight", gone, false, false, "somebody has removed it"},
		{"remove", gone, true, true, ""},
		{"remove", "draining", false, false, ""},
	} {
		if done, failed := outcome(test.verb, test.state, test.changing); done != test.done || failed != test.failed {
			t.Errorf("%s, %s, changing %v: %v %q", test.verb, test.state, test.changing, done, failed)
		}
	}
}

func TestProgressLine(t *testing.T) {
	var out bytes.Buffer
	p := newProgressLine(&out)
	for _, text := range []string{"one", "one", "", "two", "t\x1bhree"} {
		p.say(text)
	}
	p.end()
	if got := out.String(); got != "one\ntwo\n\"t\\x1bhree\"\n" {
		t.Errorf("in lines: %q", got)
	}
	out.Reset()
	p = &progressLine{out: &out, terminal: true}
	p.say("one")
	p.say("two")
	p.end()
	if got := out.String(); got != "\r\x1b[Kone\r\x1b[Ktwo\r\x1b[K" {
		t.Errorf("on a terminal: %q", got)
	}
}

// TestHangupReadsTheGossipKeysAgain: with what a file named by the configuration holds now.
func TestHangupReadsTheGossipKeysAgain(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "key")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(keys, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("MDEyMzQ1Njc4OWFiY2RlZg==")
	s := serveWith(t, 1, "secret", fmt.Sprintf("gossip: { listen: \"127.0.0.1:0\", keys: [\"file:%s\"] }\n", keys))
	hangup := func(want string) {
		t.Helper()
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); !strings.Contains(s.log.String(), want); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the log never says %q:\n%s", want, s.log.String())
			}
		}
	}
	write("hunter2")
	hangup("the configuration was read again and not taken over")
	write("ZmVkY2JhOTg3NjU0MzIxMA==")
	hangup("changed=[gossip.keys[0]]")
	if log := s.log.String(); !strings.Contains(log, "gossip keys changed") || strings.Contains(log, "hunter2") || strings.Contains(log, "ZmVkY2Jh") {
		t.Errorf("the log:\n%s", log)
	}
}
