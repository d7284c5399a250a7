package sidecar

import (
	"context"
	"testing"
	"time"

	"ringside/cache"
)

// TestARowIsRefreshedWhereItCounts: by the shard's word, and not while its copies are to be avoided.
func TestARowIsRefreshedWhereItCounts(t *testing.T) {
	c := newRowCluster(t, 1)
	a := c.newSide(false)
	c.fill(50)
	k := c.key(7)
	c.await("the row is cached", func() bool { return a.version(t, k) == 0 && c.isCached(k) })
	name := string(cache.AppendName(nil, c.now.Generation(k.CacheVnode), c.now.Flush(k.ShardVnode), k.Text))
	db, long := c.client("c1"), time.Now().Add(-time.Hour)
	age := func() {
		t.Helper()
		b, err := db.Get(t.Context(), name).Bytes()
		if err == nil {
			err = db.Set(t.Context(), name, cache.AppendValue(nil, long, long.Add(time.Minute), cache.Body(b)), time.Minute).Err()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	isFresh := func() bool {
		b, err := db.Get(t.Context(), name).Bytes()
		if err != nil {
			t.Fatal(err)
		}
		e, err := cache.Decode(b)
		return err == nil && e.Kind == cache.KindValue && time.Since(e.WrittenAt) < time.Minute
	}
	age()
	for _, sh := range c.shards { // behind our back
		c.execute(sh.DSN, "update users set version = 5 where id = 7")
	}
	a.Refresh(k)
	c.await("the entry is a new one", isFresh)
	if v := a.version(t, k); v != 5 {
		t.Errorf("version %d", v)
	}
	age()
	shardName := c.now.Shards[c.now.ShardOf(k.ShardKey, k.ShardVnode)].Name
	if err := a.fleet.Remember(context.Background(), shardName, &k); err != nil {
		t.Fatal(err)
	}
	c.await("the row is withheld", func() bool {
		a.fleet.Poke(shardName)
		withheld, _ := a.fleet.Confirmation(shardName).Withheld()
		return withheld.Has(k.CacheVnode)
	})
	loads := c.count("ringside_cache_loads_total")
	a.Refresh(k)
	if isFresh() || c.count("ringside_cache_refreshes_total") != 1 {
		t.Error("a row whose copies are to be avoided was refreshed")
	}
	if c.count("ringside_cache_loads_total") != loads {
		t.Error("it was loaded")
	}
}
