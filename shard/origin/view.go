package origin

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringside/shard"
)

const (
	firstPause = 50 * time.Millisecond // between two attempts to reach a shard
	maxPause   = time.Second
	minPause   = 10 * time.Millisecond // however often it is poked
	minAnswer  = 500 * time.Millisecond
)

// word is what one shard said about its view. It outlives the pools of the shard, so that whoever holds the Confirmation keeps it.
type word struct {
	name         string
	confirmation shard.Confirmation

	mu      sync.Mutex                      // taken for every answer: what a pool says after it was replaced must not count
	speaker *pool                           // whose answers count
	since   time.Time                       // answers to earlier questions do not count
	last    shard.View                      // the newest heard of the speaker
	outbox  outboxRow                       // of the last answer that told of it
	heard   func(name string, v shard.View) // may be nil
}

// listen makes the answers of p count and no others; p may be nil.
func (w *word) listen(p *pool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.speaker = p
}

// unlearn is listen to somebody who may speak of another database.
func (w *word) unlearn(p *pool) {
	w.forget()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.speaker, w.last, w.outbox = p, shard.View{}, outboxRow{}
}

// forget makes whatever was asked until now count no more, also if the answer is still to come.
func (w *word) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since = time.Now()
	w.confirmation.Forget()
}

// said records an answer that a pool got to a question asked at that time for the view and the outbox, and announces the view if it is a newer one.
// Announcements of one shard are made one after another, in the order of the views.
func (w *word) said(by *pool, v shard.View, asked time.Time, box outboxRow) {
	w.hear(by, v, asked, func() {
		w.confirmation.Confirm(v, asked, box.withheld())
		w.outbox = box
	})
}

// mentioned is said for an answer that did not tell what is in the outbox.
func (w *word) mentioned(by *pool, v shard.View, asked time.Time) {
	w.hear(by, v, asked, func() { w.confirmation.Learn(v) })
}

func (w *word) hear(by *pool, v shard.View, asked time.Time, record func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.speaker != by || asked.Before(w.since) || v == (shard.View{}) {
		return
	}
	record()
	if !w.last.Less(v) {
		return
	}
	w.last = v
	if w.heard != nil {
		w.heard(w.name, v)
	}
}

// remembers is what was last heard of the shard's outbox.
func (w *word) remembers() outboxRow {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.outbox
}

// repeated records that the shard was asked at that time, had nothing in its outbox and still was at the view of which somebody's transaction just
// passed the fence. The fence does not tell View.From, so this counts only if the view was heard before.
func (w *word) repeated(by *pool, v shard.View, asked time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.speaker == by && !asked.Before(w.since) && w.last.Same(v) {
		w.confirmation.Confirm(w.last, asked, nil)
	}
}

// askSQL asks also whether nobody waits for a seat.
var askSQL = fmt.Sprintf(`select v.shard, v.epoch, v.phase, v.previous, current_setting('transaction_read_only') = 'on', o.n, o.oldest, o.vnodes,
pg_try_advisory_xact_lock_shared(%d, 0) from ringside.view v, `, LockSeat) + outboxSQL

// watch asks the shard for its view until the context or the pool ends. It is the only one that declares the shard down or up, and
// while the shard is down the only one that asks.
func (p *pool) watch(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	poller := &poller{pool: p}
	defer poller.drop()

	timer := time.NewTimer(0)
	defer timer.Stop()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.stop:
			return
		case <-p.poke:
		case <-timer.C:
		}
		asked := time.Now()
		err := poller.ask(ctx, asked)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			failures = 0
		} else {
			failures++
		}
		p.judge(err)
		poller.makeRoom()
		p.regrow()
		p.closeLate()
		timer.Reset(time.Until(asked.Add(nextQuestion(p.cfg.ViewTTL, failures, rand.Float64()))))

		// A burst of pokes is one question.
		select {
		case <-ctx.Done():
			return
		case <-time.After(minPause):
		}
	}
}

// nextQuestion is how long after one question the next is due. Questions answered come somewhat more often than every half ttl, with a
// spread that keeps many sidecars apart; after failures the pause grows.
func nextQuestion(ttl time.Duration, failures int, random float64) time.Duration {
	if failures == 0 {
		return time.Duration(float64(ttl) * (0.40 + 0.06*random))
	}
	pause := firstPause << min(failures-1, 10)
	pause = min(pause, maxPause)
	return time.Duration(float64(pause) * (0.75 + 0.25*random))
}

// judge draws the breaker's conclusion from one question.
func (p *pool) judge(err error) {
	wrong, isWrong := errors.AsType[*WrongShardError](err)
	switch {
	case err == nil:
		p.markUp()
	case isWrong:
		p.markDown(&shard.DownError{Shard: p.name, Err: wrong})
	case isNoSeat(err):
		if !errors.Is(err, errDoor) {
			p.markUp() // it was reached, and would not let us in
		}
		p.markWrong(err)
	case errors.Is(err, errReadOnly):
		p.markDown(err)
	case isConnectFailure(err):
		p.markDown(&shard.DownError{Shard: p.name, Err: err})
	default:
		p.markWrong(err)
	}
}

