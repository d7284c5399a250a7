package cdc

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// itemsAhead is how many items the reader may be ahead of what hands them out, beside those in the queue.
	itemsAhead = 16
	// notVisiblePause is the first pause until a transaction that was not visible is looked at again. It doubles up to notVisibleMost.
	notVisiblePause = time.Millisecond
	notVisibleMost  = 50 * time.Millisecond
	// gather is the least time from one hand-out to the next: each costs a question to the shard, and a round trip to each cache server concerned. A change
	// that comes after a while of quiet waits for nothing.
	gather = 4 * time.Millisecond
	// failedPause is the first pause after a failed Invalidate or Flush. It doubles up to failedMost.
	failedPause = 100 * time.Millisecond
	failedMost  = 2 * time.Second
	// watchEvery is how often the slot itself is looked at.
	watchEvery = 5 * time.Second
	// silence is how long a heartbeat may be under way while nothing at all comes from the server.
	silence = 30 * time.Second
)

// session is one time of following: from taking the slot until something fails. Three goroutines: one reads and takes apart, one hands out and owns
// the queue and the session on the shard, one acknowledges.
type session struct {
	*follower
	site     *site
	stream   *stream
	survey   string // what the publication was made for
	assemble *assembler
	token    string

	items     chan item
	acked     atomic.Uint64
	heardAt   atomic.Int64  // when the server sent anything, in ns since 1970
	answerNow chan struct{} // capacity 1: the server wants to hear from us

	// The rest belongs to the goroutine that hands out.
	queue   queue
	blocked time.Duration // the pause until what is not visible is looked at again; 0: all is visible
	handed  time.Time     // when a hand-out ended last
	waiting bool          // something was read since, and waits for the next one
	beats   struct {
		sent   uint64
		passed uint64
		local  time.Time // when the last one was sent
		server time.Time // the same by the server's clock
	}
	owed    due    // what the shard wanted flushed when it was last looked at
	barrier uint64 // 0: what is owed has to be flushed. Else it was, and once more when all transactions before this id have ended
}

func newSession(f *follower, site *site, stream *stream, v survey) *session {
	s := &session{
		follower: f, site: site, stream: stream, survey: v.fingerprint(), token: rand.Text() + ":",
		items: make(chan item, itemsAhead), answerNow: make(chan struct{}, 1),
	}
	s.assemble = newAssembler(v.publication.covers(f.cfg.Keyspaces, v.relations), f.cfg.pieceKeys(), s.token, f.counts)
	s.heardAt.Store(time.Now().UnixNano())
	return s
}

