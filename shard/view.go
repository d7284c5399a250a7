package shard

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Phase is how far a change of the ring has come on one shard (section "Planned changes" of docs/ARCHITECTURE.md).
type Phase uint8

// The phases, in the order in which a change passes through them. A shard that no change is under way on is in Done.
const (
	// Preparing: writers put the old and the new owner's copy out of reach, readers still use the old one.
	Preparing Phase = 1
	// Active: readers use the new owner, writers still clean both.
	Active Phase = 2
	// Done: only the new owner counts.
	Done Phase = 3
)

func (p Phase) String() string {
	switch p {
	case Preparing:
		return "preparing"
	case Active:
		return "active"
	case Done:
		return "done"
	}
	return fmt.Sprintf("phase(%d)", uint8(p))
}

// View is what governs a shard's rows: the topology's epoch and how far its change has come on that shard.
// Views are ordered by Epoch and Phase, and a shard's view only rises.
type View struct {
	Epoch uint64
	Phase Phase
	// From is the epoch that the shard was at, in phase Done, before it came to Epoch. While the phase is not Done, rows whose present copy
	// counts from a later epoch on are changing hands. It is the shard's to say; in a View made by anybody else it is 0 and means nothing.
	From uint64
}

// Same reports whether v and w are the same epoch and phase.
func (v View) Same(w View) bool { return v.Epoch == w.Epoch && v.Phase == w.Phase }

// Less reports whether v is older than w.
func (v View) Less(w View) bool {
	if v.Epoch != w.Epoch {
		return v.Epoch < w.Epoch
	}
	return v.Phase < w.Phase
}

func (v View) String() string { return fmt.Sprintf("%d/%s", v.Epoch, v.Phase) }

// Confirmation is the last word of one shard about its view. It is written by whoever heard from the shard and read by every
// event loop on every hit, so reading is one atomic load. The zero value confirms nothing.
type Confirmation struct{ last atomic.Pointer[confirmed] }

type confirmed struct {
	view  View
	asked time.Time
}

// Confirm records that a question asked of the shard at the given time was answered with view. The time is that of asking, not of
// the answer: the view may have changed right after the shard looked. Older answers never replace newer ones. Safe for concurrent use.
func (c *Confirmation) Confirm(view View, asked time.Time) {
	next := &confirmed{view, asked}
	for {
		old := c.last.Load()
		if old != nil && (view.Less(old.view) || view.Same(old.view) && !asked.After(old.asked)) {
			return
		}
		if c.last.CompareAndSwap(old, next) {
			return
		}
	}
}

// Forget makes the shard count as never heard, for instance after the machine was suspended. Safe for concurrent use.
func (c *Confirmation) Forget() { c.last.Store(nil) }

// View returns the last confirmed view and when it was asked for; the zero View if the shard was never heard.
func (c *Confirmation) View() (View, time.Time) {
	if l := c.last.Load(); l != nil {
		return l.view, l.asked
	}
	return View{}, time.Time{}
}

// Standing is how much a shard's last word is worth.
type Standing uint8

// The standings. Only Current allows the cache to be used without more ado.
const (
	Current Standing = iota // the shard said so recently enough
	Expired                 // it said so too long ago: the view may have changed since
	Unheard                 // it was never heard
)

// Trust returns the view to act by, and how much it is worth at the time now (promise P3). ttl is view_ttl. Which cached copies of a row count
// follows from the view and the topology of its epoch. Safe for concurrent use; no allocation.
func (c *Confirmation) Trust(now time.Time, ttl time.Duration) (View, Standing) {
	l := c.last.Load()
	switch {
	case l == nil:
		return View{}, Unheard
	case now.Sub(l.asked) > ttl:
		return l.view, Expired
	}
	return l.view, Current
}
