package sidecar

import (
	"bytes"
	"io"
	"log/slog"
	"testing"
	"time"

	"ringside/cache"
	"ringside/shard"
	"ringside/shard/keyspace"
	"ringside/sidecar/topology"
)

// moving are the rows of one shard that a change takes to another server, by their former and present entries.
type moving struct {
	key     keyspace.Key
	was, is cache.Ref
}

// movingOf lists the moving ones of rows 1 to n of a shard.
func (c *rowCluster) movingOf(name string, n int, before, after *topology.Topology) (all []moving) {
	for id := 1; id <= n; id++ {
		k := c.key(id)
		if after.Shards[after.ShardOf(k.ShardKey, k.ShardVnode)].Name != name {
			continue
		}
		view := shard.View{Epoch: after.Epoch, Phase: shard.Preparing, From: before.Epoch}
		copies := after.Copies(view, k.CacheVnode, k.ShardVnode)
		if was, is, moves := copies.Moves(); moves {
			all = append(all, moving{k.Clone(), refOf(after, was, &k), refOf(after, is, &k)})
		}
	}
	return all
}

// entryAt is what a server has under a name; nil: nothing.
func (c *rowCluster) entryAt(r cache.Ref) []byte {
	c.t.Helper()
	all, err := c.sides[0].servers.Entries(c.t.Context(), r.Server, r.RunID, []string{r.Name})
	if err != nil {
		c.t.Fatal(err)
	}
	return all[0]
}

// advance brings a shard to a view of the present topology and waits until all sidecars have heard of it.
func (c *rowCluster) advance(name string, phase shard.Phase, from uint64) shard.View {
	c.t.Helper()
	view := shard.View{Epoch: c.now.Epoch, Phase: phase, From: from}
	if _, err := c.sides[0].fleet.Advance(c.t.Context(), name, shard.View{Epoch: view.Epoch, Phase: phase}, c.now.Encode()); err != nil {
		c.t.Fatal(err)
	}
	c.await("the sidecars hear of "+view.String(), func() bool {
		for _, s := range c.sides {
			if v, _ := s.fleet.Confirmation(name).View(); !v.Same(view) {
				return false
			}
		}
		return true
	})
	return view
}

