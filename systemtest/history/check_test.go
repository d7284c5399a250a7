package history

import (
	"slices"
	"strconv"
	"testing"
	"time"
)

// register has the values v0, v1 and so on, made by the writes w0, w1 and so on; "-" is an absence.
func register(values ...string) Register {
	r := Register{Name: "r"}
	for i, v := range values {
		mark := "w" + strconv.Itoa(i)
		if v == "-" {
			v, mark = Absent, "del"
		}
		r.States = append(r.States, State{v, mark})
	}
	return r
}

func read(begin, end time.Duration, value string) Op {
	if value == "-" {
		value = Absent
	}
	return Op{Begin: begin, End: end, Outcome: Acknowledged, Value: value}
}

func write(begin, end time.Duration, mark string) Op {
	return Op{Begin: begin, End: end, Write: true, Outcome: Acknowledged, Mark: mark}
}

func (o Op) but(outcome Outcome) Op { o.Outcome = outcome; return o }
func (o Op) until(at time.Duration) Op {
	o.Outcome, o.Until = Unknown, at
	return o
}
func (o Op) weak() Op { o.Weak = true; return o }

// Guards the checker itself: what is known to be wrong is found and named, and what is known to be right passes.
func TestCheckKnownHistories(t *testing.T) {
	abc := register("a", "b", "c")
	for _, c := range []struct {
		name string
		r    Register
		ops  []Op
		want []Kind
	}{
		{"nothing happened", abc, nil, nil},
		{"reads of the first value", abc, []Op{read(0, 1, "a"), read(2, 3, "a")}, nil},
		{"a read after a write", abc, []Op{write(0, 1, "w1"), read(2, 3, "b")}, nil},
		{"a read after a write returns what was before", abc, []Op{write(0, 1, "w1"), read(2, 3, "a")}, []Kind{Stale}},
		{"the order of operations in the list does not matter", abc, []Op{read(2, 3, "a"), write(0, 1, "w1")}, []Kind{Stale}},
		{"a read during a write returns what was before", abc, []Op{write(0, 2, "w1"), read(1, 3, "a")}, nil},
		{"a read during a write returns what it writes", abc, []Op{write(0, 2, "w1"), read(1, 3, "b")}, nil},
		{"at the same time is not after", abc, []Op{write(0, 1, "w1"), read(1, 2, "a")}, nil},
		{"a read returns more than was acknowledged", abc, []Op{write(0, 1, "w1"), write(0, 9, "w2"), read(2, 3, "c")}, nil},
		{"readers disagree one after the other", abc, []Op{write(0, 9, "w1"), read(1, 2, "b"), read(3, 4, "a")}, []Kind{Back}},
		{"readers disagree at the same time", abc, []Op{write(0, 9, "w1"), read(1, 3, "b"), read(2, 4, "a")}, nil},
		{"stale says more than back", abc, []Op{write(0, 1, "w1"), write(2, 3, "w2"), read(4, 5, "c"), read(6, 7, "a")}, []Kind{Stale}},
		{"back, and not older than what was acknowledged", abc, []Op{write(0, 1, "w1"), write(2, 9, "w2"), read(4, 5, "c"), read(6, 7, "b")}, []Kind{Back}},
		{"each wrong read is found", abc, []Op{write(0, 1, "w1"), read(2, 3, "a"), read(2, 3, "b"), read(4, 5, "a")}, []Kind{Stale, Stale}},
		{"a wrong read proves nothing for others", abc, []Op{read(0, 1, "z"), read(2, 3, "a")}, []Kind{Invented}},
		{"what was never written", abc, []Op{read(0, 1, "d")}, []Kind{Invented}},
		{"read before it was written", abc, []Op{read(0, 1, "b"), write(2, 3, "w1")}, []Kind{Future}},
		{"a later value read before an earlier one was written", abc, []Op{read(0, 1, "c"), write(2, 3, "w1")}, []Kind{Future}},
		{"writes acknowledged in another order than the shard's", abc, []Op{write(0, 1, "w2"), write(2, 3, "w1")}, []Kind{Future}},
		{"writes at the same time, in either order", abc, []Op{write(0, 2, "w2"), write(1, 3, "w1")}, nil},
		{"an acknowledged write that took no effect", abc, []Op{write(0, 1, "w7")}, []Kind{Lost}},
		{"a refused write that took none", abc, []Op{write(0, 1, "w7").but(Refused)}, nil},
		{"a refused write that took effect", abc, []Op{write(0, 1, "w1").but(Refused)}, []Kind{Denied}},
		{"an unknown write that took none", abc, []Op{write(0, 1, "w7").but(Unknown), read(2, 3, "a")}, nil},
		{"an unknown write that has not yet taken effect", abc, []Op{write(0, 1, "w1").but(Unknown), read(2, 3, "a"), read(4, 5, "b")}, nil},
		{"an unknown write, seen once, cannot be unseen", abc, []Op{write(0, 1, "w1").but(Unknown), read(2, 3, "b"), read(4, 5, "a")}, []Kind{Back}},
		{"an unknown write took effect after a later one", abc, []Op{write(0, 1, "w2").but(Unknown), write(2, 3, "w1"), read(4, 5, "b"), read(6, 7, "c")}, nil},
		{"an unknown write, read before it began", abc, []Op{read(0, 1, "b"), write(2, 3, "w1").but(Unknown)}, []Kind{Future}},
		{"an unknown write is seen in time", abc, []Op{write(0, 1, "w1").until(5), read(4, 5, "a"), read(6, 7, "b")}, nil},
		{"an unknown write is seen too late", abc, []Op{write(0, 1, "w1").until(5), read(6, 7, "a")}, []Kind{Stale}},
		{"an unknown write took no effect in time", abc, []Op{write(0, 1, "w7").until(5), read(6, 7, "a")}, nil},
		{"unknown which state it made", abc, []Op{write(0, 1, "").but(Unknown), write(0, 1, ""), read(2, 3, "a")}, nil},
	} {
		t.Run(c.name, func(t *testing.T) { expect(t, c.r, c.ops, c.want) })
	}
}

