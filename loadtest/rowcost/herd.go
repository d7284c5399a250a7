package main

import (
	"context"
	"time"

	"ringside/loadtest/gauge"
)

// Readers who come at the same time, and the cold rows that they want.
const (
	herdReaders = 2000
	herdRows    = 20
)

// herd lets 2,000 clients of all sidecars read 20 cold rows at the same moment, and counts the rows that the shard was asked for.
func herd(ctx context.Context, r *rig) ([]gauge.Figure, error) {
	all, err := r.dial(ctx, herdReaders, 0, 1, 2, 3)
	if err != nil {
		return nil, err
	}
	defer all.hangup()
	var perRow, statements, took []float64
	for range r.o.Rounds {
		first, err := r.fresh(herdRows)
		if err != nil {
			return nil, err
		}
		before, err := r.asked(ctx)
		if err != nil {
			return nil, err
		}
		lasted, err := all.together(func(i int, c *gauge.Conn) error {
			id := first + (i/sidecars)%herdRows // each row by clients of every sidecar
			reply, err := c.Ask("GET", key(id))
			if err != nil {
				return err
			}
			return isRow(reply, id)
		})
		if err != nil {
			return nil, err
		}
		now, err := r.asked(ctx)
		if err != nil {
			return nil, err
		}
		cost := now.minus(before)
		perRow = append(perRow, float64(cost.rows)/herdRows)
		statements = append(statements, float64(cost.loads))
		took = append(took, float64(lasted/time.Millisecond))
	}
	return []gauge.Figure{
		gauge.Judge("2,000 readers of 20 cold rows, 4 sidecars: rows asked of the shard for each", gauge.Limit{Most: 1.05}, perRow,
			"%.0f statements; %.0f ms until all had theirs", gauge.Median(statements), gauge.Median(took)),
	}, nil
}
