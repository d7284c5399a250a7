package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"ringside/internal/localcluster"
	"ringside/loadtest/gauge"
)

// sessions counts the sessions of the sidecars while they are asked for as much as the shards can do, and a quarter of them is started again: every other one of
// them by kill -9.
func sessions(ctx context.Context, r *rig) ([]gauge.Figure, error) {
	limit := gauge.Limit{Most: float64(r.o.Budget)}
	figures := []gauge.Figure{gauge.Judge(fmt.Sprintf("%d sidecars start at once: sessions on a shard", r.o.Sidecars), limit, []float64{float64(r.started.most)}, "in %d looks", r.started.looks)}
	var steady, restarted []float64
	looks := 0
	for round := range r.o.Rounds {
		c, err := r.gather(ctx)
		if err != nil {
			return figures, err
		}
		calm, err := r.watch.during(func() error { return c.saturate(ctx, window, r.seconds(4)) })
		if err != nil {
			c.hangup()
			return figures, err
		}
		busy, err := r.watch.during(func() error {
			c.window.Store(window) // those that are started again lose their connections
			err := r.restart(ctx, round)
			if err == nil {
				err = wait(ctx, seated)
			}
			return err
		})
		c.hangup()
		if err != nil {
			return figures, err
		}
		steady, restarted = append(steady, float64(calm.most)), append(restarted, float64(busy.most))
		looks += calm.looks + busy.looks
		fmt.Fprintf(r.log, "  %+v %+v\n", calm, busy)
	}
	return append(figures,
		gauge.Judge("while all are asked for as much as there is: sessions on a shard", limit, steady, "the most that was seen"),
		gauge.Judge("while a quarter of them is started again: sessions on a shard", limit, restarted, "%d looks in all", looks),
	), nil
}

// restart starts a quarter of the sidecars again, at the same time. Which one is another one in each round.
func (r *rig) restart(ctx context.Context, round int) error {
	var which []*localcluster.Sidecar
	for i := round % 4; i < len(r.cluster.Sidecars); i += 4 {
		which = append(which, r.cluster.Sidecars[i])
	}
	begun := time.Now()
	for i, s := range which {
		if i%2 == 0 {
			if err := s.Kill(); err != nil {
				return err
			}
			continue
		}
		if err := s.Signal(syscall.SIGTERM); err != nil {
			return err
		}
	}
	for _, s := range which {
		select {
		case <-s.Done():
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(30 * time.Second):
			return fmt.Errorf("sidecar %s does not end", s.Name)
		}
	}
	err := r.start(ctx, which)
	fmt.Fprintf(r.log, "  %d sidecars were started again within %v\n", len(which), time.Since(begun))
	return err
}
