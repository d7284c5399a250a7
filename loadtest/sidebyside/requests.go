package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"ringside/loadtest/gauge"
	"ringside/resp"
)

// What the requests are about: 50 clients, values of 100 bytes, ten thousand keys.
const (
	clients    = 50
	valueBytes = 100
	keyCount   = 10_000
	keyPattern = "key:__rand_int__"
)

// requestMeasure compares one plain command through both proxies.
type requestMeasure struct {
	name      string
	command   []string
	pipeline  int
	requests  int // per turn
	processor gauge.Limit
	rate      gauge.Limit
	p50       gauge.Limit
}

func requestMeasures() []requestMeasure {
	get := []string{"GET", keyPattern}
	set := []string{"SET", keyPattern, strings.Repeat("v", valueBytes)}
	return []requestMeasure{
		{"get1", get, 1, 60_000, gauge.Limit{Most: 0.9}, gauge.Limit{Least: 1}, gauge.Limit{Most: 0.85}},
		{"get16", get, 16, 300_000, gauge.Limit{Most: 0.25}, gauge.Limit{Least: 2}, gauge.Limit{}},
		{"set1", set, 1, 60_000, gauge.Limit{Most: 1}, gauge.Limit{}, gauge.Limit{}},
		{"set16", set, 16, 300_000, gauge.Limit{Most: 0.3}, gauge.Limit{}, gauge.Limit{}},
	}
}

func (m requestMeasure) run(ctx context.Context, r *rig) ([]gauge.Figure, error) {
	for _, p := range []*proxy{r.subject, r.rival} {
		if err := fill(ctx, p.addr, strings.Repeat("v", valueBytes), numbered("key:", keyCount)); err != nil {
			return nil, err
		}
	}
	l := load{clients: clients, pipeline: m.pipeline, requests: r.o.Scaled(m.requests), keys: keyCount, command: m.command}
	a, b, err := takeTurns(ctx, r.o.Rounds, contestant{l, r.subject.addr, r.subject.proc.PID()}, contestant{l, r.rival.addr, r.rival.proc.PID()})
	if err != nil {
		return nil, err
	}
	return []gauge.Figure{
		gauge.Judge("processor time", m.processor, gauge.Ratios(a.processor, b.processor), "%.2f : %.2f us", gauge.Median(a.processor), gauge.Median(b.processor)),
		gauge.Judge("throughput", m.rate, gauge.Ratios(a.rate, b.rate), "%.0f : %.0f k/s", gauge.Median(a.rate)/1e3, gauge.Median(b.rate)/1e3),
		gauge.Judge("p50", m.p50, gauge.Ratios(a.p50, b.p50), "%.3f : %.3f ms", gauge.Median(a.p50), gauge.Median(b.p50)),
	}, nil
}

// numbered returns the keys that redis-benchmark makes of a pattern.
func numbered(prefix string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s%012d", prefix, i)
	}
	return keys
}

// fill writes a value under each key, some at a time.
func fill(ctx context.Context, addr string, value string, keys []string) error {
	c, err := gauge.Dial(ctx, addr)
	if err != nil {
		return err
	}
	defer c.Hangup()
	const atOnce = 100
	var raw []byte
	for len(keys) > 0 {
		n := min(atOnce, len(keys))
		raw = raw[:0]
		for _, k := range keys[:n] {
			raw = resp.AppendCommandString(raw, "SET", k, value)
		}
		if err := c.Send(raw); err != nil {
			return err
		}
		if err := c.Expect(bytes.Repeat([]byte("+OK\r\n"), n)); err != nil {
			return fmt.Errorf("filling %s: %w", addr, err)
		}
		keys = keys[n:]
	}
	return nil
}
