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
	view     View
	asked    time.Time // zero: it was never asked for all that counts
	withheld *Withheld
}

// Confirm records that a question asked of the shard at the given time was answered with view and the rows that are withheld. The time is that of
// asking, not of the answer: both may have changed right after the shard looked. Older answers never replace newer ones. Safe for concurrent use.
func (c *Confirmation) Confirm(view View, asked time.Time, withheld *Withheld) {
	next := &confirmed{view, asked, withheld}
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

// Learn records a view of which the shard has spoken without saying which rows are withheld: it is no confirmation, and what was confirmed before
// expires when it would have. Safe for concurrent use.
func (c *Confirmation) Learn(view View) {
	for {
		next := &confirmed{view: view}
		old := c.last.Load()
		if old != nil {
			if !old.view.Less(view) {
				return
			}
			next.asked, next.withheld = old.asked, old.withheld
		}
		if c.last.CompareAndSwap(old, next) {
			return
		}
	}
}

// Forget makes the shard count as never heard, for instance after the machine was suspended. Safe for concurrent use.
func (c *Confirmation) Forget() { c.last.Store(nil) }

// View returns the last view heard of and when the shard was last asked for all that counts; the zero View if it was never heard.
func (c *Confirmation) View() (View, time.Time) {
	if l := c.last.Load(); l != nil {
		return l.view, l.asked
	}
	return View{}, time.Time{}
}

// Withheld returns the rows that the shard last withheld, and when it was asked.
func (c *Confirmation) Withheld() (*Withheld, time.Time) {
	if l := c.last.Load(); l != nil {
		return l.withheld, l.asked
	}
	return nil, time.Time{}
}

// Standing is how much a shard's last word is worth.
type Standing uint8

// The standings, the less they are worth the higher: only Current allows the cache to be used without more ado, and from Unheard on nothing does.
const (
	Current Standing = iota // the shard said so recently enough
	Expired                 // it said so too long ago: the view may have changed since
	Unheard                 // it was never heard
	Avoided                 // it withholds the row: a cached copy of it may be older than a write that was acknowledged
)

// Trust returns the view to act by for a row of that cache vnode, and how much it is worth at the time now (promise P3). ttl is view_ttl. Which
// cached copies of the row count follows from the view and the topology of its epoch. Safe for concurrent use; no allocation.
func (c *Confirmation) Trust(now time.Time, ttl time.Duration, vnode uint16) (View, Standing) {
	l := c.last.Load()
	switch {
	case l == nil:
		return View{}, Unheard
	case l.asked.IsZero():
		return l.view, Unheard
	case l.withheld.Has(vnode):
		return l.view, Avoided
	case now.Sub(l.asked) > ttl:
		return l.view, Expired
	}
	return l.view, Current
}
