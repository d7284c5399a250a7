package mover

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"ringside/ring"
	"ringside/shard"
	"ringside/shard/catalog"
)

// status returns the first part of a move.
func (r *rig) status(id int64) catalog.Part {
	r.t.Helper()
	parts, err := r.journal.Parts(context.Background(), 100)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, p := range parts {
		if p.Move == id {
			p.Vnodes = nil
			return p
		}
	}
	r.t.Fatalf("there is no move %d", id)
	return catalog.Part{}
}

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(4 * time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("never: %s", what)
		}
	}
}

// Promise P6: a block of writes that takes too long is undone, writes go on, and it is tried again. Called off, the move leaves nothing behind.
func TestACutOverThatTakesTooLongIsUndone(t *testing.T) {
	t.Parallel()
	const rows = 500
	r := newRig(t, rows)
	w := r.write(3, rows)
	r.start(r.mover("a", func(c *Config) { c.Block = time.Nanosecond }))
	id := r.request("s1", "s2", some(), 1)
	r.eventually("several attempts", func() bool { return r.status(id).Attempts >= 3 })
	before := w.sent.Load()
	r.eventually("writes go on", func() bool { return w.sent.Load() > before+100 })
	r.eventually("it says why", func() bool { return strings.Contains(r.status(id).Why, "the cut-over is tried again") })
	if _, open, err := r.journal.CancelMove(t.Context(), id); err != nil || !open {
		t.Fatal(open, err)
	}
	if p := r.await(id)[0]; p.State != catalog.PartCancelled {
		t.Errorf("%s: %+v", p.State, p.Progress)
	}
	w.end()
	r.check()
	if got := r.text("s2", `select count(*)::text from counters`); got != "0" {
		t.Errorf("%s rows were left", got)
	}
}

