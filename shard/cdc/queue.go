package cdc

import (
	"slices"

	"ringside/shard/keyspace"
)

// queue holds what was read and not yet handed out, in the order of commits. It is pure, and decides three things: what may be handed out now (I2),
// up to where the log may be acknowledged (I1), and when to stop reading (P6).
//
// A transaction that is not visible yet holds up nobody: those behind it are handed out before it, which is safe since to delete an entry is
// always safe. Only the acknowledgement waits.
type queue struct {
	entries []entry
	held    int // keys and entries in it: what it costs
	acked   LSN
}

type entry struct {
	item
	done bool
}

// batch is what may be handed out now.
type batch struct {
	keys    []Key
	flush   []*keyspace.Keyspace
	beat    uint64 // the newest heartbeat among it
	blocked int    // transactions, or pieces of them, that were passed over because they are not visible

	from, to int   // the entries it was taken from
	skipped  []int // those between them that are not part of it, ascending
}

// add puts an item at the end.
func (q *queue) add(it item) {
	if last := len(q.entries) - 1; !it.gated && it.beat == 0 && last >= 0 && q.entries[last].done {
		q.entries[last].lsn = max(q.entries[last].lsn, it.lsn)
		return
	}
	q.entries = append(q.entries, entry{it, !it.gated && it.beat == 0})
	q.held += 1 + len(it.keys)
	q.trim()
}

// gated reports whether a snapshot is needed to hand anything out.
func (q *queue) gated() bool {
	return slices.ContainsFunc(q.entries, func(e entry) bool { return e.gated && !e.done })
}

// next takes entries from index from on until it has at least limit keys. more says that it has not seen them all.
func (q *queue) next(s snapshot, from, limit int) (b batch, more bool) {
	b.from, b.to = from, from
	seen := map[string]struct{}{}
	for ; b.to < len(q.entries); b.to++ {
		if len(b.keys) >= limit {
			return b, true
		}
		e := &q.entries[b.to]
		if e.done {
			continue
		}
		if e.gated && !s.sees(e.xid) {
			b.blocked++
			b.skipped = append(b.skipped, b.to)
			continue
		}
		for _, k := range e.keys {
			if _, twice := seen[string(k.Text)]; !twice {
				seen[string(k.Text)] = struct{}{}
				b.keys = append(b.keys, k)
			}
		}
		for _, ks := range e.flush {
			if !slices.Contains(b.flush, ks) {
				b.flush = append(b.flush, ks)
			}
		}
		b.beat = max(b.beat, e.beat)
	}
	return b, false
}

// finish records that the batch has been handed out. Entries keep their places until settle.
func (q *queue) finish(b batch) {
	skipped := b.skipped
	for i := b.from; i < b.to; i++ {
		if len(skipped) > 0 && skipped[0] == i {
			skipped = skipped[1:]
			continue
		}
		e := &q.entries[i]
		q.held -= len(e.keys)
		e.keys, e.flush, e.done = nil, nil, true
	}
}

// settle drops what is done: its position is acknowledged if nothing before it is left, and merged with its neighbour's if something is.
func (q *queue) settle() {
	kept := q.entries[:0]
	for _, e := range q.entries {
		if n := len(kept); e.done && n > 0 && kept[n-1].done {
			kept[n-1].lsn = max(kept[n-1].lsn, e.lsn)
			q.held--
			continue
		}
		kept = append(kept, e)
	}
	clear(q.entries[len(kept):])
	q.entries = kept
	q.trim()
}

func (q *queue) trim() {
	n := 0
	for n < len(q.entries) && q.entries[n].done {
		q.acked = max(q.acked, q.entries[n].lsn)
		n++
	}
	if n > 0 {
		q.held -= n
		q.entries = slices.Delete(q.entries, 0, n)
	}
}
