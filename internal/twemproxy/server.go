package twemproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"ringside/internal/childproc"
)

// Options of a proxy.
type Options struct {
	Servers  []string // host:port of the Redis servers
	Dir      string   // for its files; must be there
	MbufSize int      // size of its buffers, in bytes; 0: its own default
}

// Server is one nutcracker process.
type Server struct {
	*childproc.Process
	Addr string // host:port
}

// ErrNotInstalled says that there is no such program here.
var ErrNotInstalled = errors.New("twemproxy is not installed (run scripts/setup bench)")

// find looks where Debian has it too, which is not in everybody's PATH.
func find() (string, error) {
	for _, name := range []string{"nutcracker", "/usr/sbin/nutcracker"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNotInstalled
}

const (
	defaultMbuf = 16384
	startLimit  = 20 * time.Second
	askLimit    = 2 * time.Second
)

// Start starts a proxy and returns when it answers. auto_eject_hosts is off: a server that is late must cost a proxy its time, not a part of its
// keys. Whoever starts it stops it.
func Start(ctx context.Context, o Options) (*Server, error) {
	program, err := find()
	if err != nil {
		return nil, err
	}
	var ports [2]int
	for i := range ports {
		if ports[i], err = childproc.FreePort(); err != nil {
			return nil, err
		}
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))
	var text strings.Builder
	fmt.Fprintf(&text, "all:\n  listen: %s\n  hash: murmur\n  distribution: ketama\n  redis: true\n  auto_eject_hosts: false\n  backlog: 4096\n  servers:\n", addr)
	for i, s := range o.Servers {
		fmt.Fprintf(&text, "   - %s:1 c%d\n", s, i+1)
	}
	name := filepath.Join(o.Dir, fmt.Sprintf("nutcracker%d", ports[0]))
	if err := os.WriteFile(name+".yml", []byte(text.String()), 0o600); err != nil {
		return nil, err
	}
	mbuf := o.MbufSize
	if mbuf == 0 {
		mbuf = defaultMbuf
	}
	proc, err := childproc.Start(childproc.Options{Path: program, Args: []string{
		"-c", name + ".yml", "-m", strconv.Itoa(mbuf), "-a", "127.0.0.1", "-s", strconv.Itoa(ports[1]), "-o", "/dev/stderr", "-p", name + ".pid",
	}})
	if err != nil {
		return nil, err
	}
	s := &Server{Process: proc, Addr: addr}
	if err := s.await(ctx); err != nil {
		return nil, errors.Join(err, proc.Kill())
	}
	return s, nil
}

func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		err := ask(s.Addr)
		if err == nil {
			return nil
		}
		select {
		case <-s.Done():
			return fmt.Errorf("twemproxy has ended: %w", errors.Join(s.Err(), errors.New(s.Output())))
		case <-ctx.Done():
			return fmt.Errorf("twemproxy does not answer: %w; %s", err, s.Output())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// ask wants any reply that is no error.
func ask(addr string) error {
	c, err := net.DialTimeout("tcp", addr, askLimit)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(askLimit)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n")); err != nil {
		return err
	}
	var reply [64]byte
	n, err := c.Read(reply[:])
	if err == nil && reply[0] != '$' {
		err = fmt.Errorf("it answers %q", reply[:n])
	}
	return err
}
