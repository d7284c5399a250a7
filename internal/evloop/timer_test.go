package evloop

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// manualLoop is a loop whose clock the test moves; it never runs.
func manualLoop(t *testing.T) *Loop {
	t.Helper()
	l, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Stop)
	l.running, l.now = true, 0
	return l
}

// advance moves the clock and fires what is due, as a turn does.
func advance(l *Loop, to time.Duration) {
	l.now = int64(to)
	l.timers.fire(l.now)
}

func TestTimersOfOneTime(t *testing.T) {
	l := manualLoop(t)
	var got []int
	for i := range 10 {
		l.AfterFunc(time.Second, func() { got = append(got, i) })
	}
	early := l.AfterFunc(0, func() { got = append(got, 100) })
	advance(l, time.Second-1)
	if !slices.Equal(got, []int{100}) || early.Stop() {
		t.Fatalf("got %v before the time", got)
	}
	advance(l, time.Second)
	if want := []int{100, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestTimerSetsTimer: what a timer sets waits for a later turn, even if it is due at once.
func TestTimerSetsTimer(t *testing.T) {
	l := manualLoop(t)
	n := 0
	var again func()
	again = func() { n++; l.AfterFunc(0, again) }
	l.AfterFunc(0, again)
	for turn := 1; turn <= 3; turn++ {
		advance(l, time.Duration(turn))
		if n != turn {
			t.Fatalf("%d calls after %d turns", n, turn)
		}
	}
}

func TestTimerStopReset(t *testing.T) {
	l := manualLoop(t)
	n := 0
	timer := l.AfterFunc(time.Second, func() { n++ })
	if !timer.Stop() || timer.Stop() {
		t.Error("Stop of a set timer says true, of a stopped one false")
	}
	advance(l, 2*time.Second)
	timer.Reset(time.Second) // due at 3 s
	timer.Reset(5 * time.Second)
	advance(l, 6*time.Second)
	if n != 0 {
		t.Fatal("a timer that was moved back fired at its old time")
	}
	timer.Reset(2 * time.Second)
	timer.Reset(500 * time.Millisecond)
	advance(l, 6500*time.Millisecond)
	if n != 1 || timer.Stop() {
		t.Fatalf("fired %d times, want once", n)
	}
}

// TestTimersAgainstNaive compares the heap with a list under random operations.
func TestTimersAgainstNaive(t *testing.T) {
	for seed := range uint64(20) {
		l := manualLoop(t)
		rng := rand.New(rand.NewPCG(seed, 7))
		type twin struct {
			timer *Timer
			due   time.Duration
			order int
			set   bool
		}
		var twins []*twin
		var got, want []int
		order := 0
		now := time.Duration(0)
		for range 3000 {
			d := time.Duration(rng.IntN(50)) * time.Millisecond
			switch k := rng.IntN(10); {
			case k < 3 || len(twins) == 0:
				w := &twin{due: now + d, order: order, set: true}
				id := len(twins)
				w.timer = l.AfterFunc(d, func() { got = append(got, id) })
				twins = append(twins, w)
				order++
			case k < 6:
				w := twins[rng.IntN(len(twins))]
				w.timer.Reset(d)
				w.due, w.order, w.set = now+d, order, true
				order++
			case k < 7:
				w := twins[rng.IntN(len(twins))]
				if w.timer.Stop() != w.set {
					t.Fatalf("seed %d: Stop says %v", seed, !w.set)
				}
				w.set = false
			default:
				now += time.Duration(rng.IntN(20)) * time.Millisecond
				advance(l, now)
				var due []int
				for id, w := range twins {
					if w.set && w.due <= now {
						due = append(due, id)
						w.set = false
					}
				}
				slices.SortFunc(due, func(a, b int) int {
					if x, y := twins[a], twins[b]; x.due != y.due {
						return int(x.due - y.due)
					} else {
						return x.order - y.order
					}
				})
				want = append(want, due...)
				if !slices.Equal(got, want) {
					t.Fatalf("seed %d: fired %v, want %v", seed, got[max(0, len(got)-10):], want[max(0, len(want)-10):])
				}
			}
		}
	}
}

// TestTimerAccuracy: never early, and late by no more than a busy machine explains.
func TestTimerAccuracy(t *testing.T) {
	l := startLoop(t, Config{})
	type firing struct{ want, got time.Duration }
	fired := make(chan firing, 10)
	on(t, l, func() {
		begun := l.Now()
		for _, d := range []time.Duration{0, time.Millisecond, 2500 * time.Microsecond, 20 * time.Millisecond, 60 * time.Millisecond} {
			l.AfterFunc(d, func() { fired <- firing{d, l.Now().Sub(begun)} })
		}
	})
	for range 5 {
		f := await(t, "a timer", fired)
		if f.got < f.want || f.got > f.want+500*time.Millisecond {
			t.Errorf("a timer of %v fired after %v", f.want, f.got)
		}
	}
	if s := l.Stats(); s.Turns > 200 {
		t.Errorf("%d turns for five timers: the loop spins", s.Turns)
	}
}