// Absence is one value of several versions.
func TestCheckValuesOfSeveralVersions(t *testing.T) {
	r := register("a", "-", "b", "-", "c")
	for _, c := range []struct {
		name string
		ops  []Op
		want []Kind
	}{
		{"absent from the first deletion on", []Op{write(0, 1, "del"), read(2, 3, "-")}, nil},
		{"still there after it", []Op{write(0, 1, "del"), read(2, 3, "a")}, []Kind{Stale}},
		{"absent again", []Op{write(0, 1, "del"), write(2, 3, "w2"), write(4, 5, "del"), read(6, 7, "-"), read(8, 9, "-")}, nil},
		{"absent is the second time, after b was read", []Op{read(0, 1, "b"), read(2, 3, "-"), read(4, 5, "b")}, []Kind{Back}},
		{"absent may be the first time", []Op{read(0, 1, "-"), read(2, 3, "b"), read(4, 5, "-"), read(6, 7, "c")}, nil},
		{"absent after the last value was acknowledged", []Op{write(0, 1, "w4"), read(2, 3, "-")}, []Kind{Stale}},
		{"absent after the last value was read", []Op{read(0, 1, "c"), read(2, 3, "-")}, []Kind{Back}},
		{"two deletions acknowledged, one after the other", []Op{write(0, 1, "del"), write(2, 3, "del"), read(4, 5, "b")}, []Kind{Stale}},
		{"two at the same time may be either", []Op{write(0, 2, "del"), write(1, 3, "del"), read(4, 5, "b")}, nil},
		{"a third one took no effect", []Op{write(0, 1, "del"), write(2, 3, "del"), write(4, 5, "del")}, []Kind{Lost}},
		{"absent as of old, before it is absent again", []Op{read(0, 1, "b"), read(2, 3, "-"), write(4, 5, "w4")}, nil},
		{"absent as of old: the later deletion came after what began later", []Op{write(0, 1, "w2"), read(2, 3, "-"), write(4, 5, "w4")}, nil},
		{"a refused or unknown one says nothing", []Op{read(0, 1, "c"), write(4, 5, "del").but(Refused), write(4, 5, "del").but(Unknown)}, nil},
	} {
		t.Run(c.name, func(t *testing.T) { expect(t, r, c.ops, c.want) })
	}
}

