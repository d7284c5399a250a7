package cache

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"ringside/internal/failpoint"
)

// ServerConfig is one cache server. Its name is its identity, all else is data about it.
type ServerConfig struct {
	Name, Addr         string
	Username, Password string
	TLS                *tls.Config // nil: plain TCP. Compared by pointer: keep it as long as it means the same
	RunID              string      // the process that may be used; empty: none may
}

// Servers are the connections to the cache servers, by name. Every connection is checked when it is made: the process behind it must
// be the one that the configuration names (invariant I4). Safe for concurrent use.
type Servers struct {
	cfg         ServersConfig
	metrics     *serverMetrics
	closing     closing
	log         *slog.Logger
	incarnation atomic.Pointer[func(server, runID string)]

	mu     sync.Mutex // guards the following, and users and retired of each server
	byName map[string]*server
}

// server is one configuration of one cache server. It is replaced whole; whoever still works on it keeps it open.
type server struct {
	cfg      ServerConfig
	client   *redis.Client
	listener *listener
	gate     gate
	users    int
	retired  bool
}

// NewServers returns Servers without any server; see Apply.
func NewServers(cfg ServersConfig, reg prometheus.Registerer, log *slog.Logger) (*Servers, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Servers{cfg: cfg, metrics: newServerMetrics(reg), closing: newClosing(), log: log, byName: make(map[string]*server)}, nil
}

// OnIncarnation registers who is told of each connection that met another process than the one named: its run_id may become part of
// the topology, together with a new generation. f is called from within connecting and must not block; nil ends it.
func (s *Servers) OnIncarnation(f func(server, runID string)) {
	if f == nil {
		s.incarnation.Store(nil)
		return
	}
	s.incarnation.Store(&f)
}

// Apply makes the servers those of configs. A server that changed in anything is replaced whole; what is in flight on the old
// connections ends there. It does no I/O. The error says what is wrong with configs; then nothing was changed.
func (s *Servers) Apply(configs []ServerConfig) error {
	next := make(map[string]ServerConfig, len(configs))
	for _, c := range configs {
		switch _, twice := next[c.Name]; {
		case c.Name == "" || c.Addr == "":
			return fmt.Errorf("cache server %q at %q: name and address are needed", c.Name, c.Addr)
		case twice:
			return fmt.Errorf("cache server %q is given twice", c.Name)
		}
		next[c.Name] = c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, old := range s.byName {
		c, stays := next[name]
		if stays && c == old.cfg {
			continue
		}
		delete(s.byName, name)
		s.retire(old)
		if !stays {
			s.metrics.forget(name)
		}
	}
	for name, c := range next {
		if s.byName[name] == nil {
			s.byName[name] = s.open(c)
			s.metrics.expect(name)
		}
	}
	return nil
}

// Close closes all connections once nobody works on them any more. Reads then go to the shards, writes are refused.
func (s *Servers) Close() error { return s.Apply(nil) }

// Probe connects to a server anew, whatever process is behind its address, and returns its run_id. It is how a server's health and
// its present process are found out; traffic is never the probe.
func (s *Servers) Probe(ctx context.Context, name string) (runID string, err error) {
	srv := s.acquire(name)
	if srv == nil {
		return "", fmt.Errorf("%w: %s", ErrUnknownServer, name)
	}
	defer s.release(srv)
	ctx, cancel := context.WithTimeout(ctx, 2*s.cfg.ConnectTimeout)
	defer cancel()
	client := redis.NewClient(s.options(srv.cfg))
	defer client.Close()
	runID, err = askRunID(ctx, client)
	if err != nil {
		return "", &ServerError{Server: name, Err: err}
	}
	return runID, nil
}

// Raw returns a client of the caller's own, which he closes, to whatever process is behind a server's address: for making a server ready that
// no topology names yet, and for looking after its health. It is never for what an application is answered with.
func (s *Servers) Raw(name string) (*redis.Client, error) {
	srv := s.acquire(name)
	if srv == nil {
		return nil, fmt.Errorf("%w: %s", ErrUnknownServer, name)
	}
	defer s.release(srv)
	return redis.NewClient(s.options(srv.cfg)), nil
}

// Checked returns a client of the caller's own, which he closes, of at most so many connections: each reaches the process with this
// run_id or fails with an *IncarnationError. It is for bulk work, which must not take the connections of rows: one reply may
// take as long as timeout.
func (s *Servers) Checked(name, runID string, connections int, timeout time.Duration) (*redis.Client, error) {
	srv := s.acquire(name)
	if srv == nil {
		return nil, fmt.Errorf("%w: %s", ErrUnknownServer, name)
	}
	defer s.release(srv)
	c := srv.cfg
	c.RunID = runID
	o := s.options(c)
	o.PoolSize, o.MaxActiveConns = connections, connections
	o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = timeout, timeout, timeout
	o.OnConnect = func(ctx context.Context, cn *redis.Conn) error { return s.check(ctx, cn, c) }
	return redis.NewClient(o), nil
}

// acquire returns the present server of that name, nil if there is none. Every acquired server must be released.
func (s *Servers) acquire(name string) *server {
	s.mu.Lock()
	defer s.mu.Unlock()
	srv := s.byName[name]
	if srv != nil {
		srv.users++
	}
	return srv
}

// of returns the server that r may be used on. The error says why there is none.
func (s *Servers) of(r Ref) (*server, error) {
	srv := s.acquire(r.Server)
	if srv == nil {
		return nil, ErrUnknownServer
	}
	if r.RunID != "" && r.RunID != srv.cfg.RunID {
		s.release(srv)
		return nil, &IncarnationError{Server: r.Server, Want: r.RunID, Got: srv.cfg.RunID}
	}
	return srv, nil
}

func (s *Servers) release(srv *server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	srv.users--
	s.closeUnused(srv)
}

// retire is called with mu held.
func (s *Servers) retire(srv *server) {
	srv.retired = true
	s.closeUnused(srv)
}

func (s *Servers) closeUnused(srv *server) {
	if srv.retired && srv.users == 0 {
		srv.listener.retire()
		if err := srv.client.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			s.log.Warn("closing connections to a cache server", "server", srv.cfg.Name, "error", err)
		}
	}
}

