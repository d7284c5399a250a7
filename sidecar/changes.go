package sidecar

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"ringside/cache"
	"ringside/shard/catalog"
	"ringside/sidecar/admin"
	"ringside/sidecar/config"
	"ringside/sidecar/proxy"
	"ringside/sidecar/topology"
)

// changes does what operators ask for. The life cycle carries it out.
type changes struct {
	topology    *topology.Holder
	feed        *feed
	credentials func(server string) proxy.Credentials
	meet        func(ctx context.Context, addr string, c proxy.Credentials) (cache.Stranger, error)
	agreed      func() bool // all living sidecars have the same topology as this one
}

const (
	// changeTries is how often a change is begun anew because somebody else was quicker.
	changeTries = 5
	// spreadWithin is how long a change is given to spread where gossip alone decides whether it stays.
	spreadWithin = 5 * time.Second
	// meetWithin bounds the look at a server that is to be added.
	meetWithin = 3 * time.Second
)

// change makes the next topology, or refuses.
type change func(t *topology.Topology) (*topology.Topology, error)

// do implements admin.Deps.Change.
func (c *changes) do(ctx context.Context, want admin.Change) (admin.Changed, error) {
	next, err := c.plan(want)
	if err != nil {
		return admin.Changed{}, err
	}
	c.feed.refresh(ctx) // decide by what counts, not by what was heard last
	if want.Verb == admin.AddCache {
		if err := c.check(ctx, want, next); err != nil {
			return admin.Changed{}, err
		}
	}
	t, err := c.commit(ctx, want, next)
	if err != nil {
		return admin.Changed{}, err
	}
	if i := t.CacheIndex(want.Name); i >= 0 {
		return admin.Changed{Epoch: t.Epoch, State: string(t.Caches[i].State)}, nil
	}
	return admin.Changed{Epoch: t.Epoch, State: admin.Gone}, nil
}

// plan checks what was asked for by itself. The error is an *admin.BadChangeError.
func (c *changes) plan(want admin.Change) (change, error) {
	bad := func(err error) error { return &admin.BadChangeError{Reason: err.Error()} }
	if want.Verb != admin.AddCache {
		// A server that is there has a name by any rule.
		if want.Name == "" {
			return nil, bad(errors.New("name is missing"))
		}
	} else {
		if err := config.CheckName(want.Name); err != nil {
			return nil, bad(fmt.Errorf("name %w", err))
		}
		if err := config.CheckAddr(want.Addr); err != nil {
			return nil, bad(fmt.Errorf("addr %w", err))
		}
	}
	if err := config.CheckWeight(want.Weight); err != nil {
		return nil, bad(fmt.Errorf("weight %w", err))
	}
	switch want.Verb {
	case admin.AddCache:
		server := topology.Cache{Name: want.Name, Addr: want.Addr, Weight: uint32(want.Weight)}
		return func(t *topology.Topology) (*topology.Topology, error) { return topology.AddCache(t, server) }, nil
	case admin.DrainCache:
		return func(t *topology.Topology) (*topology.Topology, error) { return topology.DrainCache(t, want.Name) }, nil
	case admin.WeighCache:
		return func(t *topology.Topology) (*topology.Topology, error) {
			return topology.WeighCache(t, want.Name, uint32(want.Weight))
		}, nil
	case admin.RemoveCache:
		return func(t *topology.Topology) (*topology.Topology, error) { return topology.RemoveCache(t, want.Name) }, nil
	}
	return nil, bad(fmt.Errorf("%q is nothing that can be done with a cache server", want.Verb))
}

