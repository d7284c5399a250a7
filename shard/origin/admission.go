package origin

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"ringside/shard"
)

// class tells what may wait for what.
type class uint8

const (
	// request waits its turn, is refused when the queue is full or the shard is down, and gives up after the queue's time limit.
	request class = iota
	// internal goes first, waits as long as its context lets it, and passes while the shard is down: it is how we find out.
	internal
	// spare is work that nobody waits for: a refresh ahead of time, a comparison. It never waits, and has at most half of the sessions, those that requests leave.
	spare
)

// admission is the bounded queue in front of one shard's sessions (promise P6). It is first in, first out. The queue of pgxpool behind it
// has neither bound nor deadline; since no more requests are admitted than there are sessions, it stays empty.
//
// A request that would have to wait longer than it may is refused when it comes, by the pace at which the queue moves: it costs nothing then, and who sent it
// hears of it at once.
//
// Invariants, under mu: inUse counts the admitted that have not left; a waiter is in the list or has been told, never both; nobody of
// class request waits while down is set.
type admission struct {
	shard    string
	maxQueue int
	maxWait  time.Duration

	errFull error       // what is said to who finds the queue full
	crowded atomic.Bool // the queue is full, for who does not want to take mu
	early   atomic.Uint64
	earlyAt atomic.Int64 // when that was last, in Unix nanoseconds

	mu       sync.Mutex
	pace     pace
	capacity int
	inUse    int
	queue    list.List // of *waiter, the next one in front
	down     error     // not nil: requests are refused with it at once
	served   uint64
	full     uint64 // shed: the queue was full
	late     uint64 // shed: waited too long
	lastShed time.Time

	spared, spareShed uint64 // of class spare: admitted, not counted in served; shed
}

type waiter struct {
	class class
	since time.Time
	told  chan error // of capacity 1, told once: nil means admitted
}

func newAdmission(name string, cfg Config, capacity int) *admission {
	return &admission{
		shard: name, maxQueue: cfg.QueueLimit, maxWait: cfg.QueueWait, capacity: capacity,
		errFull: fmt.Errorf("shard %s: the queue is full: no more requests are taken than can be served within %v: %w", name, cfg.QueueWait, shard.ErrOverloaded),
	}
}

// bound is how many requests may wait: as many as are admitted, at the pace of late, within the time that one may wait. However slow that is, there is always
// somebody for each session that is given back.
func bound(every, maxWait time.Duration, capacity, maxQueue int) int {
	if every <= 0 {
		return maxQueue
	}
	return min(max(int(maxWait/every), capacity+2), maxQueue)
}

// isFull reports whether no more requests may wait. a.mu is held.
func (a *admission) isFull() bool {
	most := a.maxQueue
	if a.pace.overload.goesOn(time.Now()) {
		most = bound(a.pace.every, a.maxWait, a.capacity, a.maxQueue)
	}
	return a.queue.Len() >= most
}

// changed is called with a.mu held when the queue or its pace is another one.
func (a *admission) changed() { a.crowded.Store(a.queue.Len() > 0 && a.isFull()) }

// refuses returns the error of a request that would find the queue full, and counts it; nil: it may come. It takes no lock: no more is known of the queue than
// how it was a moment ago.
func (a *admission) refuses() error {
	if !a.crowded.Load() {
		return nil
	}
	a.early.Add(1)
	a.earlyAt.Store(time.Now().UnixNano())
	return a.errFull
}

// pace is how fast the queue moves: how long it takes, on the average of late, until one of those who wait is admitted.
type pace struct {
	every    time.Duration // 0: not known
	since    time.Time     // when the one before was admitted, or the queue was empty
	overload overload
}

// paceOf is of how many admissions, about, the average is.
const paceOf = 4

// began is told when somebody comes to wait where nobody did.
func (p *pace) began(now time.Time) { p.since = now }

// moved is told when one is admitted who has waited, and for how long.
func (p *pace) moved(now time.Time, waited, longest time.Duration) {
	took := min(now.Sub(p.since), longest)
	if p.every == 0 {
		p.every = took
	}
	p.every += (took - p.every) / paceOf
	p.since = now
	p.overload.waited(now, waited, longest)
}

// stood is told when one has waited in vain.
func (p *pace) stood(now time.Time, longest time.Duration) {
	p.every = max(p.every, min(now.Sub(p.since), longest))
	p.overload.late(now, longest)
}

// overload tells a queue that does not keep up from one that merely grows for a moment: somebody has waited in vain, and since then others have always waited for
// long. Only then is anybody refused for what is expected, since a guess that is wrong costs a request that could have been served.
type overload struct{ until time.Time }

// overloadLasts is for how many times the longest wait it is believed to go on.
const overloadLasts = 4

func (o *overload) late(now time.Time, longest time.Duration) {
	o.until = now.Add(overloadLasts * longest)
}

func (o *overload) waited(now time.Time, took, longest time.Duration) {
	if o.goesOn(now) && took >= longest/2 {
		o.late(now, longest)
	}
}

func (o *overload) goesOn(now time.Time) bool { return now.Before(o.until) }

// enter returns nil when the caller may use a session; it must leave afterwards. Otherwise nothing was counted, and the error is
// shard.ErrOverloaded, the reason why the shard is down, or the context's.
func (a *admission) enter(ctx context.Context, c class) error {
	a.mu.Lock()
	switch {
	case c != internal && a.down != nil:
		defer a.mu.Unlock()
		return a.down
	case c == spare:
		defer a.mu.Unlock()
		if !mayHaveSpare(a.inUse, a.capacity, a.queue.Len()) {
			return a.shedSpare()
		}
		a.inUse++
		a.spared++
		return nil
	case a.inUse < a.capacity && (c == internal || a.queue.Len() == 0):
		a.inUse++
		a.served++
		a.mu.Unlock()
		return nil
	case c == request && a.isFull():
		a.full++
		a.lastShed = time.Now()
		a.mu.Unlock()
		return a.errFull
	}
	return a.wait(ctx, &waiter{class: c, since: time.Now()}, c == internal)
}

