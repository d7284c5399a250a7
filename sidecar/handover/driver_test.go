package handover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"ringside/sidecar/topology"
)

// caller is a connection of another sidecar to a server.
type caller struct {
	f    *fleet
	conn *redis.Conn
}

func (f *fleet) caller(server string, c topology.Caller) *caller {
	f.t.Helper()
	conn := f.db[server].Conn()
	f.t.Cleanup(func() { conn.Close() })
	one := &caller{f, conn}
	one.is(c)
	return one
}

func (c *caller) is(name topology.Caller) {
	c.f.t.Helper()
	c.f.must(c.conn.ClientSetName(ctxb, name.Name()).Err())
}

func (c *caller) alive() bool { return c.conn.Ping(ctxb).Err() == nil }

func (f *fleet) step(h topology.Handover) topology.Step {
	m, _, err := readMarker(ctxb, f.db[h.From])
	f.must(err)
	return m.Steps[h.Since]
}

// TestTheStepsWaitForEverybody: a hand-over is held only when everybody has heard of it, and handed only when everybody holds back.
func TestTheStepsWaitForEverybody(t *testing.T) {
	f := newFleet(t, 1, 2)
	cfg := testConfig()
	cfg.HearPatience, cfg.HoldPatience = time.Minute, time.Minute
	c := f.carrier(cfg, f.finish)
	late := f.caller("c1", topology.Caller{Sidecar: "late", Epoch: 1})
	f.caller("c1", topology.Caller{Sidecar: "stranger", Epoch: 99, Held: []uint64{3}})
	h := f.join("c2").Handovers[0]
	f.run(c)
	within(t, "the epoch is marked", func() bool {
		m, _, err := readMarker(ctxb, f.db["c1"])
		return err == nil && m.Epoch == h.Since
	})
	for range 20 {
		if s := f.step(h); s != topology.Open {
			t.Fatalf("%v while a connection is of an older epoch", s)
		}
		time.Sleep(5 * time.Millisecond)
	}
	late.is(topology.Caller{Sidecar: "late", Epoch: h.Since})
	within(t, "held", func() bool { return f.step(h) == topology.Held })
	if m, _, err := readMarker(ctxb, f.db["c2"]); err != nil || m.Epoch != h.Since {
		t.Errorf("the new owner's marker is %v, %v", m, err)
	}
	for range 20 {
		if s := f.step(h); s != topology.Held {
			t.Fatalf("%v while a connection does not hold back", s)
		}
		time.Sleep(5 * time.Millisecond)
	}
	late.is(topology.Caller{Sidecar: "late", Epoch: h.Since, Held: []uint64{h.Since}})
	within(t, "handed, carried and dropped", func() bool { return f.step(h) == topology.Handed && len(f.current().Handovers) == 0 })
	if !late.alive() || testutil.ToFloat64(c.metrics.killed) != 0 {
		t.Error("a connection was ended that did what it should")
	}
}

// TestWhoHoldsAHandoverUpIsSentAway guards H5.
func TestWhoHoldsAHandoverUpIsSentAway(t *testing.T) {
	f := newFleet(t, 1, 2)
	cfg := testConfig()
	cfg.HearPatience, cfg.HoldPatience = 50*time.Millisecond, 50*time.Millisecond
	c := f.carrier(cfg, f.finish)
	deaf := f.caller("c1", topology.Caller{Sidecar: "deaf", Epoch: 1})
	good := f.caller("c1", topology.Caller{Sidecar: "good", Epoch: 3, Held: []uint64{3}})
	busy := f.caller("c1", topology.Caller{Sidecar: "busy", Epoch: 3})
	f.join("c2")
	f.run(c)
	within(t, "the hand-over ends", func() bool { return len(f.current().Handovers) == 0 })
	if deaf.alive() || busy.alive() || !good.alive() {
		t.Errorf("deaf %v, busy %v, good %v", deaf.alive(), busy.alive(), good.alive())
	}
	if n := testutil.ToFloat64(c.metrics.killed); n != 2 {
		t.Errorf("%v connections were ended", n)
	}
}

