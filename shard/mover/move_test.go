package mover

import (
	"strings"
	"testing"
	"time"

	"ringside/shard/catalog"
)

// Promises P3 and P4: while writers increment rows, half of the vnodes move, and move back.
func TestMoveThereAndBackUnderWriters(t *testing.T) {
	const rows = 2000
	r := newRig(t, rows)
	w := r.write(8, rows)
	r.start(r.mover("a", nil))
	for _, ends := range [][2]string{{"s1", "s2"}, {"s2", "s1"}} {
		for _, p := range r.await(r.request(ends[0], ends[1], half(), 2)) {
			if p.State != catalog.PartDone {
				t.Errorf("%+v", p.Progress)
			}
			t.Logf("%d rows, %d bytes, %d changes, %d deleted, blocked %v, %d attempts", p.Copied, p.Sent, p.Changes, p.Deleted, p.Blocked, p.Attempts)
		}
		if moved := r.text("s2", `select (count(*) > 500)::text from counters`); moved != map[string]string{"s1": "true", "s2": "false"}[ends[0]] {
			t.Errorf("after moving from %s: more than 500 rows on s2: %s", ends[0], moved)
		}
	}
	w.end()
	r.check()
}

// Promise P3: a row whose cached copies are still to be deleted does not move, since readers by the new map would not hear of it.
func TestAMoveWaitsForTheOutbox(t *testing.T) {
	const rows = 500
	r := newRig(t, rows)
	r.exec("s1", `insert into ringside.outbox (key, vnode, shard_vnode) values ('counter:1', 0, $1), ('counter:2', 0, 1)`, int(some()[3]))
	r.start(r.mover("a", nil))
	id := r.request("s1", "s2", some(), 1)
	for deadline := time.Now().Add(4 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		parts, err := r.journal.Parts(t.Context(), 1)
		if err == nil && len(parts) == 1 && strings.Contains(parts[0].Why, errOwed.Error()) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the move does not say what it waits for: %v, %v", parts, err)
		}
	}
	if got := r.text("s2", `select count(*)::text from ringside.ownership where state = 'owned'`); got != "0" {
		t.Errorf("%s vnodes have moved", got)
	}
	r.exec("s1", `delete from ringside.outbox where key = 'counter:1'`) // the other one's vnode does not move
	for _, p := range r.await(id) {
		if p.State != catalog.PartDone {
			t.Errorf("%+v", p.Progress)
		}
	}
	r.exec("s1", `delete from ringside.outbox`)
	r.check()
}
