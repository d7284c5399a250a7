package mover

import (
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"ringside/ring"
	"ringside/shard"
	"ringside/shard/catalog"
)

const eventsTable = `create table events (tenant text, id bigint, body text, primary key (tenant, id))`

// newKeyRig is a rig with a second table, of which shard key 1 has many rows.
func newKeyRig(t testing.TB, rows, events int) *rig {
	r := newRig(t, rows, eventsTable)
	for name := range r.dsn {
		r.exec(name, `select ringside.attach('events', 'tenant')`)
	}
	r.exec("s1", `insert into events select '1', i, 'event ' || i from generate_series(1, $1) i`, events)
	r.exec("s1", `insert into events select i::text, 1, 'of another' from generate_series(2, $1) i`, rows)
	return r
}

func vnodeOf(key string) uint16 { return ring.NewHasher().Vnode([]byte(key)) }

// moveKey asks for one shard key to be moved, to "": where its vnode is.
func (r *rig) moveKey(m *Mover, key, to string) {
	r.t.Helper()
	id, _, err := m.Start(r.t.Context(), Request{Key: key, To: to})
	if err != nil {
		r.t.Fatalf("%s to %q: %v", key, to, err)
	}
	for _, p := range r.await(id) {
		if p.State != catalog.PartDone {
			r.t.Fatalf("%s to %q: %s, %+v", key, to, p.State, p.Progress)
		}
	}
	r.check()
}

func (r *rig) moveVnodes(m *Mover, from, to string, vnodes ...uint16) {
	r.t.Helper()
	for _, p := range r.await(r.request(from, to, vnodes, 1)) {
		if p.State != catalog.PartDone {
			r.t.Fatalf("vnodes from %s to %s: %s, %+v", from, to, p.State, p.Progress)
		}
	}
	r.check()
}

// holds checks on which shard the rows of a key are.
func (r *rig) holds(key, want string, events int) {
	r.t.Helper()
	for name := range r.dsn {
		count := 0
		if name == want {
			count = events
		}
		if got := r.text(name, `select count(*)::text || '/' || (select count(*) from counters where id = $1::text::bigint) from events where tenant = $1`, key); got != fmt.Sprintf("%d/%d", count, min(count, 1)) {
			r.t.Errorf("shard %s holds %s rows of key %s, want %d", name, got, key, count)
		}
	}
}

// Promises P3 and P4: shard keys move under writers, with the rows of all tables that they have; their vnodes move to where they are, and away from there, and they
// stay.
func TestShardKeysMoveUnderWriters(t *testing.T) {
	const rows, events = 200, 3000
	r := newKeyRig(t, rows, events)
	w := r.write(4, rows)
	m := r.mover("a", nil)
	r.start(m)
	one, v := "1", vnodeOf("1")

	r.moveKey(m, one, "s2")
	r.holds(one, "s2", events)
	r.moveKey(m, "2", "s2")
	both := append(every(4096), v, vnodeOf("2"), vnodeOf("3"))
	r.moveVnodes(m, "s1", "s2", both...) // some of them have keys that are there
	r.moveVnodes(m, "s2", "s1", both...)
	r.holds(one, "s2", events)
	r.holds("2", "s2", 1)

	// The vnode comes to where the key is; the override ends, and the key goes with its vnode.
	r.moveVnodes(m, "s1", "s2", v)
	r.moveKey(m, one, "")
	if r.now().Overrides[one] != "" {
		t.Errorf("the override is still there: %v", r.now().Overrides)
	}
	r.moveVnodes(m, "s2", "s1", v)
	r.holds(one, "s1", events)

	// The key is held where it is, and its vnode goes.
	r.moveKey(m, one, "s1")
	r.moveVnodes(m, "s1", "s2", v)
	r.holds(one, "s1", events)
	r.moveKey(m, one, "")
	r.holds(one, "s2", events)
	r.moveKey(m, "2", "")
	r.holds("2", "s1", 1)
	if n := len(r.now().Overrides); n != 0 {
		t.Errorf("%d overrides are left", n)
	}
	w.end()
	r.check()
}