// TestADriverCarriesAndSweeps guards H1, and that a server keeps nothing that it has no business with.
func TestADriverCarriesAndSweeps(t *testing.T) {
	f := newFleet(t, 2, 3)
	f.join("c3") // so that c3 owns something: what lies about of its vnodes has no business on c1
	for _, h := range slices.Clone(f.current().Handovers) {
		f.finish(h)
	}
	const n = 3000
	key := func(i int) string { return fmt.Sprintf("k:%d", i) }
	for i := range n {
		_, at := f.where(key(i))
		f.must(f.db[at].Set(ctxb, key(i), i, 0).Err())
	}
	strays := 0
	for i := 0; strays < 300; i++ {
		if _, at := f.where(fmt.Sprint("stray:", i)); at == "c3" {
			f.must(f.db["c1"].Set(ctxb, fmt.Sprint("stray:", i), "old", 0).Err())
			strays++
		}
	}
	for _, own := range []string{"rs:1.1:user:1", "rs:closed:s1", "rs:carry:k:1"} {
		f.must(f.db["c1"].Set(ctxb, own, "x", 0).Err())
	}
	// c1 loses all that it has.
	f.publish(topology.WeighCache(topologyWithoutFormer(t, f.current()), "c1", 0))
	var mu sync.Mutex
	var last []Progress
	var c *Carrier
	c = f.carrier(testConfig(), func(h topology.Handover) {
		mu.Lock()
		last = c.Progress()
		mu.Unlock()
		f.finish(h)
	})
	f.run(c)
	within(t, "the hand-overs end", func() bool { return len(f.current().Handovers) == 0 })
	for i := range n {
		if _, at := f.where(key(i)); f.db[at].Get(ctxb, key(i)).Val() != fmt.Sprint(i) {
			t.Fatalf("%s is lost", key(i))
		}
	}
	if left := f.plain("c1"); len(left) != 0 {
		t.Errorf("%d keys are left: %.10q", len(left), left)
	}
	if f.db["c1"].Exists(ctxb, "rs:1.1:user:1", "rs:closed:s1", "rs:carry:k:1").Val() != 3 {
		t.Error("what is ringside's own was removed")
	}
	mu.Lock()
	defer mu.Unlock()
	if len(last) == 0 || last[0].From != "c1" || !last[0].Done || last[0].Step != topology.Handed || last[0].Err != nil || last[0].Elsewhere {
		t.Fatalf("progress %+v", last)
	}
	if p := last[0]; p.Carried < n/5 || p.Swept != int64(strays) || p.Rounds < 2 || p.Scanned < p.Carried+p.Swept || p.TooBig != 0 {
		t.Errorf("progress %+v", p)
	}
}

