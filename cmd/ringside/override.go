package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"ringside/shard"
)

type overrideCmd struct {
	Set   overrideSetCmd   `cmd:"" help:"Move the rows of one shard key to a shard of its own choice, and keep them there, while everything runs."`
	Clear overrideClearCmd `cmd:"" help:"Move them back to the shard of their vnode."`
}

// Help is shown by ringside override --help.
func (c *overrideCmd) Help() string {
	return `A shard key is what places a row on a shard: the value of the keyspace's shard_by field, such as a tenant. Changes need the token of the sidecar: RINGSIDE_TOKEN, or --token.

Example: ringside override set acme s3 --dry-run; ringside override set acme s3 --wait`
}

type overrideSetCmd struct {
	ShardKey string      `arg:"" help:"The shard key."`
	Shard    string      `arg:"" help:"The shard that is to have its rows."`
	DryRun   bool        `help:"Show what would be moved, and what speaks against it; change nothing."`
	Change   changeFlags `embed:""`
}

// Run moves the key.
func (c *overrideSetCmd) Run(ctx context.Context, env *environment) error {
	return c.Change.override(ctx, env, c.ShardKey, c.Shard, c.DryRun)
}

type overrideClearCmd struct {
	ShardKey string      `arg:"" help:"The shard key."`
	DryRun   bool        `help:"Show what would be moved, and what speaks against it; change nothing."`
	Change   changeFlags `embed:""`
}

// Run moves the key back.
func (c *overrideClearCmd) Run(ctx context.Context, env *environment) error {
	return c.Change.override(ctx, env, c.ShardKey, "", c.DryRun)
}

// override sets or, without a shard to go to, clears one.
func (f *changeFlags) override(ctx context.Context, env *environment, key, to string, dry bool) error {
	if key == "" {
		return misusef("SHARD_KEY is empty")
	}
	client, err := f.Admin.client(env)
	if err != nil {
		return err
	}
	client.timeout += shardsMayTake
	if dry {
		return showPlan(ctx, env, client, url.Values{"shard_key": {key}, "to": {to}}, f.JSON)
	}
	path, request := "/overrides/clear", map[string]string{"shard_key": key}
	if to != "" {
		path = "/overrides/set"
		request["shard"] = to
	}
	var started struct {
		ID   int64 `json:"id"`
		Rows int64 `json:"rows"`
	}
	answer, err := order(ctx, client, path, request, &started)
	if err != nil {
		return err
	}
	if !f.Wait {
		if f.JSON {
			return writeJSON(env.stdout, answer)
		}
		_, err := fmt.Fprintf(env.stdout, "move %d of about %d rows of shard key %s is begun: ringside move status\n", started.ID, started.Rows, shownKey(key))
		return err
	}
	ended, err := awaitMove(ctx, env, client, started.ID, f.WaitLimit)
	if ended != nil && f.JSON {
		return errors.Join(writeJSON(env.stdout, ended), err)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.stdout, "shard key %s is on %s\n", shownKey(key), placeOf(to))
	return err
}

// shownKey is a shard key for people: a long one is cut.
func shownKey(key string) string {
	if cut := shard.CutKey(key); cut != key {
		return printable(cut) + "…"
	}
	return printable(key)
}

func placeOf(name string) string {
	if name == "" {
		return "the shard of its vnode"
	}
	return "shard " + printable(name)
}
