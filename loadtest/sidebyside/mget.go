package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"ringside/internal/realredis"
	"ringside/loadtest/gauge"
	"ringside/resp"
)

// mgetTurns is how often each MGET is asked per round.
const mgetTurns = 8

// mget compares MGET over all servers with the same MGET on one redis-server that holds all the keys.
func mget(ctx context.Context, r *rig) (_ []gauge.Figure, err error) {
	single, err := realredis.Start(ctx, realredis.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, single.Stop()) }()
	keys := numbered("key:", keyCount)
	value := strings.Repeat("v", valueBytes)
	times := map[string][]float64{}
	asked := []struct {
		what, addr string
		keys       []string
	}{
		{"10k", r.subject.addr, keys}, {"10k on one server", single.Addr(), keys},
		{"1k", r.subject.addr, keys[:1000]}, {"1k on one server", single.Addr(), keys[:1000]},
		{"10k of the rival", r.rival.addr, keys},
	}
	var askers []*asker
	for _, a := range asked {
		if err := fill(ctx, a.addr, value, keys); err != nil {
			return nil, err
		}
		one, err := newAsker(ctx, a.addr, append([]string{"MGET"}, a.keys...), mgetReply(len(a.keys), value))
		if err != nil {
			return nil, err
		}
		defer one.conn.Hangup()
		askers = append(askers, one)
	}
	for round := range 1 + r.o.Rounds {
		for i, a := range askers {
			took, err := a.median(mgetTurns)
			if err != nil {
				return nil, fmt.Errorf("MGET, %s: %w", asked[i].what, err)
			}
			if round > 0 { // the first one fills buffers
				times[asked[i].what] = append(times[asked[i].what], took)
			}
		}
	}
	compare := func(what string, l gauge.Limit, a, b string) gauge.Figure {
		return gauge.Judge(what, l, gauge.Ratios(times[a], times[b]), "%.2f : %.2f ms", gauge.Median(times[a]), gauge.Median(times[b]))
	}
	return []gauge.Figure{
		compare("time of 10,000 keys : on one server", gauge.Limit{Most: 2.5}, "10k", "10k on one server"),
		compare("time of 10,000 keys : 1,000 keys", gauge.Limit{Most: 12}, "10k", "1k"),
		compare("time of 1,000 keys : on one server", gauge.Limit{}, "1k", "1k on one server"),
		compare("time of 10,000 keys : "+r.rival.name, gauge.Limit{}, "10k", "10k of the rival"),
	}, nil
}

func mgetReply(n int, value string) []byte {
	reply := resp.AppendArray(nil, n)
	for range n {
		reply = resp.AppendBulk(reply, value)
	}
	return reply
}

// asker sends the same request again and again, one at a time.
type asker struct {
	conn      *gauge.Conn
	raw, want []byte
}

func newAsker(ctx context.Context, addr string, command []string, want []byte) (*asker, error) {
	c, err := gauge.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return &asker{c, resp.AppendCommandString(nil, command...), want}, nil
}

func (a *asker) ask() error {
	if err := a.conn.Send(a.raw); err != nil {
		return err
	}
	return a.conn.Expect(a.want)
}

// median asks n times and returns the median time, in ms.
func (a *asker) median(n int) (float64, error) {
	var times []float64
	for range n {
		began := time.Now()
		if err := a.ask(); err != nil {
			return 0, err
		}
		times = append(times, time.Since(began).Seconds()*1e3)
	}
	return gauge.Median(times), nil
}
