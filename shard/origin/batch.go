package origin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"ringside/shard"
	"ringside/shard/keyspace"
)

const (
	// lanes is how many statements of one keyspace are under way on a shard before the next loads wait for one of them: enough to keep a few of
	// the shard's processors busy, few enough that under pressure the statements grow instead of their number.
	lanes = 4
	// batchKeys is how many keys one statement asks for at most, unless one call brings more. Beyond it a statement takes as much longer as it has more keys.
	batchKeys = 512
	// keyTimeOf is of how many statements, about, the time of a key is the average.
	keyTimeOf = 4
)

// batcher makes one statement of the loads of one keyspace that wait for one shard at the same time (promise P5). It is adaptive: a load that finds a
// lane free is sent at once, alone; the others go together when a lane is free again, so the busier the shard is, the more rows a statement brings.
type batcher struct {
	pool *pool
	ks   *keyspace.Keyspace

	mu      sync.Mutex // guards the following
	waiting []*load
	keys    int           // that they want
	flying  int           // statements
	unsent  int           // loads that wait here, or in a statement that waits for a session
	keyTime time.Duration // of a statement, for each of its keys; 0: not known

	overload overload
}

// load is one call of Fleet.Load.
type load struct {
	keys  []keyspace.Key
	since time.Time
	done  chan struct{} // closed when the following are set
	rows  []Row
	view  shard.View
	err   error
}

// batchers are those of one pool.
type batchers struct {
	mu sync.Mutex
	of map[*keyspace.Keyspace]*batcher
}

func (p *pool) batcher(ks *keyspace.Keyspace) *batcher {
	p.batchers.mu.Lock()
	defer p.batchers.mu.Unlock()
	b := p.batchers.of[ks]
	if b == nil {
		b = &batcher{pool: p, ks: ks}
		p.batchers.of[ks] = b
	}
	return b
}

// queuedLoads tells how many loads wait to share a statement, and for how long the first of them has.
func (p *pool) queuedLoads(now time.Time) (n int, oldest time.Duration) {
	p.batchers.mu.Lock()
	all := slices.Collect(maps.Values(p.batchers.of))
	p.batchers.mu.Unlock()
	for _, b := range all {
		loads, since := b.queued(now)
		n, oldest = n+loads, max(oldest, since)
	}
	return n, oldest
}

// load answers for keys by a statement that is sent after the call.
func (b *batcher) load(ctx context.Context, keys []keyspace.Key) ([]Row, shard.View, error) {
	l := &load{keys: keys, since: time.Now(), done: make(chan struct{})}
	b.mu.Lock()
	if b.isFull() {
		b.mu.Unlock()
		b.pool.admission.shedFull()
		return nil, shard.View{}, b.pool.admission.errFull
	}
	b.unsent++
	b.keys += len(keys)
	b.waiting = append(b.waiting, l)
	b.launch()
	b.mu.Unlock()

	timer := time.NewTimer(b.pool.cfg.QueueWait)
	defer timer.Stop()
	expired := timer.C
	for {
		select {
		case <-l.done:
			return l.rows, l.view, l.err
		case <-ctx.Done():
			b.giveUp(l)
			return nil, shard.View{}, ctx.Err()
		case <-expired:
			if b.giveUp(l) {
				b.noteLate()
				b.pool.admission.shedLate(1)
				return nil, shard.View{}, b.late()
			}
			expired = nil // a statement has it, and tells how it ends
		}
	}
}

// batchOf is how many keys one statement asks for: where rows take long, so few that it does not take longer than half of the time that a load may wait. Whoever
// comes while it runs waits for it.
func batchOf(keyTime, maxWait time.Duration) int {
	if keyTime <= 0 {
		return batchKeys
	}
	return min(max(int(maxWait/2/keyTime), 1), batchKeys)
}

// lanes is how many statements there may be now: no more than there are sessions.
func (b *batcher) lanes() int { return min(lanes, max(1, int(b.pool.limit.Load())-1)) }

// isFull reports whether no more loads may wait: there are as many as may, or more rows are wanted than two rounds of statements bring. b.mu is held.
func (b *batcher) isFull() bool {
	return b.unsent >= b.pool.cfg.QueueLimit || b.overload.goesOn(time.Now()) && b.keys >= 2*b.lanes()*batchOf(b.keyTime, b.pool.cfg.QueueWait)
}

