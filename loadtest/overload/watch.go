package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"ringside/internal/localcluster"
)

// watch looks at the sessions of the sidecars on every shard.
type watch struct{ conns []*pgx.Conn }

// seen is what was seen in some time.
type seen struct {
	most  int // sessions on one shard at a time
	looks int
}

func (s seen) and(o seen) seen { return seen{max(s.most, o.most), s.looks + o.looks} }

// lookAgain is the time between two looks.
const lookAgain = 10 * time.Millisecond

func newWatch(ctx context.Context, shards []*localcluster.Shard) (*watch, error) {
	w := &watch{}
	for _, s := range shards {
		conn, err := pgx.Connect(ctx, s.AdminDSN())
		if err != nil {
			return nil, errors.Join(err, w.close())
		}
		w.conns = append(w.conns, conn)
	}
	return w, nil
}

func (w *watch) close() error {
	var errs []error
	for _, c := range w.conns {
		errs = append(errs, c.Close(context.Background()))
	}
	return errors.Join(errs...)
}

// during looks at the shards again and again while do runs.
func (w *watch) during(do func() error) (seen, error) {
	ctx, stop := context.WithCancel(context.Background())
	found, errs := make([]seen, len(w.conns)), make([]error, len(w.conns))
	var watching sync.WaitGroup
	for i, c := range w.conns {
		watching.Go(func() { found[i], errs[i] = look(ctx, c) })
	}
	err := do()
	stop()
	watching.Wait()
	var all seen
	for _, s := range found {
		all = all.and(s)
	}
	return all, errors.Join(append(errs, err)...)
}

// look counts the sessions until ctx ends. The server's list is not of one moment: who is on it twice running was there between the two looks.
func look(ctx context.Context, conn *pgx.Conn) (s seen, err error) {
	last := map[int32]bool{}
	for ctx.Err() == nil {
		var pids []int32
		err := conn.QueryRow(context.Background(), `select coalesce(array_agg(pid), '{}') from pg_stat_activity where application_name = 'ringside'`).Scan(&pids)
		if err != nil {
			return s, err
		}
		both, now := 0, map[int32]bool{}
		for _, pid := range pids {
			now[pid] = true
			if last[pid] {
				both++
			}
		}
		s.most, s.looks, last = max(s.most, both), s.looks+1, now
		if wait(ctx, lookAgain) != nil {
			break
		}
	}
	return s, nil
}
