package loadtest

import (
	"sync"
	"sync/atomic"
	"time"
)

// ledger judges what is read: never an older value than one whose write was acknowledged before the read was sent.
//
// Every write gives its key a higher version than any before, and there is one write of a key at a time, so that versions become visible in their
// order. A key whose write may take effect late (its outcome is unknown) is not written again: what may be read of it would not be certain.
type ledger struct {
	names Keys
	keys  []keyState // by number - 1
	made  atomic.Int64
	stale atomic.Uint64
	back  atomic.Uint64
	lost  atomic.Uint64
	bars  atomic.Uint64
	read  atomic.Uint64

	mu       sync.Mutex // guards examples
	examples []Violation
}

type keyState struct {
	acked, seen atomic.Int64 // the highest versions of which a write was acknowledged, and that were read
	writer      atomic.Int32
}

// The states of a key's writer.
const (
	writable = iota
	writing
	barred
)

// maxExamples bounds how many violations are described; all are counted.
const maxExamples = 20

// newLedger begins with versions above those of earlier runs, which follow the clock.
func newLedger(names Keys, now time.Time) *ledger {
	l := &ledger{names: names, keys: make([]keyState, names.Count)}
	l.made.Store(now.UnixMilli() << 20) // up to the year 2248, with a million versions each millisecond
	return l
}

// floor is what was known when a read was sent.
type floor struct{ acked, seen int64 }

func (l *ledger) beginRead(key uint32) floor {
	k := &l.keys[key-1]
	return floor{k.acked.Load(), k.seen.Load()}
}

// Violation is a read that returned an older value than it may, or none.
type Violation struct {
	Key   string        `json:"key"`
	Found bool          `json:"found"`
	Read  int64         `json:"read"`  // version
	Acked int64         `json:"acked"` // version whose write had been acknowledged before the read was sent
	At    time.Duration `json:"at_ns"` // when the read was due
	From  string        `json:"from"`  // who answered
}

// verdict of a read.
type verdict int

const (
	fine  verdict = iota
	back          // older than what another read has shown already, but no acknowledged write is hidden
	lost          // nothing, where a write was acknowledged
	stale         // older than an acknowledged write
)

// judge is the rule itself. version is 0 for a value that no run has written.
func judge(f floor, version int64, found bool) verdict {
	switch {
	case !found && f.acked > 0:
		return lost
	case version < f.acked:
		return stale
	case version < f.seen && found:
		return back
	}
	return fine
}

// endRead judges what was read of q's key. from is who answered.
func (l *ledger) endRead(q request, version int64, found bool, from string) {
	l.read.Add(1)
	raise(&l.keys[q.key-1].seen, version)
	switch judge(q.floor, version, found) {
	case fine:
		return
	case back:
		l.back.Add(1)
		return
	case lost:
		l.lost.Add(1)
	case stale:
		l.stale.Add(1)
	}
	v := Violation{Key: l.names.Name(q.key), Found: found, Read: version, Acked: q.floor.acked, At: q.due, From: from}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.examples) < maxExamples {
		l.examples = append(l.examples, v)
	}
}

// beginWrite returns the version to write; false if the key may not be written now.
func (l *ledger) beginWrite(key uint32) (version int64, ok bool) {
	if !l.keys[key-1].writer.CompareAndSwap(writable, writing) {
		return 0, false
	}
	return l.made.Add(1), true
}

// endWrite says how a write ended. One that was refused may have taken effect, as far as we know.
func (l *ledger) endWrite(key uint32, version int64, acked bool) {
	k := &l.keys[key-1]
	if !acked {
		k.writer.Store(barred)
		l.bars.Add(1)
		return
	}
	raise(&k.acked, version)
	k.writer.Store(writable)
}

// unsent says that a write was never sent.
func (l *ledger) unsent(key uint32) { l.keys[key-1].writer.Store(writable) }

func raise(n *atomic.Int64, to int64) {
	for {
		old := n.Load()
		if old >= to || n.CompareAndSwap(old, to) {
			return
		}
	}
}