func (s *Servers) open(c ServerConfig) *server {
	o := s.options(c)
	o.OnConnect = func(ctx context.Context, cn *redis.Conn) error { return s.check(ctx, cn, c) }
	client := redis.NewClient(o)
	return &server{cfg: c, client: client, listener: newListener(client, s.cfg.IdleTimeout), gate: gate{min: s.cfg.RetryMin, max: s.cfg.RetryMax}}
}

// check refuses a connection to any process but the one named.
func (s *Servers) check(ctx context.Context, cn *redis.Conn, c ServerConfig) error {
	got, err := askRunID(ctx, cn)
	if err != nil {
		return err
	}
	if got == c.RunID {
		return nil
	}
	s.metrics.refused.WithLabelValues(c.Name).Inc()
	if f := s.incarnation.Load(); f != nil {
		(*f)(c.Name, got)
	}
	return &IncarnationError{Server: c.Name, Want: c.RunID, Got: got}
}

// options are the same for every connection. No retries: what may be repeated is repeated by those who know. RESP 2 without push
// messages, identity and maintenance hand-shake: one HELLO per connection, no errors in the server's statistics.
func (s *Servers) options(c ServerConfig) *redis.Options {
	return &redis.Options{
		Addr: failpoint.Route(c.Addr), Username: c.Username, Password: c.Password, TLSConfig: c.TLS,
		Protocol: 2, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		MaxRetries:               -1, DialerRetries: 1,
		DialTimeout: s.cfg.ConnectTimeout, ReadTimeout: s.cfg.ConnectTimeout, WriteTimeout: s.cfg.ConnectTimeout,
		ContextTimeoutEnabled: true,
		PoolSize:              s.cfg.Connections, MaxActiveConns: s.cfg.Connections, PipelinePoolSize: -1, PoolTimeout: s.cfg.PoolTimeout,
		ReadBufferSize: 8 << 10, WriteBufferSize: 8 << 10,
		ConnMaxIdleTime: s.cfg.IdleTimeout,
	}
}

// askRunID is asked of one connection, or of a client without a check.
func askRunID(ctx context.Context, c interface {
	Info(ctx context.Context, sections ...string) *redis.StringCmd
}) (string, error) {
	info, err := c.Info(ctx, "server").Result()
	if err != nil {
		return "", fmt.Errorf("INFO server: %w", err)
	}
	for line := range strings.Lines(info) {
		if id, ok := strings.CutPrefix(line, "run_id:"); ok && strings.TrimSpace(id) != "" {
			return strings.TrimSpace(id), nil
		}
	}
	return "", errors.New("INFO server: no run_id in the answer")
}
