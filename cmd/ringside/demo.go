package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"ringside/internal/localcluster"
)

type demoCmd struct {
	Caches   int    `default:"3" help:"Cache servers."`
	Shards   int    `default:"2" help:"Shards, each a PostgreSQL server."`
	Sidecars int    `default:"2" help:"Sidecars."`
	BasePort int    `default:"16000" help:"Sidecar i answers on this port + i."`
	Dir      string `help:"Keep the data here; a second start uses it. Default: a temporary folder." type:"path"`
	Rows     int    `default:"100000" help:"Rows of table users."`
	JSON     bool   `name:"json" help:"Print the ready line as one JSON object."`
	Verbose  bool   `short:"v" help:"Show what the servers print."`
}

// Help is shown by ringside demo --help.
func (c *demoCmd) Help() string {
	return `Starts real redis-servers, PostgreSQL servers and sidecars on 127.0.0.1, loads two tables, prints a line that starts
with "ready" and runs until it is interrupted; then it stops all that it has started.

Example: ringside demo &  redis-cli -p 16001 GET user:42`
}

// Run starts the demo and waits for the end.
func (c *demoCmd) Run(ctx context.Context, env *environment) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	o := localcluster.DefaultOptions()
	o.Binary, o.Caches, o.Shards, o.Sidecars, o.BasePort, o.Dir, o.Rows = self, c.Caches, c.Shards, c.Sidecars, c.BasePort, c.Dir, c.Rows
	o.Progress = env.stderr
	if c.Verbose {
		o.Log = env.stderr
	}
	cluster, err := localcluster.Start(ctx, o)
	if err != nil {
		if ctx.Err() != nil {
			return nil // interrupted while it started
		}
		return err
	}
	ready := readyOf(cluster)
	err = ready.keep()
	if err == nil && c.JSON {
		err = json.NewEncoder(env.stdout).Encode(ready)
	} else if err == nil {
		_, err = fmt.Fprintln(env.stdout, ready.line())
	}
	if err == nil {
		fmt.Fprint(env.stderr, ready.hint(os.Args[0]))
		cluster.Watch(ctx)
		fmt.Fprintln(env.stderr, "stopping")
	}
	return errors.Join(err, cluster.Stop())
}

// demoReady is what the demo says once all of it answers.
type demoReady struct {
	Ready    bool          `json:"ready"`
	Sidecars []demoSidecar `json:"sidecars"`
	Caches   []demoServer  `json:"caches"`
	Shards   []demoShard   `json:"shards"`
	Catalog  string        `json:"catalog"`
	Token    string        `json:"token"`
	Spares   []demoServer  `json:"spares"`
	Dir      string        `json:"dir"`
}

type demoSidecar struct {
	Name   string `json:"name"`
	Redis  string `json:"redis"`
	Admin  string `json:"admin"`
	PID    int    `json:"pid"`
	Config string `json:"config"`
}

type demoServer struct {
	Name string `json:"name"`
	Addr string `json:"addr"`
	PID  int    `json:"pid"`
}

type demoShard struct {
	Name string `json:"name"`
	DSN  string `json:"dsn"`
	PID  int    `json:"pid"`
}

func readyOf(c *localcluster.Cluster) demoReady {
	r := demoReady{Ready: true, Catalog: c.Catalog(), Token: c.Token, Dir: c.Dir}
	for _, s := range c.Sidecars {
		r.Sidecars = append(r.Sidecars, demoSidecar{s.Name, s.Redis, s.Admin, s.PID(), s.ConfigFile})
	}
	for _, s := range c.Caches {
		r.Caches = append(r.Caches, demoServer{s.Name, s.Addr(), s.PID()})
	}
	for _, s := range c.Spares {
		r.Spares = append(r.Spares, demoServer{s.Name, s.Addr(), s.PID()})
	}
	for _, s := range c.Shards {
		r.Shards = append(r.Shards, demoShard{s.Name, s.DSN(), s.PID()})
	}
	return r
}

// file is where the demo keeps what it says, for ringside loadtest.
func (r demoReady) file() string { return filepath.Join(r.Dir, "demo.json") }

// keep writes the file. It has the token in it.
func (r demoReady) keep() error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(r.file(), append(text, '\n'), 0o600)
}

// hint says what to try; program is as the user called it.
func (r demoReady) hint(program string) string {
	if len(r.Sidecars) == 0 {
		return ""
	}
	hint := fmt.Sprintf("to load it: %s loadtest --demo %s --warm\n", program, r.file())
	if len(r.Spares) == 0 {
		return hint
	}
	return hint + fmt.Sprintf("to add the spare cache server: RINGSIDE_TOKEN=$(cat %s) %s cache add %s %s --admin %s --wait\n",
		filepath.Join(r.Dir, "token"), program, r.Spares[0].Name, r.Spares[0].Addr, r.Sidecars[0].Admin)
}

// line is the same for people.
func (r demoReady) line() string {
	var words []string
	for _, s := range r.Sidecars {
		words = append(words, fmt.Sprintf("%s redis=%s admin=http://%s/ring", s.Name, s.Redis, s.Admin))
	}
	return "ready  " + strings.Join(words, "  ")
}
