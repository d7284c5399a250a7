package evloop

import "time"

// Timer runs a function on its loop once, after a duration. It is made by Loop.AfterFunc.
type Timer struct {
	heap *timerHeap
	fn   func()
	pos  int // in the heap, or -1

	when int64  // due, on the loop's clock
	seq  uint64 // of the last AfterFunc or Reset, orders equal times

	// What the heap is ordered by: when and seq, or earlier ones, which a Reset to a later time has left in place.
	key    int64
	keySeq uint64
}

// AfterFunc has fn run on the loop when d has passed since the present turn began; never in this turn, and up to a millisecond
// late plus the length of a turn. Timers that are due at the same time run in the order in which they were set.
func (l *Loop) AfterFunc(d time.Duration, fn func()) *Timer {
	t := &Timer{heap: &l.timers, fn: fn, pos: -1}
	t.Reset(d)
	return t
}

// Stop prevents the timer from firing. It says whether the timer was going to.
func (t *Timer) Stop() bool {
	if t.pos < 0 {
		return false
	}
	t.heap.remove(t.pos)
	return true
}

// Reset has the timer fire once, d from the beginning of the present turn, whether it had fired or been stopped or not. Moving
// it to a later time, as an idle timeout does with every request, costs next to nothing.
func (t *Timer) Reset(d time.Duration) {
	h := t.heap
	if h.loop.stopping {
		return // nothing fires any more
	}
	h.seq++
	t.seq = h.seq
	t.when = h.loop.clock() + int64(max(d, 0))
	switch {
	case t.pos < 0:
		t.key, t.keySeq = t.when, t.seq
		h.push(t)
	case t.when < t.key:
		t.key, t.keySeq = t.when, t.seq
		h.up(t.pos)
	default:
		// Left where it is: when its old time comes it is moved to the new one.
	}
}

// timerHeap is a 4-ary heap ordered by (key, keySeq): shallower than a binary one, and its children share a cache line.
type timerHeap struct {
	loop *Loop
	list []*Timer
	seq  uint64
}

const timerArity = 4

// next returns the time at which fire should be called.
func (h *timerHeap) next() (int64, bool) {
	if len(h.list) == 0 {
		return 0, false
	}
	return h.list[0].key, true
}

// fire runs what is due at now and was set before this call.
func (h *timerHeap) fire(now int64) {
	limit := h.seq
	for len(h.list) > 0 {
		t := h.list[0]
		switch {
		case t.key > now:
			return
		case t.keySeq != t.seq:
			t.key, t.keySeq = t.when, t.seq
			h.down(0)
		case t.seq > limit:
			return // set by one of those that just ran; all that were set before are earlier in the order
		default:
			h.remove(0)
			t.fn()
		}
	}
}

func (h *timerHeap) clear() {
	for _, t := range h.list {
		t.pos = -1
	}
	h.list = nil
}

func (h *timerHeap) push(t *Timer) {
	t.pos = len(h.list)
	h.list = append(h.list, t)
	h.up(t.pos)
}

func (h *timerHeap) remove(i int) {
	t := h.list[i]
	last := len(h.list) - 1
	moved := h.list[last]
	h.list[last] = nil
	h.list = h.list[:last]
	t.pos = -1
	if moved != t {
		h.list[i] = moved
		moved.pos = i
		h.down(i)
		h.up(moved.pos)
	}
}

func (t *Timer) before(u *Timer) bool {
	return t.key < u.key || t.key == u.key && t.keySeq < u.keySeq
}

func (h *timerHeap) up(i int) {
	t := h.list[i]
	for i > 0 {
		parent := (i - 1) / timerArity
		if !t.before(h.list[parent]) {
			break
		}
		h.list[i] = h.list[parent]
		h.list[i].pos = i
		i = parent
	}
	h.list[i] = t
	t.pos = i
}

func (h *timerHeap) down(i int) {
	t := h.list[i]
	for {
		first := i*timerArity + 1
		if first >= len(h.list) {
			break
		}
		least := first
		for j := first + 1; j < min(first+timerArity, len(h.list)); j++ {
			if h.list[j].before(h.list[least]) {
				least = j
			}
		}
		if !h.list[least].before(t) {
			break
		}
		h.list[i] = h.list[least]
		h.list[i].pos = i
		i = least
	}
	h.list[i] = t
	t.pos = i
}
