package mover

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ringside/ring"
	"ringside/shard/catalog"
)

func ringOf(weights ...uint32) Ring {
	r := Ring{Epoch: 1, Settled: true, Owners: make([]uint16, ring.Vnodes), Weights: weights}
	for i := range weights {
		r.Shards = append(r.Shards, "s"+string(rune('1'+i)))
	}
	return r
}

// Promise P2: a plan moves exactly what must move to reach the weights; weight 0 drains.
func TestFlows(t *testing.T) {
	r := ringOf(1, 1, 2) // s1 owns everything
	list, err := flows(r, Request{})
	if err != nil || len(list) != 2 || list[0].To != "s2" || len(list[0].Vnodes) != ring.Vnodes/4 || list[1].To != "s3" || len(list[1].Vnodes) != ring.Vnodes/2 {
		t.Fatalf("%d flows, %v", len(list), err)
	}
	for _, f := range list {
		for _, v := range f.Vnodes {
			r.Owners[v] = uint16(slices.Index(r.Shards, f.To))
		}
	}
	if again, err := flows(r, Request{}); err != nil || len(again) != 0 {
		t.Errorf("carried out, it moves %d flows more, %v", len(again), err)
	}
	r.Weights[1] = 0
	list, err = flows(r, Request{})
	moved := 0
	for _, f := range list {
		moved += len(f.Vnodes)
		if f.From != "s2" {
			t.Errorf("%s gives up %d vnodes", f.From, len(f.Vnodes))
		}
	}
	if err != nil || moved != ring.Vnodes/4 {
		t.Errorf("draining moves %d, %v", moved, err)
	}
	named, err := flows(r, Request{To: "s1", Vnodes: []uint16{0, 1, 2, 3}})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range named {
		if f.To != "s1" || f.From == "s1" {
			t.Errorf("named vnodes go from %s to %s", f.From, f.To)
		}
	}
	for what, bad := range map[string]Request{"unknown": {To: "s9", Vnodes: []uint16{1}}, "none": {To: "s1"}} {
		if _, err := flows(r, bad); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	if _, err := flows(ringOf(0, 0), Request{}); err == nil {
		t.Error("without any weight: accepted")
	}
}

func TestCut(t *testing.T) {
	many := make([]uint16, 40_000)
	few := []uint16{1, 2, 3}
	parts := cut([]catalog.NewPart{{From: "s1", To: "s2", Vnodes: many}, {From: "s2", To: "s3", Vnodes: few}}, map[string]estimate{"s1": {rows: 10, bytes: 1000}, "s2": {rows: 200_000}})
	var sizes []int
	for _, p := range parts {
		sizes = append(sizes, len(p.Vnodes))
	}
	// Of 250,000 rows and 16,384 vnodes at most, of about one size, and in turn.
	if want := []int{13_334, 1, 13_334, 1, 13_332, 1}; !slices.Equal(sizes, want) {
		t.Errorf("%v, want %v", sizes, want)
	}
	if parts[0].Rows != 133_340 || parts[0].Bytes != 13_334_000 {
		t.Errorf("%d rows, %d bytes", parts[0].Rows, parts[0].Bytes)
	}
	if empty := cut(nil, nil); len(empty) != 0 {
		t.Errorf("%v", empty)
	}
}

// Each thing that speaks against a move is said before it is begun, all at once, and nothing is written down.
func TestPreflight(t *testing.T) {
	t.Parallel()
	r := newRig(t, 10)
	m := r.mover("a", nil)
	const parents = `create table parents (id bigint primary key); alter table counters add column p bigint references parents`
	const orphans = `alter table counters drop column p; drop table parents`
	on := func(shards, sql string) map[string]string {
		out := map[string]string{}
		for _, name := range strings.Fields(shards) {
			out[name] = sql
		}
		return out
	}
	for _, c := range []struct {
		want       string // empty: nothing speaks against it
		harm, mend map[string]string
	}{
		{"other columns on shard s2 than on shard s1: more", on("s2", `alter table counters add column more int`), on("s2", `alter table counters drop column more`)},
		{"other columns on shard s2 than on shard s1: at", on("s1", `alter table counters alter column at type timestamp`), on("s1", `alter table counters alter column at type timestamptz`)},
		{"ringside shard attach counters", on("s2", `drop trigger ringside_guard on counters`), on("s2", `select ringside.attach('counters', 'id')`)},
		{"has no primary key", on("s1", `alter table counters drop constraint counters_pkey`), on("s1", `alter table counters add primary key (id)`)},
		{"holds rows of what is to come already", on("s2", `begin; set local ringside.mover = 'on'; insert into counters (id) values (1); commit`), on("s2", `begin; set local ringside.mover = 'on'; delete from counters; commit`)},
		{"across shard keys", on("s1 s2", parents), on("s1 s2", orphans)},
		{"schema is of version 2", on("s2", `update ringside.schema_version set version = 2`), on("s2", `update ringside.schema_version set version = 5`)},
		{"database of shard s7", on("s2", `update ringside.view set shard = 's7'`), on("s2", `update ringside.view set shard = 's2'`)},
		{"owns 1 of the vnodes already", on("s2", `insert into ringside.owner (vnode, state, epoch) values (0, 'owned', 7)`), on("s2", `delete from ringside.owner`)},
		{"", nil, nil},
	} {
		r.script(c.harm)
		p, err := m.Plan(t.Context(), Request{To: "s2", Vnodes: every(1)})
		said := strings.Join(p.Refused, "\n")
		if err != nil || (c.want == "") != (said == "") || !strings.Contains(said, c.want) {
			t.Errorf("%q: %v, refused: %s", c.want, err, said)
		}
		if c.want != "" {
			_, _, err = m.Start(t.Context(), Request{To: "s2", Vnodes: every(1)})
			if _, refused := errors.AsType[*RefusedError](err); !refused {
				t.Errorf("%q: start: %v", c.want, err)
			}
		}
		r.script(c.mend)
	}
	// What comes to s2, twice over, must fit beside what is there.
	ask := Request{To: "s2", Vnodes: every(1)}
	var limit int64
	m.deps.MaxSize = func(name string) int64 {
		if name != "s2" {
			t.Errorf("asked for the limit of shard %s, to which nothing goes", name)
		}
		return limit
	}
	p, err := m.Plan(t.Context(), ask)
	if err != nil || len(p.Refused) > 0 || len(p.Parts) == 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	if limit, err = strconv.ParseInt(r.text("s2", `select pg_database_size(current_database())::text`), 10, 64); err != nil {
		t.Fatal(err)
	}
	for _, part := range p.Parts {
		limit += 2 * part.Bytes
	}
	for _, c := range []struct {
		change  int64
		refused bool
	}{{1 << 20, false}, {-1 << 20, true}} { // a database may grow a little by itself
		bound := limit
		limit += c.change
		p, err := m.Plan(t.Context(), ask)
		if said := strings.Join(p.Refused, "\n"); err != nil || (said != "") != c.refused || c.refused && !strings.Contains(said, "shard s2 has no room") {
			t.Errorf("%d bytes: %v, refused: %s", limit, err, said)
		}
		limit = bound
	}
	limit -= 1 << 20
	if _, _, err := m.Start(t.Context(), ask); err == nil {
		t.Error("begun without room")
	}
	m.deps.MaxSize = nil

	if open, err := r.journal.AnyOpen(t.Context()); err != nil || open {
		t.Errorf("something was written down: %v, %v", open, err)
	}
	if _, _, err := m.Start(t.Context(), Request{To: "s1", Vnodes: every(1)}); !errors.Is(err, ErrNothing) {
		t.Errorf("to where they are: %v", err)
	}
}

// script runs statements on shards.
func (r *rig) script(on map[string]string) {
	r.t.Helper()
	for name, sql := range on {
		if _, err := r.sql[name].PgConn().Exec(context.Background(), sql).ReadAll(); err != nil {
			r.t.Fatalf("%s: %s: %v", name, sql, err)
		}
	}
}

// An old transaction and a role without rights are refused too.
func TestPreflightOfRoles(t *testing.T) {
	t.Parallel()
	facts := shardFacts{version: schemaVersion, ringside: true, tables: []table{{Name: "public.users", Kind: "r", Key: []column{{Name: "id"}}, May: true, Mute: true}}}
	if got := facts.refusals("s1", []string{"users"}, []uint16{1}, nil); len(got) != 0 {
		t.Fatalf("nothing speaks against it: %q", got)
	}
	for want, change := range map[string]func(f *shardFacts, t *table){
		"open for long":                      func(f *shardFacts, _ *table) { f.old = "process 1" },
		"in another move":                    func(f *shardFacts, _ *table) { f.busy = 3 },
		"may not change what belongs":        func(f *shardFacts, _ *table) { f.ringside = false },
		"may not read, insert and delete":    func(_ *shardFacts, t *table) { t.May = false },
		"row security":                       func(_ *shardFacts, t *table) { t.Secured = true },
		"not an ordinary table":              func(_ *shardFacts, t *table) { t.Kind = "p" },
		"session_replication_role":           func(_ *shardFacts, t *table) { t.Mute, t.Triggers = false, []string{"x"} },
		"ringside shard attach other.orders": func(f *shardFacts, _ *table) {},
	} {
		f, table := facts, facts.tables[0]
		change(&f, &table)
		f.tables = append(f.tables[:0:0], table)
		keyspaces := []string{"users", "public.users"}
		if strings.Contains(want, "orders") {
			keyspaces = append(keyspaces, "other.orders")
		}
		if got := f.refusals("s1", keyspaces, []uint16{1}, nil); len(got) != 1 || !strings.Contains(got[0], want) || !strings.HasPrefix(got[0], "shard s1: ") {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// What is not as the map says is told.
func TestVerify(t *testing.T) {
	t.Parallel()
	r := newRig(t, 100)
	m := r.mover("a", nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if v := m.Verify(ctx); len(v.Faults) != 0 || len(v.Shards) != 2 || v.Shards[0].Rows != 100 || v.Shards[0].Vnodes != ring.Vnodes {
		t.Errorf("all is well: %+v", v)
	}
	r.exec("s2", `insert into ringside.owner (vnode, state, epoch) values (0, 'owned', 7)`)
	r.exec("s1", `update ringside.owner set state = 'moved' where vnode = (select min(ringside_vnode) from counters)`)
	v := m.Verify(ctx)
	for _, want := range []string{"shard s2 owns 1 vnodes that the shard map gives to others", "1 vnodes are owned by more than one shard", "1 vnodes are owned by no shard", "shard s1 holds 1 rows"} {
		if !strings.Contains(strings.Join(v.Faults, "\n"), want) {
			t.Errorf("%q is not among %q", want, v.Faults)
		}
	}
	delete(r.dsn, "s2")
	if v := m.Verify(ctx); !strings.Contains(strings.Join(v.Faults, "\n"), "not all could be looked at") {
		t.Errorf("%q", v.Faults)
	}
	r.dsn["s2"] = r.dsn["s1"]
}
