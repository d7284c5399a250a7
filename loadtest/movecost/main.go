package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"ringside/internal/localcluster"
	"ringside/loadtest"
	"ringside/loadtest/gauge"
)

// options are the flags.
type options struct {
	gauge.Options
	BasePort int     `default:"17500" help:"First of the ports of the cluster."`
	Rate     float64 `default:"4000" help:"Requests a second; one in twenty writes."`
}

const (
	rowCount = 100_000
	// moveWithin bounds a move, with the load upon it.
	moveWithin = 5 * time.Minute
)

func main() {
	var o options
	gauge.Suite{
		Name: "movecost", About: "Measures what a move of vnodes costs whoever reads and writes meanwhile.", Flags: &o, Options: &o.Options, Names: []string{"move"},
		Start: func(ctx context.Context, log io.Writer) ([]gauge.Measure, string, func() error, error) {
			r, err := newRig(ctx, o, log)
			if err != nil {
				return nil, "", nil, err
			}
			return []gauge.Measure{{Name: "move", Run: r.move}}, "during a move : without one", r.stop, nil
		},
	}.Main()
}

// rig is the cluster.
type rig struct {
	o       options
	log     io.Writer
	dir     string
	program string
	cluster *localcluster.Cluster
	plan    loadtest.Plan
	target  loadtest.Target
}

func newRig(ctx context.Context, o options, log io.Writer) (_ *rig, err error) {
	r := &rig{o: o, log: log, plan: loadtest.DefaultPlan()}
	r.plan.Rate, r.plan.Keys, r.plan.Duration = o.Rate, rowCount, moveWithin
	if err := r.plan.Validate(); err != nil {
		return nil, err
	}
	if r.dir, err = os.MkdirTemp("", "movecost-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.stop())
		}
	}()
	if r.program, err = o.Build(ctx, r.dir); err != nil {
		return nil, err
	}
	c := localcluster.DefaultOptions()
	c.Binary, c.Rows, c.BasePort, c.Progress = r.program, rowCount, o.BasePort, log
	if r.cluster, err = localcluster.Start(ctx, c); err != nil {
		return nil, err
	}
	var to loadtest.Sidecars
	for _, s := range r.cluster.Sidecars {
		to.Redis, to.Admin, to.PIDs = append(to.Redis, s.Redis), append(to.Admin, s.Admin), append(to.PIDs, s.PID())
	}
	to.Token = r.cluster.Token
	r.target = to.Target(r.plan)
	// Half of the vnodes go from shard to shard in each round. First all come together.
	if err := r.moves(ctx, "0-65535", "s2"); err != nil {
		return nil, err
	}
	return r, r.target.Warm(ctx)
}

// moves has the program move vnodes, and waits until all of it is done.
func (r *rig) moves(ctx context.Context, vnodes, to string) error {
	command := exec.CommandContext(ctx, r.program, "move", "start", "--vnodes", vnodes, "--to", to, "--wait", "--admin", r.cluster.Sidecars[0].Admin)
	command.Env = append(os.Environ(), "RINGSIDE_TOKEN="+r.cluster.Token)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("moving vnodes %s to shard %s: %w: %s", vnodes, to, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// turn is one load for so long, or until the move is done if there is one.
func (r *rig) turn(ctx context.Context, long time.Duration, move func(context.Context) error) (*loadtest.Result, error) {
	plan := r.plan
	plan.Duration = long
	var events []loadtest.Event
	if move != nil {
		events = []loadtest.Event{{Name: "move", Do: move, Last: true}}
	}
	result, err := loadtest.Run(ctx, r.target, plan, events, func(s loadtest.Second) { fmt.Fprintln(r.log, "   ", s) })
	if err != nil {
		return nil, err
	}
	if c := result.Check; c.Stale+c.Lost > 0 {
		return nil, fmt.Errorf("%d values were older than they may be, %d were lost: %v", c.Stale, c.Lost, c.Examples)
	}
	for _, e := range result.Events {
		if e.Error != "" {
			return nil, errors.New(e.Error)
		}
	}
	return result, nil
}

// move is what the program is about.
func (r *rig) move(ctx context.Context) ([]gauge.Figure, error) {
	var before, during, worst, failed, took []float64
	for round := range r.o.Rounds {
		to := [2]string{"s1", "s2"}[round%2]
		moving, err := r.turn(ctx, moveWithin, func(ctx context.Context) error { return r.moves(ctx, "0-32767", to) })
		if err != nil {
			return nil, err
		}
		long := moving.Events[0].Until - moving.Events[0].At
		quiet, err := r.turn(ctx, long, nil)
		if err != nil {
			return nil, err
		}
		before, during = append(before, float64(quiet.All.P99)), append(during, float64(moving.All.P99))
		longest := int64(0)
		for _, s := range moving.Seconds {
			longest = max(longest, s.P99)
		}
		worst = append(worst, float64(longest))
		failed = append(failed, float64(moving.Failed))
		took = append(took, long.Seconds())
		fmt.Fprintf(r.log, "  round %d: p99 %.1f ms without a move, %.1f ms during one of %.1f s, %.1f ms in its worst second, %d failed\n",
			round+1, before[round]/1e3, during[round]/1e3, took[round], worst[round]/1e3, moving.Failed)
	}
	detail := fmt.Sprintf("%.0f requests/s, %d rows, the move took %.1f s", r.o.Rate, rowCount/2, gauge.Median(took))
	return []gauge.Figure{
		gauge.Judge("p99 of all requests", gauge.Limit{Most: 2}, gauge.Ratios(during, before), "%.1f : %.1f ms; %s", gauge.Median(during)/1e3, gauge.Median(before)/1e3, detail),
		gauge.Judge("p99 of the worst second", gauge.Limit{}, gauge.Ratios(worst, before), "%.1f : %.1f ms", gauge.Median(worst)/1e3, gauge.Median(before)/1e3),
		gauge.Judge("requests that failed during the move", gauge.Limit{Exact: true}, failed, "of %.0f", r.o.Rate*gauge.Median(took)),
	}, nil
}

// stop ends everything.
func (r *rig) stop() error {
	var err error
	if r.cluster != nil {
		err = r.cluster.Stop()
	}
	return errors.Join(err, os.RemoveAll(r.dir))
}
