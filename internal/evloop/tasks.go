package evloop

import (
	"sync"
	"sync/atomic"
)

// taskQueue hands functions from any goroutine to the loop.
//
// A submitter wakes the loop only when it sleeps and nobody has woken it since. The loop goes to sleep under the same lock under
// which it has seen that there is nothing, so no task is left behind.
type taskQueue struct {
	wake func() // makes the poller return; safe on any goroutine

	wakers sync.WaitGroup // submitters inside wake; the descriptor must outlive them

	// sleeping is set under mu and cleared without: a submitter that still sees it costs one wake-up in vain.
	sleeping atomic.Bool

	mu      sync.Mutex // guards the following
	queued  []func()
	woken   bool   // somebody has woken the loop since it went to sleep
	ending  bool   // set by stop: the loop is to end
	closed  bool   // nothing is taken any more
	wakeups uint64 // how often wake was called

	spare []func() // the loop's
}

func (q *taskQueue) submit(fn func()) bool {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return false
	}
	q.queued = append(q.queued, fn)
	q.unlockAndWake()
	return true
}

// stop has the loop end. Tasks are still taken until the loop itself calls close.
func (q *taskQueue) stop() {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return
	}
	q.ending = true
	q.unlockAndWake()
}

// unlockAndWake wakes the loop if it sleeps. The system call is made after unlocking, else the woken loop would at once wait for
// the lock.
func (q *taskQueue) unlockAndWake() {
	wake := !q.woken && q.sleeping.Load()
	if wake {
		q.woken = true
		q.wakeups++
		q.wakers.Add(1)
	}
	q.mu.Unlock()
	if wake {
		q.wake()
		q.wakers.Done()
	}
}

// The rest is called by the loop only.

// sleep says whether the loop may block; if so, submitters wake it from now on.
func (q *taskQueue) sleep() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queued) > 0 || q.ending {
		return false
	}
	q.woken = false
	q.sleeping.Store(true)
	return true
}

func (q *taskQueue) awake() { q.sleeping.Store(false) }

// run runs the tasks that are queued now, not those that they submit. It returns true when the loop is to end.
func (q *taskQueue) run() (ending bool) {
	q.mu.Lock()
	ending = q.ending
	list := q.queued
	if len(list) > 0 {
		q.queued = q.spare
		q.spare = nil
	}
	q.mu.Unlock()
	for i, fn := range list {
		list[i] = nil
		fn()
	}
	if len(list) > 0 && cap(list) <= maxSpareTasks {
		q.spare = list[:0]
	}
	return ending
}

// close refuses tasks from now on and runs the last ones.
func (q *taskQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.run()
}

// waitWakers returns when nobody uses the wake-up descriptor any more. No new user can come, because the queue is closed.
func (q *taskQueue) waitWakers() { q.wakers.Wait() }

func (q *taskQueue) wakeupCount() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.wakeups
}

// maxSpareTasks is the length of the largest task list that is kept for the next turn.
const maxSpareTasks = 1024
