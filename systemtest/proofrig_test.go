package systemtest

import (
	"encoding/json"
	"errors"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"ringside/internal/failpoint"
	"ringside/internal/localcluster"
)

// rig is what makes the sidecars of a cluster fail from within: for each one the file of its orders, and a link to each server.
type rig struct {
	t   *testing.T
	dir string

	mu     sync.Mutex // guards the following
	orders map[string]*failpoint.Orders
	links  map[string]map[string]*link // by sidecar and server
	busy   map[string]*sync.Mutex      // by sidecar: held by who kills it, and starts it again
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), orders: map[string]*failpoint.Orders{}, links: map[string]map[string]*link{}, busy: map[string]*sync.Mutex{}}
	t.Cleanup(func() {
		for _, links := range r.links {
			for _, l := range links {
				l.close()
			}
		}
	})
	return r
}

func (r *rig) file(sidecar string) string { return filepath.Join(r.dir, sidecar+".json") }

// env is localcluster.Options.Env.
func (r *rig) env(c *localcluster.Cluster, sidecar string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.orders[sidecar] == nil || !r.reaches(sidecar, c) { // else it is started again
		if err := r.prepare(c, sidecar); err != nil {
			r.t.Error(err)
		}
	}
	return []string{failpoint.Environment + "=" + r.file(sidecar)}
}

// reaches reports whether the links are those to the servers of c: a cluster whose ports were taken is started once more on others.
func (r *rig) reaches(sidecar string, c *localcluster.Cluster) bool {
	l := r.links[sidecar][c.Caches[0].Name]
	return l != nil && l.target == c.Caches[0].Addr()
}

func (r *rig) prepare(c *localcluster.Cluster, sidecar string) error {
	r.busy[sidecar] = &sync.Mutex{}
	r.orders[sidecar] = &failpoint.Orders{At: map[failpoint.Point]failpoint.Order{}, Routes: map[string]string{}}
	for _, l := range r.links[sidecar] {
		l.close()
	}
	r.links[sidecar] = map[string]*link{}
	targets := map[string]string{"c4": c.Spares[0].Addr()}
	for _, s := range c.Caches {
		targets[s.Name] = s.Addr()
	}
	for _, s := range c.Shards {
		dsn, err := url.Parse(s.DSN())
		if err != nil {
			return err
		}
		targets[s.Name] = dsn.Host
	}
	for name, target := range targets {
		l, err := newLink(target)
		if err != nil {
			return err
		}
		r.links[sidecar][name] = l
		r.orders[sidecar].Routes[target] = l.addr
	}
	return r.write(sidecar)
}

// write is called with mu held.
func (r *rig) write(sidecar string) error {
	text, err := json.Marshal(r.orders[sidecar])
	if err != nil {
		return err
	}
	next := r.file(sidecar) + ".next"
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return err
	}
	return os.Rename(next, r.file(sidecar))
}

// order changes the orders of a sidecar. It has them a few milliseconds later.
func (r *rig) order(sidecar string, change func(o *failpoint.Orders)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r.orders[sidecar])
	return r.write(sidecar)
}

// without has all sidecars leave out these rules, and no others.
func (r *rig) without(rules ...failpoint.Rule) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for name, o := range r.orders {
		o.Without = rules
		errs = append(errs, r.write(name))
	}
	return errors.Join(errs...)
}

// alone waits until nobody else kills and starts a sidecar, and returns what is to be unlocked afterwards.
func (r *rig) alone(sidecar string) *sync.Mutex {
	r.mu.Lock()
	busy := r.busy[sidecar]
	r.mu.Unlock()
	busy.Lock()
	return busy
}

// link is the one from a sidecar to a server.
func (r *rig) link(sidecar, server string) *link {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.links[sidecar][server]
}

// heal undoes all orders but those about rules, and heals all links.
func (r *rig) heal() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for name, o := range r.orders {
		o.NoPeers = false
		clear(o.At)
		errs = append(errs, r.write(name))
		for l := range maps.Values(r.links[name]) {
			l.heal()
		}
	}
	return errors.Join(errs...)
}
