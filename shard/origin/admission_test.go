package origin

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"ringside/shard"
)

func admissionOf(capacity, queue int, wait time.Duration) *admission {
	return newAdmission("s1", Config{QueueLimit: queue, QueueWait: wait}, capacity)
}

// Guards P6: first in, first out; what is over the bound is refused before it waits.
func TestAdmissionIsFIFOAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admissionOf(1, 3, time.Hour)
		if err := a.enter(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		order := make(chan int, 3)
		for i := range 3 {
			go func() {
				if err := a.enter(context.Background(), request); err != nil {
					t.Error(err)
				}
				order <- i
				a.leave()
			}()
			synctest.Wait()
		}
		if err := a.enter(t.Context(), request); !errors.Is(err, shard.ErrOverloaded) {
			t.Errorf("a full queue: %v", err)
		}
		a.leave()
		for want := range 3 {
			if got := <-order; got != want {
				t.Errorf("request %d was served in place %d", got, want)
			}
		}
		synctest.Wait()
		s := a.stats(time.Now())
		if s.lastShed.IsZero() {
			t.Error("when a request was shed is not known")
		}
		if s.lastShed = (time.Time{}); s != (admissionStats{served: 4, full: 1}) {
			t.Errorf("%+v", s)
		}
	})
}

func TestAdmissionGivesUpInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admissionOf(1, 10, 500*time.Millisecond)
		if err := a.enter(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		err := a.enter(t.Context(), request)
		if waited := time.Since(start); !errors.Is(err, shard.ErrOverloaded) || waited != 500*time.Millisecond {
			t.Errorf("%v after %v", err, waited)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := a.enter(ctx, request); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the caller went away: %v", err)
		}
		if s := a.stats(time.Now()); s.waiting != 0 || s.late != 1 || s.inUse != 1 {
			t.Errorf("%+v", s)
		}
	})
}

func TestAdmissionLetsOurOwnQuestionsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admissionOf(1, 1, time.Hour)
		if err := a.enter(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		order := make(chan class, 2)
		for _, c := range []class{request, internal} { // the second is over the bound, which is not for it
			go func() {
				if err := a.enter(context.Background(), c); err != nil {
					t.Error(err)
				}
				order <- c
				a.leave()
			}()
			synctest.Wait()
		}
		a.leave()
		if first := <-order; first != internal {
			t.Error("a request went before the poller")
		}
		<-order
	})
}

func TestAdmissionRefusesWhileDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admissionOf(1, 10, time.Hour)
		if err := a.enter(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		down := errors.New("down")
		told := make(chan error, 2)
		go func() { told <- a.enter(context.Background(), request) }()
		synctest.Wait()
		a.refuse(down)
		if err := <-told; err != down {
			t.Errorf("a waiting request was told %v", err)
		}
		a.leave()
		if err := a.enter(t.Context(), request); err != down {
			t.Errorf("a new request was told %v", err)
		}
		if err := a.enter(t.Context(), internal); err != nil {
			t.Errorf("the poller was told %v", err)
		}
		a.admit()
		go func() { told <- a.enter(context.Background(), request) }()
		synctest.Wait()
		a.leave()
		if err := <-told; err != nil {
			t.Errorf("after recovery: %v", err)
		}
	})
}

func TestAdmissionResizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admissionOf(2, 10, time.Hour)
		admitted := make(chan struct{}, 10)
		for range 5 {
			go func() {
				if err := a.enter(context.Background(), request); err != nil {
					t.Error(err)
				}
				admitted <- struct{}{}
			}()
		}
		count := func(want int) {
			t.Helper()
			synctest.Wait()
			if got := len(admitted); got != want {
				t.Errorf("%d are admitted, want %d", got, want)
			}
		}
		count(2)
		a.resize(4)
		count(4)
		a.resize(1)
		a.leave()
		a.leave()
		a.leave()
		count(4)
		a.leave()
		count(5)
		a.leave()
	})
}

// A waiter that is admitted in the very moment its caller goes away hands the session on.
func TestAdmissionDoesNotLoseASessionToALeavingCaller(t *testing.T) {
	a := admissionOf(1, 100, time.Hour)
	for range 2000 {
		if err := a.enter(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			if a.enter(ctx, request) == nil {
				a.leave()
			}
			close(done)
		}()
		go cancel()
		a.leave()
		<-done
		cancel()
	}
	if s := a.stats(time.Now()); s.inUse != 0 || s.waiting != 0 {
		t.Errorf("%+v", s)
	}
}
