package cdc

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ringside/internal/realpg"
	"ringside/shard/keyspace"
)

// Where the settings do not allow it, the follower says what to do, is off without making a fuss, and tries again.
func TestOffWithoutLogicalLog(t *testing.T) {
	server := realpg.Alone(t, map[string]string{"wal_level": "replica"})
	b := bedAt(t, server.DSN())
	var s sink
	f, _ := b.follow(quick(), &s)
	state := b.awaitRole(f, Off)
	if !strings.Contains(state.Reason, "wal_level") || f.Degraded(b.name) {
		t.Errorf("state %+v, degraded %v", state, f.Degraded(b.name))
	}
}

func TestOffWithoutAFreeSlotUntilThereIsOne(t *testing.T) {
	server := realpg.Alone(t, map[string]string{"max_replication_slots": "1"})
	b := bedAt(t, server.DSN())
	b.exec("select pg_create_physical_replication_slot('somebody')")
	var s sink
	f, _ := b.follow(quick(), &s)
	if state := b.awaitRole(f, Off); !strings.Contains(state.Reason, "all replication slots are in use") {
		t.Errorf("state %+v", state)
	}
	b.exec("select pg_drop_replication_slot('somebody')")
	b.awaitRole(f, Active)
	b.probe(&s)
}

// asRole is the bed's DSN as another role.
func (b *bed) asRole(role string) string {
	b.t.Helper()
	u, err := url.Parse(b.dsn)
	if err != nil {
		b.t.Fatal(err)
	}
	u.User = url.User(role)
	return u.String()
}

// A role that owns nothing and may not replicate; then one that may; then one whose publication somebody made.
func TestPrivileges(t *testing.T) {
	server := realpg.Alone(t, nil)
	b := bedAt(t, server.DSN())
	b.script(`create role app login; grant usage on schema ringside to app; grant select on ringside.view to app; grant select, update on ringside.cdc to app`)
	var s sink
	plain := *b
	plain.dsn = b.asRole("app")
	f, _ := plain.follow(quick(), &s)
	if state := b.awaitRole(f, Off); !strings.Contains(state.Reason, "create the publication") {
		t.Errorf("state %+v", state)
	}
	b.script(`create publication ringside for table users (id), orders (tenant, id) with (publish_via_partition_root = true)`)
	eventually(t, "the lack of the next privilege shows", func() bool { return strings.Contains(f.State()[0].Reason, "replication role") })
	b.script(`alter role app replication`)
	state := b.awaitRole(f, Active)
	if why := state.Left["doc"]; !strings.Contains(why, "lacks the table") || len(state.Left) != 1 {
		t.Errorf("left are %v", state.Left)
	}
	b.script("insert into users values (1, '', ''); insert into docs values (gen_random_uuid(), '')")
	b.probe(&s)
	if got := s.taken(); !slices.Equal(got, []string{"user:1 1"}) {
		t.Errorf("handed out %q", got)
	}
}

// A table that cannot be followed is not published, since PostgreSQL would refuse the application's updates of it.
func TestTablesWithoutIdentityAreLeftAlone(t *testing.T) {
	b := newBed(t)
	b.script(`create table bare (id int not null, v text); create unique index on bare (id);
create table mail (id int primary key, address text not null unique); create unlogged table quick (id int primary key)`)
	cfg := quick()
	cfg.Keyspaces = testKeyspaces(t)
	for _, table := range []string{"bare", "quick", "absent"} {
		cfg.Keyspaces = append(cfg.Keyspaces, compile(t, keyspace.Spec{Name: table, Pattern: table + ":{id:int}", Table: table}))
	}
	cfg.Keyspaces = append(cfg.Keyspaces, compile(t, keyspace.Spec{Name: "mail", Pattern: "mail:{address}", Table: "mail"}))
	var s sink
	f, _ := b.follow(cfg, &s)
	state := b.awaitRole(f, Active)
	if len(state.Left) != 4 {
		t.Errorf("left are %v", state.Left)
	}
	b.script("insert into bare values (1, ''); update bare set v = 'x'; insert into mail values (1, 'a@b'); update mail set address = 'c@d'")
	b.probe(&s)
	if got := s.taken(); len(got) > 0 {
		t.Errorf("handed out %q", got)
	}
	// Mended while it is followed: everything of those tables that may have been cached is flushed.
	b.script("alter table bare replica identity using index bare_id_idx; alter table mail replica identity full; create table absent (id int primary key)")
	eventually(t, "the tables are followed", func() bool {
		states := f.State()
		return states[0].Role == Active && len(states[0].Left) == 1 && states[0].Reason == ""
	})
	b.script("update bare set v = 'y'; update mail set address = 'e@f'; insert into absent values (7)")
	b.probe(&s)
	if got, want := s.taken(), []string{"absent:7 7", "bare:1 1", "mail:c@d c@d", "mail:e@f e@f"}; !slices.Equal(got, want) {
		t.Errorf("handed out %q, want %q", got, want)
	}
	for _, name := range []string{"bare", "mail", "absent"} {
		if !slices.Contains(s.flushes(), name) {
			t.Errorf("%s was not flushed: %q", name, s.flushes())
		}
	}
}

