package loadtest

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// longestPause bounds how long a worker does not look whether the run was ended.
	longestPause = 20 * time.Millisecond
	sweepEvery   = 100 * time.Millisecond
	// keyTries is how many keys are drawn for a write before it becomes a read, since those drawn are being written.
	keyTries = 4
)

// drawer draws requests. It belongs to one goroutine.
type drawer struct {
	run    *run
	random *rand.Rand
}

func (d *drawer) key() uint32 { return d.run.distribution.draw(d.random) }

// request draws one: what is known of its key is noted now, before it is sent.
func (d *drawer) request(due time.Duration) request {
	q := request{due: due}
	if d.random.Float64() >= d.run.plan.Reads {
		for range keyTries {
			q.key = d.key()
			if q.version, q.write = d.run.ledger.beginWrite(q.key); q.write {
				return q
			}
		}
	}
	q.key = d.key()
	q.floor = d.run.ledger.beginRead(q.key)
	return q
}

// worker sends the requests of its part of the schedule on its connections, whatever becomes of those before.
type worker struct {
	drawer
	arrivals *arrivals
	conns    []*conn
	lag      *hdrhistogram.Histogram // how late requests were sent
	sent     int
	rec      *recorder
}

// work sends until the duration is over or ctx ends.
func (w *worker) work(ctx context.Context) {
	plan := w.run.plan
	touched := make([]bool, len(w.conns))
	list := make([]int, 0, len(w.conns))
	var swept time.Duration
	for due := w.arrivals.next(); ; {
		now, end := w.run.now(), plan.Duration
		if w.run.over.Load() {
			end = 0
		}
		if now-swept > sweepEvery {
			swept = now
			for _, c := range w.conns {
				c.sweep(now)
			}
		}
		for ; due <= now && due < end; due = w.arrivals.next() {
			put(w.lag, now-due)
			i := w.sent / plan.Pipeline % len(w.conns)
			w.sent++
			q := w.request(due)
			filling := ""
			if q.write {
				filling = w.run.values.fill(w.random)
			}
			w.conns[i].add(q, filling)
			if !touched[i] {
				touched[i] = true
				list = append(list, i)
			}
		}
		left := list[:0]
		for _, i := range list {
			if touched[i] = w.conns[i].flush(); touched[i] {
				left = append(left, i)
			}
		}
		list = left
		if due >= end && len(list) == 0 || ctx.Err() != nil {
			return
		}
		if wait := due - w.run.now(); wait > 0 {
			pause(min(max(wait, plan.Batch), longestPause))
		}
	}
}
