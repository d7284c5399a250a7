package realpg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"ringside/internal/childproc"
)

const (
	startLimit = time.Minute      // for a server to accept connections, crash recovery included, unless the context ends before
	stopGrace  = 10 * time.Second // between the request to end and SIGKILL
	portTries  = 5                // ports to try when the caller leaves the choice to us
)

// Options of a server. The zero value is a server on a free port, in a temporary directory.
type Options struct {
	Port int       // 0: a free one
	Dir  string    // data directory, created when missing and kept; "": a temporary one, removed by Stop
	Log  io.Writer // what the server prints; nil: only kept for error messages
	// Settings are server parameters that override ours (see arguments). Durable by default: a test that kills the process but not
	// the machine may switch fsync off and keeps every acknowledged commit.
	Settings map[string]string
}

// Server is one PostgreSQL server, or the place of one that is down. Its methods may be called from any goroutine.
type Server struct {
	bin      string
	account  account
	port     int
	dir      string
	root     string // temporary directory above dir, ours to remove; "" when the caller named dir
	settings map[string]string
	log      io.Writer

	databases atomic.Int64 // numbers the databases made by Database

	mu      sync.Mutex // guards the following, and makes the methods that start or end the server exclusive
	proc    *childproc.Process
	removed bool // Stop has removed the data
}

// Start starts a PostgreSQL server and returns when it accepts connections and its database app exists. The context bounds the
// start only; Stop ends the server.
func Start(ctx context.Context, o Options) (*Server, error) {
	s := &Server{port: o.Port, settings: maps.Clone(o.Settings), log: o.Log}
	err := s.create(ctx, o)
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Server) create(ctx context.Context, o Options) (err error) {
	if s.bin, err = binaries(); err != nil {
		return err
	}
	if s.account, err = serverAccount(); err != nil {
		return err
	}
	if s.dir, err = filepath.Abs(o.Dir); err != nil {
		return err
	}
	if o.Dir == "" {
		if s.root, err = s.account.temp(); err != nil {
			return err
		}
		s.dir = filepath.Join(s.root, "data")
	}
	if err := prepare(ctx, s.bin, s.dir, s.account, s.settings["fsync"] != "off"); err != nil {
		return fmt.Errorf("data directory %s: %w", s.dir, err)
	}
	if err := s.startOnSomePort(ctx, o.Port); err != nil {
		return err
	}
	return s.createApp(ctx)
}

func (s *Server) startOnSomePort(ctx context.Context, wanted int) (err error) {
	if wanted != 0 {
		return s.start(ctx)
	}
	for range portTries {
		if s.port, err = childproc.FreePort(); err != nil {
			return err
		}
		if err = s.start(ctx); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// Port is the TCP port, the same for the life of the Server.
func (s *Server) Port() int { return s.port }

// DSN leads to the database app as the role ringside.
func (s *Server) DSN() string { return s.dsn("ringside", "app") }

// AdminDSN leads to the database postgres as the superuser postgres.
func (s *Server) AdminDSN() string { return s.dsn("postgres", "postgres") }

func (s *Server) dsn(role, database string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", role, s.port, database)
}

// PID is the process id of the postmaster; after a Restart it is another one.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.PID()
}

// Done is closed when the present postmaster has ended, wanted or not.
func (s *Server) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.Done()
}

// Kill ends the postmaster and all its children with SIGKILL, as a crash would, and waits until they are gone. Its address and
// data are kept for Restart.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.KillTree()
}

// Stop ends the server: sessions are cut, transactions rolled back, data written. It is killed if that takes too long. A
// temporary data directory is removed. It is idempotent.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.shutDown()
	if s.root != "" && !s.removed {
		s.removed = true
		err = errors.Join(err, os.RemoveAll(s.root))
	}
	return err
}

// Restart ends the server gently if it runs and starts it on the same port with the same data. After a Kill it recovers from the
// write-ahead log first.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	err := s.shutDown()
	if s.removed {
		err = errors.Join(err, errors.New("this PostgreSQL was stopped and its temporary data removed; Kill keeps it, and so does Options.Dir"))
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.start(ctx)
}

// Pause makes the postmaster and all its sessions stand still, their connections open (SIGSTOP). It returns when they have stopped.
func (s *Server) Pause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.PauseTree()
}

// Resume continues a paused server.
func (s *Server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.ResumeTree()
}

func (s *Server) running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.Running()
}

// shutDown is called with mu held.
func (s *Server) shutDown() error {
	if s.proc == nil || !s.proc.Running() {
		return nil
	}
	if err := s.proc.ResumeTree(); err != nil { // a paused server hears no request
		return err
	}
	if err := s.proc.Signal(syscall.SIGINT); err != nil { // "fast" shutdown
		return err
	}
	timer := time.NewTimer(stopGrace)
	defer timer.Stop()
	select {
	case <-s.proc.Done():
		return nil
	case <-timer.C:
		return s.proc.KillTree()
	}
}

func (s *Server) start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	proc, err := childproc.Start(childproc.Options{
		Path: filepath.Join(s.bin, "postgres"), Args: s.arguments(), Dir: s.dir, Env: environment(), Log: s.log,
		Credential: s.account.credential,
		// "Immediate" shutdown: the postmaster takes its sessions and its shared memory with it.
		DeathSignal: syscall.SIGQUIT,
	})
	if err != nil {
		return err
	}
	s.proc = proc
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := awaitReady(ctx, s.dir, proc); err != nil {
		return fmt.Errorf("PostgreSQL on 127.0.0.1:%d: %w", s.port, errors.Join(err, proc.KillTree()))
	}
	return nil
}

// Programs is the folder of PostgreSQL's programs, psql among them.
func (s *Server) Programs() string { return s.bin }

// Command is how a shell starts this server by hand once it has ended, with the same data and settings, as the user that owns the data. Nothing here
// hears of a server that was started so.
func (s *Server) Command() string {
	var words []string
	if s.account.credential != nil { // we are root
		words = append(words, "runuser", "-u", "postgres", "--")
	}
	words = append(words, filepath.Join(s.bin, "postgres"))
	words = append(words, s.arguments()...)
	for i, word := range words {
		words[i] = quoted(word)
	}
	return strings.Join(words, " ")
}

// quoted is a word as a shell reads it.
func quoted(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./=:,", r)
	}
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// arguments are ours, then the caller's, which win. Enough replication slots and senders for a shard's change stream and moves.
func (s *Server) arguments() []string {
	settings := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(s.port),
		"unix_socket_directories": "", // their paths may be too long, and nobody needs them
		"wal_level":               "logical",
		"max_connections":         "200",
		"max_replication_slots":   "32",
		"max_wal_senders":         "32",
		"log_timezone":            "UTC",
		"timezone":                "UTC",
	}
	maps.Copy(settings, s.settings)
	args := []string{"-D", s.dir}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}