// newCarrier is one of a sidecar without keepers.
func (c *rowCluster) newCarrier(s *rowSide, name, token string) *carrier {
	return &carrier{
		shard: name, confirmation: s.fleet.Confirmation(name), cache: s.cache, servers: s.servers, keyspaces: c.keyspaces,
		viewTTL: c.viewTTL, token: token, log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

// goOn has a carrier work until it is done, or has nothing to do although its view holds: on a busy machine a view may end before it is confirmed again.
func (c *rowCluster) goOn(k *carrier, view shard.View, seen time.Duration) bool {
	c.t.Helper()
	c.await("the carrier has something to do, or nothing", func() bool {
		more, err := k.goOn(c.t.Context(), c.now, view, seen, holdFor(c.viewTTL))
		if err != nil {
			c.t.Fatal(err)
		}
		_, holds := k.until()
		return k.isDone(view) || holds && !more
	})
	return k.isDone(view)
}

// Guards P3 and P5: entries are in their new places before anybody reads them there, once; what is written meanwhile is put out of reach in both places, also
// by a writer that began before and is late; what is filled meanwhile in the former place is taken over before that is closed.
func TestEntriesAreTakenOverBeforeTheyAreReadInTheirNewPlaces(t *testing.T) {
	c := newRowCluster(t, 2)
	s, other := c.newSide(false), c.newSide(false)
	const rows = 300
	c.fill(rows)
	c.readAll(s, rows)
	before := c.now
	next, err := topology.WeighCache(before, "c1", 3)
	c.change(next, err)
	const name = "s1"
	all := c.movingOf(name, rows, before, c.now)
	if len(all) < 10 {
		t.Fatalf("%d rows move", len(all))
	}
	view := c.advance(name, shard.Preparing, before.Epoch)

	first, second := c.newCarrier(s, name, "first"), c.newCarrier(other, name, "second")
	if !c.goOn(first, view, carriesAfter(holdFor(c.viewTTL))) {
		t.Fatal("the entries have not been taken over")
	}
	for _, m := range all {
		if was, is := c.entryAt(m.was), c.entryAt(m.is); was == nil || !bytes.Equal(was, is) {
			t.Fatalf("%s: %q became %q", m.key.Text, was, is)
		}
	}
	carried := c.count("ringside_cache_carried_total")
	if !c.goOn(second, view, carriesAfter(holdFor(c.viewTTL))) || carried != len(all) || c.count("ringside_cache_carried_total") != carried {
		t.Errorf("%d of %d carried, and %d by the next one", carried, len(all), c.count("ringside_cache_carried_total")-carried)
	}

	// A writer whose commit was sent before the change has cleaned the former copy only.
	late := all[0]
	w := &rowWrite{rows: s.rows, op: keyspace.Op{Key: late.key}, sent: time.Now().Add(-2 * c.viewTTL)}
	if err := w.guard(t.Context(), name, []cache.Ref{late.was}); err != nil || c.entryAt(late.is) != nil {
		t.Errorf("a late writer: %v, the entry in the new place is %q", err, c.entryAt(late.is))
	}
	written := all[1]
	if _, err := other.Write(t.Context(), keyspace.Op{Kind: keyspace.Increment, Key: written.key, Column: "version", Delta: 1}); err != nil {
		t.Fatal(err)
	}
	if was, is := c.entryAt(written.was), c.entryAt(written.is); was != nil || is != nil {
		t.Errorf("after a write there are %q and %q", was, is)
	}
	read := func(s *rowSide) {
		t.Helper()
		row := s.read(t.Context(), []keyspace.Key{written.key})[0]
		if v, err := versionOf(row.Body); row.Err != nil || err != nil || v != 1 {
			t.Errorf("version %d, %v, %v", v, row.Err, err)
		}
	}
	read(s)
	if was, is := c.entryAt(written.was), c.entryAt(written.is); was == nil || is != nil {
		t.Errorf("after a read there are %q and %q", was, is)
	}

	view = c.advance(name, shard.Active, before.Epoch)
	if c.goOn(second, view, 0) {
		t.Error("it is closed before the phase has been held")
	}
	if was, is := c.entryAt(written.was), c.entryAt(written.is); was == nil || !bytes.Equal(was, is) {
		t.Errorf("what was filled meanwhile: %q became %q", was, is)
	}
	if !c.goOn(second, view, holdFor(c.viewTTL)) || !c.goOn(first, view, 0) {
		t.Error("it is not closed")
	}
	loads := c.count("ringside_cache_loads_total")
	read(other)
	for _, m := range all {
		if row := other.read(t.Context(), []keyspace.Key{m.key})[0]; row.Err != nil {
			t.Error(row.Err)
		}
	}
	if n := c.count("ringside_cache_loads_total") - loads; n != 0 {
		t.Errorf("%d rows were loaded", n)
	}
}

// A server that cannot be used does not keep a shard in phase preparing: readers may find what it holds later on.
func TestPreparingDoesNotWaitForAServerThatFails(t *testing.T) {
	c := newRowCluster(t, 2)
	s := c.newSide(false)
	before := c.now
	next, err := topology.WeighCache(before, "c1", 3)
	c.change(next, err)
	view := c.advance("s1", shard.Preparing, before.Epoch)
	if err := c.caches["c2"].Kill(); err != nil {
		t.Fatal(err)
	}
	k := c.newCarrier(s, "s1", "a")
	// fail has the carrier meet the dead server, which has failed for so long already. Without a view that holds it asks nobody.
	fail := func(already time.Duration) {
		t.Helper()
		c.await("a server that is dead is asked", func() bool {
			for i := range k.from {
				k.from[i].failing = time.Now().Add(-already)
			}
			_, err := k.goOn(t.Context(), c.now, view, time.Hour, holdFor(c.viewTTL))
			return err != nil
		})
	}
	fail(0)
	if k.isDone(view) {
		t.Error("it is done at once")
	}
	fail(2 * failingFor)
	if !k.isDone(view) {
		t.Error("it waits")
	}
	active := c.advance("s1", shard.Active, before.Epoch)
	view = active
	fail(0)
	fail(2 * failingFor)
	if k.isDone(active) {
		t.Error("phase active does not wait for it")
	}
}
