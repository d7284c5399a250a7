package catalog

import (
	"context"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// maxDoor is the largest number of tickets of one door.
const maxDoor = 8

const (
	// lockDoor is the class of the advisory locks that are tickets, for as long as a session holds them.
	lockDoor = 0x52530005
	// doorCall bounds one statement about a ticket: a catalog that is merely slow must not let everybody in.
	doorCall = 2 * time.Second
	// doorShut is how long a catalog that could not be asked for a ticket is not asked again.
	doorShut  = 3 * time.Second
	firstLook = 10 * time.Millisecond // between two attempts to get a ticket
	// lastLook is long enough that a hundred who wait do not keep the catalog from its work, and that many find a free ticket soon all the same.
	lastLook = 160 * time.Millisecond
)

// errNoDoor says that tickets cannot be had at all: they would be nobody's behind a connection pooler, or the catalog did not answer a moment ago.
var errNoDoor = errors.New("the catalog gives no tickets")

// doors are the tickets that this sidecar holds, all of them locks of one session, which is the pool's again while there are none.
type doors struct {
	mu   sync.Mutex
	conn *pgxpool.Conn
	held map[int32]bool
	shut time.Time // until then
}

// doorSQL takes the first of these locks that is free.
const doorSQL = `select case when pg_backend_pid() <> $1::int then -1 else coalesce((select n from unnest($3::int[]) n where pg_try_advisory_lock($2::int, n) limit 1), 0) end`

// Enter takes one of the tickets, at most 8, of the door with that name: so many callers of the whole cluster at a time. It waits until ctx ends for one that is free.
// The caller must call leave, from any goroutine. The error is ctx's if none came free; after any other one the catalog gives no tickets now.
func (c *Catalog) Enter(ctx context.Context, door string, tickets int) (leave func(), err error) {
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		got := make(chan answer, 1)
		go func() {
			key, err := c.ticket(ctx, door, tickets)
			got <- answer{key, err}
		}()
		select {
		case a := <-got:
			if a.err != nil {
				return nil, a.err
			}
			if a.key != 0 {
				return func() { c.giveBack(a.key) }, nil
			}
		case <-ctx.Done():
			go func() { // it takes no longer than doorCall for each that asks
				if a := <-got; a.key != 0 {
					c.giveBack(a.key)
				}
			}()
			return nil, ctx.Err()
		}
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-timer.C:
		}
	}
}

// answer is what ticket returned.
type answer struct {
	key int32
	err error
}

// ticketsOf are the keys of a door's tickets, none of them 0.
func ticketsOf(door string, tickets int) []int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(door)) // it does not fail
	first := int32(h.Sum32()&0x7fffff)*maxDoor + 1
	keys := make([]int32, max(1, min(tickets, maxDoor)))
	for i := range keys {
		keys[i] = first + int32(i)
	}
	return keys
}

// ticket returns the key of a lock that it took; 0: none is free.
func (c *Catalog) ticket(ctx context.Context, door string, tickets int) (int32, error) {
	d := &c.doors
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Now().Before(d.shut) {
		return 0, errNoDoor
	}
	var free []int32
	for _, key := range ticketsOf(door, tickets) {
		if !d.held[key] {
			free = append(free, key)
		}
	}
	if len(free) == 0 || ctx.Err() != nil {
		return 0, ctx.Err()
	}
	// The caller's patience is not the catalog's: a statement that is cut off costs the session and every ticket.
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), doorCall)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	if d.conn == nil {
		conn, err := c.db.Acquire(call)
		if err != nil {
			d.shut = time.Now().Add(doorShut)
			return 0, errors.Join(errNoDoor, err)
		}
		d.conn, d.held = conn, map[int32]bool{}
	}
	var key int32
	err := d.conn.QueryRow(call, doorSQL, pgx.QueryExecModeExec, int32(d.conn.Conn().PgConn().PID()), int32(lockDoor), free).Scan(&key)
	if err != nil || key < 0 {
		d.shut = time.Now().Add(doorShut)
		d.drop(err)
		return 0, errors.Join(errNoDoor, err)
	}
	if key > 0 {
		d.held[key] = true
	}
	d.drop(nil)
	return key, nil
}

func (c *Catalog) giveBack(key int32) {
	d := &c.doors
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn == nil || !d.held[key] {
		return // it went with its session
	}
	delete(d.held, key)
	call, cancel := context.WithTimeout(context.Background(), doorCall)
	defer cancel()
	_, err := d.conn.Exec(call, `select pg_advisory_unlock($1::int, $2::int)`, pgx.QueryExecModeExec, int32(lockDoor), key)
	d.drop(err)
}

// drop lets the session go when it failed, and all tickets with it, or when there are none. d.mu is held.
func (d *doors) drop(err error) {
	if err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), doorCall)
		defer cancel()
		_ = d.conn.Conn().Close(ctx) // it has failed
		clear(d.held)
	}
	if len(d.held) == 0 {
		d.conn.Release()
		d.conn = nil
	}
}
