package mover

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringside/internal/realpg"
	"ringside/shard"
	"ringside/shard/catalog"
)

var errCrash = errors.New("it crashes here")

// once makes do happen after the first time that each step was made, by whatever driver.
func once(do func(step shard.MoveStep) error) (after func(step shard.MoveStep) error, seen func() map[shard.MoveStep]bool) {
	var mu sync.Mutex
	done := map[shard.MoveStep]bool{}
	after = func(step shard.MoveStep) error {
		mu.Lock()
		again := done[step]
		done[step] = true
		mu.Unlock()
		if again {
			return nil
		}
		return do(step)
	}
	return after, func() map[shard.MoveStep]bool {
		mu.Lock()
		defer mu.Unlock()
		return done
	}
}

// forth and back are the steps of a move that goes well, and those of one that is called off besides.
func forth() []shard.MoveStep {
	return []shard.MoveStep{shard.MoveClaimTo, shard.MoveClaimFrom, shard.MoveExpect, shard.MoveEnlist, shard.MoveCapture, shard.MoveCopy,
		shard.MoveCompare, shard.MoveHold, shard.MoveFreeze, shard.MoveSettle, shard.MoveClose, shard.MoveCommit, shard.MoveGive, shard.MovePublish, shard.MoveRelease,
		shard.MoveClean, shard.MoveForget}
}

func back() []shard.MoveStep {
	return []shard.MoveStep{shard.MoveCancel, shard.MoveRestore, shard.MoveWipe}
}

func (r *rig) made(seen map[shard.MoveStep]bool, want []shard.MoveStep) {
	r.t.Helper()
	for _, step := range want {
		if !seen[step] {
			r.t.Errorf("step %q was never made", step)
		}
	}
}

func short(c *Config) { c.Lease = 400 * time.Millisecond }

// Promise P4: the driver dies after each step, and another one takes over; then the same for a move that is called off.
func TestTheDriverDiesAfterEachStep(t *testing.T) {
	t.Parallel()
	const rows = 1000
	r := newRig(t, rows)
	w := r.write(4, rows)
	after, seen := once(func(shard.MoveStep) error { return errCrash })
	for _, holder := range []string{"a", "b"} {
		m := r.mover(holder, short)
		m.after = after
		r.start(m)
	}
	for _, p := range r.await(r.request("s1", "s2", some(), 1)) {
		if p.State != catalog.PartDone {
			t.Errorf("%s: %+v", p.State, p.Progress)
		}
	}
	r.made(seen(), append(forth(), shard.MoveThaw))
	w.end()
	r.check()
}

func TestTheDriverDiesWhileItCallsOff(t *testing.T) {
	t.Parallel()
	const rows = 1000
	r := newRig(t, rows)
	w := r.write(4, rows)
	var id int64
	requested := make(chan struct{})
	after, seen := once(func(step shard.MoveStep) error {
		if step == shard.MoveSettle {
			<-requested
			if _, _, err := r.journal.CancelMove(t.Context(), id); err != nil {
				t.Error(err)
			}
			time.Sleep(2 * reportEvery) // until the driver has heard
		}
		for _, each := range back() {
			if step == each {
				return errCrash
			}
		}
		return nil
	})
	for _, holder := range []string{"a", "b"} {
		m := r.mover(holder, short)
		m.after = after
		r.start(m)
	}
	id = r.request("s1", "s2", some(), 1)
	close(requested)
	for _, p := range r.await(id) {
		if p.State != catalog.PartCancelled {
			t.Errorf("%s: %+v", p.State, p.Progress)
		}
	}
	r.made(seen(), back())
	w.end()
	r.check()
	if got := r.text("s2", `select count(*)::text from counters`); got != "0" {
		t.Errorf("%s rows were left", got)
	}
}

// A PostgreSQL server is killed after each step; then, while a shard key moves, after the commit and each that is another one for keys on that server.
func TestTheSourceDiesAfterEachStep(t *testing.T) { serverDies(t, "s1") }

func TestTheDestinationDiesAfterEachStep(t *testing.T) { serverDies(t, "s2") }

