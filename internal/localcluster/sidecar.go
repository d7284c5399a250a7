package localcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"ringside/internal/childproc"
)

// Sidecar is one sidecar process, or the place of one.
type Sidecar struct {
	Name       string
	Redis      string // host:port
	Admin      string
	Gossip     string
	ConfigFile string

	cluster *Cluster
	proc    *childproc.Process
}

// NewSidecar describes a sidecar of this cluster; i fixes its ports. Start starts it. The cluster's Stop stops only those in Sidecars.
func (c *Cluster) NewSidecar(name string, i int) *Sidecar {
	at := func(offset int) string {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(c.o.BasePort+offset+i))
	}
	return &Sidecar{Name: name, Redis: at(0), Admin: at(100), Gossip: at(200), ConfigFile: filepath.Join(c.Dir, name+".yaml"), cluster: c}
}

// Config is the sidecar's configuration file.
func (s *Sidecar) Config() string {
	c := s.cluster
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\n", s.Name)
	fmt.Fprintf(&b, "data_dir: %q\n", filepath.Join(c.Dir, s.Name))
	fmt.Fprintf(&b, "redis: { listen: %q }\n", s.Redis)
	fmt.Fprintf(&b, "admin: { listen: %q, token: %q }\n", s.Admin, "file:"+filepath.Join(c.Dir, "token"))
	join := ""
	if first := c.NewSidecar("a1", 1).Gossip; first != s.Gossip {
		join = strconv.Quote(first)
	}
	fmt.Fprintf(&b, "gossip: { listen: %q, join: [%s], cluster: demo }\n", s.Gossip, join)
	fmt.Fprintf(&b, "catalog: { dsn: %q }\n", c.Catalog())
	b.WriteString("caches:\n")
	for _, x := range c.Caches {
		fmt.Fprintf(&b, "  - { name: %s, addr: %q }\n", x.Name, x.Addr())
	}
	b.WriteString("shards:\n")
	for _, x := range c.Shards {
		fmt.Fprintf(&b, "  - { name: %s, dsn: %q, max_connections: %d }\n", x.Name, x.DSN(), c.o.MaxConnections)
	}
	b.WriteString("keyspaces:\n")
	b.WriteString("  - { name: user, pattern: \"user:{id:int}\", table: users, value: row, ttl: 10m, negative_ttl: 5s }\n")
	b.WriteString("  - { name: order, pattern: \"order:{tenant}:{id:int}\", shard_by: tenant, table: orders, ttl: 1m }\n")
	b.WriteString(c.o.Config)
	return b.String()
}

// startLimit bounds the start of a sidecar.
const startLimit = 30 * time.Second

// Start writes the configuration, starts the process and returns when it answers clients.
func (s *Sidecar) Start(ctx context.Context) error {
	if err := os.WriteFile(s.ConfigFile, []byte(s.Config()), 0o600); err != nil {
		return err
	}
	// SIGTERM, so that a sidecar whose demo was killed says goodbye.
	o := childproc.Options{Path: s.cluster.o.Binary, Args: []string{"serve", "-c", s.ConfigFile}, Log: s.cluster.o.Log, DeathSignal: syscall.SIGTERM}
	if env := s.cluster.o.Env; env != nil {
		o.Env = append(os.Environ(), env(s.cluster, s.Name)...)
	}
	var err error
	s.proc, err = childproc.Start(o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		if s.answers(ctx) {
			return nil
		}
		select {
		case <-s.proc.Done():
			return fmt.Errorf("sidecar %s ended: %w", s.Name, errors.Join(s.proc.Err(), errors.New(s.proc.Output())))
		case <-ctx.Done():
			return fmt.Errorf("sidecar %s is not ready: %w: %s", s.Name, ctx.Err(), s.proc.Output())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *Sidecar) answers(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Admin+"/readyz", nil)
	if err != nil {
		return false
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = res.Body.Close() // the status says it all
	return res.StatusCode == http.StatusOK
}

// PID is the process id.
func (s *Sidecar) PID() int { return s.proc.PID() }

// Kill ends the process with SIGKILL.
func (s *Sidecar) Kill() error { return s.proc.Kill() }

// Done is closed when the process has ended.
func (s *Sidecar) Done() <-chan struct{} { return s.proc.Done() }

// Signal sends the process a signal.
func (s *Sidecar) Signal(sig syscall.Signal) error { return s.proc.Signal(sig) }

// Output is the end of what the process has printed.
func (s *Sidecar) Output() string { return s.proc.Output() }

// stopGrace is longer than a sidecar takes to let its clients go.
const stopGrace = 20 * time.Second

// Stop ends the process gracefully.
func (s *Sidecar) Stop() error {
	if s.proc == nil {
		return nil
	}
	return s.proc.Stop(syscall.SIGTERM, stopGrace)
}