// A transaction that stays open keeps the cut-over off, and nobody else waits for long; when it has ended, what it wrote is moved too.
func TestAnOpenTransactionPutsTheCutOverOff(t *testing.T) {
	t.Parallel()
	const rows = 500
	r := newRig(t, rows)
	moving := some()
	id := 0
	for id = 1; ring.Vnode([]byte(itoa(id)))%16 != 0; id++ {
	}
	other := connect(t, r.dsn["s1"])
	for _, sql := range []string{`begin`, `update counters set note = 'late' where id = ` + itoa(id)} {
		if _, err := other.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	w := r.write(3, id-1) // others, lest they wait for its row
	r.start(r.mover("a", nil))
	move := r.request("s1", "s2", moving, 1)
	r.eventually("it says why it waits", func() bool { return strings.Contains(r.status(move).Why, "open transaction") })
	before := w.sent.Load()
	r.eventually("writes go on", func() bool { return w.sent.Load() > before+10 })
	if _, err := other.Exec(t.Context(), `commit`); err != nil {
		t.Fatal(err)
	}
	if p := r.await(move)[0]; p.State != catalog.PartDone {
		t.Errorf("%s: %+v", p.State, p.Progress)
	}
	w.stop()
	w.wait.Wait()
	r.check()
	if got := r.text("s2", `select note from counters where id = $1`, id); got != "late" {
		t.Errorf("the row says %q", got)
	}
}

func itoa(n int) string {
	b := []byte{}
	for ; n > 0; n /= 10 {
		b = append([]byte{byte('0' + n%10)}, b...)
	}
	return string(b)
}

// Rows that differ on the destination are found before the commit, whatever made them so: the move is called off, the source goes on.
func TestRowsThatDifferAreFound(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]string{
		"changed": `update counters set n = n + 1000 where id = (select min(id) from counters)`,
		"lost":    `delete from counters where id = (select min(id) from counters)`,
		"more":    `insert into counters (id) select i from generate_series(100000, 200000) i where ringside.vnode(i::text) % 16 = 0 limit 1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const rows = 300
			r := newRig(t, rows)
			w := r.write(2, rows)
			m := r.mover("a", nil)
			harmed := false
			m.after = func(step shard.MoveStep) error {
				if step == shard.MoveCopied || step == shard.MoveCopy && !harmed && r.text("s2", `select coalesce(bool_or(copied), false)::text from ringside.part`) == "true" {
					harmed = true
					r.exec("s2", `begin`)
					r.exec("s2", `set local ringside.mover = 'on'`)
					r.exec("s2", harm)
					r.exec("s2", `commit`)
				}
				return nil
			}
			r.start(m)
			p := r.await(r.request("s1", "s2", some(), 1))[0]
			// A row that a writer changes after the harm is copied anew: then nothing differs any more.
			if p.State != catalog.PartFailed && (name == "more" || p.State != catalog.PartDone) || p.State == catalog.PartFailed && !strings.Contains(p.Why, "differ") {
				t.Errorf("%s: %+v", p.State, p.Progress)
			}
			if !harmed {
				t.Error("nothing was harmed")
			}
			w.end()
			r.check()
		})
	}
}

// While a shard's view is held for a cut-over nothing changes it, and no cut-over begins while the view is not settled.
func TestRingChangesAndCutOversExcludeEachOther(t *testing.T) {
	t.Parallel()
	r := newRig(t, 200)
	m := r.mover("a", nil)
	next := shard.View{Epoch: 8, Phase: shard.Preparing}
	m.after = func(step shard.MoveStep) error {
		if step == shard.MoveHold || step == shard.MoveFreeze || step == shard.MoveClose || step == shard.MoveGive {
			for name := range r.dsn {
				if now, err := r.fleet.Advance(t.Context(), name, next, nil); err != nil || now.Epoch != 7 {
					t.Errorf("after %q shard %s came to view %v, %v", step, name, now, err)
				}
			}
		}
		return nil
	}
	r.mu.Lock()
	r.ring.Settled = false
	r.mu.Unlock()
	r.start(m)
	id := r.request("s1", "s2", some(), 1)
	r.eventually("it waits for the ring", func() bool { return strings.Contains(r.status(id).Why, "ring of cache servers is changing") })
	if got := r.text("s1", `select state from ringside.part`); got != "owned" {
		t.Errorf("the source is %s", got)
	}
	r.mu.Lock()
	r.ring.Settled = true
	r.mu.Unlock()
	if p := r.await(id)[0]; p.State != catalog.PartDone {
		t.Errorf("%s: %+v", p.State, p.Progress)
	}
	r.check()
}

// A driver dies while it has the views kept, of one shard or of both, and the ring changes before another one takes over: the change goes on, and then the move.
func TestViewsThatADeadDriverHeldAreLetGo(t *testing.T) {
	t.Parallel()
	for _, held := range [][]string{{"s2"}, {"s2", "s1"}} {
		t.Run(strings.Join(held, " and "), func(t *testing.T) {
			t.Parallel()
			const rows = 100
			r := newRig(t, rows)
			var died sync.Once
			after := func(step shard.MoveStep) (err error) {
				if step == shard.MoveCompare {
					died.Do(func() {
						for _, name := range held {
							r.exec(name, `update ringside.view set cutover = (select id from ringside.part)`)
						}
						r.mu.Lock()
						r.ring.Epoch++
						r.mu.Unlock()
						err = errCrash
					})
				}
				return err
			}
			for _, holder := range []string{"a", "b"} {
				m := r.mover(holder, short)
				m.after = after
				r.start(m)
			}
			if p := r.await(r.request("s1", "s2", some(), 1))[0]; p.State != catalog.PartDone {
				t.Errorf("%s: %+v", p.State, p.Progress)
			}
			for _, name := range []string{"s1", "s2"} {
				if got := r.text(name, `select (cutover is null)::text from ringside.view`); got != "true" {
					t.Errorf("%s keeps its view", name)
				}
			}
		})
	}
}
