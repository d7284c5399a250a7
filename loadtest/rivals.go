package loadtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"ringside/internal/realredis"
	"ringside/internal/twemproxy"
)

// Rival is a target that was started for a comparison. Stop ends it.
type Rival struct {
	Target Target
	Events []Event
	Stop   func() error
}

// PlainRedis starts one redis-server of its own, which holds all keys.
func PlainRedis(ctx context.Context, plan Plan) (*Rival, error) {
	s, err := realredis.Start(ctx, realredis.Options{})
	if err != nil {
		return nil, err
	}
	return &Rival{Target: filled("plain Redis", s.Addr(), plan, s.PID()), Stop: s.Stop}, nil
}

// twemproxyServers is how many redis-servers are behind twemproxy: as many as the demo has.
const twemproxyServers = 3

// Twemproxy starts a twemproxy of its own with redis-servers behind it. The error is ErrNotInstalled where there is no such program.
func Twemproxy(ctx context.Context, plan Plan) (_ *Rival, err error) {
	dir, err := os.MkdirTemp("", "ringside-loadtest-")
	if err != nil {
		return nil, err
	}
	var stops []func() error
	stop := func() error {
		var errs []error
		for i := len(stops) - 1; i >= 0; i-- {
			errs = append(errs, stops[i]())
		}
		return errors.Join(append(errs, os.RemoveAll(dir))...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, stop())
		}
	}()
	o := twemproxy.Options{Dir: dir}
	for range twemproxyServers {
		s, err := realredis.Start(ctx, realredis.Options{})
		if err != nil {
			return nil, err
		}
		stops = append(stops, s.Stop)
		o.Servers = append(o.Servers, s.Addr())
	}
	p, err := twemproxy.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	stops = append(stops, p.Kill)
	return &Rival{Target: filled("twemproxy", p.Addr, plan, p.PID()), Stop: stop}, nil
}

// ErrNotInstalled says that a rival is not on this machine.
var ErrNotInstalled = twemproxy.ErrNotInstalled

// filled is a target that holds all keys from the start, since it has no database behind it.
func filled(name, addr string, plan Plan, pid int) Target {
	return Target{
		Name: name, Addrs: []string{addr}, CountFound: true, HitsFrom: "values found", Always: true,
		Warm:          func(ctx context.Context) error { return fill(ctx, []string{addr}, "", plan) },
		ProcessorTime: func() (time.Duration, bool) { return processorTime([]int{pid}) },
	}
}

// Postgres reads and writes the rows on their shards themselves, without any cache.
func Postgres(ctx context.Context, d Database, plan Plan) (*Rival, error) {
	m, err := d.open(ctx, plan)
	if err != nil {
		return nil, err
	}
	return &Rival{
		Target: Target{
			Name: "PostgreSQL alone", ShardReadsFrom: "the clients", MostClients: mostSessions,
			Client: func(context.Context, int) (Client, error) { return uncached{m.client()}, nil },
		},
		Stop: func() error { return nil },
	}, nil
}

// uncached is a client of the shards.
type uncached struct{ *shardClient }

// Read reads the row. It is never a hit.
func (u uncached) Read(ctx context.Context, id uint32) (value []byte, found, hit bool, err error) {
	value, found, err = u.load(ctx, id)
	return value, found, false, err
}

// Modulo is the cache-aside client that an application would have written: a row's server is its number's crc32 modulo the number of servers, in the
// order in which they are given; the first n of them from the start. A miss is read from the row's shard and put into the cache; a write goes to
// the shard and deletes the cached copy. All clients learn of a change of n in the same instant, which is more than real ones do.
//
// It uses database 1 of the servers, of which ringside knows nothing.
func Modulo(ctx context.Context, d Database, plan Plan, servers []NamedServer, n int) (*ModuloRival, error) {
	if n < 1 || n > len(servers) {
		return nil, fmt.Errorf("modulo routing over %d of %d servers", n, len(servers))
	}
	m, err := d.open(ctx, plan)
	if err != nil {
		return nil, err
	}
	f := &moduloFleet{servers: servers, shards: m}
	f.use(servers[:n])
	r := &ModuloRival{fleet: f}
	r.Target = Target{
		Name: "modulo routing", HitsFrom: "the clients", ShardReadsFrom: "the clients", MostClients: mostSessions,
		Client: func(context.Context, int) (Client, error) { return f.client(), nil },
		Warm:   func(ctx context.Context) error { return f.warm(ctx, plan) },
	}
	r.Stop = func() error { return f.flush(context.WithoutCancel(ctx)) }
	return r, f.flush(ctx)
}
