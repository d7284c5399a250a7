package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ringside/loadtest/gauge"
)

// pausedFor is how long a shard stands still.
const pausedFor = 5 * time.Second

// pause lets one shard stand still and looks at the requests to the other one. The first shard has the catalog, too.
func pause(ctx context.Context, r *rig) ([]gauge.Figure, error) {
	var figures []gauge.Figure
	for still := range shardCount {
		other := 1 - still
		var ratios, before, during, memory, mib, back, lost []float64
		for range r.o.Rounds {
			res, err := r.paused(ctx, still, other)
			if err != nil {
				return figures, err
			}
			fmt.Fprintf(r.log, "  %+v\n", res)
			ratios, before, during = append(ratios, res.during/res.before), append(before, res.before), append(during, res.during)
			memory, mib, back, lost = append(memory, res.memory), append(mib, res.mib), append(back, res.back), append(lost, res.lost)
		}
		what := fmt.Sprintf("shard s%d stands still for 5 s", still+1)
		figures = append(figures,
			gauge.Judge(what+": p99 of the other : before", gauge.Limit{Most: 2}, ratios, "%.0f : %.0f ms", gauge.Median(during), gauge.Median(before)),
			gauge.Judge(what+": requests to the other that were not served", gauge.Limit{Exact: true}, lost, "of all"),
			gauge.Judge(what+": memory of the sidecars : before", gauge.Limit{Most: 2}, memory, "%.0f MiB all together", gauge.Median(mib)),
			gauge.Judge(what+": seconds until all of its requests are served", gauge.Limit{Most: 3}, back, "from when it goes on"),
		)
	}
	return figures, nil
}

// pausedResult is one round.
type pausedResult struct {
	before, during float64 // p99 of the other shard, ms
	lost           float64
	memory, mib    float64
	back           float64 // seconds
}

func (r *rig) paused(ctx context.Context, still, other int) (res pausedResult, err error) {
	c, err := r.gather(ctx)
	if err != nil {
		return res, err
	}
	defer c.hangup()
	capacity, err := c.capacity(ctx, r.seconds(2))
	if err != nil {
		return res, err
	}
	if err := c.drain(ctx); err != nil {
		return res, err
	}
	rate := normal * capacity
	begun := c.now()
	if err := c.offer(ctx, rate, pausedFor); err != nil {
		return res, err
	}
	was, _, err := r.memory()
	if err != nil {
		return res, err
	}
	memory := r.watchMemory()
	from := c.now()
	shard := r.cluster.Shards[still]
	if err := shard.Pause(); err != nil {
		return res, err
	}
	err = c.offer(ctx, rate, pausedFor)
	to := c.now()
	if err := errors.Join(err, shard.Resume()); err != nil {
		return res, err
	}
	if err := c.offer(ctx, rate, r.seconds(5)); err != nil {
		return res, err
	}
	end := c.now()
	mib, _, err := memory()
	if err != nil {
		return res, err
	}
	if err := c.drain(ctx); err != nil {
		return res, err
	}
	res.before, res.during = c.due(begun, from).of(other).percentile(0.99, served), c.due(from, to).of(other).percentile(0.99, served)
	meanwhile := c.due(from, to).of(other)
	res.lost = float64(len(meanwhile) - meanwhile.count(served))
	res.memory, res.mib = mib/was, mib
	for at := to; at+bucket <= end; at += bucket {
		if list := c.due(at, at+bucket).of(still); list.count(served) < len(list) {
			res.back = (at + bucket - to).Seconds()
		}
	}
	return res, nil
}
