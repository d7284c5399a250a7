package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// The bounds of a connection (promise P6). No answer depends on a slow party but the profiles, which stay within answerWithin.
const (
	headerWithin  = 5 * time.Second
	requestWithin = 10 * time.Second
	answerWithin  = time.Minute
	idleFor       = time.Minute
	stopWithin    = 2 * time.Second
	changeWithin  = 20 * time.Second
	maxHeader     = 32 << 10 // bytes; the key of a lookup is in there
	maxConns      = 512
)

// Server is the admin interface of one sidecar. Create it with New, then call Run once.
type Server struct {
	cfg    Config
	deps   Deps
	log    *slog.Logger
	routes routes
	verbs  map[string]Verb
	orders map[string]order
	page   *page
	rings  ringCache

	recorder  recorder
	previews  previews
	moves     moveWatch
	verifying atomic.Bool // one verification at a time

	ready chan struct{}
	addr  atomic.Pointer[string]
}

// New checks cfg and deps. It opens no listener.
func New(cfg Config, deps Deps) (*Server, error) {
	if err := errors.Join(cfg.Validate(), deps.validate()); err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	p, err := newPage()
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	s := &Server{cfg: cfg, deps: deps, log: deps.Log.With("component", "admin"), page: p, ready: make(chan struct{}), previews: newPreviews()}
	s.routes, s.verbs, s.orders = s.newRoutes(), verbs(), s.newOrders()
	return s, nil
}

// Ready is closed when requests are taken.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Addr is where the server listens, as host:port: the configured address until Ready, the real one (port 0 resolved) from then on.
// Safe for concurrent use.
func (s *Server) Addr() string {
	if a := s.addr.Load(); a != nil {
		return *a
	}
	return s.cfg.Listen
}

// Run listens and serves until ctx ends, then finishes what is under way, for at most two seconds. A stop that was asked for is no error.
func (s *Server) Run(ctx context.Context) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.cfg.Listen)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("admin.listen %s is in use: another process listens there (another sidecar?)", s.cfg.Listen)
	case err != nil:
		return fmt.Errorf("admin.listen %s: %w", s.cfg.Listen, err)
	}
	addr := l.Addr().String()
	s.addr.Store(&addr)
	if s.cfg.Token == "" && !loopback(addr) {
		s.log.Warn("no admin.token is configured: requests from beyond this machine will be refused", "listen", addr)
	}
	srv := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: headerWithin,
		ReadTimeout:       requestWithin,
		WriteTimeout:      answerWithin,
		IdleTimeout:       idleFor,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // broken clients, mostly
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(&boundedListener{Listener: l, slots: make(chan struct{}, maxConns)}) }()
	close(s.ready)
	recording, stop := context.WithCancel(ctx)
	var recorder sync.WaitGroup
	recorder.Go(func() { s.record(recording) })
	defer recorder.Wait()
	defer stop()
	select {
	case err := <-served:
		return fmt.Errorf("admin: %w", err)
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	if err := srv.Shutdown(stopping); err != nil {
		_ = srv.Close() // what is still under way has had its time
	}
	<-served
	return nil
}

// boundedListener closes connections beyond the limit at once: waiting in the kernel's queue would only look like a sidecar that hangs.
type boundedListener struct {
	net.Listener
	slots chan struct{}
}

func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.slots <- struct{}{}:
			return &boundedConn{Conn: c, release: sync.OnceFunc(func() { <-l.slots })}, nil
		default:
			_ = c.Close()
		}
	}
}

type boundedConn struct {
	net.Conn
	release func()
}

func (c *boundedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
