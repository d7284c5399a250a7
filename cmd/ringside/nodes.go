package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

type nodesCmd struct {
	Admin adminFlags `embed:""`
	JSON  bool       `name:"json" help:"Print the answer as JSON."`
}

// membersAnswer is /members: the sidecars that the asked one knows.
type membersAnswer struct {
	Members []struct {
		Name    string `json:"name"`
		Addr    string `json:"addr"` // gossip
		Redis   string `json:"redis"`
		Admin   string `json:"admin"`
		Version string `json:"version"`
		Boot    string `json:"boot"`
		Epoch   uint64 `json:"epoch"`
		Digest  string `json:"digest"`
		State   string `json:"state"`
		Self    bool   `json:"self"`
	} `json:"members"`
}

// poolsAnswer is /pools: the asked sidecar's own connections to the shards.
type poolsAnswer struct {
	Shards []struct {
		Name         string  `json:"name"`
		Limit        int     `json:"limit"`
		InUse        int     `json:"in_use"`
		Idle         int     `json:"idle"`
		Waiting      int     `json:"waiting"`
		OldestWaitMS float64 `json:"oldest_wait_ms"`
		Served       uint64  `json:"served"`
		Shed         uint64  `json:"shed"`
		State        string  `json:"state"`
		LastError    string  `json:"last_error"`
		Diagnosis    string  `json:"diagnosis"`
	} `json:"shards"`
}

func (c *nodesCmd) Run(ctx context.Context, env *environment) error {
	client, err := c.Admin.client(env)
	if err != nil {
		return err
	}
	if c.JSON {
		return writeNodesJSON(ctx, env, client)
	}
	var members membersAnswer
	var ring ringAnswer
	var pools poolsAnswer
	if err := client.decode(ctx, "/members", &members); err != nil {
		return err
	}
	if err := client.decode(ctx, "/ring", &ring); err != nil {
		return err
	}
	if err := client.decode(ctx, "/pools", &pools); err != nil {
		return err
	}
	sidecars := &table{heading: []string{"SIDECAR", "STATE", "REDIS", "ADMIN", "GOSSIP", "VERSION", "EPOCH", "DIGEST"}}
	for _, m := range members.Members {
		name := m.Name
		if m.Self {
			name += " *" // the one that answers
		}
		sidecars.add(name, m.State, m.Redis, m.Admin, m.Addr, m.Version, m.Epoch, m.Digest)
	}
	connections := &table{heading: []string{"CONNECTIONS TO", "STATE", "LIMIT", "IN USE", "IDLE", "WAITING", "OLDEST", "SERVED", "SHED", "DIAGNOSIS", "LAST ERROR"}}
	for _, p := range pools.Shards {
		oldest := time.Duration(p.OldestWaitMS * float64(time.Millisecond)).Round(time.Millisecond)
		connections.add(p.Name, p.State, p.Limit, p.InUse, p.Idle, p.Waiting, oldest, p.Served, p.Shed, p.Diagnosis, p.LastError)
	}
	return writeTables(env.stdout, sidecars, ring.caches(), ring.shards(), connections)
}

// writeNodesJSON prints one object of the three answers as they came, but for the owners' tables of the ring.
func writeNodesJSON(ctx context.Context, env *environment, client *adminClient) error {
	var answer struct {
		Members json.RawMessage `json:"members"`
		Epoch   json.RawMessage `json:"epoch"`
		Caches  json.RawMessage `json:"caches"`
		Shards  json.RawMessage `json:"shards"`
		Pools   struct {
			Shards json.RawMessage `json:"shards"`
		} `json:"pools"`
	}
	if err := client.decode(ctx, "/pools", &answer.Pools); err != nil {
		return err
	}
	for _, path := range []string{"/ring", "/members"} {
		if err := client.decode(ctx, path, &answer); err != nil {
			return err
		}
	}
	body, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("putting the answers together: %w", err)
	}
	return writeJSON(env.stdout, body)
}
