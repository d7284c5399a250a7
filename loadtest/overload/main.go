package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"ringside/loadtest/gauge"
)

// options are the flags.
type options struct {
	gauge.Options
	BasePort int           `default:"19500" help:"First of the ports of the cluster."`
	Sidecars int           `default:"40" help:"How many sidecars there are."`
	Budget   int           `default:"40" help:"Sessions that all of them together may have on each shard."`
	RowTime  time.Duration `default:"200ms" help:"How long a shard takes for a row that is read or written. 0: no longer than it needs, so that the processors are the limit."`
}

// Validate says which flag is out of range. kong calls it.
func (o *options) Validate() error {
	switch {
	case o.Sidecars < 4 || o.Sidecars > 49:
		return fmt.Errorf("--sidecars is %d; allowed are 4 to 49", o.Sidecars)
	case o.Budget < 2 || o.Budget > 100:
		return fmt.Errorf("--budget is %d; allowed are 2 to 100", o.Budget)
	case o.RowTime < 0 || o.RowTime > time.Second:
		return errors.New("--row-time must be from 0 to 1s")
	}
	return nil
}

func main() {
	var o options
	gauge.Suite{
		Name: "overload", About: "Measures what many sidecars do to shards that are asked for more than they can do.", Flags: &o, Options: &o.Options, Names: names(),
		Start: func(ctx context.Context, log io.Writer) ([]gauge.Measure, string, func() error, error) {
			r, err := newRig(ctx, o, log)
			if err != nil {
				return nil, "", nil, err
			}
			var list []gauge.Measure
			for _, m := range measures() {
				list = append(list, gauge.Measure{Name: m.name, Run: func(ctx context.Context) ([]gauge.Figure, error) { return m.run(ctx, r) }})
			}
			return list, "what is offered : what the shards can do", r.stop, nil
		},
	}.Main()
}

// measure is one part of the table.
type measure struct {
	name string
	run  func(ctx context.Context, r *rig) ([]gauge.Figure, error)
}

func measures() []measure {
	return []measure{{"load", overload}, {"pause", pause}, {"sessions", sessions}}
}

func names() []string {
	var list []string
	for _, m := range measures() {
		list = append(list, m.name)
	}
	return list
}
