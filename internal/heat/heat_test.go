package heat

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

const halfLife = time.Minute

// near: within a share of the right value.
func near(got, want, share float64) bool { return math.Abs(got-want) <= want*share }

// One key in a thousand is far above the others: it is found among many times more keys than are remembered, and its rate is right.
func TestTheHottestKeysAreFound(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	k := NewKeys(100, halfLife)
	now := time.Unix(1_000_000, 0)
	for range 300_000 { // 1000 a second for five half-lives
		now = now.Add(time.Millisecond)
		switch n := random.IntN(10); {
		case n < 3:
			k.Add([]byte("first"), 1, now)
		case n < 5:
			k.Add([]byte("second"), 1, now)
		default:
			k.Add(fmt.Append(nil, random.IntN(50_000)), 1, now)
		}
	}
	top := k.Top(2, now)
	if len(top) != 2 || top[0].Key != "first" || top[1].Key != "second" || !near(top[0].Rate, 300, 0.1) || !near(top[1].Rate, 200, 0.1) || !near(top[0].AtLeast, 300, 0.1) {
		t.Errorf("%+v", top)
	}
	if n := len(k.Top(1000, now)); n != 100 {
		t.Errorf("%d keys are remembered", n)
	}
}

// What was used long ago is forgotten, and a rate is right from the beginning.
func TestRatesForget(t *testing.T) {
	for _, quiet := range []time.Duration{0, halfLife, 10 * halfLife, 1000 * halfLife} {
		k, table := NewKeys(10, halfLife), NewTable(3, halfLife)
		now := time.Unix(1_000_000, 0)
		for range 1000 {
			now = now.Add(10 * time.Millisecond)
			k.Add([]byte("a"), 4, now)
			table.Add(1, 4, now)
		}
		after := now.Add(quiet)
		if quiet > 0 {
			k.Add([]byte("b"), 1, after)
			table.Add(2, 1, after)
		}
		lived := (10*time.Second + quiet).Seconds() / halfLife.Seconds()
		want := 400 * math.Exp2(-quiet.Seconds()/halfLife.Seconds()) * (1 - math.Exp2(-10/halfLife.Seconds())) / (1 - math.Exp2(-lived))
		var got float64
		for _, h := range k.Top(10, after) {
			if h.Key == "a" {
				got = h.Rate
			}
		}
		if rates := table.Rates(after); !near(got, want, 0.05) && math.Abs(got-want) > 1e-9 || math.Abs(rates[1]-got) > 1e-6 || rates[0] != 0 {
			t.Errorf("after %v: %v and %v, want %v", quiet, got, rates[1], want)
		}
	}
}

func TestMerge(t *testing.T) {
	got := Merge(2, []Hot{{"a", 5, 5}, {"b", 3, 2}}, []Hot{{"b", 4, 4}, {"c", 1, 1}}, nil)
	if len(got) != 2 || got[0] != (Hot{"b", 7, 6}) || got[1] != (Hot{"a", 5, 5}) {
		t.Errorf("%+v", got)
	}
}

// A key that is remembered is counted without allocating.
func TestCountingDoesNotAllocate(t *testing.T) {
	k, table := NewKeys(10, halfLife), NewTable(10, halfLife)
	key, now := []byte("a key"), time.Unix(1_000_000, 0)
	k.Add(key, 1, now)
	if n := testing.AllocsPerRun(100, func() { k.Add(key, 1, now); table.Add(3, 1, now) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
