package realredis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"ringside/internal/childproc"
)

const (
	startLimit = 20 * time.Second // for a server to answer, unless the context ends before
	stopGrace  = 5 * time.Second  // between SIGTERM and SIGKILL
	portTries  = 5                // ports to try when the caller leaves the choice to us
)

// Options of a server. The zero value is a server on a free port, in a temporary directory.
type Options struct {
	Port int       // 0: a free one
	Dir  string    // working directory; "": a temporary one, removed by Stop
	Args []string  // more arguments of redis-server, which override ours, such as "--maxmemory", "10mb"
	Log  io.Writer // what the server prints; nil: only kept for error messages
}

// Server is one redis-server process, or the place of one that is down. Its methods may be called from any goroutine.
type Server struct {
	path string
	port int
	args []string
	log  io.Writer
	temp bool // dir is ours to remove

	mu   sync.Mutex // guards proc, and makes the methods that start or end it exclusive
	dir  string
	proc *childproc.Process
}

// Start starts a redis-server and returns when it answers. The context bounds the start only; Stop ends the server.
func Start(ctx context.Context, o Options) (*Server, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("redis-server is not installed (run scripts/setup): %w", err)
	}
	s := &Server{path: path, port: o.Port, dir: o.Dir, args: o.Args, log: o.Log, temp: o.Dir == ""}
	tries := 1
	if o.Port == 0 {
		tries = portTries
	}
	for range tries {
		if o.Port == 0 {
			if s.port, err = childproc.FreePort(); err != nil {
				return nil, err
			}
		}
		if err = s.start(ctx); err == nil {
			return s, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(err, s.Stop())
}

// Addr is host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Port is the TCP port, the same for the life of the Server.
func (s *Server) Port() int { return s.port }

// PID is the process id; after a Restart it is another one.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.PID()
}

// Done is closed when the present process has ended, wanted or not.
func (s *Server) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.Done()
}

// Kill ends the server with SIGKILL and waits. Its address and directory are kept for Restart.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.Kill()
}

// Stop ends the server gently, then firmly, and removes its temporary directory. It is idempotent.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.proc != nil {
		err = s.proc.Stop(syscall.SIGTERM, stopGrace)
	}
	if s.temp && s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
		s.dir = ""
	}
	return err
}

// Restart ends the server if it runs and starts it on the same port, with the same arguments, in the same directory (an empty
// one after a Stop that removed it).
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	err := s.proc.Stop(syscall.SIGTERM, stopGrace)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.start(ctx)
}

// Pause makes the server stand still, its connections open (SIGSTOP). It returns when the process has stopped.
func (s *Server) Pause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.Pause()
}

// Resume continues a paused server.
func (s *Server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.Resume()
}

func (s *Server) start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir == "" {
		dir, err := os.MkdirTemp("", "ringside-redis-")
		if err != nil {
			return err
		}
		s.dir = dir
	} else if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	args := []string{
		"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no",
	}
	proc, err := childproc.Start(childproc.Options{Path: s.path, Args: append(args, s.args...), Dir: s.dir, Log: s.log})
	if err != nil {
		return err
	}
	s.proc = proc
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := awaitAnswer(ctx, s.Addr(), proc); err != nil {
		return fmt.Errorf("redis-server on %s: %w", s.Addr(), errors.Join(err, proc.Kill()))
	}
	return nil
}
