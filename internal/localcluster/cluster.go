package localcluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"ringside/internal/realpg"
	"ringside/internal/realredis"
)

// Options say how large the cluster is. The zero value of a number is a mistake; start from DefaultOptions.
type Options struct {
	Binary   string // the ringside program that the sidecars run
	Caches   int
	Shards   int
	Sidecars int
	BasePort int
	Dir      string // where everything is kept; empty: a temporary folder that Stop removes
	Rows     int    // of users; a fifth as many orders
	// MaxConnections is the budget of each shard.
	MaxConnections int
	// Settings of the PostgreSQL servers beyond realpg's own.
	Settings map[string]string
	// Config is added to each sidecar's configuration.
	Config string
	// Env is what a sidecar has in its environment besides that of this process; nil: nothing. When it is asked the servers run.
	Env func(c *Cluster, sidecar string) []string
	// Progress is told what is done; Log gets what the servers print. Nil: nobody.
	Progress, Log io.Writer
}

// DefaultOptions are those of `ringside demo`.
func DefaultOptions() Options {
	return Options{Caches: 3, Shards: 2, Sidecars: 2, BasePort: 16000, Rows: 100_000, MaxConnections: 64}
}

// most is the largest number of each kind that the ports leave room for.
const most = 49

// Validate says which option is out of range.
func (o Options) Validate() error {
	for _, n := range []struct {
		name     string
		n, least int
	}{{"--caches", o.Caches, 1}, {"--shards", o.Shards, 1}, {"--sidecars", o.Sidecars, 1}} {
		if n.n < n.least || n.n > most {
			return fmt.Errorf("%s is %d; allowed are %d to %d", n.name, n.n, n.least, most)
		}
	}
	if o.BasePort < 1024 || o.BasePort > 65535-500 {
		return fmt.Errorf("--base-port is %d; allowed are 1024 to %d", o.BasePort, 65535-500)
	}
	if o.Rows < 0 {
		return fmt.Errorf("--rows is %d; it cannot be negative", o.Rows)
	}
	return nil
}

// Cluster is a running cluster.
type Cluster struct {
	Caches   []*Cache
	Spares   []*Cache
	Shards   []*Shard
	Sidecars []*Sidecar
	Token    string
	Dir      string

	o    Options
	temp bool
}

// Cache is one cache server.
type Cache struct {
	Name string
	*realredis.Server
}

// Shard is one shard.
type Shard struct {
	Name string
	*realpg.Server
}

// Catalog returns the catalog's connection string.
func (c *Cluster) Catalog() string { return c.Shards[0].DSN() }

