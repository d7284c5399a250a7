package origin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"ringside/internal/failpoint"
	"ringside/shard"
	"ringside/shard/keyspace"
)

const (
	connLifetime       = time.Hour
	connLifetimeJitter = 6 * time.Minute
	connIdleTime       = 5 * time.Minute
	pingTimeout        = 500 * time.Millisecond
	rollbackTimeout    = 500 * time.Millisecond
	constructPause     = 20 * time.Millisecond
	// cleanupBound is a little more than pgx spends on closing a connection that broke in the middle of a statement.
	cleanupBound = 16 * time.Second
)

// pool is the sessions of one shard under one DSN. When the DSN or the budget changes, another pool takes its place.
//
// The limit is this sidecar's part of the budget, by gossip; that the cluster keeps within the budget is seen to by seats.go.
//
// Sessions never exceed the limit: whoever wants one is admitted first, and leaves only once its session is idle again or is gone. While
// the limit is 2 or more, one session is set apart for the view poller, so that a full queue cannot make views expire;
// with a limit of 1 the poller shares it, at the head of the queue.
type pool struct {
	name      string
	conf      ShardConfig
	cfg       Config
	db        *pgxpool.Pool
	admission *admission
	word      *word
	log       *slog.Logger
	timings   poolTimings
	connect   time.Duration // the longest that opening a connection may take

	resizing    sync.Mutex // one change of the limit at a time
	limit       atomic.Int32
	excess      atomic.Int32 // sessions that the last change of the limit left over; the next to be released are closed instead
	pollerHolds atomic.Bool  // the poller keeps a session between its questions
	seats       seats
	locked      atomic.Uint64 // statements that ended because of somebody else's lock

	poke chan struct{}
	stop chan struct{} // closed when the pool is removed
	gone sync.WaitGroup

	state struct {
		sync.Mutex
		downSince time.Time
		lastError string
		activity  Activity
	}
	tables struct {
		sync.Mutex
		byName map[string]*table
	}
	batchers batchers
	keyed    atomic.Bool // loads look at overrides of single shard keys
}

// newPool opens no connection.
func newPool(conf ShardConfig, cfg Config, limit int, w *word, timings poolTimings, door Door, log *slog.Logger) (*pool, error) {
	parsed, err := conf.parse()
	if err != nil {
		return nil, err
	}
	parsed.MaxConns = int32(min(conf.MaxConnections, 1<<15))
	parsed.MinConns, parsed.MinIdleConns = 0, 0 // they would be opened past the admission
	parsed.MaxConnLifetime, parsed.MaxConnLifetimeJitter = connLifetime, connLifetimeJitter
	parsed.MaxConnIdleTime = connIdleTime
	parsed.PingTimeout = pingTimeout

	cc := parsed.ConnConfig
	cc.DialFunc = failpoint.Dial(cc.DialFunc)
	if cc.ConnectTimeout <= 0 || cc.ConnectTimeout > cfg.ConnectTimeout {
		cc.ConnectTimeout = cfg.ConnectTimeout
	}
	if door != nil {
		cc.ConnectTimeout += doorWait // which comes first
	}
	// A standby would answer with an old view and old rows, whatever the DSN's target_session_attrs says.
	cc.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	if cc.RuntimeParams["application_name"] == "" {
		cc.RuntimeParams["application_name"] = cfg.ApplicationName
	}
	cc.RuntimeParams["statement_timeout"] = milliseconds(cfg.LoadTimeout)
	cc.RuntimeParams["lock_timeout"] = milliseconds(cfg.LockTimeout)
	cc.RuntimeParams["idle_in_transaction_session_timeout"] = milliseconds(cfg.WriteTimeout)

	p := &pool{
		name: conf.Name, conf: conf, cfg: cfg, word: w, log: log, timings: timings,
		admission: newAdmission(conf.Name, cfg, 1),
		connect:   time.Duration(1+len(cc.Fallbacks)) * cc.ConnectTimeout,
		poke:      make(chan struct{}, 1),
		stop:      make(chan struct{}),
	}
	p.seats.n, p.seats.doors, p.seats.door, p.seats.ceiling = Seats(conf.MaxConnections), Doors(conf.MaxConnections), door, noCeiling
	parsed.BeforeConnect, parsed.AfterConnect = p.beforeConnect, p.afterConnect
	// The context bounds nothing: the pool opens its connections later, under the contexts of those who want one.
	if p.db, err = pgxpool.NewWithConfig(context.Background(), parsed); err != nil {
		return nil, fmt.Errorf("shard %q: %w", conf.Name, err)
	}
	p.tables.byName = map[string]*table{}
	p.batchers.of = map[*keyspace.Keyspace]*batcher{}
	p.setLimit(limit)
	return p, nil
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// setLimit sets how many sessions may exist, the poller's included; less than 1 is 1 by turns.
func (p *pool) setLimit(n int) {
	p.resizing.Lock()
	defer p.resizing.Unlock()
	p.seats.share.Store(int32(n))
	n = min(max(n, 1), p.seats.n)
	if before := p.limit.Swap(int32(n)); int(before) == n {
		return
	}
	p.resize()
	p.closeSurplus()
	p.askNow() // over a session of the poller's own, or not any more
}

// closeSurplus closes idle sessions beyond the limit. Those in use are closed when they are released.
func (p *pool) closeSurplus() {
	p.giveUp(max(p.db.Stat().TotalConns()-p.allowed(), 0))
}

// giveUp closes n sessions, those that are idle now and else the next to be released. p.resizing is held.
func (p *pool) giveUp(n int32) {
	p.excess.Store(n)
	if n == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.cfg.ConnectTimeout)
	defer cancel()
	for _, c := range p.db.AcquireAllIdle(ctx) {
		if p.takeExcess() {
			discard(c)
		}
		c.Release()
	}
}