// topologyWithoutFormer ends the change of rows, so that another change may begin.
func topologyWithoutFormer(t testing.TB, now *topology.Topology) *topology.Topology {
	t.Helper()
	next, err := topology.Finish(now, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// TestAnotherDriverTakesOver guards that drivers may die anywhere, and be several.
func TestAnotherDriverTakesOver(t *testing.T) {
	f := newFleet(t, 1, 2)
	keys := 2000
	for i := range keys {
		f.must(f.db["c1"].Set(ctxb, fmt.Sprint(i), i, 0).Err())
	}
	h := f.join("c2").Handovers[0]
	cfg := testConfig()
	dying := f.carrier(cfg, nil)
	// It stands still with keys half carried, as a process that was paused; its lease ends.
	stands, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	dying.hook = func(o op) bool {
		if o == opRemove {
			once.Do(func() { close(stands) })
			<-goOn
		}
		return true
	}
	stop := f.run(dying)
	<-stands
	lease := fmt.Sprintf("%s:%d", driverName, h.Since)
	f.must(f.db["c1"].Set(ctxb, lease, "somebody 1 2 3 4 5 0", 0).Err())
	other := f.carrier(cfg, f.finish)
	f.run(other)
	within(t, "it waits, and tells what the other one says", func() bool {
		p := other.Progress()
		return len(p) == 1 && p[0].Elsewhere && p[0].Scanned == 1 && p[0].Carried == 2 && p[0].Step == topology.Handed && !p[0].Done
	})
	close(goOn)
	stop()
	f.must(f.db["c1"].Del(ctxb, lease).Err())
	within(t, "the hand-over ends", func() bool { return len(f.current().Handovers) == 0 })
	for i := range keys {
		if _, at := f.where(fmt.Sprint(i)); f.db[at].Get(ctxb, fmt.Sprint(i)).Val() != fmt.Sprint(i) {
			t.Fatalf("%d is lost", i)
		}
	}
}

// TestADriverWaitsForServers: a source or a new owner that cannot be reached holds the hand-over up, and nothing else.
func TestADriverWaitsForServers(t *testing.T) {
	f := newFleet(t, 1, 2)
	keys := 500
	for i := range keys {
		f.must(f.db["c1"].Set(ctxb, fmt.Sprint(i), i, 0).Err())
	}
	f.join("c2")
	cfg := testConfig()
	cfg.StepTimeout = time.Second
	c := f.carrier(cfg, f.finish)
	failing := func() bool { p := c.Progress(); return len(p) == 1 && p[0].Err != nil }
	f.must(f.servers["c1"].Pause())
	f.run(c)
	within(t, "it says why", failing)
	f.must(f.servers["c2"].Pause())
	f.must(f.servers["c1"].Resume())
	within(t, "it says that it is the new owner", func() bool { return failing() && strings.Contains(c.Progress()[0].Err.Error(), "c2") })
	f.must(f.servers["c2"].Resume())
	within(t, "the hand-over ends", func() bool { return len(f.current().Handovers) == 0 })
	for i := range keys {
		if _, at := f.where(fmt.Sprint(i)); f.db[at].Get(ctxb, fmt.Sprint(i)).Val() != fmt.Sprint(i) {
			t.Fatalf("%d is lost", i)
		}
	}
}

// TestASourceThatWasStartedAnewHasNothingToHandOver: its marker is gone too, and nothing may be carried from it.
func TestASourceThatWasStartedAnewHasNothingToHandOver(t *testing.T) {
	f := newFleet(t, 1, 2)
	f.join("c2")
	f.must(f.servers["c1"].Kill())
	f.must(f.servers["c1"].Restart(ctxb))
	f.must(f.db["c1"].Set(ctxb, "k", "v", 0).Err())
	c := f.carrier(testConfig(), f.finish)
	f.run(c)
	within(t, "it says why", func() bool { p := c.Progress(); return len(p) == 1 && p[0].Err != nil })
	if n := f.db["c1"].Exists(ctxb, topology.MarkerName).Val(); n != 0 {
		t.Error("it was marked")
	}
	f.publish(topology.MarkDown(f.current(), []string{"c1"}))
	within(t, "nothing is driven any more", func() bool { return len(c.Progress()) == 0 })
}

// TestALostMarkerIsPutBack: a server that has forgotten its marker stops nothing for long.
func TestALostMarkerIsPutBack(t *testing.T) {
	f := newFleet(t, 1, 2)
	h := f.join("c2").Handovers[0]
	c := f.carrier(testConfig(), nil)
	f.run(c)
	within(t, "carried", func() bool { p := c.Progress(); return len(p) == 1 && p[0].Done })
	for _, name := range []string{"c1", "c2"} {
		f.must(f.db[name].Del(ctxb, topology.MarkerName).Err())
	}
	within(t, "the markers are back", func() bool {
		m, _, err := readMarker(ctxb, f.db["c2"])
		return err == nil && m.Epoch == h.Since && f.step(h) == topology.Handed
	})
	// A later topology is made known to all, also where nothing is carried any more.
	f.publish(topology.AddCache(f.current(), topology.Cache{Name: "c9", Addr: "127.0.0.1:1", Weight: 1}))
	within(t, "all servers know of it", func() bool {
		for _, name := range []string{"c1", "c2"} {
			if m, _, err := readMarker(ctxb, f.db[name]); err != nil || m.Epoch != h.Since+1 {
				return false
			}
		}
		return true
	})
}

// TestThroughput: what is small is carried in seconds. The time is logged; only a gross failure is one.
func TestThroughput(t *testing.T) {
	f := newFleet(t, 3, 4)
	const n = 100_000
	for _, name := range []string{"c1", "c2", "c3"} {
		pipe := f.db[name].Pipeline()
		for i := range n {
			if _, at := f.where(fmt.Sprint("key:", i)); at == name {
				pipe.Set(ctxb, fmt.Sprint("key:", i), "a value of a usual size, which is some dozens of bytes", 0)
			}
		}
		_, err := pipe.Exec(ctxb)
		f.must(err)
	}
	f.join("c4")
	c := f.carrier(DefaultConfig(), f.finish)
	begun := time.Now()
	f.run(c)
	within(t, "the hand-overs end", func() bool { return len(f.current().Handovers) == 0 })
	took := time.Since(begun)
	moved := f.db["c4"].DBSize(context.Background()).Val()
	t.Logf("%d of %d keys were carried in %v", moved, n, took)
	var all int64
	for _, name := range []string{"c1", "c2", "c3", "c4"} {
		all += int64(len(f.plain(name)))
	}
	if all != n || moved < n/5 {
		t.Errorf("%d keys in all, %d moved", all, moved)
	}
}
