package sidecar

import (
	"context"
	"log/slog"
	"time"

	"ringside/cache"
	"ringside/internal/failpoint"
	"ringside/ring"
	"ringside/shard"
	"ringside/shard/keyspace"
	"ringside/sidecar/topology"
)

// carrier takes over the entries of a shard's rows from the servers that lose them. It goes through those servers twice. Late in phase
// shard.Preparing, while readers still use the former copies: they hardly notice that the ring changes, since what they ask for afterwards
// is in its new place already. And in phase shard.Active, for what has been filled meanwhile; readers take over themselves what they ask for before
// the carrier comes to it. Then it closes the servers for the change.
// One sidecar does it for one shard and server at a time, by a claim on that server; when it dies, another one begins anew.
type carrier struct {
	shard        string
	confirmation *shard.Confirmation // of the shard
	cache        *cache.Cache
	servers      *cache.Servers
	keyspaces    *keyspace.Set
	viewTTL      time.Duration
	token        string // tells this sidecar's claims from others'
	log          *slog.Logger

	// The following is about the change of view's epoch.
	view shard.View
	from []loser
}

// loser is a server that loses rows.
type loser struct {
	name, runID string
	cursor      uint64
	scanned     bool // all of its entries have been seen to
	carried     int
	done        bool      // by whoever it was; in phase shard.Active: and it has been closed
	failing     time.Time // since when it cannot be used; zero: it can
	told        bool
}

const (
	// carryBatch is how many rows are taken over at once. Few, because a server does nothing else meanwhile.
	carryBatch = 32
	// carryRest is how long the servers are left alone between two batches, as a multiple of what one has taken; longestRest at most.
	carryRest   = 3
	longestRest = 15 * time.Millisecond
	// carrySlice is how long a keeper does nothing but carry.
	carrySlice = 500 * time.Millisecond
	// carryLimit is after how long in one phase the rest is left: to readers, and at last to be loaded.
	carryLimit = 10 * time.Minute
	claimLife  = 5 * time.Second
	// failingFor is after how long it is said that a change waits for a server.
	failingFor = 5 * time.Second
)

// isDone reports whether all is known to be done that is to be done in the view's phase: see loser.done.
func (c *carrier) isDone(view shard.View) bool {
	if !c.view.Same(view) {
		return false
	}
	for i := range c.from {
		if !c.from[i].done {
			return false
		}
	}
	return true
}

// goOn does a slice of the work. view is one in phase Active, or in phase Preparing for longer than carriesAfter, which has been seen for so long; t is
// that of its epoch. When all has been taken over and phase Active has been held, the servers are closed. more: there is more to do at once.
// A server that cannot be used holds phase Active up, since others may still be able to take old entries over from it: until it is back, or a
// topology does without it.
func (c *carrier) goOn(ctx context.Context, t *topology.Topology, view shard.View, seen, hold time.Duration) (more bool, err error) {
	if !c.view.Same(view) {
		c.view, c.from = view, nil
		for _, name := range t.FormerOwners(view.From) {
			c.from = append(c.from, loser{name: name, runID: t.Caches[t.CacheIndex(name)].RunID})
		}
	}
	for i := range c.from {
		l := &c.from[i]
		if l.done {
			continue
		}
		again, e := c.empty(ctx, t, l, seen, hold)
		if e != nil {
			err = e
		}
		c.watch(l, e)
		more = more || again
	}
	return more && err == nil || c.isDone(view), err
}

// watch says once that the change waits for a server. In phase Preparing it does not wait for long: readers may do what is left.
func (c *carrier) watch(l *loser, err error) {
	switch {
	case err == nil:
		l.failing, l.told = time.Time{}, false
	case l.failing.IsZero():
		l.failing = time.Now()
	case time.Since(l.failing) <= failingFor:
	case c.view.Phase == shard.Preparing:
		l.done = true
	case !l.told:
		l.told = true
		c.log.Warn("the change of the ring waits for a cache server that is to hand over rows", "server", l.name, "error", err)
	}
}