// closeLate closes sessions that were opened beyond the limit after it had become smaller, by somebody who was admitted before.
func (p *pool) closeLate() {
	if p.db.Stat().TotalConns() <= p.allowed() {
		return
	}
	p.resizing.Lock()
	defer p.resizing.Unlock()
	p.closeSurplus()
}

// allowed is how many sessions there may be now.
func (p *pool) allowed() int32 {
	n := p.limit.Load()
	if p.pollerHolds.Load() {
		n = max(n, 2) // with a limit of 1 the poller gives its session up by itself
	}
	return n
}

// takeExcess reports whether the caller's session is one that must go.
func (p *pool) takeExcess() bool {
	for {
		n := p.excess.Load()
		if n <= 0 {
			return false
		}
		if p.excess.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

// discard closes a connection that is about to be released, so that the pool does not keep it.
func discard(c *pgxpool.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), rollbackTimeout)
	defer cancel()
	_ = c.Conn().Close(ctx) // whatever is wrong with it, it is being thrown away
}

// run admits the caller and calls fn with a connection. What fn does is bounded by limit, and not ended by the caller's context: that
// one only ends the wait in the queue. The error is translated; the pool has drawn its own conclusions from it.
func (p *pool) run(ctx context.Context, c class, limit time.Duration, fn func(context.Context, *pgx.Conn) error) error {
	came := time.Now()
	if err := p.admission.enter(ctx, c); err != nil {
		return err
	}
	return p.runAdmitted(ctx, c, came, limit, fn)
}

// runAdmitted is run of somebody who came at that time and was admitted.
func (p *pool) runAdmitted(ctx context.Context, c class, came time.Time, limit time.Duration, fn func(context.Context, *pgx.Conn) error) error {
	for {
		err := p.attempt(ctx, c, limit, fn)
		if !isNoSeat(err) {
			return err
		}
		// There are fewer sessions than were admitted, and now fewer are: the place in front of the queue is kept.
		if refused := p.again(ctx, c, came, limit); refused != nil {
			return refused
		}
	}
}

// again waits for another attempt. Our own questions wait no longer than they may last.
func (p *pool) again(ctx context.Context, c class, came time.Time, limit time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := p.admission.reenter(waiting, c, came)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("shard %s: %w", p.name, errNoSeat)
	}
	return err
}

// attempt is run of somebody who was admitted. If there was no session he has left, and the error is isNoSeat.
func (p *pool) attempt(ctx context.Context, c class, limit time.Duration, fn func(context.Context, *pgx.Conn) error) error {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	conn, err := p.acquire(own, c)
	if isNoSeat(err) {
		return err
	}
	if err == nil {
		defer p.release(conn)
		err = fn(own, conn.Conn())
	}
	if err == nil {
		return nil
	}
	p.conclude(err)
	err = translate(p.name, tookLonger(p.name, limit, err))
	if errors.Is(err, shard.ErrLocked) {
		p.locked.Add(1)
	}
	return err
}

// acquire takes a connection for somebody who was admitted. On error the caller has left.
func (p *pool) acquire(ctx context.Context, c class) (*pgxpool.Conn, error) {
	conn, err := p.db.Acquire(ctx)
	switch {
	case err == nil:
		return conn, nil
	case isTimeout(err) && ctx.Err() != nil:
		// The pool goes on opening the connection that we gave up: it counts until none is being opened, or that one must have ended.
		go func() {
			for begun := time.Now(); p.db.Stat().ConstructingConns() > 0 && time.Since(begun) < p.connect; {
				time.Sleep(constructPause)
			}
			p.admission.leave()
		}()
	case isNoSeat(err):
		p.unseated()
		p.admission.withdraw(c)
	default:
		p.admission.leave()
	}
	return nil, err
}

