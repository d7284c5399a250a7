package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"ringside/internal/localcluster"
	"ringside/loadtest/gauge"
	"ringside/resp"
)

// rowCount is how many rows are read, all of which the cache holds.
const rowCount = 200

// The keys of rows and of plain keys of the same length. An id has no leading zero, and the generator writes twelve digits.
const (
	rowPrefix   = "user:1"
	plainPrefix = "text:1"
	randomPart  = "__rand_int__"
)

// rowHits compares GET of a row that the cache holds with GET of a plain key, on the same sidecar of a cluster of its own, values
// equally long.
func rowHits(ctx context.Context, r *rig) (_ []gauge.Figure, err error) {
	o := localcluster.DefaultOptions()
	o.Binary, o.Caches, o.Shards, o.Sidecars, o.Rows, o.BasePort = r.ringside, serverCount, 1, 1, 0, r.o.BasePort
	o.Dir = filepath.Join(r.dir, "cluster")
	if err := openToAll(r.dir); err != nil {
		return nil, err
	}
	cluster, err := localcluster.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	sidecar := cluster.Sidecars[0]
	size, err := fillRows(ctx, sidecar.Redis)
	if err != nil {
		return nil, err
	}
	if err := fill(ctx, sidecar.Redis, strings.Repeat("v", size), numbered(plainPrefix, rowCount)); err != nil {
		return nil, err
	}
	var list []gauge.Figure
	for _, c := range []struct {
		pipeline, requests int
		limit              gauge.Limit
	}{{1, 60_000, gauge.Limit{Most: 1.2}}, {16, 200_000, gauge.Limit{Most: 1.2}}} {
		side := func(prefix string) contestant {
			l := load{clients: clients, pipeline: c.pipeline, requests: r.o.Scaled(c.requests), keys: rowCount, command: []string{"GET", prefix + randomPart}}
			return contestant{l, sidecar.Redis, sidecar.PID()}
		}
		a, b, err := takeTurns(ctx, r.o.Rounds, side(rowPrefix), side(plainPrefix))
		if err != nil {
			return nil, err
		}
		list = append(list, gauge.Judge(fmt.Sprintf("processor time of a hit : plain GET, P=%d", c.pipeline), c.limit, gauge.Ratios(a.processor, b.processor),
			"%.2f : %.2f us", gauge.Median(a.processor), gauge.Median(b.processor)))
	}
	return list, nil
}

// fillRows writes the rows, whose GET is valueBytes long, and reads each, so that the cache holds it. It returns how long it really is.
func fillRows(ctx context.Context, addr string) (int, error) {
	c, err := gauge.Dial(ctx, addr)
	if err != nil {
		return 0, err
	}
	defer c.Hangup()
	name := "n"
	size := 0
	for i, key := range numbered(rowPrefix, rowCount) {
		if i == 1 { // now it is known how long the rest of a row is
			name = strings.Repeat("n", 1+max(0, valueBytes-size))
		}
		if _, err := c.Ask("HSET", key, "name", name); err != nil {
			return 0, fmt.Errorf("HSET %s: %w", key, err)
		}
		for range 2 { // the second one is a hit
			reply, err := c.Ask("GET", key)
			if err != nil {
				return 0, fmt.Errorf("GET %s: %w", key, err)
			}
			body, ok := resp.BulkOf(reply)
			if !ok {
				return 0, fmt.Errorf("GET %s: %q is not a row", key, reply)
			}
			size = len(body)
		}
	}
	return size, nil
}
