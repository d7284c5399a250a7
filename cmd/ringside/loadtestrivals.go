package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ringside/loadtest"
)

// rivals loads what ringside is compared with, one after the other.
func (c *loadtestCmd) rivals(ctx context.Context, env *environment, cluster loaded, plan loadtest.Plan, steps []loadtest.Step) ([]*loadtest.Result, error) {
	names := c.Compare
	if c.Exercise && !slices.Contains(names, "modulo") {
		names = append(slices.Clone(names), "modulo")
	}
	for _, name := range names {
		if past := name == "postgres" || name == "modulo"; past && (len(cluster.demo.Shards) == 0 || plan.Text) {
			return nil, fmt.Errorf("--compare %s needs the rows of a demo: --demo, without --text", name)
		}
	}
	var results []*loadtest.Result
	for _, name := range names {
		rival, err := c.rival(ctx, name, cluster, plan, steps)
		if errors.Is(err, loadtest.ErrNotInstalled) {
			fmt.Fprintf(env.stderr, "left out: %v\n", err)
			continue
		}
		if err != nil {
			return nil, err
		}
		c.announce(env, rival.Target.Name, plan)
		result, err := loadtest.Run(ctx, rival.Target, plan, rival.Events, c.progress(env))
		if err = errors.Join(err, rival.Stop()); err != nil {
			return nil, err
		}
		results = append(results, result)
	}
	return results, nil
}

func (c *loadtestCmd) rival(ctx context.Context, name string, cluster loaded, plan loadtest.Plan, steps []loadtest.Step) (*loadtest.Rival, error) {
	switch name {
	case "redis":
		return loadtest.PlainRedis(ctx, plan)
	case "twemproxy":
		return loadtest.Twemproxy(ctx, plan)
	case "postgres":
		return loadtest.Postgres(ctx, c.database(cluster), plan)
	}
	var servers []loadtest.NamedServer
	for _, s := range slices.Concat(cluster.demo.Caches, cluster.demo.Spares) {
		servers = append(servers, loadtest.NamedServer{Name: s.Name, Addr: s.Addr})
	}
	m, err := loadtest.Modulo(ctx, c.database(cluster), plan, servers, len(cluster.demo.Caches))
	if err != nil {
		return nil, err
	}
	m.Follow(steps, plan.Keys)
	return &m.Rival, nil
}

func (c *loadtestCmd) database(cluster loaded) loadtest.Database {
	d := loadtest.Database{Admin: cluster.Admin[0], DSNs: map[string]string{}, Table: c.Table, KeyColumn: c.KeyColumn}
	for _, s := range cluster.demo.Shards {
		d.DSNs[s.Name] = s.DSN
	}
	return d
}