// release gives the connection back and leaves. A connection that broke counts until its session is cleaned up.
func (p *pool) release(conn *pgxpool.Conn) {
	if p.putBack(conn, p.admission.leave) {
		p.admission.leave()
	}
}

// putBack returns conn to the pool and reports whether its session is idle again or gone. If not yet, then is called when it is.
func (p *pool) putBack(conn *pgxpool.Conn, then func()) bool {
	if !conn.Conn().IsClosed() && p.takeExcess() {
		discard(conn)
	}
	if !conn.Conn().IsClosed() {
		conn.Release()
		return true
	}
	cleaned := conn.Conn().PgConn().CleanupDone()
	p.gone.Add(1) // before the release, which is what close waits for first
	conn.Release()
	select {
	case <-cleaned:
		p.gone.Done()
		return true
	default:
	}
	go func() {
		defer p.gone.Done()
		timer := time.NewTimer(cleanupBound)
		defer timer.Stop()
		select {
		case <-cleaned:
		case <-timer.C:
		}
		then()
	}()
	return false
}

// conclude does what an error asks of the pool.
func (p *pool) conclude(err error) {
	r := react(err)
	if r.reset {
		p.db.Reset()
	}
	if r.ask {
		p.askNow()
	}
}

// askNow wakes the poller. Never blocks.
func (p *pool) askNow() {
	select {
	case p.poke <- struct{}{}:
	default:
	}
}

// markDown makes requests fail at once. Only the poller calls it.
func (p *pool) markDown(err error) {
	p.state.Lock()
	first := p.state.downSince.IsZero()
	if first {
		p.state.downSince = time.Now()
	}
	p.state.lastError = err.Error()
	p.state.Unlock()
	p.admission.refuse(err)
	if first {
		p.db.Reset() // its idle connections lead nowhere
		p.log.Warn("shard is down", "shard", p.name, "error", err)
	}
}

// markUp ends markDown. Only the poller calls it.
func (p *pool) markUp() {
	p.state.Lock()
	since := p.state.downSince
	p.state.downSince, p.state.lastError = time.Time{}, ""
	p.state.Unlock()
	if !since.IsZero() {
		p.admission.admit()
		p.log.Info("shard is back", "shard", p.name, "after", time.Since(since).Round(time.Millisecond))
	}
}

// markWrong notes an error that is no reason to refuse requests. Only the poller calls it.
func (p *pool) markWrong(err error) {
	p.state.Lock()
	changed := p.state.lastError != err.Error()
	p.state.lastError = err.Error()
	p.state.Unlock()
	if changed {
		p.log.Warn("shard did not say its view", "shard", p.name, "error", err)
	}
}

// retire makes the pool refuse everything and its poller end. It does not wait.
func (p *pool) retire(why error) {
	p.admission.refuse(&shard.DownError{Shard: p.name, Err: why})
	close(p.stop)
}

// close waits until every connection is closed. Operations under way end by their own deadlines.
func (p *pool) close() {
	p.db.Close()
	p.gone.Wait()
}

func (p *pool) stats(now time.Time) PoolStats {
	a := p.admission.stats(now)
	loads, oldest := p.queuedLoads(now)
	s := PoolStats{
		Name: p.name, Limit: int(p.limit.Load()), Budget: p.conf.MaxConnections,
		InUse: a.inUse, Idle: int(p.db.Stat().IdleConns()), Refused: p.seats.refused.Load(), Locked: p.locked.Load(),
		Waiting: a.waiting + loads, OldestWait: max(a.oldest, oldest), Served: a.served, ShedFull: a.full, ShedLate: a.late,
		Spared: a.spared, SpareShed: a.spareShed, LastShed: a.lastShed,
	}
	box := p.word.remembers()
	s.Outbox, s.OldestRow = int(box.rows), time.Duration(box.oldest*float64(time.Second))
	p.state.Lock()
	defer p.state.Unlock()
	s.DownSince, s.LastError, s.Activity = p.state.downSince, p.state.lastError, p.state.activity
	s.Diagnosis = Diagnose(s, now)
	return s
}

// poolTimings are the pool's own children of the histograms.
type poolTimings struct{ load, write, poll, batch prometheus.Observer }

// lostOnce reports whether a call that failed with err, having changed nothing, deserves its one repetition over another session: the connection had died
// in the pool, led to a server that is a standby by now, or had lost the statements that were prepared on it.
func lostOnce(err error) bool {
	switch code(err) {
	case codeFeature, codeNoStatement, codeReadOnly:
		return true
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return false
	}
	return errors.Is(err, errReadOnly) || isLost(err)
}
