package mover

import (
	"testing"

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
