package catalog

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringside/internal/realpg"
)

// Guards P6: never more inside than there are tickets, whichever sidecar they are of, and everybody comes in.
func TestADoorLetsInAsManyAsItHasTickets(t *testing.T) {
	dsn := realpg.T(t).Database(t)
	for _, tickets := range []int{1, 3} {
		var inside, most, entered atomic.Int32
		var callers sync.WaitGroup
		for range 4 {
			c := open(t, dsn)
			for range 3 {
				callers.Go(func() {
					for range 3 {
						leave, err := c.Enter(t.Context(), "s1", tickets)
						if err != nil {
							t.Error(err)
							return
						}
						n := inside.Add(1)
						for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
						}
						time.Sleep(2 * time.Millisecond)
						inside.Add(-1)
						entered.Add(1)
						leave()
					}
				})
			}
		}
		callers.Wait()
		if most.Load() > int32(tickets) || entered.Load() != 36 {
			t.Errorf("%d tickets: %d were inside at a time, %d entered", tickets, most.Load(), entered.Load())
		}
	}
}

// A sidecar that dies in the door does not hold it up, and a ticket that is not free is waited for no longer than the caller likes.
func TestADoorIsFreeWhenItsHolderIsGone(t *testing.T) {
	dsn := realpg.T(t).Database(t)
	dead, other := open(t, dsn), open(t, dsn)
	leave, err := dead.Enter(t.Context(), "s1", 1)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := other.Enter(t.Context(), "s2", 1) // another door
	if err != nil {
		t.Fatal(err)
	}
	elsewhere()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := other.Enter(ctx, "s1", 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	sql(t, dsn, `select pg_terminate_backend(pid)::text from pg_locks where locktype = 'advisory' and classid = 1381171205 and database = (select oid from pg_database where datname = current_database())`)
	again, err := other.Enter(t.Context(), "s1", 1)
	if err != nil {
		t.Fatal(err)
	}
	leave() // of no consequence
	again()
	if leave, err = dead.Enter(t.Context(), "s1", 1); err != nil {
		t.Errorf("after its session was lost: %v", err)
	} else {
		leave()
	}
}

func TestTicketsOfDoors(t *testing.T) {
	seen := map[int32]string{}
	for _, door := range []string{"s1", "s2", "s3", ""} {
		keys := ticketsOf(door, maxDoor)
		if len(keys) != maxDoor || !slices.Equal(ticketsOf(door, 2), keys[:2]) || len(ticketsOf(door, 99)) != maxDoor || len(ticketsOf(door, 0)) != 1 {
			t.Errorf("%q: %v", door, keys)
		}
		for _, k := range keys {
			if k <= 0 || seen[k] != "" {
				t.Errorf("ticket %d of %q is %q's", k, door, seen[k])
			}
			seen[k] = door + "!"
		}
	}
}