// A version that cannot have been there yet explains no read: what was read is an older one of the same value, and nothing follows for later ones. A proof once
// took an absence for that of a deletion which had not begun, and then that deletion for one that came too late and another for lost.
func TestCheckVersionsThatWereMadeLater(t *testing.T) {
	r := register("a", "-", "b", "c", "-", "d")
	for _, c := range []struct {
		name string
		ops  []Op
		want []Kind
	}{
		{"stale", []Op{write(0, 1, "w2"), read(2, 3, "-"), write(4, 5, "w3"), write(6, 7, "del")}, []Kind{Stale}},
		{"stale, and weak", []Op{write(0, 1, "w2"), read(2, 3, "-").weak(), write(4, 5, "w3"), write(6, 7, "del")}, []Kind{Stale}},
		{"back", []Op{read(0, 1, "b"), read(2, 3, "-"), read(3, 4, "b"), write(5, 6, "w3"), write(7, 8, "del")}, []Kind{Back}},
		{"made in time", []Op{write(0, 1, "w2"), write(2, 9, "w3"), read(3, 4, "-")}, nil},
		{"by an unknown write", []Op{write(0, 1, "w2"), read(2, 3, "-"), write(4, 5, "w3").but(Unknown)}, []Kind{Stale}},
		{"the second of as many deletions as were begun", []Op{write(0, 1, "del"), write(2, 3, "w2"), write(4, 5, "w3"), read(6, 7, "-"), write(8, 9, "del")}, []Kind{Stale}},
		{"as many deletions were begun in time", []Op{write(0, 1, "del"), write(2, 3, "w2"), write(4, 5, "w3"), write(5, 9, "del"), read(6, 7, "-")}, nil},
	} {
		t.Run(c.name, func(t *testing.T) { expect(t, r, c.ops, c.want) })
	}
}

// Nothing is concluded from what is weak, and it is held to what is known.
func TestCheckWeakOperations(t *testing.T) {
	abc := register("a", "b", "c")
	expect(t, abc, []Op{read(0, 1, "b").weak(), read(2, 3, "a").weak()}, nil)
	expect(t, abc, []Op{write(0, 1, "w1").weak(), read(2, 3, "a")}, nil)
	expect(t, abc, []Op{write(0, 1, "w1"), read(2, 3, "a").weak()}, []Kind{Stale})
	expect(t, abc, []Op{write(0, 1, "w9").weak()}, []Kind{Lost})
}

func expect(t *testing.T, r Register, ops []Op, want []Kind) {
	t.Helper()
	before := slices.Clone(ops)
	var got []Kind
	found := Check(r, ops)
	for _, v := range found {
		got = append(got, v.Kind)
	}
	if !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", found, want)
	}
	if !slices.Equal(ops, before) {
		t.Errorf("the operations were changed")
	}
}

func TestAViolationSaysWhatContradictsWhat(t *testing.T) {
	found := Check(register("a", "b"), []Op{write(1*time.Millisecond, 2*time.Millisecond, "w1"), read(3*time.Millisecond, 4*time.Millisecond, "a")})
	const want = `r: stale: read of "a" through 0 from 3ms to 4ms (version 0); version 1 was known by write "w1" through 0 from 1ms to 2ms`
	if len(found) != 1 || found[0].String() != want {
		t.Errorf("got %v, want %s", found, want)
	}
}
