package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// What a sidecar refuses is said in one line, with where to look, whether it was asked for a change or for a plan.
func TestRefusedByASidecar(t *testing.T) {
	for _, c := range []struct {
		status int
		reason string
		args   string
		want   string
	}{
		{404, "there is no shard s9", "move plan --vnodes 1-2 --to s9", "there is no shard s9: ringside ring lists those that there are"},
		{404, "there is no shard s9", "override set 42 s9 --dry-run", "there is no shard s9: ringside ring lists those that there are"},
		{404, "there is no cache server c9", "cache drain c9", "there is no cache server c9: ringside ring lists those that there are"},
		{404, "there is no move 9", "move cancel 9", "there is no move 9: ringside move status lists the latest"},
		{404, "no keyspace has table \"x\": it must be one of users", "shard attach x", "no keyspace has table \"x\": it must be one of users"},
		{404, "there is no \"/moves/plan\" here", "move plan", "HOST does not know /moves/plan (there is no \"/moves/plan\" here): is it the admin address of a sidecar of this version?"},
		{409, "shard key \"42\" is on shard s2 already", "override set 42 s2 --dry-run", "shard key \"42\" is on shard s2 already"},
		{409, "shard s3: failed to connect:\n\tone\n\ttwo", "shard add s3 postgres://h/db", "shard s3: failed to connect: one two"},
		{403, "no admin.token is configured", "cache drain c1", "HOST takes no changes: no admin.token is configured"},
	} {
		body, err := json.Marshal(map[string]string{"error": c.reason})
		if err != nil {
			t.Fatal(err)
		}
		host := answering(t, c.status, string(body))
		got := ringside(t, nil, append(strings.Fields(c.args), "--admin", host)...)
		got.want(t, exitFailed, "", "ringside: "+strings.ReplaceAll(c.want, "HOST", host)+"\n")
	}
}

// Flags that are each right for themselves, and not together, are a wrong call: nothing is asked.
func TestMisuse(t *testing.T) {
	for args, want := range map[string]string{
		"move plan --vnodes 1-2":                 "--vnodes and --to go together",
		"move start --to s2":                     "--vnodes and --to go together",
		"move plan --by load --vnodes 1 --to s2": "--by load is about what the weights ask for",
		"ring --admin ftp://h":                   `--admin is "ftp://h"`,
	} {
		if got := ringside(t, nil, strings.Fields(args)...); got.code != exitUsage || got.stdout != "" || !strings.HasPrefix(got.stderr, "ringside: "+want) || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%s: %v", args, got)
		}
	}
	if got := ringside(t, nil, "override", "set", "", "s2"); got.code != exitUsage || got.stderr != "ringside: SHARD_KEY is empty\n" {
		t.Error(got)
	}
}

// The demo names commands as the user has called it, and keeps for ringside loadtest what --json prints.
func TestTheDemoSaysWhatToTry(t *testing.T) {
	r := demoReady{Ready: true, Dir: t.TempDir(), Token: "secret", Sidecars: []demoSidecar{{Name: "a1", Redis: "h:1", Admin: "h:2"}}, Spares: []demoServer{{Name: "spare", Addr: "h:3"}}}
	want := "to load it: bin/ringside loadtest --demo DIR/demo.json --warm\n" +
		"to add the spare cache server: RINGSIDE_TOKEN=$(cat DIR/token) bin/ringside cache add spare h:3 --admin h:2 --wait\n"
	if got := r.hint("bin/ringside"); got != strings.ReplaceAll(want, "DIR", r.Dir) {
		t.Error(got)
	}
	if err := r.keep(); err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	if err := json.NewEncoder(&printed).Encode(r); err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(r.file())
	if err != nil || string(kept) != printed.String() {
		t.Errorf("%v, %s", err, kept)
	}
	if info, err := os.Stat(r.file()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v: the token is for others to read: %v", err, info)
	}
}
