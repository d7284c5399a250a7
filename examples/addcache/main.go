package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	readers = 16
	rows    = 5000
	before  = 3 // seconds of load before the server is added
	after   = 2 // and after it has joined
	most    = 120
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "addcache:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	admin, err := newAdmin()
	if err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: cmp.Or(os.Getenv("RINGSIDE"), "127.0.0.1:16001"), PoolSize: readers})
	defer client.Close()
	for id := 1; id <= rows; id += 100 { // so that all of them are cached
		keys := make([]string, 0, 100)
		for i := range 100 {
			keys = append(keys, key(id+i))
		}
		if err := client.MGet(ctx, keys...).Err(); err != nil {
			return err
		}
	}
	var load load
	loading, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	for range readers {
		group.Go(func() { load.read(loading, client) })
	}
	err = watch(ctx, admin, &load)
	stop()
	group.Wait()
	return err
}

func key(id int) string { return fmt.Sprintf("user:%d", id) }

// load counts what the readers have seen since it was asked last.
type load struct {
	requests, errors, slowest atomic.Int64
	lastError                 atomic.Value
}

func (l *load) read(ctx context.Context, client *redis.Client) {
	for ctx.Err() == nil {
		began := time.Now()
		err := client.Get(ctx, key(1+rand.IntN(rows))).Err()
		if ctx.Err() != nil {
			return
		}
		l.requests.Add(1)
		if err != nil {
			l.errors.Add(1)
			l.lastError.Store(err.Error())
		}
		took := int64(time.Since(began))
		for old := l.slowest.Load(); took > old && !l.slowest.CompareAndSwap(old, took); old = l.slowest.Load() {
		}
	}
}

// watch prints a line each second, adds the server, and returns when it has joined.
func watch(ctx context.Context, admin *admin, l *load) error {
	name, addr := "spare", cmp.Or(os.Getenv("RINGSIDE_SPARE"), "127.0.0.1:16350")
	fmt.Printf("%7s %10s %8s %11s %9s\n", "second", "requests", "errors", "hit ratio", "slowest")
	last, err := admin.reads(ctx)
	if err != nil {
		return err
	}
	var failed int64
	joined := 0
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for second := 1; second <= most; second++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		now, err := admin.reads(ctx)
		if err != nil {
			return err
		}
		errs := l.errors.Swap(0)
		failed += errs
		fmt.Printf("%7d %10d %8d %10.2f%% %6.1f ms\n", second, l.requests.Swap(0), errs, 100*now.since(last).ratio(), float64(l.slowest.Swap(0))/1e6)
		last = now
		if second == before {
			fmt.Printf("adding %s, %s\n", name, addr)
			if err := admin.add(ctx, name, addr); err != nil {
				return err
			}
		}
		if second <= before {
			continue
		}
		if done, err := admin.settled(ctx, name); err != nil || !done {
			if err != nil {
				return err
			}
			continue
		}
		if joined++; joined > after {
			share, err := admin.share(ctx, name)
			fmt.Printf("%s is active and owns %.1f%% of the ring\n", name, 100*share)
			if failed > 0 {
				err = errors.Join(err, fmt.Errorf("%d requests failed, the last one by: %v", failed, l.lastError.Load()))
			}
			return err
		}
	}
	return fmt.Errorf("%s has not joined within %d s", name, most)
}