// Start starts the cluster and returns when every part answers and the tables are loaded. What it has started is stopped again if it fails.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	c := &Cluster{o: o, Dir: o.Dir}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	if err := c.makeDir(); err != nil {
		return err
	}
	c.say("starting %d cache servers and %d shards in %s", c.o.Caches, c.o.Shards, c.Dir)
	if err := c.startServers(ctx); err != nil {
		return err
	}
	if err := c.createTables(ctx); err != nil {
		return err
	}
	c.say("starting %d sidecars", c.o.Sidecars)
	// The first one makes the topology; so the others' start is as in a cluster that exists.
	for i := range c.o.Sidecars {
		s := c.NewSidecar(fmt.Sprintf("a%d", i+1), i+1)
		c.Sidecars = append(c.Sidecars, s)
		if err := s.Start(ctx); err != nil {
			return err
		}
		if i == 0 {
			if err := c.load(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Cluster) say(format string, args ...any) {
	_, _ = fmt.Fprintf(c.o.Progress, format+"\n", args...) // progress only
}

func (c *Cluster) makeDir() (err error) {
	if c.Dir == "" {
		c.temp = true
		if c.Dir, err = os.MkdirTemp("", "ringside-"); err != nil {
			return err
		}
	}
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return err
	}
	// PostgreSQL may run as another user, who must be able to reach its folder below this one.
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	if c.temp {
		if err := os.Chmod(c.Dir, 0o755); err != nil {
			return err
		}
	}
	return c.makeToken()
}

// makeToken keeps the token of an earlier start.
func (c *Cluster) makeToken() error {
	file := filepath.Join(c.Dir, "token")
	if kept, err := os.ReadFile(file); err == nil {
		c.Token = strings.TrimSpace(string(kept))
		return nil
	}
	raw := make([]byte, 16)
	_, _ = rand.Read(raw) // never fails
	c.Token = hex.EncodeToString(raw)
	return os.WriteFile(file, []byte(c.Token+"\n"), 0o600)
}

func (c *Cluster) startServers(ctx context.Context) error {
	c.Caches = make([]*Cache, c.o.Caches)
	c.Shards = make([]*Shard, c.o.Shards)
	c.Spares = make([]*Cache, 1)
	group, ctx := errgroup.WithContext(ctx)
	cache := func(into **Cache, name string, port int) {
		group.Go(func() error {
			dir := filepath.Join(c.Dir, name)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return err
			}
			s, err := realredis.Start(ctx, realredis.Options{Port: port, Dir: dir, Log: c.o.Log})
			if err != nil {
				return fmt.Errorf("cache server %s: %w", name, err)
			}
			*into = &Cache{name, s}
			return nil
		})
	}
	for i := range c.Caches {
		cache(&c.Caches[i], fmt.Sprintf("c%d", i+1), c.o.BasePort+300+i+1)
	}
	cache(&c.Spares[0], "spare", c.o.BasePort+350)
	for i := range c.Shards {
		group.Go(func() error {
			name := fmt.Sprintf("s%d", i+1)
			s, err := realpg.Start(ctx, realpg.Options{Port: c.o.BasePort + 400 + i + 1, Dir: filepath.Join(c.Dir, name), Settings: c.settings(), Log: c.o.Log})
			if err != nil {
				return fmt.Errorf("shard %s: %w", name, err)
			}
			c.Shards[i] = &Shard{name, s}
			return nil
		})
	}
	return group.Wait()
}

// settings are those of the PostgreSQL servers: sidecars read their logs, and one that stays away must not fill the disk.
func (c *Cluster) settings() map[string]string {
	settings := map[string]string{"wal_level": "logical", "max_slot_wal_keep_size": "1GB"}
	maps.Copy(settings, c.o.Settings)
	return settings
}

// Stop stops everything, sidecars first, and removes the temporary folder. It may be called again.
func (c *Cluster) Stop() error {
	var errs []error
	group := errgroup.Group{}
	for _, s := range c.Sidecars {
		group.Go(s.Stop)
	}
	errs = append(errs, group.Wait())
	group = errgroup.Group{}
	for _, s := range slices.Concat(c.Caches, c.Spares) {
		if s != nil {
			group.Go(s.Server.Stop)
		}
	}
	for _, s := range c.Shards {
		if s != nil {
			group.Go(s.Server.Stop)
		}
	}
	errs = append(errs, group.Wait())
	if c.temp {
		errs = append(errs, os.RemoveAll(c.Dir))
	}
	return errors.Join(errs...)
}

// Watch tells Progress of servers and sidecars that end by themselves, and how to bring them back, until ctx ends.
func (c *Cluster) Watch(ctx context.Context) {
	gone := map[string]bool{}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	look := func(name string, done <-chan struct{}, again string) {
		select {
		case <-done:
			if !gone[name] {
				gone[name] = true
				c.say("%s has ended; to bring it back: %s", name, again)
			}
		default:
			gone[name] = false
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, s := range slices.Concat(c.Caches, c.Spares) {
			look(s.Name, s.Done(), fmt.Sprintf("redis-server --port %d --bind 127.0.0.1 --save '' --dir %s", s.Port(), filepath.Join(c.Dir, s.Name)))
		}
		for _, s := range c.Shards {
			look(s.Name, s.Done(), s.Command())
		}
		for _, s := range c.Sidecars {
			look(s.Name, s.proc.Done(), fmt.Sprintf("%s serve -c %s", c.o.Binary, s.ConfigFile))
		}
	}
}
