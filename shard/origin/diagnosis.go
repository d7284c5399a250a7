package origin

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Diagnosis says in a word why requests wait for a shard's sessions, and so what an operator should do (docs/OPERATIONS.md).
type Diagnosis string

const (
	// Fine: none waits, and none was shed a moment ago.
	Fine Diagnosis = "fine"
	// Protecting: the shard is as busy as its sessions let it be; the queue keeps the rest from it.
	Protecting Diagnosis = "protecting"
	// BudgetTooSmall: most sessions in use are not working at the moment, and the shard could do more.
	BudgetTooSmall Diagnosis = "budget too small"
	// LongTransaction: somebody's transaction has been open for long, and others wait for its locks, or it only holds its session.
	LongTransaction Diagnosis = "long transaction"
	// HotKey: most sessions in use wait for each other's short locks: many write the same row.
	HotKey Diagnosis = "hot key"
	// Down: the shard cannot be reached.
	Down Diagnosis = "down"
)

const (
	// longOpen is how old a transaction is that others should not have to wait for.
	longOpen = 5 * time.Second
	// recently is for how long requests that were shed count.
	recently = 10 * time.Second
	// activityEvery is how often a shard is asked what its sessions do, while requests wait.
	activityEvery = time.Second
)

// Activity is what the sessions of a shard's database were doing when it was last asked, those of others included.
type Activity struct {
	At      time.Time     // zero: never asked
	Working int           // they carry out a statement
	Locked  int           // they wait for a lock
	Idle    int           // they are in a transaction and wait for their client
	Oldest  time.Duration // age of the oldest transaction
}

// Diagnose decides, for one pool. Pure.
func Diagnose(s PoolStats, now time.Time) Diagnosis {
	a := s.Activity
	known := !a.At.IsZero() && now.Sub(a.At) < recently
	busy := a.Working + a.Locked + a.Idle
	switch {
	case !s.DownSince.IsZero():
		return Down
	case s.Waiting == 0 && (s.LastShed.IsZero() || now.Sub(s.LastShed) >= recently):
		return Fine
	case !known:
		return Protecting
	case a.Oldest >= longOpen && a.Locked+a.Idle > 0:
		return LongTransaction
	case a.Locked > 0 && 2*a.Locked >= busy:
		return HotKey
	case 2*a.Working < max(s.InUse, busy):
		return BudgetTooSmall
	}
	return Protecting
}

const activitySQL = `select count(*) filter (where state = 'active' and wait_event_type is distinct from 'Lock'),
count(*) filter (where state = 'active' and wait_event_type = 'Lock'), count(*) filter (where state like 'idle in transaction%'),
coalesce(extract(epoch from clock_timestamp() - min(xact_start)), 0)::float8
from pg_stat_activity where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()`

// observe asks what the shard's sessions do, if requests wait for them and it was not asked a moment ago. A failure leaves what was known.
func (p *pool) observe(ctx context.Context, conn *pgx.Conn) {
	now := time.Now()
	p.state.Lock()
	known := p.state.activity.At
	p.state.Unlock()
	if now.Sub(known) < activityEvery {
		return
	}
	if s := p.admission.stats(now); s.waiting == 0 && now.Sub(s.lastShed) >= recently {
		if loads, _ := p.queuedLoads(now); loads == 0 {
			return
		}
	}
	ctx, cancel := context.WithTimeout(ctx, minAnswer)
	defer cancel()
	a := Activity{At: now}
	var oldest float64
	if conn.QueryRow(ctx, activitySQL).Scan(&a.Working, &a.Locked, &a.Idle, &oldest) != nil {
		return
	}
	a.Oldest = time.Duration(oldest * float64(time.Second))
	p.state.Lock()
	defer p.state.Unlock()
	p.state.activity = a
}
