package origin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"ringside/shard"
)

// A shard's budget is kept by the shard itself. A session takes one of Seats(budget) numbered seats, a session-level advisory lock on the shard,
// before it does anything else, or is closed again. The server frees a seat when the session has ended, whatever became of its sidecar. So the
// budget holds whoever is cut off from whom, and whatever gossip believes; gossip only says how many each should aim at.
//
// A session that has no seat yet counts too. It comes in by a door: a ticket of the catalog, of which there are as many as Doors(budget), the sessions of
// the budget that are no seats. While the catalog cannot be asked the door stands open, and attempts may be seen beyond the budget for a moment.

// Doors is how many of a shard's sessions are kept for those that are being opened, and have no seat yet.
func Doors(budget int) int {
	if budget < 2 {
		return 0
	}
	return min(max(budget/16, 1), 8)
}

// Seats is how many sessions of a shard's budget can be used at a time.
func Seats(budget int) int { return max(budget-Doors(budget), 1) }

// Share is how many sessions one of so many sidecars should aim at; 0: there are more sidecars than seats, and they take turns.
func Share(budget, sidecars int) int { return Seats(budget) / max(sidecars, 1) }

// Door lets through the door of a shard, at most width callers of the whole cluster at a time. The caller must leave. ok is false if it took too long;
// a nil leave says that the door is not guarded just now.
type Door func(ctx context.Context, shard string, width int) (leave func(), ok bool)

const (
	// doorWait is how long somebody who wants to open a session waits for the door. He has nothing of the shard's meanwhile.
	doorWait = time.Second
	// firstWait is how long a sidecar without any session waits for a seat: others see that somebody stands there when they next ask for the view.
	firstWait = 1200 * time.Millisecond
	seatPause = 15 * time.Millisecond
	// shortHold is how long a session is kept at least while sidecars take turns; fairHold, while there should be enough for all.
	shortHold = time.Second
	fairHold  = 3 * time.Second
	// growAfter is how long a pool that was refused a seat makes do with what it has.
	growAfter = 500 * time.Millisecond
	// listedFor bounds the wait for sessions that have given up their seats to be gone from the server's list.
	listedFor   = 300 * time.Millisecond
	listedPause = 5 * time.Millisecond
	// goneWithin bounds the wait for the server to end a session that got no seat, or was given up before it had answered: it may still begin.
	goneWithin = 3 * time.Second
)

var (
	// errNoSeat says that the budget of the whole cluster is used up just now. The shard is saturated, not down.
	errNoSeat = fmt.Errorf("no session of the cluster's budget is free: %w", shard.ErrOverloaded)
	// errDoor is errNoSeat of somebody who did not come as far as to ask the shard.
	errDoor = fmt.Errorf("too many sessions are being opened: %w", errNoSeat)
)

// isNoSeat reports whether no session could be opened because there are enough of them.
func isNoSeat(err error) bool {
	return errors.Is(err, errNoSeat) || code(err) == codeTooManyConnections
}

// seatSQL takes the first free seat of $3, beginning at a random one: 0 if there is none, -1 if a connection pooler stands between, behind which a
// lock of a session is nobody's. LIMIT ends the scan at the first lock that is got.
const seatSQL = `/* in the door */ select case when pg_backend_pid() <> $1::int then -1 else coalesce((select n from
(select ($2::int + i) % $3::int + 1 as n from generate_series(0, $3::int - 1) i) as seats where pg_try_advisory_lock($4::int, n) limit 1), 0) end`

// Key 0 of the seats' class is held by who stands in the door of a shard that he has no session on.
const (
	standSQL   = `/* in the door */ select pg_try_advisory_lock($1::int, 0)`
	unstandSQL = `select pg_advisory_unlock($1::int, 0)`
)

// concede is how many of its sessions a sidecar gives up when another one stands in the door without any. held counts its sessions, heldFor is how long it
// has had one, share what it should aim at, less than 1 if there are more sidecars than seats.
func concede(held, share int, heldFor time.Duration) int {
	switch {
	case held == 0:
		return 0
	case held > 1:
		return 1
	case share < 1 && heldFor >= shortHold, heldFor >= fairHold:
		return 1
	}
	return 0
}

// seats is what a pool knows of its place in the budget.
type seats struct {
	n       int // of the shard
	doors   int
	door    Door          // nil: not guarded
	share   atomic.Int32  // as gossip says
	refused atomic.Uint64 // sessions for which there was no seat
	pooled  atomic.Bool   // a connection pooler stands between: the shard cannot count
	silent  atomic.Bool   // the last connection that was tried was not made in time

	mu      sync.Mutex
	since   time.Time // when the pool came to have a session, having had none
	ceiling int       // sessions that requests have to make do with; noCeiling: there is none
	until   time.Time // the ceiling stays
	denied  time.Time // when there was last no seat for us
}