func parseBeat(number []byte) uint64 {
	n, err := strconv.ParseUint(string(number), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// run returns what ended it. When ctx ends, what was handed out is acknowledged.
func (s *session) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	defer s.stream.interruptible(ctx)()
	group.Go(func() error { return s.read(ctx) })
	group.Go(func() error { return s.handOut(ctx) })
	group.Go(func() error { return s.acknowledge(ctx) })
	err := group.Wait()
	_ = s.stream.acknowledge(LSN(s.acked.Load()), time.Now()) // else the next follower is given it once more
	s.seen = max(s.seen, LSN(s.acked.Load()))
	return err
}

// read takes the stream apart. It stops reading while too much is waiting.
func (s *session) read(ctx context.Context) error {
	put := func(it item) error {
		select {
		case s.items <- it:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for {
		frame, err := s.stream.receive()
		if err != nil {
			return errors.Join(ctx.Err(), err)
		}
		s.heardAt.Store(time.Now().UnixNano())
		var it item
		var ok bool
		switch frame := frame.(type) {
		case keepaliveFrame:
			if frame.answer {
				poke(s.answerNow)
			}
			it, ok = s.assemble.keepalive(frame.end)
		case dataFrame:
			m, err := decodeMessage(frame.message)
			if err != nil {
				return err
			}
			if it, ok, err = s.assemble.message(m); err != nil {
				return err
			}
		}
		if ok {
			if err := put(it); err != nil {
				return err
			}
		}
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// acknowledge tells the server regularly what it may forget. It goes on while reading has stopped, or the server would give us up.
func (s *session) acknowledge(ctx context.Context) error {
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		case <-s.answerNow:
		}
		if err := s.stream.acknowledge(LSN(s.acked.Load()), time.Now()); err != nil {
			return err
		}
	}
}

// handOut hands out what was read, as soon as it is visible.
func (s *session) handOut(ctx context.Context) error {
	if err := s.watch(ctx); err != nil {
		return err
	}
	if err := s.beat(ctx); err != nil {
		return err
	}
	beat, watch, check := time.NewTicker(s.cfg.Beat), time.NewTicker(watchEvery), time.NewTicker(s.cfg.Check)
	defer beat.Stop()
	defer watch.Stop()
	defer check.Stop()
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	for {
		items := s.items
		if s.queue.held >= s.cfg.PendingKeys {
			items = nil // what is queued is not visible, or it would have been handed out
		}
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case it := <-items:
			s.queue.add(it)
			s.takeMore()
			if s.waiting = time.Since(s.handed) < gather && s.queue.held < s.cfg.BatchKeys; !s.waiting {
				err = s.deliver(ctx)
			}
		case <-retry.C:
			err = s.deliver(ctx)
		case <-beat.C:
			if err = s.beat(ctx); err == nil {
				err = s.settleDebt(ctx)
			}
		case <-watch.C:
			err = s.watch(ctx)
		case <-check.C:
			err = s.check(ctx)
		}
		if err != nil {
			return err
		}
		retry.Stop()
		switch {
		case s.waiting:
			retry.Reset(time.Until(s.handed.Add(gather)))
		case s.blocked > 0:
			retry.Reset(s.blocked)
		}
	}
}

// takeMore takes what has been read meanwhile, so that many small transactions share a batch.
func (s *session) takeMore() {
	for s.queue.held < s.cfg.PendingKeys {
		select {
		case it := <-s.items:
			s.queue.add(it)
		default:
			return
		}
	}
}

// deliver hands out all that is visible.
func (s *session) deliver(ctx context.Context) error {
	var now snapshot
	if s.queue.gated() {
		var err error
		if now, err = s.site.snapshot(ctx); err != nil {
			return err
		}
	}
	from, blocked, progress := 0, 0, false
	var passed uint64
	for more := true; more; {
		var b batch
		b, more = s.queue.next(now, from, s.cfg.BatchKeys)
		if err := s.invalidate(ctx, b); err != nil {
			return err
		}
		s.queue.finish(b)
		passed = max(passed, b.beat)
		from, blocked = b.to, blocked+b.blocked
		progress = progress || len(b.keys) > 0 || len(b.flush) > 0
	}
	s.queue.settle()
	s.acked.Store(uint64(s.queue.acked))
	s.handed, s.waiting = time.Now(), false
	switch {
	case blocked == 0:
		s.blocked = 0
	case progress || s.blocked == 0:
		s.blocked = notVisiblePause
	default:
		s.blocked = min(2*s.blocked, notVisibleMost)
	}
	if passed > s.beats.passed {
		return s.beatPassed(ctx, passed)
	}
	return nil
}

// invalidate hands out one batch, as often as it takes.
func (s *session) invalidate(ctx context.Context, b batch) error {
	for _, ks := range b.flush {
		if err := s.flush(ctx, ks.Name, "table "+ks.Table+" was truncated"); err != nil {
			return err
		}
	}
	if len(b.keys) == 0 {
		return nil
	}
	err := s.insist(ctx, "invalidate", func() error {
		limited, cancel := context.WithTimeout(ctx, s.cfg.InvalidateTimeout)
		defer cancel()
		return s.deps.Invalidate(limited, b.keys)
	})
	if err == nil {
		s.counts.invalidated.Add(float64(len(b.keys)))
	}
	return err
}

// flush flushes one keyspace, or all of them if it has no name.
func (s *session) flush(ctx context.Context, name, why string) error {
	s.log.Warn("flushing cached rows", "keyspace", name, "why", why)
	s.counts.flushed.Inc()
	return s.insist(ctx, "flush", func() error {
		limited, cancel := context.WithTimeout(ctx, s.cfg.FlushTimeout)
		defer cancel()
		return s.deps.Flush(limited, s.shard.Name, name, why)
	})
}

// insist repeats a call until it succeeds or ctx ends: nothing behind it may be handed out or acknowledged before.
func (s *session) insist(ctx context.Context, what string, call func() error) error {
	for pause := failedPause; ; pause = min(2*pause, failedMost) {
		err := call()
		if err == nil {
			if pause > failedPause {
				s.hindered("")
				s.say(slog.LevelInfo, "changes are handed out again")
			}
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.counts.failed.Inc()
		s.hindered(what + ": " + err.Error())
		s.say(slog.LevelWarn, "changes could not be handed out; trying again", "step", what, "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// hindered shows, until the shard is looked at again, what keeps changes from being handed out.
func (s *session) hindered(by string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = by
}

// beat sends a heartbeat through the log, unless the last one is still under way.
func (s *session) beat(ctx context.Context) error {
	if s.beats.sent > s.beats.passed {
		heard := time.Unix(0, s.heardAt.Load())
		// The answers to our acknowledgements come even if nothing changes. While we do not read, the queue says why.
		if len(s.items) == 0 && len(s.queue.entries) == 0 && time.Since(heard) > silence && time.Since(s.beats.local) > silence {
			return fmt.Errorf("nothing was heard on the change stream for %v", time.Since(heard).Round(time.Second))
		}
		return nil
	}
	local := time.Now()
	server, err := s.site.mark(ctx, s.token+strconv.FormatUint(s.beats.sent+1, 10))
	if err != nil {
		return err
	}
	s.beats.sent++
	s.beats.local, s.beats.server = local, server
	return nil
}

// beatPassed notes that all before the heartbeat has been handed out, and lets the others know.
func (s *session) beatPassed(ctx context.Context, number uint64) error {
	s.beats.passed = number
	s.mu.Lock()
	s.asOf = later(s.asOf, s.beats.local)
	s.follower.acked = s.queue.acked
	s.mu.Unlock()
	return s.site.passed(ctx, s.beats.server, s.queue.acked)
}

// watch looks at the slot, and at what is owed.
func (s *session) watch(ctx context.Context) error {
	asked := time.Now()
	seen, err := s.site.look(ctx)
	if err != nil {
		return err
	}
	s.hear(seen, asked)
	if seen.due.seq != s.owed.seq {
		s.owed, s.barrier = seen.due, 0
	}
	return s.settleDebt(ctx)
}

// settleDebt flushes what is owed: at once, and if it is owed because a table was not published, once more when all transactions that may have
// changed the table before it was have ended.
func (s *session) settleDebt(ctx context.Context) error {
	if len(s.owed.keyspaces) == 0 {
		return nil
	}
	now, err := s.site.snapshot(ctx)
	if err != nil {
		return err
	}
	if s.barrier != 0 && now.xmin < s.barrier {
		return nil
	}
	all := slices.Contains(s.owed.keyspaces, allKeyspaces)
	for _, name := range s.owed.keyspaces {
		if name == allKeyspaces {
			name = ""
		} else if all && s.barrier == 0 {
			continue
		}
		if name == "" && s.barrier != 0 {
			continue // the slot was made when all of them had ended
		}
		if err := s.flush(ctx, name, s.owed.why); err != nil {
			return err
		}
	}
	if s.barrier == 0 && now.xmin < now.xmax && slices.ContainsFunc(s.owed.keyspaces, func(n string) bool { return n != allKeyspaces }) {
		s.barrier = now.xmax
		return nil
	}
	if err := s.site.paid(ctx, s.owed); err != nil {
		return err
	}
	s.owed.keyspaces, s.barrier = nil, 0
	return s.rehear(ctx, s.site)
}

// check ends the session when the tables are not those that are followed: it begins anew with those.
func (s *session) check(ctx context.Context) error {
	v, err := s.site.survey(ctx, s.cfg.Keyspaces)
	if err == nil && v.fingerprint() != s.survey {
		return errChanged
	}
	return err
}