// I3: a table that is replaced by another one of its name was not published. What may have been cached of it until it is gets flushed, and once more
// when all transactions have ended that began before.
func TestATableIsReplaced(t *testing.T) {
	b := newBed(t)
	var s sink
	f, _ := b.follow(quick(), &s)
	b.awaitRole(f, Active)
	b.script(`create table next (id bigint primary key, name text); insert into next values (1, 'new')`)
	slow := b.connect()
	run := func(sql string) {
		t.Helper()
		if _, err := slow.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
			t.Fatal(err)
		}
	}
	run("begin; insert into other values (1)")
	b.script(`begin; alter table users rename to former; alter table next rename to users; commit`)
	eventually(t, "the table is flushed", func() bool { return slices.Contains(s.flushes(), "user") })
	if state := f.State()[0]; state.Role == Active && state.Reason == "" {
		t.Errorf("nothing is owed while a transaction from before is under way: %+v", state)
	}
	run("commit")
	b.awaitRole(f, Active)
	if got := s.flushes(); !slices.Equal(got, []string{"user", "user"}) {
		t.Errorf("flushed %q, want the keyspace of the table twice", got)
	}
	b.script("update users set name = 'newest' where id = 1; update former set name = 'old'")
	b.probe(&s)
	if got := s.taken(); !slices.Equal(got, []string{"user:1 1"}) {
		t.Errorf("handed out %q", got)
	}
}

// Everybody sees that following lags, and that it no longer does.
func TestDegradedWhileFollowingLags(t *testing.T) {
	b := newBed(t)
	var s, idle sink
	cfg := quick()
	cfg.LagLimit = time.Second
	other := cfg
	other.Sidecar = "a2"
	f, _ := b.follow(cfg, &s)
	b.awaitRole(f, Active)
	g, _ := b.follow(other, &idle)
	b.awaitRole(g, StandBy)
	well := func() bool { return !f.Degraded(b.name) && !g.Degraded(b.name) }
	eventually(t, "all is well", well)
	var refuse atomic.Bool
	refuse.Store(true)
	s.setFail(func() error {
		if refuse.Load() {
			return errors.New("the cache servers are away")
		}
		return nil
	})
	b.script("insert into users values (1, '', '')")
	eventually(t, "both are degraded", func() bool { return f.Degraded(b.name) && g.Degraded(b.name) })
	refuse.Store(false)
	eventually(t, "all is well again", well)
	if got := b.text("select (select s < 3600 from (" + LagSQL + ") as l(who, s))"); got != "true" {
		t.Errorf("LagSQL is not a number: %q", got)
	}
}

// A shard that is not installed, or is another one, is not followed.
func TestOnlyTheShardItself(t *testing.T) {
	b := newBed(t)
	var s sink
	real := b.name
	b.name = "another"
	f, _ := b.follow(quick(), &s)
	b.name = real
	if state := b.awaitRole(f, Down); !strings.Contains(state.Reason, fmt.Sprintf("shard %q", real)) {
		t.Errorf("state %+v", state)
	}
	if !f.Degraded("another") {
		t.Error("a shard that nobody follows is not degraded")
	}
	if err := f.Apply([]Shard{{Name: real, DSN: b.dsn}}); err != nil {
		t.Fatal(err)
	}
	b.awaitRole(f, Active)
	if err := f.Apply([]Shard{{Name: real, DSN: "postgres://u:secret@%zz/"}}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a broken dsn: %v", err)
	}
	if err := f.Apply(nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing is followed", func() bool { return len(f.State()) == 0 })
}
