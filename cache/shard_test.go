package cache

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"ringside/internal/realredis"
)

func TestMain(m *testing.M) {
	LogRedis(slog.New(slog.DiscardHandler)) // else it prints each refused connection
	goleak.VerifyTestMain(m)
}

// row is a shard made of memory: one register whose value is its version. A load sees what is committed when it runs.
type row struct {
	mu      sync.Mutex // guards the following
	version int
	loads   int
}

func (r *row) commit() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version++
	return r.version
}

func (r *row) load() Loaded {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loads++
	return Loaded{Found: true, Body: []byte(strconv.Itoa(r.version)), MayFill: true}
}

func (r *row) loaded() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.loads
}

// loader is a load callback for Read.
func (r *row) loader(context.Context) (Loaded, error) { return r.load(), nil }

// writer is a commit callback for Write.
func (r *row) writer(_ context.Context, poisoned func() error) error {
	if err := poisoned(); err != nil {
		return err
	}
	r.commit()
	return nil
}

// testConfig has the patience that a busy machine needs, but for the fill of another reader.
func testConfig() Config {
	c := patient()
	c.LeaseWait = 150 * time.Millisecond
	return c
}

// patient is a configuration in which only word of the end of a lease can end a wait in good time.
func patient() Config {
	c := DefaultConfig()
	c.LeaseTTL, c.LeaseWait, c.LoadTimeout, c.ReadTimeout = 3*time.Minute, time.Minute, time.Minute, 4*time.Minute
	c.StepTimeout, c.CleanTimeout, c.WriteTimeout, c.PoisonTTL = 20*time.Second, 20*time.Second, 20*time.Second, time.Minute
	return c
}

// hurry ends the patience with servers that are known not to answer from now on. Nothing may be under way.
func (s *sidecar) hurry() {
	s.cfg.StepTimeout, s.cfg.CleanTimeout = 200*time.Millisecond, 500*time.Millisecond
}

// sidecar is one Cache with its own connections.
type sidecar struct {
	*Cache
	servers *Servers
	config  []ServerConfig
}

// newSidecar makes a sidecar of the given servers, named c1, c2, ...; each is used as the process that it is now.
func newSidecar(t testing.TB, cfg Config, servers ...*realredis.Server) *sidecar {
	t.Helper()
	reg := prometheus.NewRegistry()
	log := slog.New(slog.DiscardHandler)
	sc := DefaultServersConfig()
	sc.ConnectTimeout, sc.PoolTimeout, sc.RetryMax = cfg.StepTimeout, cfg.StepTimeout/2, 100*time.Millisecond
	ss, err := NewServers(sc, reg, log)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(cfg, ss, reg, log)
	if err != nil {
		t.Fatal(err)
	}
	s := &sidecar{Cache: c, servers: ss}
	for i, r := range servers {
		s.config = append(s.config, ServerConfig{Name: "c" + strconv.Itoa(i+1), Addr: r.Addr(), RunID: runIDOf(t, r)})
	}
	if err := ss.Apply(s.config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		ss.Close()
	})
	return s
}

// newSidecarLike makes another sidecar of the same servers.
func newSidecarLike(t testing.TB, s *sidecar) *sidecar {
	t.Helper()
	other := newSidecar(t, s.cfg)
	if other.config = s.config; other.servers.Apply(s.config) != nil {
		t.Fatal("what one sidecar took the other refused")
	}
	return other
}

func unchecked(r *realredis.Server) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: r.Addr(), Protocol: 2, MaxRetries: -1, DisableIdentity: true})
}

// admin is a client without any of our checks.
func admin(t testing.TB, r *realredis.Server) *redis.Client {
	c := unchecked(r)
	t.Cleanup(func() { c.Close() })
	return c
}

func runIDOf(t testing.TB, r *realredis.Server) string {
	t.Helper()
	c := unchecked(r)
	defer c.Close()
	id, err := askRunID(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// tap stands between a sidecar and one of its servers. before is called for each command before it is sent, by any goroutine; true
// drops the command, and the sidecar is told that it succeeded. after is called when the server has answered it.
type tap struct {
	before func(cmd redis.Cmder) (drop bool)
	after  func(cmd redis.Cmder)
}

func (s *sidecar) tap(server string, before func(cmd redis.Cmder) bool) {
	s.hook(server, tap{before, func(redis.Cmder) {}})
}

func (s *sidecar) after(server string, after func(cmd redis.Cmder)) {
	s.hook(server, tap{func(redis.Cmder) bool { return false }, after})
}

func (s *sidecar) hook(server string, h tap) {
	srv := s.servers.acquire(server)
	defer s.servers.release(srv)
	srv.client.AddHook(h)
}

func (h tap) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (h tap) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h tap) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var sent []redis.Cmder
		for _, cmd := range cmds {
			if !h.before(cmd) {
				sent = append(sent, cmd)
				continue
			}
			if cmd, ok := cmd.(*redis.Cmd); ok {
				cmd.SetVal(int64(1))
			}
		}
		if len(sent) == 0 {
			return nil
		}
		err := next(ctx, sent)
		for _, cmd := range sent {
			h.after(cmd)
		}
		return err
	}
}

// kind of step that a command is.
func stepOf(c *Cache, cmd redis.Cmder) string {
	args := cmd.Args()
	switch args[0] {
	case "SET":
		return "ask"
	case "EVALSHA", "EVAL":
		if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			return ""
		}
		switch args[1] {
		case c.scripts.ask.sha, c.scripts.ask.source:
			return "ask"
		case c.scripts.fill.sha, c.scripts.fill.source:
			return "fill"
		case c.scripts.release.sha, c.scripts.release.source:
			return "release"
		case c.scripts.poison.sha, c.scripts.poison.source:
			return "poison"
		case c.scripts.clean.sha, c.scripts.clean.source:
			return "clean"
		case c.scripts.hand.sha, c.scripts.hand.source:
			return "hand"
		case c.scripts.take.sha, c.scripts.take.source:
			return "take"
		case c.scripts.put.sha, c.scripts.put.source:
			return "put"
		}
	}
	return ""
}

var ctxb = context.Background()

func within(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(aMinute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not within %v: %s", aMinute, what)
}

func wantVersion(t testing.TB, v Value, err error, version int) {
	t.Helper()
	if err != nil || !v.Found || string(v.Body) != strconv.Itoa(version) {
		t.Fatalf("got %q (found %v, %s), error %v; want version %d", v.Body, v.Found, v.Source, err, version)
	}
}

// sscanLine scans the line of an INFO answer that format fits.
func sscanLine(info, format string, v ...any) (n int, err error) {
	for line := range strings.Lines(info) {
		if n, err = fmt.Sscanf(line, format, v...); err == nil {
			return n, nil
		}
	}
	return 0, fmt.Errorf("no line fits %q", format)
}
