package evloop

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestSubmitOrder (E7): tasks of one goroutine run in order, and all that were taken run.
func TestSubmitOrder(t *testing.T) {
	l := startLoop(t, Config{})
	const goroutines, each = 8, 2000
	var last [goroutines]int // the loop's
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := 1; i <= each; i++ {
				l.Submit(func() {
					if last[g] != i-1 {
						t.Errorf("task %d of goroutine %d ran after %d", i, g, last[g])
					}
					last[g] = i
				})
			}
		})
	}
	wg.Wait()
	on(t, l, func() {
		for g, n := range last {
			if n != each {
				t.Errorf("%d of %d tasks of goroutine %d have run", n, each, g)
			}
		}
	})
}

// TestOneWakeup: tasks that are submitted while the loop is busy, or one after another while it has not come round, cost at most
// one wake-up.
func TestOneWakeup(t *testing.T) {
	l := startLoop(t, Config{})
	on(t, l, func() {})
	before := l.Stats().Wakeups
	hold := make(chan bool)
	started := make(chan bool)
	l.Submit(func() { close(started); <-hold })
	await(t, "the task", started)
	for range 1000 {
		l.Submit(func() {})
	}
	done := make(chan bool)
	l.Submit(func() { close(done) })
	close(hold)
	await(t, "the last", done)
	if n := l.Stats().Wakeups - before; n > 1 {
		t.Errorf("%d wake-ups", n)
	}
}

// TestTaskThatResubmits (E7): it runs once a turn, and others are served meanwhile.
func TestTaskThatResubmits(t *testing.T) {
	l := startLoop(t, Config{})
	addr := serve(t, l, echo)
	var runs atomic.Int64
	var stop atomic.Bool
	var again func()
	again = func() {
		if runs.Add(1); !stop.Load() {
			l.Submit(again)
		}
	}
	l.Submit(again)
	c := dial(t, addr)
	for range 100 {
		send(t, c, "x")
		expect(t, c, "x")
	}
	on(t, l, func() {})
	stop.Store(true)
	if runs.Load() < 2 {
		t.Error("the task did not run again")
	}
	if turns := int64(l.Stats().Turns); runs.Load() > turns+1 {
		t.Errorf("%d runs in %d turns", runs.Load(), turns)
	}
}

// TestSubmitWhileStopping (E7): true means that it runs, false that it does not, whenever Stop comes.
func TestSubmitWhileStopping(t *testing.T) {
	for range 50 {
		l, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- l.Run() }()
		var ran atomic.Int64
		var took int64
		var wg sync.WaitGroup
		wg.Go(func() {
			for l.Submit(func() { ran.Add(1) }) {
				took++
			}
		})
		time.Sleep(time.Millisecond)
		l.Stop()
		wg.Wait()
		if err := await(t, "Run", ended); err != nil && !errors.Is(err, ErrLoopStopped) { // that is: before Run
			t.Fatal(err)
		}
		if ran.Load() != took {
			t.Fatalf("%d tasks were taken, %d ran", took, ran.Load())
		}
	}
}

// TestYield: on one processor, a goroutine that is given something to do runs within a few turns of a loop that is never idle.
func TestYield(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	l := startLoop(t, Config{})
	var ran atomic.Bool
	turns := 0
	done := make(chan int, 1)
	var again func()
	again = func() {
		if turns++; ran.Load() || turns > 100_000 {
			done <- turns
			return
		}
		l.Submit(again)
	}
	l.Submit(func() {
		go ran.Store(true)
		l.Yield()
		again()
	})
	if n := await(t, "the goroutine", done); n > 10 {
		t.Errorf("it ran after %d turns", n)
	}
}

// TestIdleLoopSleeps: a loop with nothing to do takes no turns.
func TestIdleLoopSleeps(t *testing.T) {
	l := startLoop(t, Config{})
	c := dial(t, serve(t, l, echo))
	send(t, c, "x")
	expect(t, c, "x")
	time.Sleep(10 * time.Millisecond)
	before := l.Stats().Turns
	time.Sleep(50 * time.Millisecond)
	if n := l.Stats().Turns - before; n > 2 {
		t.Errorf("%d turns in 50 ms of idleness", n)
	}
}
