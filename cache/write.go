package cache

import (
	"context"
	"time"

	"ringside/internal/failpoint"
)

// mostWriters is the most writers in the poison of one entry, each with a token. When there are more, those that came first share one
// place: nobody takes that away before the last of them would have ended, so the row is not cached for a while. Those that came first,
// because a writer that lives is done in no time, and poison that stays is of one that died: it ends soonest.
const mostWriters = 64

// The pauses between two tries to clean.
const (
	firstCleanPause = 5 * time.Millisecond
	lastCleanPause  = 100 * time.Millisecond
)

// Write writes one row whose entries are refs: that of its present owner, and during a change of the ring that of the former one before it. They are
// cleaned in this order, each only after the one before it: who takes an entry over from the former owner meanwhile, and it may be an old one if its poison
// was evicted, puts it where it is still to be cleaned.
// It puts all of them out of reach while commit runs the transaction. commit must call poisoned right before its COMMIT, from any
// goroutine, and roll back with its error: a *ServerError that names the server, or the context's. After commit succeeded the
// entries are cleaned, and only then Write returns nil: the write may be acknowledged.
//
// Errors: commit's own, unchanged. If it is neither shard.ErrOutcomeUnknown nor ErrRemembered, nothing was written (commit must see to that). A
// *CleanError: it IS written; report it as of unknown outcome.
//
// A commit that can make the deletion of the entries certain by other means, together with what it writes, may go on when poisoned gives a
// *ServerError, and return ErrRemembered. Then only what was poisoned is cleaned, once, and the caller sees to it that the write is not acknowledged
// while anybody may still use an entry that is left.
//
// ctx bounds commit, together with Config.WriteTimeout. What follows a commit is done even if ctx has ended, in Config.CleanTimeout.
func (c *Cache) Write(ctx context.Context, refs []Ref, commit func(ctx context.Context, poisoned func() error) error) error {
	failpoint.At(failpoint.WriteBegins)
	w := c.newWrite(ctx, refs)
	defer w.close()

	done := make(chan struct{})
	var poisonErr error // written before done is closed
	go func() {
		defer close(done)
		poisonErr = w.poison()
		failpoint.At(failpoint.Poisoned)
	}()
	commitCtx, cancel := context.WithTimeout(ctx, c.cfg.WriteTimeout)
	defer cancel()
	err := commit(commitCtx, func() error {
		select {
		case <-done:
			return poisonErr
		case <-commitCtx.Done():
			return context.Cause(commitCtx)
		}
	})
	<-done // within Config.StepTimeout: what follows must not overtake our own poison

	switch onCommit(err) {
	case afterClean:
		failpoint.At(failpoint.Cleaning)
		err = w.clean()
		failpoint.At(failpoint.Acknowledging)
	case afterTry:
		w.tryClean()
		c.detach(refs)
		c.metrics.writesRemembered.Inc()
		return err
	case afterLift:
		failpoint.At(failpoint.Lifting)
		w.lift()
		c.metrics.writesFailed.Inc()
		return err
	}
	c.detach(refs)
	if err != nil {
		c.metrics.writesUnknown.Inc()
		return err
	}
	c.metrics.writes.Inc()
	return nil
}

// Clean deletes entries as a writer does after its commit, without a transaction: for a write that is committed and cleaned whose row has meanwhile
// come to be cached in further places. The error is a *CleanError.
func (c *Cache) Clean(ctx context.Context, refs []Ref) error {
	w := c.newWrite(ctx, refs)
	defer w.close()
	err := w.clean()
	c.detach(refs)
	return err
}

// write is what one Write keeps: its poison, and the servers that it put it on. They are kept because an entry must be cleaned on the
// very process that was poisoned: another one that was configured since does not show what the old one holds.
type write struct {
	c      *Cache
	ctx    context.Context // the caller's, but it does not end with it
	refs   []Ref
	pinned []*server
	absent []error // by ref: why pinned is nil
	ours   []bool  // by ref: our poison is there
	token  Token
}

func (c *Cache) newWrite(ctx context.Context, refs []Ref) *write {
	w := &write{c: c, ctx: context.WithoutCancel(ctx), refs: refs, pinned: make([]*server, len(refs)), absent: make([]error, len(refs)), ours: make([]bool, len(refs)), token: c.tokens.next()}
	for i, r := range refs {
		w.pinned[i], w.absent[i] = c.servers.of(r)
	}
	return w
}

