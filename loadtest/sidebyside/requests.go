package main

import (
	"context"
	"fmt"
	"strings"
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
	processor limit
	rate      limit
	p50       limit
}

func requestMeasures() []requestMeasure {
	get := []string{"GET", keyPattern}
	set := []string{"SET", keyPattern, strings.Repeat("v", valueBytes)}
	return []requestMeasure{
		{"get1", get, 1, 60_000, limit{most: 0.9}, limit{least: 1}, limit{most: 0.85}},
		{"get16", get, 16, 300_000, limit{most: 0.25}, limit{least: 2}, limit{}},
		{"set1", set, 1, 60_000, limit{most: 1}, limit{}, limit{}},
		{"set16", set, 16, 300_000, limit{most: 0.3}, limit{}, limit{}},
	}
}

func (m requestMeasure) run(ctx context.Context, r *rig) ([]figure, error) {
	for _, p := range []*proxy{r.subject, r.rival} {
		if err := fill(ctx, p.addr, strings.Repeat("v", valueBytes), numbered("key:", keyCount)); err != nil {
			return nil, err
		}
	}
	l := load{clients: clients, pipeline: m.pipeline, requests: r.scaled(m.requests), keys: keyCount, command: m.command}
	a, b, err := takeTurns(ctx, r.o.Rounds, contestant{l, r.subject.addr, r.subject.proc.PID()}, contestant{l, r.rival.addr, r.rival.proc.PID()})
	if err != nil {
		return nil, err
	}
	return []figure{
		judge("processor time", m.processor, ratios(a.processor, b.processor), "%.2f : %.2f us", median(a.processor), median(b.processor)),
		judge("throughput", m.rate, ratios(a.rate, b.rate), "%.0f : %.0f k/s", median(a.rate)/1e3, median(b.rate)/1e3),
		judge("p50", m.p50, ratios(a.p50, b.p50), "%.3f : %.3f ms", median(a.p50), median(b.p50)),
	}, nil
}

// scaled is how many requests a turn of the chosen length has.
func (r *rig) scaled(requests int) int { return max(int(float64(requests)*r.o.Scale), 100) }

// numbered returns the keys that redis-benchmark makes of a pattern.
func numbered(prefix string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s%012d", prefix, i)
	}
	return keys
}
