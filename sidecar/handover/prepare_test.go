package handover

import (
	"errors"
	"sync"
	"testing"

	"ringside/cache"
	"ringside/sidecar/topology"
)

// TestAPreparedServerHoldsNothingOld: nothing that was there is left, and nobody with an older topology can put anything there.
func TestAPreparedServerHoldsNothingOld(t *testing.T) {
	f := newFleet(t, 1, 2)
	c := f.carrier(testConfig(), nil)
	f.publish(topology.AddCache(f.current(), topology.Cache{Name: "c2", Addr: f.servers["c2"].Addr(), Weight: 1}))
	db := f.db["c2"]
	if n, err := c.Empty(ctxb, "c2"); n != 0 || err != nil {
		t.Errorf("an empty server has %d keys: %v", n, err)
	}
	f.must(db.MSet(ctxb, "k", "old", "rs:1.1:user:1", "old", topology.MarkerName, "1 1:handed").Err())
	f.must(db.Do(ctxb, "FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function() return 1 end)").Err())
	other := f.db["c2"].Conn()
	defer other.Close()
	f.must(other.Select(ctxb, 1).Err())
	f.must(other.Set(ctxb, "elsewhere", "stays", 0).Err())
	if n, err := c.Empty(ctxb, "c2"); n != 2 || err != nil {
		t.Errorf("a server with two keys has %d: %v", n, err)
	}
	epoch := f.current().Epoch
	old := f.caller("c2", topology.Caller{Sidecar: "old", Epoch: epoch - 1})
	good := f.caller("c2", topology.Caller{Sidecar: "good", Epoch: epoch})
	runID, err := c.Prepare(ctxb, "c2", epoch)
	if err != nil || runID != f.runID("c2") {
		t.Fatalf("run_id %q, %v", runID, err)
	}
	if old.alive() || !good.alive() {
		t.Errorf("old %v, good %v", old.alive(), good.alive())
	}
	if text := db.Get(ctxb, topology.MarkerName).Val(); text != "2" {
		t.Errorf("marker %q", text)
	}
	if n := db.Exists(ctxb, "k", "rs:1.1:user:1").Val(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
	if n, err := c.Empty(ctxb, "c2"); n != 0 || err != nil {
		t.Errorf("a prepared server has %d keys: %v", n, err)
	}
	if list, err := db.Do(ctxb, "FUNCTION", "LIST").Slice(); err != nil || len(list) != 0 {
		t.Errorf("functions are left: %v %v", list, err)
	}
	if v := other.Get(ctxb, "elsewhere").Val(); v != "stays" {
		t.Error("another database was emptied")
	}
}

// TestALatePrepareEmptiesNothing: several sidecars prepare a server, and one of them comes when it is in use.
func TestALatePrepareEmptiesNothing(t *testing.T) {
	f := newFleet(t, 1, 2)
	c := f.carrier(testConfig(), nil)
	f.publish(topology.AddCache(f.current(), topology.Cache{Name: "c2", Addr: f.servers["c2"].Addr(), Weight: 1}))
	epoch := f.current().Epoch
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if runID, err := c.Prepare(ctxb, "c2", epoch); err != nil || runID != f.runID("c2") {
				t.Errorf("run_id %q, %v", runID, err)
			}
		})
	}
	wg.Wait()
	db := f.db["c2"]
	f.must(db.Set(ctxb, "k", "in use", 0).Err())
	if _, err := c.Prepare(ctxb, "c2", epoch); err != nil {
		t.Errorf("the same again: %v", err)
	}
	f.must(db.Set(ctxb, topology.MarkerName, epoch+5, 0).Err())
	if _, err := c.Prepare(ctxb, "c2", epoch+1); !errors.Is(err, errStale) {
		t.Errorf("of an earlier topology: %v", err)
	}
	if db.Get(ctxb, "k").Val() != "in use" {
		t.Fatal("a server in use was emptied")
	}
	if _, err := c.Prepare(ctxb, "c2", epoch+6); err != nil || db.Exists(ctxb, "k").Val() != 0 {
		t.Errorf("the next time it was not emptied: %v", err)
	}
	// A new process is emptied whatever it says of itself, as it may have come back with it from its disk.
	ready := db.Get(ctxb, readyName).Val()
	f.must(f.servers["c2"].Restart(ctxb))
	f.must(db.MSet(ctxb, "k", "old", readyName, ready).Err())
	if runID, err := c.Prepare(ctxb, "c2", epoch+6); err != nil || runID != f.runID("c2") || db.Exists(ctxb, "k").Val() != 0 {
		t.Errorf("another process: %q, %v", runID, err)
	}
	var unreachable *cache.ServerError
	f.must(f.servers["c2"].Kill())
	if _, err := c.Prepare(ctxb, "c2", epoch+7); !errors.As(err, &unreachable) || unreachable.Server != "c2" {
		t.Errorf("a dead server: %v", err)
	}
	if _, err := c.Empty(ctxb, "c2"); !errors.As(err, &unreachable) {
		t.Errorf("a dead server: %v", err)
	}
	if _, err := c.Prepare(ctxb, "c9", epoch); !errors.Is(err, cache.ErrUnknownServer) {
		t.Errorf("an unknown server: %v", err)
	}
}
