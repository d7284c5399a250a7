package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

type shardCmd struct {
	Add    shardAddCmd    `cmd:"" help:"Let a PostgreSQL database become a shard. It owns nothing until vnodes are moved to it."`
	Weight shardWeightCmd `cmd:"" help:"Give a shard another weight; 0 drains it. Moves carry it out: ringside move start."`
	Remove shardRemoveCmd `cmd:"" help:"Forget a shard that has weight 0, and owns nothing any more."`
	Attach shardAttachCmd `cmd:"" help:"Give the table of a keyspace, on every shard, what it needs to be moved."`
}

// Help is shown by ringside shard --help.
func (c *shardCmd) Help() string {
	return `Changes need the token of the sidecar: RINGSIDE_TOKEN, or --token.

Example: ringside shard add s3 postgres://ringside@10.0.0.3/app --wait; ringside shard attach users; ringside move start --wait`
}

type shardAddCmd struct {
	Name           string      `arg:"" help:"Its name, for good."`
	DSN            string      `arg:"" help:"Its connection string, without a password: that belongs into the configuration of each sidecar."`
	Weight         int64       `default:"1" placeholder:"1" help:"Its share of the rows is weight / sum of all weights, once they have moved (default: 1)."`
	MaxConnections int64       `default:"64" placeholder:"64" help:"How many connections all sidecars together may open to it (default: 64)."`
	Change         changeFlags `embed:""`
}

// Run adds the shard. With --wait it returns when the shard has been set up.
func (c *shardAddCmd) Run(ctx context.Context, env *environment) error {
	return c.Change.shard(ctx, env, "/shards/add", c.Name, map[string]any{
		"name": c.Name, "dsn": c.DSN, "weight": c.Weight, "max_connections": c.MaxConnections,
	})
}

type shardWeightCmd struct {
	Name   string      `arg:"" help:"Its name."`
	Weight int64       `arg:"" help:"Its new weight."`
	Change changeFlags `embed:""`
}

// Run gives the shard its weight.
func (c *shardWeightCmd) Run(ctx context.Context, env *environment) error {
	return c.Change.shard(ctx, env, "/shards/weight", c.Name, map[string]any{"name": c.Name, "weight": c.Weight})
}

type shardRemoveCmd struct {
	Name  string     `arg:"" help:"Its name."`
	Admin adminFlags `embed:""`
	JSON  bool       `name:"json" help:"Print the answer as JSON."`
}

// Run removes the shard. Its database stays as it is.
func (c *shardRemoveCmd) Run(ctx context.Context, env *environment) error {
	f := changeFlags{Admin: c.Admin, JSON: c.JSON}
	return f.shard(ctx, env, "/shards/remove", c.Name, map[string]any{"name": c.Name})
}

// shard makes a change of one shard.
func (f *changeFlags) shard(ctx context.Context, env *environment, path, name string, request map[string]any) error {
	if name == "" {
		return misusef("NAME is empty")
	}
	client, err := f.Admin.client(env)
	if err != nil {
		return err
	}
	var changed changedAnswer
	answer, err := order(ctx, client, path, request, &changed)
	if err != nil {
		return err
	}
	if f.Wait {
		if err := f.awaitShard(ctx, client, name, changed.Epoch); err != nil {
			return err
		}
	}
	if f.JSON {
		return writeJSON(env.stdout, answer)
	}
	_, err = fmt.Fprintf(env.stdout, "shard %s is %s, epoch %d\n", printable(name), printable(changed.State), changed.Epoch)
	return err
}

// awaitShard waits until a shard has come to an epoch.
func (f *changeFlags) awaitShard(ctx context.Context, client *adminClient, name string, epoch uint64) error {
	for began := time.Now(); ; {
		var p struct {
			Shards []struct {
				Name  string `json:"name"`
				Epoch uint64 `json:"epoch"`
			} `json:"shards"`
		}
		err := client.decode(ctx, "/changes", &p)
		for _, s := range p.Shards {
			if err == nil && s.Name == name && s.Epoch >= epoch {
				return nil
			}
		}
		if ctx.Err() != nil {
			return errors.New("interrupted; the change was committed")
		}
		if time.Since(began) > f.WaitLimit {
			return fmt.Errorf("the change was committed, but shard %s has not come to it within %v", name, f.WaitLimit)
		}
		timer := time.NewTimer(askEvery)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

type shardAttachCmd struct {
	Table string     `arg:"" help:"The table, as the keyspace names it. It is rewritten the first time; nobody can use it meanwhile."`
	Admin adminFlags `embed:""`
	JSON  bool       `name:"json" help:"Print the answer as JSON."`
}

// Run attaches the table on every shard. It may be repeated.
func (c *shardAttachCmd) Run(ctx context.Context, env *environment) error {
	client, err := c.Admin.client(env)
	if err != nil {
		return err
	}
	client.timeout += shardsMayTake
	var attached struct {
		Shards []string `json:"shards"`
	}
	answer, err := order(ctx, client, "/shards/attach", map[string]any{"table": c.Table}, &attached)
	if err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(env.stdout, answer)
	}
	_, err = fmt.Fprintf(env.stdout, "table %s is attached on %s\n", printable(c.Table), printable(strings.Join(attached.Shards, ", ")))
	return err
}
