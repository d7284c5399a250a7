package origin

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ringside/shard"
)

// Guards P6: of five times as many requests as can be served all are served that can be, and the others hear of it at once, as soon as it is clear that
// they would wait in vain. When the load ends, so does that.
func TestAQueueThatDoesNotKeepUpRefusesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const service, lasting, warmUp = 100 * time.Millisecond, 20 * time.Second, 2 * time.Second
		a := admissionOf(1, 1000, 500*time.Millisecond)
		var mu sync.Mutex
		var served, atOnce, late int
		var callers sync.WaitGroup
		begun := time.Now()
		for time.Since(begun) < lasting {
			came := time.Now()
			if came.Sub(begun) >= warmUp && a.refuses() != nil {
				mu.Lock()
				atOnce++
				mu.Unlock()
				time.Sleep(service / 5)
				continue
			}
			callers.Go(func() {
				err := a.enter(context.Background(), request)
				waited := time.Since(came)
				if err == nil {
					time.Sleep(service)
					a.leave()
				}
				mu.Lock()
				defer mu.Unlock()
				switch {
				case came.Sub(begun) < warmUp:
				case err == nil:
					served++
				case !errors.Is(err, shard.ErrOverloaded):
					t.Error(err)
				case waited == 0:
					atOnce++
				default:
					late++
				}
			})
			time.Sleep(service / 5)
		}
		callers.Wait()
		if could := int((lasting - warmUp) / service); served < could*95/100 {
			t.Errorf("%d were served of %d that could be", served, could)
		}
		if late > atOnce/10 {
			t.Errorf("%d were refused at once, %d after they had waited", atOnce, late)
		}
		time.Sleep(overloadLasts * 500 * time.Millisecond)
		if err := a.refuses(); err != nil {
			t.Errorf("after the load: %v", err)
		}
		if s := a.stats(time.Now()); s.waiting != 0 || s.inUse != 0 || s.full+s.late == 0 || s.lastShed.IsZero() {
			t.Errorf("%+v", s)
		}
	})
}

// Nobody is refused for what is expected before somebody has waited in vain: the first sessions take long to open, and then the queue moves fast.
func TestAQueueThatOnlyGrowsIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admissionOf(1, 1000, 10*time.Second)
		var callers sync.WaitGroup
		for i := range 200 {
			callers.Go(func() {
				if err := a.enter(context.Background(), request); err != nil {
					t.Errorf("request %d: %v", i, err)
					return
				}
				took := time.Millisecond
				if i < 3 {
					took = 2 * time.Second
				}
				time.Sleep(took)
				a.leave()
			})
			synctest.Wait()
			if err := a.refuses(); err != nil {
				t.Errorf("request %d: %v", i, err)
			}
		}
		callers.Wait()
	})
}

func TestHowManyMayWait(t *testing.T) {
	const most = 1000
	for _, c := range []struct {
		every    time.Duration
		capacity int
		want     int
	}{
		{0, 4, most},                // not known
		{time.Microsecond, 4, most}, // faster than the queue is long
		{10 * time.Millisecond, 4, 50},
		{200 * time.Millisecond, 1, 3}, // somebody for each session
		{200 * time.Millisecond, 8, 10},
		{time.Second, 0, 2},
	} {
		if got := bound(c.every, 500*time.Millisecond, c.capacity, most); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestStatementsOfSlowRowsAreShort(t *testing.T) {
	for _, c := range []struct {
		keyTime time.Duration
		want    int
	}{{0, batchKeys}, {time.Microsecond, batchKeys}, {time.Millisecond, 250}, {100 * time.Millisecond, 2}, {time.Second, 1}} {
		if got := batchOf(c.keyTime, 500*time.Millisecond); got != c.want {
			t.Errorf("%v: %d", c.keyTime, got)
		}
	}
	b := &batcher{}
	for range 20 {
		b.took(time.Second, 10)
	}
	if b.keyTime != 100*time.Millisecond {
		t.Errorf("after a while: %v", b.keyTime)
	}
	for range 20 {
		b.took(time.Millisecond, 1)
	}
	if b.keyTime > 2*time.Millisecond {
		t.Errorf("when it is fast again: %v", b.keyTime)
	}
}