// reenter is enter for a caller that was admitted and has withdrawn, for want of a session: it came at that time, and goes in front.
func (a *admission) reenter(ctx context.Context, c class, came time.Time) error {
	a.mu.Lock()
	switch {
	case c != internal && a.down != nil:
		defer a.mu.Unlock()
		return a.down
	case c == spare:
		defer a.mu.Unlock()
		return a.shedSpare()
	case c == request && time.Since(came) >= a.maxWait:
		defer a.mu.Unlock()
		return a.tooLate()
	case a.inUse < a.capacity:
		a.inUse++
		a.served++
		a.mu.Unlock()
		return nil
	}
	return a.wait(ctx, &waiter{class: c, since: came}, true)
}

// mayHaveSpare decides whether work that nobody waits for may have a session.
func mayHaveSpare(inUse, capacity, waiting int) bool { return waiting == 0 && inUse < (capacity+1)/2 }

// refuseSpare counts work that was refused before it came to the queue, and says why.
func (a *admission) refuseSpare() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.shedSpare()
}

func (a *admission) shedSpare() error {
	a.spareShed++
	return fmt.Errorf("shard %s: its sessions are for requests now: %w", a.shard, shard.ErrOverloaded)
}

// wait queues w. a.mu is held, and let go.
func (a *admission) wait(ctx context.Context, w *waiter, inFront bool) error {
	w.told = make(chan error, 1)
	var place *list.Element
	if a.queue.Len() == 0 {
		a.pace.began(time.Now())
	}
	if inFront {
		place = a.queue.PushFront(w)
	} else {
		place = a.queue.PushBack(w)
	}
	a.changed()
	a.mu.Unlock()

	var expired <-chan time.Time
	if w.class == request {
		timer := time.NewTimer(a.maxWait - time.Since(w.since))
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case err := <-w.told:
		return err
	case <-expired:
		return a.giveUp(place, w, nil)
	case <-ctx.Done():
		return a.giveUp(place, w, ctx.Err())
	}
}

// giveUp takes a waiter out of the queue. It may have been told in the same moment: then an admission stands if the caller only
// ran out of patience, and is handed back if the caller is gone.
func (a *admission) giveUp(place *list.Element, w *waiter, gone error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case err := <-w.told:
		if err == nil && gone != nil {
			a.inUse--
			a.admitNext()
			return gone
		}
		return err
	default:
	}
	a.queue.Remove(place)
	defer a.changed()
	if gone != nil {
		return gone
	}
	a.pace.stood(time.Now(), a.maxWait)
	return a.tooLate()
}

func (a *admission) tooLate() error {
	a.late++
	a.lastShed = time.Now()
	return fmt.Errorf("shard %s: waited %v for a connection: %w", a.shard, a.maxWait, shard.ErrOverloaded)
}

// leave ends what enter began.
func (a *admission) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inUse--
	a.admitNext()
}

// withdraw takes back what enter began: there was no session.
func (a *admission) withdraw(c class) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inUse--
	if c == spare {
		a.spared--
	} else {
		a.served--
	}
	a.admitNext()
}

// resize changes how many may be in use. Those above it finish.
func (a *admission) resize(capacity int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.capacity = capacity
	a.admitNext()
	a.changed()
}

// shedFull and shedLate count requests that were refused before they came to the queue: they waited for a statement to share.
func (a *admission) shedFull() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.full++
	a.lastShed = time.Now()
}

func (a *admission) shedLate(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n > 0 {
		a.late += uint64(n)
		a.lastShed = time.Now()
	}
}

// refusing returns the error that requests are refused with at once; nil when they are not.
func (a *admission) refusing() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.down
}

// refuse makes every request, waiting or to come, fail at once with err, until admit.
func (a *admission) refuse(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down = err
	for e := a.queue.Front(); e != nil; {
		next := e.Next()
		if w := e.Value.(*waiter); w.class == request {
			a.queue.Remove(e)
			w.told <- err
		}
		e = next
	}
	a.changed()
}

// admit ends refuse.
func (a *admission) admit() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down = nil
}

func (a *admission) admitNext() {
	for a.inUse < a.capacity && a.queue.Len() > 0 {
		w := a.queue.Remove(a.queue.Front()).(*waiter)
		a.inUse++
		a.served++
		now := time.Now()
		a.pace.moved(now, now.Sub(w.since), a.maxWait)
		w.told <- nil
		a.changed()
	}
}

// admissionStats is a snapshot of an admission.
type admissionStats struct {
	inUse, waiting     int
	oldest             time.Duration
	served, full, late uint64
	spared, spareShed  uint64
	lastShed           time.Time
}

func (a *admission) stats(now time.Time) admissionStats {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := admissionStats{inUse: a.inUse, waiting: a.queue.Len(), served: a.served, full: a.full + a.early.Load(), late: a.late, spared: a.spared, spareShed: a.spareShed, lastShed: a.lastShed}
	if early := time.Unix(0, a.earlyAt.Load()); early.After(s.lastShed) && a.early.Load() > 0 {
		s.lastShed = early
	}
	// The oldest request is the first one behind our own questions, which go in front and are few.
	for e := a.queue.Front(); e != nil; e = e.Next() {
		w := e.Value.(*waiter)
		s.oldest = max(s.oldest, now.Sub(w.since))
		if w.class == request {
			break
		}
	}
	return s
}