func serverDies(t *testing.T, name string) {
	t.Parallel()
	const rows = 500
	shared := realpg.T(t)
	mortal := realpg.Alone(t, nil)
	dsn := map[string]string{"s1": "", "s2": ""}
	for other := range dsn {
		if dsn[other] = mortal.DSN(); other != name {
			dsn[other] = shared.Database(t)
		}
	}
	r := rigAt(t, rows, dsn["s1"], dsn["s2"], shared.Database(t))
	w := r.write(3, rows)
	var after atomic.Pointer[func(shard.MoveStep) error]
	killAfter := func(steps []shard.MoveStep) (seen func() map[shard.MoveStep]bool) {
		do, seen := once(func(step shard.MoveStep) error {
			if !slices.Contains(steps, step) {
				return nil
			}
			if err := mortal.Kill(); err != nil {
				t.Error(err)
			}
			if err := mortal.Restart(t.Context()); err != nil {
				t.Error(err)
			}
			return nil
		})
		after.Store(&do)
		return seen
	}
	seen := killAfter(append(forth(), shard.MoveCatchUp, shard.MoveThaw))
	m := r.mover("a", func(c *Config) { c.Block = time.Second })
	m.after = func(step shard.MoveStep) error { return (*after.Load())(step) }
	r.start(m)
	moved := func(id int64) {
		t.Helper()
		for _, p := range r.await(id) {
			if p.State != catalog.PartDone {
				t.Errorf("%s: %+v", p.State, p.Progress)
			}
			t.Logf("%d attempts", p.Attempts)
		}
		r.made(seen(), forth())
	}
	moved(r.request("s1", "s2", some(), 1))

	key := 1
	for ; vnodeOf(itoa(key))%16 == 0; key++ { // one that has not moved
	}
	seen = killAfter(map[string][]shard.MoveStep{
		"s1": {shard.MoveEnlist, shard.MoveCommit, shard.MoveClean}, "s2": {shard.MoveExpect, shard.MoveCommit, shard.MoveForget},
	}[name])
	var id int64
	r.eventually("the shards can be asked", func() (ok bool) {
		var err error
		id, _, err = m.Start(t.Context(), Request{Key: itoa(key), To: "s2"})
		return err == nil
	})
	moved(id)
	r.sql[name] = connect(t, r.dsn[name])
	if got := r.text("s2", `select count(*)::text from counters where id = $1`, key); got != "1" {
		t.Errorf("s2 holds %s rows of the key", got)
	}
	w.end()
	r.check()
}

// A driver that was stopped before it commits goes on after another one has finished the move and moved all back: nothing that it does counts.
func TestAStoppedDriverGoesOn(t *testing.T) {
	t.Parallel()
	for _, at := range []shard.MoveStep{shard.MoveCapture, shard.MoveFreeze, shard.MoveClose} {
		t.Run(at.String(), func(t *testing.T) {
			t.Parallel()
			stoppedAfter(t, at)
		})
	}
}

func stoppedAfter(t *testing.T, at shard.MoveStep) {
	const rows = 500
	r := newRig(t, rows)
	w := r.write(3, rows)
	stopped, goOn := make(chan struct{}), make(chan struct{})
	m := r.mover("a", func(c *Config) { c.Lease = time.Minute })
	var first sync.Once
	m.after = func(step shard.MoveStep) error {
		if step == at {
			first.Do(func() {
				close(stopped)
				<-goOn
			})
		}
		return nil
	}
	end := r.start(m)
	id := r.request("s1", "s2", some(), 1)
	<-stopped
	if _, err := connect(t, r.catalog).Exec(t.Context(), `update ringside.driver set until = '-infinity'`); err != nil {
		t.Fatal(err)
	}
	r.start(r.mover("b", nil))
	for _, ends := range [][2]string{{"s1", "s2"}, {"s2", "s1"}} {
		if ends[0] == "s2" {
			id = r.request(ends[0], ends[1], some(), 1)
		}
		if parts := r.await(id); parts[0].State != catalog.PartDone {
			t.Errorf("from %s to %s: %+v", ends[0], ends[1], parts[0].Progress)
		}
	}
	close(goOn)
	time.Sleep(300 * time.Millisecond) // for what it would do
	end()
	w.end()
	r.check()
}
