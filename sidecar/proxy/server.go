package proxy

import (
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringside/internal/evloop"
	"ringside/shard/keyspace"
	"ringside/sidecar/topology"
)

// Deps is what the proxy is given. All of it is required, unless it says otherwise.
type Deps struct {
	Topology  *topology.Holder
	Keyspaces *keyspace.Set
	Rows      Rows
	Shards    Shards
	Cluster   Cluster
	// Plain carries keys; without it, keys that are still on a former owner cannot be used.
	Plain Plain
	// Credentials returns those of a cache server. It is called on the loops and must not block.
	Credentials func(server string) Credentials
	// OnIncarnation hears the run_id of a cache server at every connection. It is called on the loops and must not block.
	OnIncarnation func(server, runID string)
	// OnNewerEpoch, if set, hears of a higher epoch that a cache server knows of. It is called on the loops and must not block.
	OnNewerEpoch func(epoch uint64)
	Registerer   prometheus.Registerer
	Log          *slog.Logger
}

// Server answers the application.
type Server struct {
	cfg       Config // as it was given; what can be changed is in current
	current   atomic.Pointer[Config]
	deps      Deps
	keyspaces *keyspace.Set
	commands  *commands
	library   *library
	// pausedCommands is the table that workers use while writes are paused.
	pausedCommands func() *commands
	log            *slog.Logger
	runID          string
	started        time.Time

	ctx        context.Context // ends when the server has stopped; all misses and writes run on it
	cancel     context.CancelFunc
	goroutines sync.WaitGroup // misses, writes, name look-ups
	workers    []*worker
	listener   *evloop.Listener // set before ready is closed
	ready      chan struct{}
	next       int // worker of the next client; on the first loop only

	lastID         atomic.Int64
	clients        atomic.Int64
	refusedClients atomic.Uint64
	rowOps         atomic.Int64
	privates       atomic.Int64 // connections of clients' own
	lastSlow       atomic.Int64 // entries that the slow log ever had
	latencyReset   atomic.Int64 // those before are hidden from LATENCY
	sweeps         atomic.Int64 // commands under way that go through all names
	draining       atomic.Bool
	slowSeed       maphash.Seed
	writingSlow    atomic.Bool // a line about a slow request is being written
}

// yieldSeldom is how often a loop lets other goroutines run on its processor when they have one of their own. After 10 ms the runtime does so
// by itself.
const yieldSeldom = 10 * time.Millisecond

// New returns a server. It opens the event loops' descriptors and nothing else; runID is what INFO shows.
func New(cfg Config, deps Deps, runID string) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, deps: deps, keyspaces: deps.Keyspaces, commands: newCommands(), library: newLibrary(), pausedCommands: sync.OnceValue(pausedCommands), log: deps.Log, runID: runID,
		started: time.Now(), slowSeed: maphash.MakeSeed(), ready: make(chan struct{}),
	}
	s.current.Store(&cfg)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	loopConfig := evloop.Config{ReadBuffer: readAtOnce}
	if cfg.Loops < runtime.GOMAXPROCS(0) {
		loopConfig.YieldEvery = yieldSeldom
	}
	for range cfg.Loops {
		loop, err := evloop.New(loopConfig)
		if err != nil {
			for _, w := range s.workers {
				w.loop.Stop()
				_ = w.loop.Run() // releases what New has opened
			}
			return nil, fmt.Errorf("opening an event loop: %w", err)
		}
		s.workers = append(s.workers, newWorker(s, loop))
	}
	if err := deps.Registerer.Register(newCollector(s)); err != nil {
		return nil, err
	}
	return s, nil
}

// Run serves until ctx ends, then stops at once: for a graceful stop call Drain first. It returns an error when it cannot listen or
// a loop fails.
func (s *Server) Run(ctx context.Context) error {
	failed := make(chan error, len(s.workers)+1)
	var loops sync.WaitGroup
	for _, w := range s.workers {
		loops.Go(func() {
			if err := w.loop.Run(); err != nil {
				failed <- fmt.Errorf("event loop: %w", err)
			}
		})
	}
	listening := make(chan error, 1)
	s.workers[0].loop.Submit(func() { listening <- s.listen() })
	var err error
	select {
	case err = <-listening:
	case err = <-failed:
	}
	if err == nil {
		close(s.ready)
		select {
		case <-ctx.Done():
		case err = <-failed:
		}
	}
	s.cancel()
	for _, w := range s.workers {
		w.loop.Stop()
	}
	loops.Wait()
	s.goroutines.Wait()
	return err
}