// check looks at a server that is to be added. What it finds there can change at once, but the mistakes that operators make do not.
func (c *changes) check(ctx context.Context, want admin.Change, next change) error {
	t := c.topology.Current()
	if _, err := next(t); err != nil {
		return err // nothing of it is to be asked
	}
	ctx, cancel := context.WithTimeout(ctx, meetWithin)
	defer cancel()
	host, _, _ := net.SplitHostPort(want.Addr)
	if _, err := net.DefaultResolver.LookupHost(ctx, host); err != nil {
		return &admin.BadChangeError{Reason: fmt.Sprintf("the host of %s is not known to this sidecar: %v", want.Addr, err)}
	}
	met, err := c.meet(ctx, want.Addr, c.credentials(want.Name))
	if err != nil {
		return &topology.Refusal{Reason: unusable(want.Addr, err)}
	}
	return admissible(t, want, met)
}

// unusable says why a server could not be met.
func unusable(addr string, err error) string {
	switch {
	case errors.Is(err, cache.ErrNotRedis):
		return addr + " does not speak the Redis protocol"
	case errors.Is(err, cache.ErrNoAnswer):
		return addr + " ends the connection without an answer: it does not speak the Redis protocol, or wants TLS where none is configured"
	case cache.IsNotAllowed(err):
		return fmt.Sprintf("the user that this sidecar is at %s may not do what it must: %v", addr, err)
	}
	return fmt.Sprintf("the server at %s cannot be used by this sidecar: %v", addr, err)
}

// admissible says what speaks against adding a server that was met.
func admissible(t *topology.Topology, want admin.Change, met cache.Stranger) error {
	refuse := func(format string, args ...any) error {
		return &topology.Refusal{Reason: fmt.Sprintf(format, args...)}
	}
	if met.Sidecar {
		return refuse("%s is a ringside sidecar: name the Redis server behind it", want.Addr)
	}
	for i := range t.Caches {
		if t.Caches[i].RunID == met.RunID {
			return refuse("the server at %s is %s, which is in the ring already (at %s)", want.Addr, t.Caches[i].Name, t.Caches[i].Addr)
		}
	}
	switch {
	case met.Mode != "" && met.Mode != "standalone":
		return refuse("the server at %s runs in %s mode: only a server that runs alone can be a cache server", want.Addr, met.Mode)
	case met.Role != "master":
		return refuse("the server at %s is a replica: add the server that takes writes", want.Addr)
	case met.Refuses != "":
		return refuse("the server at %s takes no writes (%s): only one that does can be a cache server", want.Addr, met.Refuses)
	case met.Keys > 0 && !want.Flush:
		return refuse("the server at %s holds %d keys, which joining would delete: if they are not needed, add it with flush (--flush)", want.Addr, met.Keys)
	}
	return nil
}

// commit makes the change of whatever topology counts, and sees to it that it stays.
func (c *changes) commit(ctx context.Context, want admin.Change, next change) (*topology.Topology, error) {
	for range changeTries {
		t := c.topology.Current()
		to, err := next(t)
		if err != nil || to == t {
			return t, err
		}
		switch err = c.feed.commit(ctx, t, to); {
		case errors.Is(err, catalog.ErrConflict):
			continue
		case err != nil:
			return nil, fmt.Errorf("the catalog did not take the change, or did not say so (look at the ring before you try again): %w", err)
		}
		if c.feed.catalog != nil {
			return to, nil
		}
		c.spread(ctx)
		if t = c.topology.Current(); t == to || holds(t, want) {
			return t, nil
		}
	}
	return nil, errors.New("the ring is being changed by others again and again: try again")
}

// spread waits until all sidecars that can be heard have the same topology, for a while. Where there is no catalog, only then it is known
// whether another one of the same epoch has displaced the change.
func (c *changes) spread(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, spreadWithin)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !c.agreed() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// holds reports whether t is as a change wanted it.
func holds(t *topology.Topology, want admin.Change) bool {
	i := t.CacheIndex(want.Name)
	switch want.Verb {
	case admin.AddCache:
		return i >= 0 && t.Caches[i].Addr == want.Addr
	case admin.DrainCache:
		return i < 0 || t.Caches[i].State == topology.Draining
	case admin.WeighCache:
		return i >= 0 && int64(t.Caches[i].Weight) == want.Weight
	}
	return i < 0
}