// empty goes on with one server.
func (c *carrier) empty(ctx context.Context, t *topology.Topology, l *loser, seen, hold time.Duration) (more bool, err error) {
	for end := time.Now().Add(carrySlice); ; {
		if _, ok := c.until(); !ok {
			return false, nil // looked at again when there is a view to act by
		}
		claim, err := c.servers.Claim(ctx, l.name, l.runID, c.shard, c.view.Epoch, c.token, claimLife, c.view.Phase == shard.Active)
		switch {
		case err != nil:
			return false, err
		case claim == cache.ClaimClosed, claim == cache.ClaimCarried:
			l.done = true
			return false, nil
		case claim == cache.ClaimOthers:
			return false, nil
		}
		failpoint.At(failpoint.Claimed)
		if l.scanned = l.scanned || seen > carryLimit; l.scanned {
			break
		}
		if time.Now().After(end) {
			return true, nil
		}
		if err := c.scan(ctx, t, l); err != nil {
			return false, err
		}
	}
	if c.view.Phase == shard.Preparing {
		return false, c.pass(ctx, l)
	}
	if seen < hold {
		return false, nil
	}
	failpoint.At(failpoint.Closing)
	if err := c.servers.CloseFor(ctx, l.name, l.runID, c.shard, c.view.Epoch); err != nil {
		return false, err
	}
	failpoint.At(failpoint.Closed)
	l.done = true
	c.log.Info("a cache server has handed over its rows", "server", l.name, "epoch", c.view.Epoch, "carried", l.carried)
	return false, nil
}

// pass ends the first time through a server.
func (c *carrier) pass(ctx context.Context, l *loser) error {
	if err := c.servers.CarriedFrom(ctx, l.name, l.runID, c.shard, c.view.Epoch, c.token); err != nil {
		return err
	}
	l.done = true
	c.log.Info("the rows of a cache server are where they will be read", "server", l.name, "epoch", c.view.Epoch, "carried", l.carried)
	return nil
}

// until is how long the view holds by which entries are taken over; false: it does not any more.
func (c *carrier) until() (time.Time, bool) {
	view, asked := c.confirmation.View()
	until := asked.Add(c.viewTTL)
	return until, view.Same(c.view) && time.Now().Before(until)
}

// scan looks at some entries of a server and takes over what the change takes from it.
func (c *carrier) scan(ctx context.Context, t *topology.Topology, l *loser) error {
	names, next, err := c.servers.Scan(ctx, l.name, l.runID, l.cursor)
	if err != nil {
		return err
	}
	items := c.items(t, l.name, names)
	for len(items) > 0 {
		n := min(len(items), carryBatch)
		until, ok := c.until()
		if !ok {
			return nil // these names come again
		}
		for i := range items[:n] {
			items[i].Carry.Until = until
		}
		begun := time.Now()
		l.carried += c.cache.CarryOver(ctx, items[:n])
		items = items[n:]
		pause := time.NewTimer(min(carryRest*time.Since(begun), longestRest))
		select {
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		case <-pause.C:
		}
	}
	l.cursor, l.scanned = next, next == 0
	return nil
}

// items makes those names of entries that the change takes from a server into what is taken over. Without Carry.Until: it is never too late.
func (c *carrier) items(t *topology.Topology, server string, names []string) []cache.Item {
	var items []cache.Item
	hasher := ring.NewHasher()
	var k keyspace.Key
	for _, name := range names {
		generation, flush, key, ok := cache.ParseName(name)
		if !ok {
			continue
		}
		if isRow, err := c.keyspaces.Match(hasher, []byte(key), &k); !isRow || err != nil || flush != t.Flush(k.ShardVnode) {
			continue
		}
		if s := t.ShardOf(k.ShardKey, k.ShardVnode); s == ring.None || t.Shards[s].Name != c.shard {
			continue
		}
		copies := t.Copies(c.view, k.CacheVnode, k.ShardVnode)
		was, is, moves := copies.Moves()
		if !moves || was.Generation != generation || t.Caches[was.Server].Name != server {
			continue
		}
		items = append(items, cache.Item{
			Ref: refOf(t, is, &k), TTL: k.Keyspace.TTL, NegTTL: k.Keyspace.NegativeTTL,
			Carry: cache.Carry{Ref: refOf(t, was, &k), Shard: c.shard, Epoch: c.view.Epoch},
		})
	}
	return items
}