// Promise P4: the driver of a key's move dies after each step that is another one for keys, and a second one takes over; then the same when the key's override ends, and when one begins where it is.
func TestTheDriverOfAKeyDiesAfterEachStep(t *testing.T) {
	t.Parallel()
	const rows = 100
	r := newKeyRig(t, rows, 500)
	w := r.write(2, rows)
	var crash atomic.Pointer[func(shard.MoveStep) error]
	movers := map[string]*Mover{}
	for _, holder := range []string{"a", "b"} {
		m := r.mover(holder, short)
		m.after = func(step shard.MoveStep) error { return (*crash.Load())(step) }
		movers[holder] = m
	}
	begin := func() func() map[shard.MoveStep]bool {
		after, seen := once(func(step shard.MoveStep) error {
			switch step { // the others do the same whatever is moved
			case shard.MoveExpect, shard.MoveEnlist, shard.MoveCommit, shard.MovePublish, shard.MoveClean, shard.MoveForget, shard.MoveRestore:
				return errCrash
			}
			return nil
		})
		crash.Store(&after)
		return seen
	}
	seen := begin()
	for _, m := range movers {
		r.start(m)
	}
	r.moveKey(movers["a"], "1", "s2")
	r.made(seen(), forth())
	r.holds("1", "s2", 500)
	seen = begin()
	r.moveKey(movers["a"], "1", "")
	r.made(seen(), forth())
	for _, to := range []string{"s1", ""} {
		seen = begin()
		r.moveKey(movers["b"], "1", to)
		r.made(seen(), []shard.MoveStep{shard.MoveClaimFrom, shard.MoveEnlist, shard.MovePublish, shard.MoveRestore})
	}
	r.holds("1", "s1", 500)
	w.end()
}

// Promise P4: a key's move is called off in the middle of the cut-over, and leaves nothing behind.
func TestAKeysMoveIsCalledOff(t *testing.T) {
	t.Parallel()
	const rows = 100
	r := newKeyRig(t, rows, 500)
	w := r.write(2, rows)
	m := r.mover("a", short)
	after, seen := once(func(step shard.MoveStep) error {
		if step == shard.MoveSettle {
			if _, _, err := r.journal.CancelMove(t.Context(), 1); err != nil {
				t.Error(err)
			}
			time.Sleep(2 * reportEvery) // until the driver has heard
		}
		return nil
	})
	m.after = after
	id, _, err := m.Start(t.Context(), Request{Key: "1", To: "s2"})
	if err != nil || id != 1 {
		t.Fatal(id, err)
	}
	r.start(m)
	if parts := r.await(id); parts[0].State != catalog.PartCancelled {
		t.Errorf("%+v", parts[0])
	}
	r.made(seen(), back())
	r.holds("1", "s1", 500)
	w.end()
	r.check()
	r.moveVnodes(m, "s1", "s2", vnodeOf("1")) // nothing of it is in the way
	r.holds("1", "s2", 500)
}

// What makes no sense is refused in one line.
func TestWhatIsRefusedOfKeys(t *testing.T) {
	t.Parallel()
	r := newKeyRig(t, 50, 10)
	m := r.mover("a", nil) // it does not run
	for want, request := range map[string]Request{
		`there is no shard s9`: {Key: "1", To: "s9"},
		`shard key "1" has no override: it is on shard s1, by its vnode ` + strconv.Itoa(int(vnodeOf("1"))): {Key: "1"},
	} {
		if _, _, err := m.Start(t.Context(), request); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if p, err := m.Plan(t.Context(), Request{Key: "1", To: "s2"}); err != nil || len(p.Refused) > 0 || len(p.Parts) != 1 || p.Parts[0].Rows != 11 || p.Parts[0].From != "s1" {
		t.Errorf("%+v, %v", p, err)
	}
	if _, _, err := m.Start(t.Context(), Request{Key: "3", To: "s2"}); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"", "s2"} {
		_, _, err := m.Start(t.Context(), Request{Key: "3", To: to})
		if want := `an override of shard key "3" to shard s2 is being set by move 1: wait until that is done, or cancel it`; err == nil || err.Error() != want {
			t.Errorf("to %q: got %v, want %s", to, err, want)
		}
	}
	r.exec("s2", `set ringside.mover = 'on'`)
	r.exec("s2", `insert into events values ('1', 7, 'astray')`)
	if _, _, err := m.Start(t.Context(), Request{Key: "1", To: "s2"}); err == nil || !slices.Contains([]string{err.Error()}, `shard s2: table public.events holds rows of what is to come already: they would be lost; look at them, then delete them`) {
		t.Errorf("got %v", err)
	}
	r.exec("s2", `delete from events`)
	r.exec("s2", `reset ringside.mover`)
	if _, err := r.journal.CreateMove(t.Context(), []catalog.NewPart{{From: "s1", To: "s2", Vnodes: []uint16{vnodeOf("1")}}}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.Start(t.Context(), Request{Key: "1", To: "s2"}); err == nil {
		t.Error("a key moves although its vnode does")
	}
}
