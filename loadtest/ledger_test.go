package loadtest

import (
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name    string
		floor   floor
		version int64
		found   bool
		want    verdict
	}{
		{"nothing known, nothing there", floor{}, 0, false, fine},
		{"a value of before", floor{}, 7, true, fine},
		{"the acknowledged one", floor{acked: 5}, 5, true, fine},
		{"a newer one", floor{acked: 5, seen: 5}, 6, true, fine},
		{"an older one", floor{acked: 5}, 4, true, stale},
		{"a foreign value over an acknowledged one", floor{acked: 5}, 0, true, stale},
		{"nothing over an acknowledged one", floor{acked: 5}, 0, false, lost},
		{"older than one that was shown before its write was acknowledged", floor{acked: 5, seen: 6}, 5, true, back},
		{"older than both", floor{acked: 5, seen: 6}, 4, true, stale},
	} {
		if got := judge(c.floor, c.version, c.found); got != c.want {
			t.Errorf("%s: verdict %d, want %d", c.name, got, c.want)
		}
	}
}

// What counts is what had been acknowledged when the read was sent, not when its answer came.
func TestLedgerKnowsTheOrderOfEvents(t *testing.T) {
	l := newLedger(Keys{"k", "", 2}, time.UnixMilli(1))
	write := func(key uint32) int64 {
		t.Helper()
		v, ok := l.beginWrite(key)
		if !ok {
			t.Fatalf("key %d cannot be written", key)
		}
		return v
	}
	read := func(key uint32) request { return request{key: key, floor: l.beginRead(key)} }

	first := write(1)
	if _, ok := l.beginWrite(1); ok {
		t.Error("two writes of a key at a time")
	}
	early := read(1)
	l.endWrite(1, first, true)
	l.endRead(early, 0, true, "a") // sent before the acknowledgement
	late := read(1)
	second := write(1)
	l.endWrite(1, second, true)
	l.endRead(late, first, true, "a") // the second write was acknowledged only afterwards
	if c := l.check(); c.Stale+c.Lost+c.Back != 0 || c.Reads != 2 {
		t.Fatalf("%+v", c)
	}
	l.endRead(read(1), first, true, "a")
	l.endRead(read(1), 0, false, "a")
	c := l.check()
	if c.Stale != 1 || c.Lost != 1 || len(c.Examples) != 2 {
		t.Fatalf("%+v", c)
	}
	if want := (Violation{Key: "k1", Found: true, Read: first, Acked: second, From: "a"}); c.Examples[0] != want {
		t.Errorf("%+v, want %+v", c.Examples[0], want)
	}

	// A write that may still take effect leaves its key alone.
	l.endWrite(2, write(2), false)
	if _, ok := l.beginWrite(2); ok {
		t.Error("a key whose last write may come late is written again")
	}
	if c := l.check(); c.Barred != 1 {
		t.Errorf("%+v", c)
	}
}

func TestLedgerOfALaterRunIsAbove(t *testing.T) {
	a := newLedger(Keys{"k", "", 1}, time.UnixMilli(1_700_000_000_000))
	b := newLedger(Keys{"k", "", 1}, time.UnixMilli(1_700_000_000_001))
	v, _ := a.beginWrite(1)
	if w, _ := b.beginWrite(1); w <= v {
		t.Errorf("%d after %d", w, v)
	}
}
