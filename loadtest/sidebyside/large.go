package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"ringside/internal/childproc"
	"ringside/loadtest/gauge"
	"ringside/resp"
)

const (
	largeBytes    = 1 << 20
	largeKeys     = 12
	largeClients  = 8
	largeRequests = 60 // of each client, per turn
)

// largeValues compares GET of 1 MiB through both proxies.
func largeValues(ctx context.Context, r *rig) ([]gauge.Figure, error) {
	value := strings.Repeat("v", largeBytes)
	var a, b turns
	sides := []struct {
		*proxy
		into *turns
	}{{r.subject, &a}, {r.rival, &b}}
	for _, side := range sides {
		if err := fillLarge(ctx, side.addr, value); err != nil {
			return nil, err
		}
	}
	for round := range 1 + r.o.Rounds {
		for i := range sides {
			side := sides[(i+round)%len(sides)]
			t, err := largeTurn(ctx, side.proxy, r.o.Scaled(largeClients*largeRequests)/largeClients, value)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", side.name, err)
			}
			if round > 0 { // the first one fills buffers
				side.into.add(t)
			}
		}
	}
	return []gauge.Figure{
		gauge.Judge("throughput of 1 MiB values", gauge.Limit{Least: 1}, gauge.Ratios(a.rate, b.rate), "%.0f : %.0f MiB/s (twemproxy's mbuf-size: %d)", gauge.Median(a.rate), gauge.Median(b.rate), r.o.MbufSize),
		gauge.Judge("processor time of 1 MiB values", gauge.Limit{}, gauge.Ratios(a.processor, b.processor), "%.0f : %.0f us", gauge.Median(a.processor), gauge.Median(b.processor)),
	}, nil
}

func fillLarge(ctx context.Context, addr, value string) error {
	for _, key := range numbered("large:", largeKeys) { // one at a time, so that it can be any number
		if err := fill(ctx, addr, value, []string{key}); err != nil {
			return err
		}
	}
	return nil
}

func largeTurn(ctx context.Context, p *proxy, requests int, value string) (turn, error) {
	want := resp.AppendBulk(nil, value)
	var askers []*asker
	keys := numbered("large:", largeKeys)
	for i := range largeClients {
		a, err := newAsker(ctx, p.addr, []string{"GET", keys[i%len(keys)]}, want)
		if err != nil {
			return turn{}, err
		}
		defer a.conn.Hangup()
		askers = append(askers, a)
	}
	before, err := childproc.ProcessorTime(p.proc.PID())
	if err != nil {
		return turn{}, err
	}
	began := time.Now()
	var group errgroup.Group
	for _, a := range askers {
		group.Go(func() error {
			for range requests {
				if err := a.ask(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return turn{}, err
	}
	took := time.Since(began)
	after, err := childproc.ProcessorTime(p.proc.PID())
	if err != nil {
		return turn{}, err
	}
	n := float64(requests * largeClients)
	return turn{processor: float64((after - before).Nanoseconds()) / 1e3 / n, rate: n / took.Seconds()}, nil
}
