package sidecar

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"ringside/shard"
	"ringside/shard/cdc"
	"ringside/shard/keyspace"
	"ringside/sidecar/topology"
)

// A flush serves for another one only while no entry can have been filled under its names.
func TestCovers(t *testing.T) {
	first, err := topology.Bootstrap([]topology.Cache{{Name: "c1", Addr: "10.0.0.1:6379", Weight: 1, RunID: "r1", Gen: 1}},
		[]topology.Shard{{Name: "s1", Weight: 1, MaxConnections: 8}, {Name: "s2", Weight: 1, MaxConnections: 8}})
	if err != nil {
		t.Fatal(err)
	}
	flushed, err := topology.RaiseFlush(first, "s1")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		t    *topology.Topology
		name string
		view shard.View
		want bool
	}{
		{first, "s1", shard.View{Epoch: 1, Phase: shard.Done}, false},
		{flushed, "s1", shard.View{Epoch: 1, Phase: shard.Done}, true},
		{flushed, "s1", shard.View{Epoch: 2, Phase: shard.Preparing, From: 1}, true},
		{flushed, "s1", shard.View{Epoch: 2, Phase: shard.Active, From: 1}, false},
		{flushed, "s1", shard.View{Epoch: 2, Phase: shard.Done, From: 1}, false},
		{flushed, "s1", shard.View{Epoch: 3, Phase: shard.Preparing, From: 2}, false},
		{flushed, "s2", shard.View{Epoch: 1, Phase: shard.Done}, false},
		{flushed, "s9", shard.View{Epoch: 1, Phase: shard.Done}, false},
	} {
		if got := covers(c.t, c.name, c.view); got != c.want {
			t.Errorf("epoch %d, %s at %v: %v", c.t.Epoch, c.name, c.view, got)
		}
	}
}

func TestLifetimes(t *testing.T) {
	for _, c := range []struct {
		ttl, negTTL         time.Duration
		degraded            bool
		wantTTL, wantNegTTL time.Duration
	}{
		{time.Minute, 5 * time.Second, false, time.Minute, 5 * time.Second},
		{time.Minute, 5 * time.Second, true, time.Second, time.Second},
		{500 * time.Millisecond, 0, true, 500 * time.Millisecond, 0},
	} {
		ttl, negTTL := lifetimes(&keyspace.Keyspace{TTL: c.ttl, NegativeTTL: c.negTTL}, c.degraded)
		if ttl != c.wantTTL || negTTL != c.wantNegTTL {
			t.Errorf("%+v: %v, %v", c, ttl, negTTL)
		}
	}
}

// TestChangedRowsAreDeletedWhereverTheyAre (P3): rows are changed on their shards past all sidecars, again and again, while changes of the ring and a
// flush are carried out. Whatever phase the shards are in: once the sidecar that follows has deleted the entries, no reader sees an old row.
func TestChangedRowsAreDeletedWhereverTheyAre(t *testing.T) {
	c := newRowCluster(t, 2)
	keeping, follows := c.newSide(true), c.newSide(false)
	const n = 16
	c.fill(n)
	v := &invalidation{rows: follows.rows, keyspaces: c.keyspaces, log: slog.New(slog.DiscardHandler)}
	var keys []keyspace.Key
	var changed []cdc.Key
	for id := 1; id <= n; id++ {
		k := c.key(id)
		keys, changed = append(keys, k), append(changed, cdc.Key{Keyspace: k.Keyspace, Text: k.Text, ShardKey: k.ShardKey})
	}
	var conns []*pgx.Conn
	for _, sh := range c.shards {
		conn, err := pgx.Connect(t.Context(), sh.DSN)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(context.Background()) }() // nothing is left to lose
		conns = append(conns, conn)
	}
	version := int64(0)
	changeAndRead := func() {
		version++
		for _, conn := range conns {
			if _, err := conn.Exec(t.Context(), "update users set version = $1", version); err != nil {
				t.Fatal(err)
			}
		}
		// The follower gives rows again until it succeeds.
		c.await("the entries are deleted", func() bool { return v.invalidate(t.Context(), changed) == nil })
		for side, s := range []*rowSide{keeping, follows, keeping} {
			for i, row := range s.read(t.Context(), keys) {
				if got, err := versionOf(row.Body); row.Err != nil || err != nil || got != version {
					t.Fatalf("side %d reads %s as %s, %v; version %d is on the shard", side, keys[i].Text, row.Body, row.Err, version)
				}
			}
		}
	}
	carryOut := func(next *topology.Topology, err error) (rounds int) {
		t.Helper()
		changeAndRead()
		c.change(next, err)
		done := func() bool {
			for _, s := range c.sides {
				for _, sh := range c.shards {
					if v, _ := s.fleet.Confirmation(sh.Name).View(); v.Epoch != c.now.Epoch || v.Phase != shard.Done {
						return false
					}
				}
			}
			return true
		}
		for deadline := time.Now().Add(60 * time.Second); !done(); rounds++ {
			if time.Now().After(deadline) {
				t.Fatal("the change is not carried out within a minute")
			}
			changeAndRead()
		}
		c.settle()
		changeAndRead()
		return rounds
	}
	t.Logf("rounds while c2 is drained: %d", carryOut(topology.WeighCache(c.now, "c2", 0)))
	t.Logf("rounds while it comes back: %d", carryOut(topology.WeighCache(c.now, "c2", 1)))
	t.Logf("rounds while s1 is flushed: %d", carryOut(topology.RaiseFlush(c.now, "s1")))
	if version < 10 {
		t.Errorf("only %d changes were made", version)
	}
}

// A cache server that cannot be reached is an error, so that the rows come again, until the topology does without it.
func TestRowsOnALostServerComeAgain(t *testing.T) {
	c := newRowCluster(t, 2)
	s := c.newSide(true)
	c.fill(40)
	v := &invalidation{rows: s.rows, keyspaces: c.keyspaces, log: slog.New(slog.DiscardHandler)}
	var changed []cdc.Key
	for id := 1; id <= 40; id++ {
		k := c.key(id)
		changed = append(changed, cdc.Key{Keyspace: k.Keyspace, Text: k.Text, ShardKey: k.ShardKey})
	}
	c.await("the shards have been heard", func() bool { return v.invalidate(t.Context(), changed) == nil })
	if err := c.caches["c2"].Kill(); err != nil {
		t.Fatal(err)
	}
	if err := v.invalidate(t.Context(), changed); err == nil {
		t.Error("rows on a server that is gone count as deleted")
	}
	c.change(topology.MarkDown(c.now, []string{"c2"}))
	c.await("the rest is deleted", func() bool { return v.invalidate(t.Context(), changed) == nil })
	if err := v.invalidate(t.Context(), []cdc.Key{{Text: []byte("nobody's")}}); err != nil {
		t.Errorf("a row that no key names: %v", err)
	}
}