// refuses returns the error of a load that would be refused now, and counts it; nil: it may come.
func (b *batcher) refuses() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.isFull() {
		return nil
	}
	b.pool.admission.shedFull()
	return b.pool.admission.errFull
}

// took notes how long a statement of so many keys took. b.mu is held.
func (b *batcher) took(d time.Duration, keys int) {
	each := max(d/time.Duration(keys), 1)
	if b.keyTime == 0 {
		b.keyTime = each
	}
	b.keyTime += (each - b.keyTime) / keyTimeOf
}

func (b *batcher) late() error {
	return fmt.Errorf("shard %s: waited %v for a connection: %w", b.pool.name, b.pool.cfg.QueueWait, shard.ErrOverloaded)
}

// noteLate notes that a load has waited in vain.
func (b *batcher) noteLate() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.overload.late(time.Now(), b.pool.cfg.QueueWait)
}

// giveUp takes a load out of the queue; false: a statement has it already.
func (b *batcher) giveUp(l *load) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := slices.Index(b.waiting, l)
	if at < 0 {
		return false
	}
	b.waiting = slices.Delete(b.waiting, at, at+1)
	b.keys -= len(l.keys)
	b.unsent--
	return true
}

// launch sends statements for what waits, as long as there are lanes. It is called with mu held.
func (b *batcher) launch() {
	for most := batchOf(b.keyTime, b.pool.cfg.QueueWait); len(b.waiting) > 0 && b.flying < b.lanes(); {
		n, keys := 0, 0
		for n < len(b.waiting) && (n == 0 || keys+len(b.waiting[n].keys) <= most) {
			keys += len(b.waiting[n].keys)
			n++
		}
		batch := slices.Clone(b.waiting[:n])
		b.waiting = slices.Delete(b.waiting, 0, n)
		b.keys -= keys
		b.flying++
		go b.fly(batch, keys) // it ends with its statement, which a pool that is removed ends at once
	}
}

// fly sends one statement and hands its rows out. It waits for a session no longer than the first of its loads may.
func (b *batcher) fly(batch []*load, keys int) {
	all := batch[0].keys
	if len(batch) > 1 {
		all = make([]keyspace.Key, 0, keys)
		for _, l := range batch {
			all = append(all, l.keys...)
		}
	}
	ctx, cancel := context.WithDeadline(context.Background(), batch[0].since.Add(b.pool.cfg.QueueWait))
	defer cancel()
	hasSession := false
	var begun time.Time
	sent := func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !hasSession {
			hasSession, begun = true, time.Now()
			b.overload.waited(begun, begun.Sub(batch[0].since), b.pool.cfg.QueueWait)
			b.unsent -= len(batch)
		}
	}
	rows, view, err := b.pool.loadNow(ctx, request, b.ks, all, sent)
	if !hasSession && err != nil && errors.Is(err, ctx.Err()) {
		batch = b.putBack(batch)
		b.pool.admission.shedLate(len(batch))
		err = b.late()
	}
	asked := hasSession
	sent()
	b.mu.Lock()
	if asked {
		b.pool.timings.batch.Observe(float64(keys))
		b.took(time.Since(begun), keys)
	}
	b.flying--
	b.launch()
	b.mu.Unlock()
	for _, l := range batch {
		if l.view, l.err = view, err; err == nil {
			l.rows, rows = rows[:len(l.keys):len(l.keys)], rows[len(l.keys):]
		}
		close(l.done)
	}
}

// putBack puts those loads of a statement that got no session back into the queue whose time is not over, and returns the others.
func (b *batcher) putBack(batch []*load) (late []*load) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for n < len(batch) && time.Since(batch[n].since) >= b.pool.cfg.QueueWait {
		n++
	}
	b.waiting = slices.Insert(b.waiting, 0, batch[n:]...)
	for _, l := range batch[n:] {
		b.keys += len(l.keys)
	}
	if n > 0 {
		b.overload.late(time.Now(), b.pool.cfg.QueueWait)
	}
	return batch[:n:n]
}

// queued tells how many loads wait for a session, and for how long the first of them has.
func (b *batcher) queued(now time.Time) (n int, oldest time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > 0 {
		oldest = now.Sub(b.waiting[0].since)
	}
	return len(b.waiting), oldest
}
