package main

import (
	"context"
	"fmt"
)

type ringCmd struct {
	Admin adminFlags `embed:""`
	JSON  bool       `name:"json" help:"Print the answer as JSON."`
}

// ringAnswer is /ring as JSON, without the owners' tables.
type ringAnswer struct {
	Epoch  uint64 `json:"epoch"`
	Vnodes int    `json:"vnodes"`
	Caches []struct {
		serverAnswer
		Addr string `json:"addr"`
	} `json:"caches"`
	Shards    []serverAnswer `json:"shards"`
	Overrides []struct {
		ShardKey string `json:"shard_key"`
		Shard    string `json:"shard"`
	} `json:"overrides"`
}

// serverAnswer is what cache servers and shards have in common.
type serverAnswer struct {
	Name   string  `json:"name"`
	Weight int     `json:"weight"`
	State  string  `json:"state"`
	Vnodes int     `json:"vnodes"`
	Share  float64 `json:"share"` // of all vnodes, 0 to 1
}

func (c *ringCmd) Run(ctx context.Context, env *environment) error {
	client, err := c.Admin.client(env)
	if err != nil {
		return err
	}
	body, err := client.get(ctx, "/ring", nil)
	if err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(env.stdout, body)
	}
	var ring ringAnswer
	if err := decodeAnswer("/ring", body, &ring); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(env.stdout, "epoch %d, %d vnodes\n\n", ring.Epoch, ring.Vnodes); err != nil {
		return err
	}
	overrides := &table{heading: []string{"OVERRIDE", "SHARD"}}
	for _, o := range ring.Overrides {
		overrides.add(o.ShardKey, o.Shard)
	}
	return writeTables(env.stdout, ring.caches(), ring.shards(), overrides)
}

func (r *ringAnswer) caches() *table {
	t := &table{heading: []string{"CACHE", "ADDRESS", "STATE", "WEIGHT", "VNODES", "SHARE"}}
	for _, s := range r.Caches {
		t.add(s.Name, s.Addr, s.State, s.Weight, s.Vnodes, percent(s.Share))
	}
	return t
}

func (r *ringAnswer) shards() *table {
	t := &table{heading: []string{"SHARD", "STATE", "WEIGHT", "VNODES", "SHARE"}}
	for _, s := range r.Shards {
		t.add(s.Name, s.State, s.Weight, s.Vnodes, percent(s.Share))
	}
	return t
}
