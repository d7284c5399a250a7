package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"ringside/loadtest/gauge"
)

const (
	// window is how many requests each connection has under way when what the shards can do is measured: more than there are sessions for, and few enough that
	// none waits long enough to be refused.
	window = 3
	// normal is the share of it that is offered before and after.
	normal  = 0.5
	bucket  = 250 * time.Millisecond
	settles = time.Second // what is under way from before has ended
)

// overload offers twice, and five times, what the shards can do.
func overload(ctx context.Context, r *rig) ([]gauge.Figure, error) {
	var figures []gauge.Figure
	for _, times := range []float64{2, 5} {
		var results []result
		for range r.o.Rounds {
			res, err := r.overloaded(ctx, times)
			if err != nil {
				return figures, err
			}
			results = append(results, res)
			fmt.Fprintf(r.log, "  %+v\n", res)
		}
		of := func(value func(result) float64) (list []float64) {
			for _, res := range results {
				list = append(list, value(res))
			}
			return list
		}
		median := func(value func(result) float64) float64 { return gauge.Median(of(value)) }
		what := fmt.Sprintf("%.0f times the load", times)
		figures = append(figures,
			gauge.Judge(what+": served : what the shards can do", gauge.Limit{Least: 0.9}, of(func(x result) float64 { return x.share }),
				"%.0f/s of %.0f/s; %.0f/s offered", median(func(x result) float64 { return x.served }), median(func(x result) float64 { return x.capacity }), median(func(x result) float64 { return x.offered })),
			gauge.Judge(what+": the last refusal, ms after it was asked", gauge.Limit{Most: 1000}, of(func(x result) float64 { return x.shedLast }),
				"p50 %.0f ms, p99 %.0f ms", median(func(x result) float64 { return x.shedMiddle }), median(func(x result) float64 { return x.shedLate })),
			gauge.Judge(what+": neither served nor refused as overload", gauge.Limit{Exact: true}, of(func(x result) float64 { return x.odd }), "%s", r.oddest(results)),
			gauge.Judge(what+": seconds until all is as before", gauge.Limit{Most: 3}, of(func(x result) float64 { return x.recovery }),
				"p99 of %.0f ms before", median(func(x result) float64 { return x.before })),
			gauge.Judge(what+": memory of the sidecars : before", gauge.Limit{Most: 2}, of(func(x result) float64 { return x.memory }), "%.0f MiB all together", median(func(x result) float64 { return x.mib })),
			gauge.Judge(what+": sessions on a shard", gauge.Limit{Most: float64(r.o.Budget)}, of(func(x result) float64 { return x.sessions }), "the most that was seen"),
		)
	}
	return figures, nil
}

// oddest is the first of the replies that should not have come.
func (r *rig) oddest(results []result) string {
	for _, res := range results {
		if res.said != "" {
			return strings.TrimSpace(res.said)
		}
	}
	return "none"
}

// result is one round of one load.
type result struct {
	capacity, offered, served float64 // a second
	share                     float64
	shedMiddle, shedLate      float64 // ms
	shedLast                  float64
	odd                       float64
	before                    float64 // p99 in ms
	recovery                  float64 // seconds
	memory, mib, sessions     float64
	said                      string
}

// seconds is a time of the chosen scale.
func (r *rig) seconds(n float64) time.Duration {
	return time.Duration(max(n*r.o.Scale, 1) * float64(time.Second))
}

func (r *rig) overloaded(ctx context.Context, times float64) (res result, err error) {
	c, err := r.gather(ctx)
	if err != nil {
		return res, err
	}
	defer c.hangup()
	before, err := c.capacity(ctx, r.seconds(3))
	if err != nil {
		return res, err
	}
	was, _, err := r.memory()
	if err != nil {
		return res, err
	}
	if err := c.drain(ctx); err != nil {
		return res, err
	}
	begun := c.now()
	if err := c.offer(ctx, normal*before, r.seconds(3)); err != nil {
		return res, err
	}
	res.before = c.due(begun, c.now()).percentile(0.99, served)

	res.offered = times * before
	memory := r.watchMemory()
	var from, to time.Duration
	sessions, err := r.watch.during(func() error {
		from = c.now()
		err := c.offer(ctx, res.offered, r.seconds(5))
		to = c.now()
		return err
	})
	if err != nil {
		return res, err
	}
	if err := c.offer(ctx, normal*before, r.seconds(5)); err != nil {
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
	after, err := c.capacity(ctx, r.seconds(3))
	if err != nil {
		return res, err
	}
	res.capacity = (before + after) / 2
	res.served = float64(c.ended(from+settles, to).count(served)) / (to - from - settles).Seconds()
	res.share = res.served / res.capacity
	all := c.due(from, to)
	res.shedMiddle, res.shedLate, res.shedLast = all.percentile(0.5, shed), all.percentile(0.99, shed), all.percentile(1, shed)
	res.odd = float64(c.due(0, end).count(refused))
	if said := c.said.Load(); said != nil {
		res.said = *said
	}
	res.recovery = c.recovery(to, end, 2*res.before).Seconds()
	res.memory, res.mib, res.sessions = mib/was, mib, float64(sessions.most)
	return res, nil
}

// capacity is how many requests a second are served when there are always some that wait.
func (c *crew) capacity(ctx context.Context, d time.Duration) (float64, error) {
	begun := c.now()
	if err := c.saturate(ctx, window, settles+d); err != nil {
		return 0, err
	}
	now := c.now()
	list := c.ended(begun+settles, now)
	n := list.count(served)
	if n == 0 {
		return 0, fmt.Errorf("nothing was served within %v, and %d were shed", d, list.count(shed))
	}
	return float64(n) / (now - begun - settles).Seconds(), nil
}

// recovery is how long after the load it takes until nothing is shed any more and the p99 is no more than so many ms, to the end.
func (c *crew) recovery(from, end time.Duration, p99 float64) time.Duration {
	last := time.Duration(0)
	for at := from; at+bucket <= end; at += bucket {
		list := c.due(at, at+bucket)
		if list.count(served) < len(list) || list.percentile(0.99, served) > p99 {
			last = at + bucket - from
		}
	}
	return last
}
