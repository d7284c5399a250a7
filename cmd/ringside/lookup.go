package main

import (
	"context"
	"fmt"
	"net/url"
)

type lookupCmd struct {
	Key   string     `arg:"" help:"The key; write -- before one that begins with a hyphen."`
	Admin adminFlags `embed:""`
	JSON  bool       `name:"json" help:"Print the answer as JSON."`
}

// lookupAnswer is /ring/lookup.
type lookupAnswer struct {
	Key        string  `json:"key"`
	Keyspace   string  `json:"keyspace"`
	CacheVnode int     `json:"cache_vnode"`
	Cache      string  `json:"cache"`
	ShardKey   *string `json:"shard_key"` // nil unless the key is a row
	ShardVnode int     `json:"shard_vnode"`
	Shard      string  `json:"shard"`
	Epoch      uint64  `json:"epoch"`
}

func (c *lookupCmd) Run(ctx context.Context, env *environment) error {
	client, err := c.Admin.client(env)
	if err != nil {
		return err
	}
	body, err := client.get(ctx, "/ring/lookup", url.Values{"key": {c.Key}})
	if err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(env.stdout, body)
	}
	var answer lookupAnswer
	if err := decodeAnswer("/ring/lookup", body, &answer); err != nil {
		return err
	}
	t := &table{heading: []string{"key", printable(c.Key)}}
	t.add("keyspace", answer.Keyspace)
	t.add("cache", fmt.Sprintf("%s (vnode %d)", printable(answer.Cache), answer.CacheVnode))
	if answer.ShardKey != nil {
		t.add("shard", fmt.Sprintf("%s (vnode %d)", printable(answer.Shard), answer.ShardVnode))
		t.add("shard key", *answer.ShardKey)
	}
	t.add("epoch", answer.Epoch)
	return t.writeTo(env.stdout)
}