const noCeiling = -1

type patientKey struct{}

// patiently makes the opening of a session wait for a seat if the pool has no other one.
func patiently(ctx context.Context) context.Context {
	return context.WithValue(ctx, patientKey{}, true)
}

// held counts the sessions of the pool.
func (p *pool) held() int {
	s := p.db.Stat()
	return int(s.AcquiredConns() + s.IdleConns())
}

// beforeConnect implements pgxpool.Config.BeforeConnect: cc is of this session alone. The door comes before dialling: a server has the cost of a process for each
// connection, also for one that never says anything, and where many wait that would leave it no time for those who may come in. Only who was not answered the
// last time dials first: who tries a dead address must be in nobody's way.
func (p *pool) beforeConnect(_ context.Context, cc *pgx.ConnConfig) error {
	dial := cc.DialFunc
	var connected atomic.Bool // later calls are for cancelling a statement
	cc.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if connected.Load() || p.seats.door == nil {
			return dial(ctx, network, addr)
		}
		if !p.seats.silent.Load() {
			leave, err := p.enterDoor(ctx)
			if err != nil {
				return nil, err
			}
			conn, err := dial(ctx, network, addr)
			if err != nil {
				p.seats.silent.Store(isTimeout(err))
				if leave != nil {
					leave()
				}
				return nil, err
			}
			return &entrance{Conn: conn, pool: p, leave: leave, connected: &connected}, nil
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		p.seats.silent.Store(false)
		leave, err := p.enterDoor(ctx)
		if err != nil {
			_ = conn.Close() // nothing was said yet
			return nil, err
		}
		return &entrance{Conn: conn, pool: p, leave: leave, connected: &connected}, nil
	}
	return nil
}

// enterDoor waits for the door. leave is nil while nobody guards it.
func (p *pool) enterDoor(ctx context.Context) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, doorWait)
	defer cancel()
	leave, ok := p.seats.door(ctx, p.name, p.seats.doors)
	if !ok {
		return nil, errDoor
	}
	return leave, nil
}

// afterConnect implements pgxpool.Config.AfterConnect.
func (p *pool) afterConnect(ctx context.Context, conn *pgx.Conn) error {
	netConn := conn.PgConn().Conn()
	if secured, ok := netConn.(*tls.Conn); ok {
		netConn = secured.NetConn()
	}
	e, guarded := netConn.(*entrance)
	if guarded {
		e.connected.Store(true)
	}
	if err := p.takeSeat(ctx, conn); err != nil || !guarded {
		return err
	}
	err := p.awaitListed(ctx, conn)
	if err == nil {
		e.pass()
	}
	return err
}

// listedSQL counts the sessions of sidecars that the server lists, but for those in the door: what they have said so far is nothing, or pgx's question for a
// primary, or that they want a seat.
const listedSQL = `select count(*) from pg_stat_activity where datname = current_database() and application_name = current_setting('application_name')
and query <> '' and query <> 'show transaction_read_only' and query not like '/* in the door */%'`

// awaitListed waits in the door until the next one may come in: the server lists a session for a moment after it has freed its seat, and that
// one may be ours by now.
func (p *pool) awaitListed(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.LoadTimeout)
	defer cancel()
	for begun := time.Now(); ; {
		var listed int
		if err := conn.QueryRow(ctx, listedSQL, pgx.QueryExecModeExec).Scan(&listed); err != nil {
			return err
		}
		if listed <= p.seats.n || time.Since(begun) > listedFor {
			return nil
		}
		if err := sleep(ctx, listedPause); err != nil {
			return err
		}
	}
}

