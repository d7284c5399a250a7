package main

import (
	"context"
	"math/rand/v2"

	"ringside/loadtest/gauge"
)

// A mix of reads of which 99 in 100 are of rows that are cached.
const (
	hitClients = 64
	hitReads   = 500 // of each client and turn
	warmRows   = 2000
	coldEvery  = 100
)

// hits counts what a mix of reads costs the shard that nearly all hit.
func hits(ctx context.Context, r *rig) ([]gauge.Figure, error) {
	warm, err := r.fresh(warmRows)
	if err != nil {
		return nil, err
	}
	all, err := r.dial(ctx, hitClients, 0, 1, 2, 3)
	if err != nil {
		return nil, err
	}
	defer all.hangup()
	read := func(c *gauge.Conn, id int) error {
		reply, err := c.Ask("GET", key(id))
		if err != nil {
			return err
		}
		return isRow(reply, id)
	}
	if _, err := all.together(func(i int, c *gauge.Conn) error {
		for range 2 { // what could not be filled the first time
			for id := warm + i; id < warm+warmRows; id += hitClients {
				if err := read(c, id); err != nil {
					return err
				}
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	reads := coldEvery * max(1, r.o.Scaled(hitReads)/coldEvery)
	var share, statements, rate []float64
	for range r.o.Rounds {
		cold, err := r.fresh(hitClients * reads / coldEvery)
		if err != nil {
			return nil, err
		}
		before, err := r.asked(ctx)
		if err != nil {
			return nil, err
		}
		took, err := all.together(func(i int, c *gauge.Conn) error {
			next := cold + i
			for n := range reads {
				id := warm + rand.IntN(warmRows)
				if n%coldEvery == i { // there are fewer clients than that
					id = next
					next += hitClients
				}
				if err := read(c, id); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		now, err := r.asked(ctx)
		if err != nil {
			return nil, err
		}
		cost := now.minus(before)
		share = append(share, 100*float64(cost.loads)/float64(reads*hitClients))
		statements = append(statements, 100*float64(cost.statements)/float64(reads*hitClients))
		rate = append(rate, float64(reads*hitClients)/took.Seconds())
	}
	return []gauge.Figure{
		gauge.Judge("99% hits: reads of rows by the shard, in % of the reads", gauge.Limit{Most: 1}, share, "%.0f k reads/s", gauge.Median(rate)/1e3),
		gauge.Judge("99% hits: all statements of the shard, in % of the reads", gauge.Limit{}, statements, "questions for the view included"),
	}, nil
}
