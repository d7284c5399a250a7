package history

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Guards that the checker is exact: on small histories, right and wrong ones, it agrees with a search through all orders of the operations.
func TestCheckAgreesWithASearchThroughAllOrders(t *testing.T) {
	compare(t, true, func(explained, passes bool) bool { return explained == passes })
}

// Where several writes cannot be told apart it may miss something, and still accuses nobody without reason.
func TestCheckNeverAccusesWithoutReason(t *testing.T) {
	compare(t, false, func(explained, passes bool) bool { return passes || !explained })
}

func compare(t *testing.T, unique bool, agree func(explained, passes bool) bool) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	fine, wrong := 0, 0
	for range 40_000 {
		r, ops := randomHistory(rnd, unique)
		explained := explain(r, ops)
		found := Check(r, ops)
		if !agree(explained, len(found) == 0) {
			t.Fatalf("states %v\noperations %v\nthere is an order: %v; found: %v", r.States, ops, explained, found)
		}
		if explained {
			fine++
		} else {
			wrong++
		}
	}
	t.Logf("%d histories can be explained, %d cannot", fine, wrong)
	if fine < 5000 || wrong < 5000 {
		t.Errorf("%d can be explained, %d cannot: too few of one kind to tell", fine, wrong)
	}
}

// randomHistory makes at most 4 states, each by a write that is among the operations but for the first, and at most 7 operations. Unless unique,
// deletions have one mark.
func randomHistory(rnd *rand.Rand, unique bool) (Register, []Op) {
	r := Register{Name: "r", States: []State{{Value: "v0"}}}
	var ops []Op
	span := func() (begin, end time.Duration) {
		begin = time.Duration(rnd.IntN(12)) * time.Millisecond
		return begin, begin + time.Duration(rnd.IntN(5))*time.Millisecond
	}
	for i := range rnd.IntN(4) {
		s := State{"v" + string(rune('1'+i)), "w" + string(rune('1'+i))}
		if rnd.IntN(3) == 0 {
			s.Value = Absent
			if !unique {
				s.Mark = "del"
			}
		}
		r.States = append(r.States, s)
		begin, end := span()
		o := write(begin, end, s.Mark)
		if s.Mark != "del" && rnd.IntN(3) == 0 {
			o = o.but(Unknown)
		}
		ops = append(ops, o)
	}
	if rnd.IntN(4) == 0 { // and one that took no effect
		begin, end := span()
		ops = append(ops, write(begin, end, "w9").but(Unknown))
	}
	for range rnd.IntN(4) {
		begin, end := span()
		ops = append(ops, read(begin, end, r.States[rnd.IntN(len(r.States))].Value))
	}
	rnd.Shuffle(len(ops), func(i, j int) { ops[i], ops[j] = ops[j], ops[i] })
	return r, ops
}

// explain searches for an order of the operations that keeps the order of time and in which the register goes through its states, each
// read returning the present one. Unknown writes need not be in it; those that are need not have ended where they were told to.
func explain(r Register, ops []Op) bool {
	used := make([]bool, len(ops))
	var step func(version int) bool
	step = func(version int) bool {
		done := version == len(r.States)-1
		for i, o := range ops {
			if !used[i] && (o.Outcome == Acknowledged) {
				done = false
			}
		}
		if done {
			return true
		}
		for i := range ops {
			if used[i] || overtakes(ops, used, i) {
				continue
			}
			o := &ops[i]
			next := version
			switch {
			case o.Write && (version+1 == len(r.States) || r.States[version+1].Mark != o.Mark):
				continue
			case o.Write:
				next++
			case r.States[version].Value != o.Value:
				continue
			}
			used[i] = true
			if step(next) {
				return true
			}
			used[i] = false
		}
		return false
	}
	return step(0)
}

// overtakes reports whether an operation that is not yet in the order had ended before the i-th began.
func overtakes(ops []Op, used []bool, i int) bool {
	for j, o := range ops {
		if j != i && !used[j] && o.Outcome == Acknowledged && o.End < ops[i].Begin {
			return true
		}
	}
	return false
}