// step is one of the scripts that work on our place in the poison.
func (w *write) step(srv *server, s *script, r Ref, more ...any) *step {
	return &step{srv: srv, script: s, name: r.Name, args: append([]any{w.token[:]}, more...)}
}

func (w *write) close() {
	for _, srv := range w.pinned {
		if srv != nil {
			w.c.servers.release(srv)
		}
	}
}

// poison puts poison in the place of whatever is there, and beside that of other writers, on every ref that can be reached. The error is about the
// first one that cannot.
func (w *write) poison() error {
	if failpoint.Without(failpoint.Poison) {
		return nil
	}
	steps := make([]*step, 0, len(w.refs))
	of := make([]int, 0, len(w.refs))
	var failed error
	fail := func(i int, err error) {
		if failed == nil {
			failed = &ServerError{Server: w.refs[i].Server, Err: err}
		}
	}
	for i, r := range w.refs {
		if w.pinned[i] == nil {
			fail(i, w.absent[i])
			continue
		}
		steps, of = append(steps, w.step(w.pinned[i], w.c.scripts.poison, r, w.c.cfg.PoisonTTL.Milliseconds(), mostWriters)), append(of, i)
	}
	w.c.exec(w.ctx, steps)
	for n, s := range steps {
		answer, err := s.number()
		if err != nil {
			fail(of[n], inOurWords(err))
			continue
		}
		w.ours[of[n]] = true
		if answer == 2 {
			w.c.metrics.crowded.Inc()
		}
	}
	return failed
}

// tryClean cleans once what was poisoned, one entry after the other as clean does.
func (w *write) tryClean() {
	for i := range w.refs {
		if w.ours[i] {
			if err := w.cleanOne(w.ctx, i); err != nil {
				w.c.metrics.cleanFailures.Inc()
			}
		}
	}
}

// clean deletes whatever is there but other writers' poison, and tries until it is done everywhere. It takes one entry after the other: see Write.
func (w *write) clean() error {
	ctx, cancel := context.WithTimeout(w.ctx, w.c.cfg.CleanTimeout)
	defer cancel()
	end, _ := ctx.Deadline()
	next := 0
	var why error
	for pause := firstCleanPause; ; pause = min(2*pause, lastCleanPause) {
		var err error
		for next < len(w.refs) {
			if err = w.cleanOne(ctx, next); err != nil {
				break
			}
			next++
		}
		if err == nil {
			return nil
		}
		if why == nil || time.Now().Before(end) { // a try that our own time cut short tells less than the one before
			why = err
		}
		if ctx.Err() == nil {
			sleep(ctx, pause)
		}
		if ctx.Err() != nil {
			cerr := &CleanError{Refs: w.refs[next:], Err: why}
			w.c.metrics.cleanFailures.Add(float64(len(cerr.Refs)))
			w.c.log.Warn("a committed write could not be cleaned in time", "error", cerr)
			return cerr
		}
	}
}

func (w *write) cleanOne(ctx context.Context, i int) error {
	r := w.refs[i]
	srv := w.server(i)
	if srv == nil {
		return &ServerError{Server: r.Server, Err: w.absent[i]}
	}
	if failpoint.Without(failpoint.Clean) {
		return nil
	}
	s := w.step(srv, w.c.scripts.clean, r)
	w.c.exec(ctx, []*step{s})
	if _, err := s.number(); err != nil {
		return &ServerError{Server: r.Server, Err: inOurWords(err)}
	}
	failpoint.At(failpoint.CleanedOne)
	return nil
}

// server returns the way to the process that was poisoned. If it has another address or password now, that one is taken.
func (w *write) server(i int) *server {
	now := w.c.servers.acquire(w.refs[i].Server)
	old := w.pinned[i]
	if now == nil {
		return old
	}
	if old != nil && now.cfg.RunID != old.cfg.RunID {
		w.c.servers.release(now)
		return old
	}
	if old != nil {
		w.c.servers.release(old)
	}
	w.pinned[i] = now
	return now
}

// lift takes away our own poison, so that readers fill again at once. If it fails the poison expires.
func (w *write) lift() {
	var steps []*step
	for i, r := range w.refs {
		if w.pinned[i] != nil {
			steps = append(steps, w.step(w.pinned[i], w.c.scripts.lift, r))
		}
	}
	w.c.exec(w.ctx, steps)
	for _, s := range steps {
		if _, err := s.number(); err != nil {
			w.c.metrics.liftFailures.Inc()
		}
	}
}