// Ready is closed when clients can connect.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Addr is where clients connect. Only after Ready.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

func (s *Server) port() int {
	if a, ok := s.listener.Addr().(*net.TCPAddr); ok {
		return a.Port
	}
	return 0
}

// listen runs on the first loop.
func (s *Server) listen() error {
	network, addr := "tcp", s.cfg.Listen
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, addr = "unix", path
	}
	l, err := s.workers[0].loop.Listen(evloop.ListenConfig{Network: network, Addr: addr}, s.accept)
	if err != nil {
		return fmt.Errorf("listening for clients on %s: %w", s.cfg.Listen, err)
	}
	s.listener = l
	return nil
}

// accept deals new connections to the loops in turn. It runs on the first loop.
func (s *Server) accept(a *evloop.Accepted) {
	w := s.workers[s.next]
	s.next = (s.next + 1) % len(s.workers)
	if !w.loop.Submit(func() { w.welcome(a) }) {
		a.Close()
	}
}

// welcome makes an accepted connection a client of this worker.
func (w *worker) welcome(a *evloop.Accepted) {
	s := w.server
	if s.draining.Load() {
		a.Close()
		return
	}
	if s.clients.Add(1) > int64(s.live().MaxClients) {
		s.clients.Add(-1)
		s.refusedClients.Add(1)
		_, _ = w.loop.Adopt(a, turnedAway{}) // it could not be told: then it just sees the close
		return
	}
	cl := &client{worker: w, id: s.lastID.Add(1), proto: 2, opened: w.loop.Now(), window: s.live().InFlight}
	cl.heard = int64(cl.opened.Sub(s.started))
	cl.parser.Limits = &s.live().Limits
	cl.setAuthed(s.cfg.Password == "")
	w.clients[cl.id] = cl
	if w.pause.all {
		cl.hold()
	}
	if _, err := w.loop.Adopt(a, cl); err != nil {
		delete(w.clients, cl.id)
		s.clients.Add(-1)
		s.log.Warn("accepted client could not be served", "error", err)
	}
}

// turnedAway tells a client that there are too many.
type turnedAway struct{}

func (turnedAway) OnOpen(c *evloop.Conn) {
	c.Write([]byte("-ERR max number of clients reached\r\n"))
	c.CloseAfterFlush(linger)
}
func (turnedAway) OnData(_ *evloop.Conn, in []byte) int { return len(in) }
func (turnedAway) OnDrain(*evloop.Conn)                 {}
func (turnedAway) OnEOF(*evloop.Conn)                   {}
func (turnedAway) OnClose(*evloop.Conn, error)          {}

// Drain stops accepting, lets every client have the replies to what it has sent so far, and closes its connection. It returns when no client
// is left, or with ctx's error. Clients that are idle are closed at once, those that go on sending when they are owed nothing for a moment.
func (s *Server) Drain(ctx context.Context) error {
	select {
	case <-s.ready:
	default:
		return nil // never began to listen
	}
	s.draining.Store(true)
	for _, w := range s.workers {
		w.loop.Submit(w.endPause) // nobody is kept from leaving
	}
	s.workers[0].loop.Submit(s.listener.Close)
	ticker := time.NewTicker(drainLook)
	defer ticker.Stop()
	for look := 0; ; look++ {
		for _, w := range s.workers {
			w.loop.Submit(func() { w.sendAway(look < drainPatience) })
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d clients still had requests under way: %w", s.clients.Load(), ctx.Err())
		case <-ticker.C:
		}
		if s.clients.Load() == 0 {
			return nil
		}
	}
}

// While draining, the clients are looked at this often. One that has sent nothing since is taken for idle: what lies in the
// kernel's buffers would have been read by then. After so many looks nobody's pause is waited for any more.
const (
	drainLook     = 10 * time.Millisecond
	drainPatience = 10
)

// sendAway closes the connections of the clients that can be closed.
func (w *worker) sendAway(patient bool) {
	w.turn()
	for _, cl := range w.clients {
		cl.leave(patient)
	}
}
