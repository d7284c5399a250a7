package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"ringside/internal/childproc"
	"ringside/internal/realredis"
	"ringside/loadtest/gauge"
)

// overTLS compares a sidecar that speaks TLS with its cache servers with one that speaks plain TCP with the same servers.
func overTLS(ctx context.Context, r *rig) (_ []gauge.Figure, err error) {
	authority, err := realredis.NewAuthority(r.dir, "authority")
	if err != nil {
		return nil, err
	}
	own, err := authority.Issue("redis-server", "127.0.0.1")
	if err != nil {
		return nil, err
	}
	var plain, encrypted []string
	for range serverCount {
		port, err := childproc.FreePort()
		if err != nil {
			return nil, err
		}
		s, err := realredis.Start(ctx, realredis.Options{Args: []string{
			"--tls-port", strconv.Itoa(port), "--tls-cert-file", own.Cert, "--tls-key-file", own.Key, "--tls-ca-cert-file", authority.CA, "--tls-auth-clients", "no",
		}})
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.Stop()) }()
		plain, encrypted = append(plain, s.Addr()), append(encrypted, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}
	without, err := r.startRingside(ctx, "plain", r.ringside, plain, "")
	if err != nil {
		return nil, err
	}
	with, err := r.startRingside(ctx, "encrypted", r.ringside, encrypted, authority.CA)
	if err != nil {
		return nil, err
	}
	if err := fill(ctx, without.addr, strings.Repeat("v", valueBytes), numbered("key:", keyCount)); err != nil {
		return nil, err
	}
	var list []gauge.Figure
	for _, c := range []struct{ pipeline, requests int }{{1, 60_000}, {16, 300_000}} {
		l := load{clients: clients, pipeline: c.pipeline, requests: r.o.Scaled(c.requests), keys: keyCount, command: []string{"GET", keyPattern}}
		a, b, err := takeTurns(ctx, r.o.Rounds, contestant{l, with.addr, with.proc.PID()}, contestant{l, without.addr, without.proc.PID()})
		if err != nil {
			return nil, err
		}
		list = append(list,
			gauge.Judge(fmt.Sprintf("processor time of a GET by TLS : plain, P=%d", c.pipeline), gauge.Limit{}, gauge.Ratios(a.processor, b.processor),
				"%.2f : %.2f us", gauge.Median(a.processor), gauge.Median(b.processor)),
			gauge.Judge(fmt.Sprintf("throughput by TLS : plain, P=%d", c.pipeline), gauge.Limit{}, gauge.Ratios(a.rate, b.rate),
				"%.0f : %.0f k/s", gauge.Median(a.rate)/1e3, gauge.Median(b.rate)/1e3),
			gauge.Judge(fmt.Sprintf("p50 by TLS : plain, P=%d", c.pipeline), gauge.Limit{}, gauge.Ratios(a.p50, b.p50), "%.3f : %.3f ms", gauge.Median(a.p50), gauge.Median(b.p50)))
	}
	return list, nil
}
