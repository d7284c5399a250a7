package main

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

type verifyCmd struct {
	Cache verifyCacheCmd `cmd:"" help:"Compare cached rows with the shards: exit 1 if stale ones are found."`
}

type verifyCacheCmd struct {
	Admin  adminFlags `embed:""`
	Sample int        `default:"1000" placeholder:"1000" help:"How many entries to look at, chosen at random: 1 to 10000 (default: 1000)."`
	JSON   bool       `name:"json" help:"Print the answer as JSON."`
}

// verifyMayTake is how long a sidecar verifies at most, beside what --timeout says.
const verifyMayTake = 50 * time.Second

// verifyAnswer is /verify.
type verifyAnswer struct {
	Epoch      uint64 `json:"epoch"`
	Seen       int    `json:"seen"`
	Complete   bool   `json:"complete"`
	Checked    int    `json:"checked"`
	Fresh      int    `json:"fresh"`
	Absent     int    `json:"absent_ok"`
	Stale      int    `json:"stale"`
	Changed    int    `json:"changed_meanwhile"`
	Superseded int    `json:"superseded"`
	Unchecked  int    `json:"unchecked"`
	Entries    []struct {
		Key   string `json:"key"`
		Cache string `json:"cache"`
		Shard string `json:"shard"`
		AgeMS int64  `json:"age_ms"`
		What  string `json:"what"`
	} `json:"stale_entries"`
	Faults []string `json:"faults"`
}

// staleError makes the exit code 1.
type staleError struct{ stale, checked int }

func (e *staleError) Error() string {
	return fmt.Sprintf("%d of %d cached rows are stale", e.stale, e.checked)
}

// Run verifies.
func (c *verifyCacheCmd) Run(ctx context.Context, env *environment) error {
	client, err := c.Admin.client(env)
	if err != nil {
		return err
	}
	client.timeout += verifyMayTake
	body, err := client.get(ctx, "/verify", url.Values{"sample": {strconv.Itoa(c.Sample)}})
	if err != nil {
		return err
	}
	var answer verifyAnswer
	if err := decodeAnswer("/verify", body, &answer); err != nil {
		return err
	}
	if c.JSON {
		err = writeJSON(env.stdout, body)
	} else {
		err = answer.print(env)
	}
	if err == nil && answer.Stale > 0 {
		err = &staleError{answer.Stale, answer.Checked}
	}
	return err
}

func (a *verifyAnswer) print(env *environment) error {
	counts := &table{heading: []string{"SEEN", "CHECKED", "FRESH", "ABSENT", "STALE", "CHANGED MEANWHILE", "SUPERSEDED", "UNCHECKED"}}
	counts.add(a.Seen, a.Checked, a.Fresh, a.Absent, a.Stale, a.Changed, a.Superseded, a.Unchecked)
	stale := &table{heading: []string{"STALE KEY", "CACHE", "SHARD", "AGE", "WHAT"}}
	for _, e := range a.Entries {
		stale.add(e.Key, e.Cache, e.Shard, time.Duration(e.AgeMS)*time.Millisecond, e.What)
	}
	faults := &table{heading: []string{"NOT ALL COULD BE LOOKED AT"}}
	for _, f := range a.Faults {
		faults.add(f)
	}
	if len(a.Faults) == 0 && !a.Complete {
		faults.add("there was no time to go through all entries")
	}
	return writeTables(env.stdout, counts, stale, faults)
}
