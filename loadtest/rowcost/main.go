package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"ringside/internal/localcluster"
	"ringside/loadtest/gauge"
)

// options are the flags.
type options struct {
	gauge.Options
	BasePort int `default:"17000" help:"First of the ports of the cluster."`
}

// What the cluster is: rows enough for every round to have cold ones.
const (
	sidecars   = 4
	cacheCount = 3
	rowCount   = 400_000
)

func main() {
	var o options
	gauge.Suite{
		Name: "rowcost", About: "Measures what rows cost through ringside, beside PostgreSQL alone.", Flags: &o, Options: &o.Options, Names: names(),
		Start: func(ctx context.Context, log io.Writer) ([]gauge.Measure, string, func() error, error) {
			r, err := newRig(ctx, o, log)
			if err != nil {
				return nil, "", nil, err
			}
			var list []gauge.Measure
			for _, m := range measures() {
				list = append(list, gauge.Measure{Name: m.name, Run: func(ctx context.Context) ([]gauge.Figure, error) { return m.run(ctx, r) }})
			}
			return list, "ringside : PostgreSQL alone", r.stop, nil
		},
	}.Main()
}

// measure is one part of the table.
type measure struct {
	name string
	run  func(ctx context.Context, r *rig) ([]gauge.Figure, error)
}

func measures() []measure {
	return []measure{{"herd", herd}, {"hits", hits}, {"misses", misses}, {"writes", writes}}
}

func names() []string {
	var list []string
	for _, m := range measures() {
		list = append(list, m.name)
	}
	return list
}

// rig is the cluster, and what has been used of it.
type rig struct {
	o       options
	dir     string
	cluster *localcluster.Cluster
	shard   *pgx.Conn
	next    int // the first row that nobody has read
}

func newRig(ctx context.Context, o options, log io.Writer) (_ *rig, err error) {
	if err := gauge.RaiseDescriptorLimit(); err != nil {
		return nil, err
	}
	r := &rig{o: o, next: 1}
	if r.dir, err = os.MkdirTemp("", "rowcost-"); err != nil {
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
	c.Binary, c.Caches, c.Shards, c.Sidecars, c.Rows, c.BasePort, c.Progress = program, cacheCount, 1, sidecars, rowCount, o.BasePort, log
	c.Config = "verify_rate: 0\n" // what the shard is asked is counted
	c.Settings = map[string]string{"shared_preload_libraries": "pg_stat_statements", "shared_buffers": "256MB"}
	if r.cluster, err = localcluster.Start(ctx, c); err != nil {
		return nil, err
	}
	if r.shard, err = pgx.Connect(ctx, r.cluster.Shards[0].AdminDSN()); err != nil {
		return nil, err
	}
	if _, err := r.shard.Exec(ctx, "create extension pg_stat_statements"); err != nil {
		return nil, err
	}
	return r, r.settle(ctx)
}

// settle waits until every sidecar caches rows for as long as it is told to: somebody follows what others change on the shard, and has come to the end of
// what was loaded into it.
func (r *rig) settle(ctx context.Context) error {
	const limit = time.Minute
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for _, s := range r.cluster.Sidecars {
		for {
			text, err := page(ctx, s.Admin, "/metrics")
			if err == nil && strings.Contains(text, `ringside_cdc_degraded{shard="s1"} 0`) {
				break
			}
			select {
			case <-ctx.Done():
				return errors.Join(fmt.Errorf("sidecar %s does not follow the shard within %v", s.Name, limit), err)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return r.followed(ctx)
}

// followed waits until what has been written to the shard up to now has been heard of: a row that is written now is, after it.
func (r *rig) followed(ctx context.Context) error {
	before, err := r.invalidated(ctx)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, r.cluster.Shards[0].DSN())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // nothing is left to lose
	if _, err := conn.Exec(ctx, "update users set visits = visits where id = $1", rowCount); err != nil {
		return err
	}
	for {
		now, err := r.invalidated(ctx)
		if err != nil || now > before {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nobody hears of what is written to the shard: %w", context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// invalidated is how many rows all sidecars have heard of.
func (r *rig) invalidated(ctx context.Context) (sum float64, err error) {
	for _, s := range r.cluster.Sidecars {
		text, err := page(ctx, s.Admin, "/metrics")
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(text) {
			var n float64
			if _, err := fmt.Sscanf(line, `ringside_cdc_invalidations_total{shard="s1"} %g`, &n); err == nil {
				sum += n
			}
		}
	}
	return sum, nil
}

func page(ctx context.Context, addr, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return "", err
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return string(body), err
}

// stop ends everything.
func (r *rig) stop() error {
	var errs []error
	if r.shard != nil {
		errs = append(errs, r.shard.Close(context.WithoutCancel(context.Background())))
	}
	if r.cluster != nil {
		errs = append(errs, r.cluster.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(r.dir))...)
}

// fresh returns the first of n rows that no measure has read yet.
func (r *rig) fresh(n int) (first int, err error) {
	if first = r.next; first+n-1 > rowCount {
		return 0, fmt.Errorf("there are not enough rows for so many rounds of that length: %d", rowCount)
	}
	r.next += n
	return first, nil
}

// asked is what the shard has been asked by now.
type asked struct{ loads, rows, statements int64 }

// asked counts all statements but those of the program itself. Of those that read rows for the cache the rows are counted too.
func (r *rig) asked(ctx context.Context) (a asked, err error) {
	err = r.shard.QueryRow(ctx, `select
coalesce(sum(calls) filter (where query like '%row_to_json(t.*)%' and query not like '%pg_stat_statements%'), 0)::bigint,
coalesce(sum(rows) filter (where query like '%row_to_json(t.*)%' and query not like '%pg_stat_statements%'), 0)::bigint,
coalesce(sum(calls) filter (where query not like '%pg_stat_statements%'), 0)::bigint from pg_stat_statements`).Scan(&a.loads, &a.rows, &a.statements)
	return a, err
}

func (a asked) minus(b asked) asked {
	return asked{a.loads - b.loads, a.rows - b.rows, a.statements - b.statements}
}
