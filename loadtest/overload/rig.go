package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"ringside/internal/localcluster"
	"ringside/loadtest/gauge"
)

const (
	shardCount = 2
	cacheCount = 2
	rowCount   = 100_000
	// seated is how long the sidecars have, once they have started, to divide the sessions among them.
	seated = 5 * time.Second
)

// rig is the cluster, and who looks at the sessions on its shards.
type rig struct {
	o       options
	dir     string
	log     io.Writer
	cluster *localcluster.Cluster
	rows    [shardCount][]int // by shard: the ids that it has
	watch   *watch
	started seen // the sessions that were seen while the sidecars started
}

// slowRows makes each row take its time: a policy is asked for every row that is read or changed. The function seems to be dear, so that nobody reads rows
// that were not asked for.
const slowRows = `
create function public.dawdle() returns boolean language plpgsql volatile cost 1000000 as $$begin perform pg_sleep(%g); return true; end$$;
create policy dawdle on public.users using (public.dawdle()) with check (true);
alter table public.users enable row level security;
alter table public.users force row level security`

func newRig(ctx context.Context, o options, log io.Writer) (_ *rig, err error) {
	if err := gauge.RaiseDescriptorLimit(); err != nil {
		return nil, err
	}
	r := &rig{o: o, log: log}
	if r.dir, err = os.MkdirTemp("", "overload-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.stop())
		}
	}()
	program, err := o.Build(ctx, r.dir)
	if err != nil {
		return nil, err
	}
	c := localcluster.DefaultOptions()
	c.Binary, c.Caches, c.Shards, c.Sidecars, c.Rows, c.BasePort, c.Progress = program, cacheCount, shardCount, 1, rowCount, o.BasePort, log
	c.MaxConnections = o.Budget
	// What is read by this name is cached for a second only, so that there are always rows that are not. Nobody but the clients reads rows.
	c.Config = "  - { name: cold, pattern: \"cold:{id:int}\", table: users, value: row, ttl: 1s, negative_ttl: 1s }\nverify_rate: 0\n"
	c.Settings = map[string]string{"max_connections": strconv.Itoa(10*o.Sidecars + 100)}
	if r.cluster, err = localcluster.Start(ctx, c); err != nil {
		return nil, err
	}
	if err := r.readRows(ctx); err != nil {
		return nil, err
	}
	if r.watch, err = newWatch(ctx, r.cluster.Shards); err != nil {
		return nil, err
	}
	return r, r.startOthers(ctx)
}

// readRows learns which rows a shard has, and makes them slow.
func (r *rig) readRows(ctx context.Context) error {
	for i, s := range r.cluster.Shards {
		conn, err := pgx.Connect(ctx, s.DSN())
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // nothing is left to lose
		rows, err := conn.Query(ctx, "select id from public.users order by id")
		if err != nil {
			return err
		}
		if r.rows[i], err = pgx.CollectRows(rows, pgx.RowTo[int]); err != nil {
			return err
		}
		if r.o.RowTime > 0 {
			if _, err := conn.Exec(ctx, fmt.Sprintf(slowRows, r.o.RowTime.Seconds())); err != nil {
				return err
			}
		}
	}
	return nil
}

// startOthers starts all sidecars but the first one, at the same time.
func (r *rig) startOthers(ctx context.Context) error {
	fmt.Fprintf(r.log, "starting %d sidecars at once\n", r.o.Sidecars-1)
	for i := 1; i < r.o.Sidecars; i++ {
		r.cluster.Sidecars = append(r.cluster.Sidecars, r.cluster.NewSidecar(fmt.Sprintf("a%d", i+1), i+1))
	}
	began := time.Now()
	var err error
	r.started, err = r.watch.during(func() error {
		if err := r.start(ctx, r.cluster.Sidecars[1:]); err != nil {
			return err
		}
		fmt.Fprintf(r.log, "all are ready after %v\n", time.Since(began))
		return wait(ctx, seated)
	})
	return err
}

// start starts sidecars at the same time.
func (r *rig) start(ctx context.Context, which []*localcluster.Sidecar) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, s := range which {
		group.Go(func() error { return s.Start(ctx) })
	}
	return group.Wait()
}

// stop ends everything.
func (r *rig) stop() error {
	var errs []error
	if r.watch != nil {
		errs = append(errs, r.watch.close())
	}
	if r.cluster != nil {
		errs = append(errs, r.cluster.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(r.dir))...)
}

// wait returns after d, or with ctx.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// memory is how much the sidecars have resident, in MiB: all together, and the one that has most.
func (r *rig) memory() (sum, most float64, err error) {
	for _, s := range r.cluster.Sidecars {
		kib, err := gauge.ResidentKiB(s.PID())
		if err != nil {
			return 0, 0, err
		}
		sum, most = sum+float64(kib)/1024, max(most, float64(kib)/1024)
	}
	return sum, most, nil
}

// watchMemory returns the most that memory says until stop is called.
func (r *rig) watchMemory() (stop func() (sum, most float64, err error)) {
	end := make(chan struct{})
	var watching sync.WaitGroup
	var sum, most float64
	var failed error
	watching.Go(func() {
		for {
			s, m, err := r.memory()
			failed = errors.Join(failed, err)
			sum, most = max(sum, s), max(most, m)
			select {
			case <-end:
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	})
	return func() (float64, float64, error) {
		close(end)
		watching.Wait()
		return sum, most, failed
	}
}
