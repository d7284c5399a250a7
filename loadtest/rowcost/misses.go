package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"ringside/loadtest/gauge"
	"ringside/resp"
)

// Clients that read rows nobody has read before.
const (
	missClients  = 32
	missPipeline = 16
	missReads    = 640 // of each client and turn
	missMGet     = 100 // keys of an MGET
	pgbenchScale = 10
)

// misses compares the rate at which distinct rows are read that are not cached with that of pgbench's own reads, on the same shard and
// with as many connections as the sidecar has there.
func misses(ctx context.Context, r *rig) ([]gauge.Figure, error) {
	if _, err := r.pgbench(ctx, "-i", "-q", "-s", strconv.Itoa(pgbenchScale)); err != nil {
		return nil, err
	}
	if err := r.followed(ctx); err != nil { // the log of that has to be read through, too
		return nil, err
	}
	all, err := r.dial(ctx, missClients, 0)
	if err != nil {
		return nil, err
	}
	defer all.hangup()
	if _, err := r.missTurn(ctx, all, missPipeline, 1, missClients*missPipeline); err != nil { // opens the sessions
		return nil, err
	}
	reads := missClients * r.o.Scaled(missReads)
	var gets, mgets, alone, connections []float64
	for range r.o.Rounds {
		began := time.Now()
		one, err := r.missTurn(ctx, all, missPipeline, 1, reads)
		if err != nil {
			return nil, err
		}
		n, err := r.sessions(ctx, began)
		if err != nil {
			return nil, err
		}
		direct, err := r.pgbenchTurn(ctx, n, time.Duration(r.o.Scale*float64(time.Second)))
		if err != nil {
			return nil, err
		}
		many, err := r.missTurn(ctx, all, 1, missMGet, reads)
		if err != nil {
			return nil, err
		}
		gets, mgets, alone, connections = append(gets, one), append(mgets, many), append(alone, direct), append(connections, float64(n))
	}
	detail := fmt.Sprintf("%%.0f : %%.0f k rows/s; %.0f connections each", gauge.Median(connections))
	return []gauge.Figure{
		gauge.Judge(fmt.Sprintf("misses of GET, %d clients, P=%d: rows/s : pgbench -S", missClients, missPipeline), gauge.Limit{Least: 3}, gauge.Ratios(gets, alone),
			detail, gauge.Median(gets)/1e3, gauge.Median(alone)/1e3),
		gauge.Judge(fmt.Sprintf("misses of MGET of %d, %d clients: rows/s : pgbench -S", missMGet, missClients), gauge.Limit{Least: 3}, gauge.Ratios(mgets, alone),
			detail, gauge.Median(mgets)/1e3, gauge.Median(alone)/1e3),
	}, nil
}

// missTurn reads so many rows that are not cached, by pipelines of commands with so many keys each, and returns how many a second.
func (r *rig) missTurn(ctx context.Context, all clients, pipeline, keys, rows int) (float64, error) {
	first, err := r.fresh(rows)
	if err != nil {
		return 0, err
	}
	before, err := r.asked(ctx)
	if err != nil {
		return 0, err
	}
	name := "GET"
	if keys > 1 {
		name = "MGET"
	}
	each := rows / len(all)
	took, err := all.together(func(i int, c *gauge.Conn) error {
		args := make([]string, 1+keys)
		args[0] = name
		var raw []byte
		for id, end := first+i*each, first+(i+1)*each; id < end; {
			raw = raw[:0]
			sent := 0
			for ; sent < pipeline && id < end; sent++ {
				n := min(keys, end-id)
				for k := range n {
					args[1+k] = key(id + k)
				}
				id += n
				raw = resp.AppendCommandString(raw, args[:1+n]...)
			}
			if err := c.Send(raw); err != nil {
				return err
			}
			if err := c.Replies(sent); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	now, err := r.asked(ctx)
	if err != nil {
		return 0, err
	}
	if cost := now.minus(before); cost.rows < int64(each*len(all)) {
		return 0, fmt.Errorf("the shard was asked for %d rows of %d: the others were cached", cost.rows, each*len(all))
	}
	return float64(each*len(all)) / took.Seconds(), nil
}

// sessions is how many connections have read rows for the cache since then.
func (r *rig) sessions(ctx context.Context, since time.Time) (n int, err error) {
	err = r.shard.QueryRow(ctx, `select count(*) from pg_stat_activity
where application_name = 'ringside' and query like '%row_to_json(t.*)%' and query_start >= $1`, since).Scan(&n)
	if err == nil && n == 0 {
		err = errors.New("no session has read rows")
	}
	return n, err
}

// pgbenchTurn runs pgbench's reads by so many connections and returns how many rows it has read a second.
func (r *rig) pgbenchTurn(ctx context.Context, connections int, d time.Duration) (float64, error) {
	seconds := strconv.Itoa(max(1, int(d/time.Second)))
	out, err := r.pgbench(ctx, "-S", "-M", "prepared", "-n", "-c", strconv.Itoa(connections), "-j", strconv.Itoa(min(connections, runtime.NumCPU())), "-T", seconds)
	if err != nil {
		return 0, err
	}
	return parseRate(out)
}

// pgbench runs pgbench on the shard and returns what it prints.
func (r *rig) pgbench(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "pgbench", append(args, r.cluster.Shards[0].DSN())...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("pgbench %v: %w: %.500q", args, err, out)
	}
	return string(out), nil
}

// parseRate finds the rate in what pgbench prints: "tps = 12345.678901 (without initial connection time)".
func parseRate(out string) (float64, error) {
	for line := range strings.Lines(out) {
		var rate float64
		if _, err := fmt.Sscanf(line, "tps = %f", &rate); err == nil && rate > 0 {
			return rate, nil
		}
	}
	return 0, fmt.Errorf("pgbench printed no rate: %.500q", out)
}