func (p *pool) takeSeat(ctx context.Context, conn *pgx.Conn) error {
	patience := time.Duration(0)
	if ctx.Value(patientKey{}) != nil && p.held() == 0 {
		patience = firstWait
	}
	begun, standing := time.Now(), false
	ctx, cancel := context.WithTimeout(ctx, p.cfg.LoadTimeout+patience)
	defer cancel()
	for {
		var seat int
		err := conn.QueryRow(ctx, seatSQL, pgx.QueryExecModeExec, int32(conn.PgConn().PID()), int32(rand.N(p.seats.n)), int32(p.seats.n), int32(LockSeat)).Scan(&seat)
		switch {
		case err != nil:
			return err
		case seat < 0 && !p.seats.pooled.Swap(true):
			p.log.Warn("a connection pooler stands before the shard: its sessions are counted by gossip only, which may exceed the budget for a while", "shard", p.name)
		case seat == 0 && time.Since(begun) >= patience:
			p.seats.refused.Add(1)
			return errNoSeat
		case seat == 0:
			if !standing {
				if err := conn.QueryRow(ctx, standSQL, pgx.QueryExecModeExec, int32(LockSeat)).Scan(&standing); err != nil {
					return err
				}
			}
			if err := sleep(ctx, seatPause); err != nil {
				return err
			}
			continue
		}
		if standing { // nobody needs to give way any more
			if _, err := conn.Exec(ctx, unstandSQL, pgx.QueryExecModeExec, int32(LockSeat)); err != nil {
				return err
			}
		}
		p.seated()
		return nil
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// seated notes that there is one more session.
func (p *pool) seated() {
	first := p.held() == 0
	p.seats.mu.Lock()
	defer p.seats.mu.Unlock()
	if first {
		p.seats.since = time.Now()
	}
}

// usable counts the sessions that requests can have. p.resizing is held.
func (p *pool) usable() int {
	n := p.held()
	if p.pollerHolds.Load() {
		n--
	}
	return max(n, 0)
}

// unseated makes requests do with the sessions that there are, or wait if there are none: the poller stands in the door for them, or lets them have its own.
func (p *pool) unseated() {
	p.resizing.Lock()
	defer p.resizing.Unlock()
	usable := p.usable()
	p.seats.mu.Lock()
	p.seats.denied = time.Now()
	pause := growAfter/2 + rand.N(growAfter)
	p.seats.ceiling, p.seats.until = usable, time.Now().Add(pause)
	p.seats.mu.Unlock()
	time.AfterFunc(pause, p.regrow)
	p.resize()
	if usable == 0 {
		p.askNow()
	}
}

// regrow lets requests have more sessions than there are again, if they have been doing without for long enough; and the first one when there is one at last.
func (p *pool) regrow() {
	p.resizing.Lock()
	defer p.resizing.Unlock()
	usable := p.usable()
	p.seats.mu.Lock()
	switch {
	case !time.Now().Before(p.seats.until):
		p.seats.ceiling = noCeiling
	case p.seats.ceiling == 0:
		p.seats.ceiling = usable
	}
	p.seats.mu.Unlock()
	p.resize()
}

// sharing reports whether the poller shares a session with requests: there may be one only, or there is.
func (p *pool) sharing() bool {
	if p.limit.Load() < 2 {
		return true
	}
	p.seats.mu.Lock()
	denied := p.seats.denied
	p.seats.mu.Unlock()
	return time.Since(denied) < fairHold && p.held() < 2
}

// resize admits as many requests as there may be sessions for them. p.resizing is held.
func (p *pool) resize() {
	n := max(int(p.limit.Load())-1, 1)
	p.seats.mu.Lock()
	if p.seats.ceiling != noCeiling {
		n = min(n, p.seats.ceiling)
	}
	p.seats.mu.Unlock()
	p.admission.resize(n)
}

// giveWay gives up what is due to a sidecar that has no session at all. It reports whether the last one is to go, which is not done yet.
func (p *pool) giveWay() (last bool) {
	p.seats.mu.Lock()
	since := p.seats.since
	p.seats.mu.Unlock()
	held := p.held()
	if concede(held, int(p.seats.share.Load()), time.Since(since)) == 0 {
		return false
	}
	if held == 1 {
		return true
	}
	p.resizing.Lock()
	defer p.resizing.Unlock()
	p.giveUp(1)
	return false
}

// entrance is a connection in the door. It is left when the session has a seat, or when the server has ended it.
type entrance struct {
	net.Conn
	pool      *pool
	leave     func() // may be nil
	connected *atomic.Bool
	left      atomic.Bool
	closed    atomic.Bool
}

// pass leaves the door: the session has a seat.
func (e *entrance) pass() {
	if !e.left.Swap(true) && e.leave != nil {
		e.leave()
	}
}

// Close closes the connection. If it still stands in the door, that is left when the server has ended the session, or does not do so in time. pgx may call it
// more than once.
func (e *entrance) Close() error {
	if e.closed.Swap(true) {
		return nil
	}
	if e.left.Swap(true) || e.leave == nil {
		return e.Conn.Close()
	}
	e.pool.gone.Go(func() {
		defer e.leave()
		// Not a deadline: pgx sets its own.
		timer := time.AfterFunc(goneWithin, func() { _ = e.Conn.Close() })
		defer func() {
			timer.Stop()
			_ = e.Conn.Close() // it is being thrown away
		}()
		if half, ok := e.Conn.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
			return
		}
		_ = e.SetDeadline(time.Time{})     // else it is left early
		_, _ = io.Copy(io.Discard, e.Conn) // until the server has closed it
	})
	return nil
}