// poller asks one shard for its view over a session of its own, when the limit leaves one.
type poller struct {
	pool *pool
	own  *pgxpool.Conn // kept between questions

	crowded bool // by the last answer: a sidecar without any session waits for one
}

// ask asks once, and once more over a new connection if the one at hand turns out dead.
func (q *poller) ask(ctx context.Context, asked time.Time) error {
	p := q.pool
	q.crowded = false
	sharing := p.sharing()
	if sharing {
		q.drop()
		p.regrow()
		if p.held() > 0 {
			return q.askShared(ctx)
		}
	}
	start := time.Now()
	if q.own != nil {
		err := q.question(ctx, q.own.Conn(), asked)
		if err == nil || !q.own.Conn().IsClosed() && !errors.Is(err, errReadOnly) {
			since(p.timings.poll, start)
			return err
		}
		q.abandon(err)
	}
	err := q.askAnew(ctx)
	if errors.Is(err, errReadOnly) && q.own != nil {
		q.abandon(err) // it was not new, but had been idle in the pool
		err = q.askAnew(ctx)
	}
	if sharing {
		q.drop()
	}
	return err
}

// askAnew takes a session for its own and asks over it, or over one that requests use too if the shard has none to spare.
func (q *poller) askAnew(ctx context.Context) error {
	p := q.pool
	connecting, cancel := context.WithTimeout(patiently(ctx), 2*p.connect+firstWait+minAnswer)
	defer cancel()
	conn, err := p.db.Acquire(connecting)
	if isNoSeat(err) {
		p.unseated()
		if p.held() > 0 {
			return q.askShared(ctx)
		}
	}
	if err != nil {
		return err
	}
	q.own = conn
	p.pollerHolds.Store(true)
	return q.question(ctx, conn.Conn(), time.Now())
}

// abandon closes its session, with all others if they are no better.
func (q *poller) abandon(err error) {
	if react(err).reset {
		q.pool.db.Reset()
	}
	q.drop()
}

// askShared asks over a session that requests use too, before any that waits for it; once more if that one leads to a standby by now.
func (q *poller) askShared(ctx context.Context) error {
	p := q.pool
	ctx, cancel := context.WithTimeout(ctx, p.cfg.WriteTimeout+2*p.connect+minAnswer)
	defer cancel()
	once := func() error {
		if err := p.admission.enter(ctx, internal); err != nil {
			return err
		}
		conn, err := p.acquire(ctx, internal)
		if err != nil {
			return err
		}
		defer p.release(conn)
		if err = q.question(ctx, conn.Conn(), time.Now()); errors.Is(err, errReadOnly) {
			p.db.Reset()
		}
		return err
	}
	err := once()
	if errors.Is(err, errReadOnly) {
		err = once()
	}
	return err
}

func (q *poller) question(ctx context.Context, conn *pgx.Conn, asked time.Time) error {
	p := q.pool
	// An answer that comes later than that confirms nothing any more.
	ctx, cancel := context.WithTimeout(ctx, max(p.cfg.ViewTTL, minAnswer))
	defer cancel()
	var name string
	var v viewRow
	var box outboxRow
	var readOnly, calm bool
	err := conn.QueryRow(ctx, askSQL).Scan(&name, &v.epoch, &v.phase, &v.previous, &readOnly, &box.rows, &box.oldest, &box.vnodes, &calm)
	switch {
	case errors.Is(err, pgx.ErrNoRows), code(err) == codeUndefinedSchema, code(err) == codeUndefinedTable:
		return &shard.DownError{Shard: p.name, Err: errNotSetUp}
	case err != nil:
		return err
	case name != p.name:
		return &WrongShardError{Shard: p.name, Holds: name}
	case readOnly:
		return &shard.DownError{Shard: p.name, Err: errReadOnly}
	}
	p.word.said(p, v.view(), asked, box)
	q.crowded = !calm
	p.observe(ctx, conn)
	return nil
}

// viewRow is a row of ringside.view as it is scanned.
type viewRow struct {
	epoch    int64
	phase    int16
	previous int64
}

func (r viewRow) view() shard.View {
	return shard.View{Epoch: uint64(r.epoch), Phase: shard.Phase(r.phase), From: uint64(r.previous)}
}

// makeRoom gives up a session if another sidecar waits for its first one.
func (q *poller) makeRoom() {
	if !q.crowded || !q.pool.giveWay() {
		return
	}
	if q.own != nil {
		discard(q.own)
		q.drop()
		return
	}
	q.pool.resizing.Lock()
	defer q.pool.resizing.Unlock()
	q.pool.giveUp(1)
}

// drop gives the session kept between questions back to the pool.
func (q *poller) drop() {
	if q.own != nil {
		q.pool.pollerHolds.Store(false)
		q.pool.putBack(q.own, func() {})
		q.own = nil
	}
}

// wasSuspended reports whether the wall clock went ahead of the monotonic clock by more than tolerance: the machine slept, and what was
// confirmed before may have changed in a time that the monotonic clock did not count (promise P3). A wall clock that was set forward looks
// the same and costs one question.
func wasSuspended(wall, monotonic, tolerance time.Duration) bool {
	return wall-monotonic > tolerance
}
