package origin

import (
	"errors"
	"strings"
	"testing"

	"ringside/shard/keyspace"
)

func TestCheckTable(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{},
		`create table good (id bigint primary key, name text)`,
		`create table pair (tenant varchar(9) not null, id int not null, item text)`,
		`create unique index on pair (id, tenant) include (item)`,
		`create domain ident as int not null`, `create domain ident2 as ident`,
		`create table viadomain (id ident2 primary key)`,
		`create table u (id uuid primary key, c char(3) not null unique, d timestamptz unique, maybe text unique)`,
		`create collation nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`,
		`create table folded (name text collate nocase primary key)`,
		`create table partial (id int not null)`, `create unique index on partial (id) where id > 0`,
		`create table deferred (id int not null unique deferrable)`,
		`create table parted (id int primary key, x text) partition by hash (id)`, `create table parted0 partition of parted for values with (modulus 1, remainder 0)`,
		`create view v as select 1 as id`,
		`create schema app`, `create table app."Good" (id int primary key)`)
	for _, c := range []struct{ pattern, table, value, column, reason string }{
		{"k:{id:int}", "good", "", "", ""},
		{"k:{id:int}", "good", "name", "", ""},
		{"k:{id:int}", "app.Good", "", "", ""},
		{"k:{id:int}", "parted", "", "", ""},
		{"k:{id:int}", "viadomain", "", "", ""},
		{"k:{tenant}:{id:int}", "pair", "", "", ""},
		{"k:{id:uuid}", "u", "", "", ""},
		{"k:{id:int}", "nope", "", "", "does not exist"},
		{"k:{id:int}", "app.good", "", "", "does not exist"},
		{"k:{id:int}", "v", "", "", "not a table"},
		{"k:{nope:int}", "good", "", "nope", "no such column"},
		{"k:{id:int}", "good", "nope", "nope", "no such column"},
		{"k:{id}", "good", "", "id", "the pattern says text"},
		{"k:{id:uuid}", "good", "", "id", "the pattern says uuid"},
		{"k:{id:int}", "u", "", "id", "the pattern says int"},
		{"k:{c}", "u", "", "c", "character(3)"},
		{"k:{maybe}", "u", "", "maybe", "NOT NULL"},
		{"k:{name}", "folded", "", "name", "collation"},
		{"k:{id:int}", "pair", "", "", "unique"},
		{"k:{tenant}", "pair", "", "", "unique"},
		{"k:{id:int}", "partial", "", "", "unique"},
		{"k:{id:int}", "deferred", "", "", "unique"},
	} {
		ks := compile(t, keyspace.Spec{Name: "k", Pattern: c.pattern, Table: c.table, Value: c.value, ShardBy: firstField(c.pattern)})
		err := f.CheckTable(t.Context(), "s1", ks)
		if c.reason == "" {
			if err != nil {
				t.Errorf("%s on %s: %v", c.pattern, c.table, err)
			}
			continue
		}
		fault, ok := errors.AsType[*TableError](err)
		if !ok || fault.Column != c.column || !strings.Contains(fault.Reason, c.reason) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s on %s: got %v, want a TableError of column %q with %q", c.pattern, c.table, err, c.column, c.reason)
		}
	}
	far := newFleet(t, Config{}, ShardConfig{"s1", "postgres://ringside@127.0.0.1:1/app", 2})
	if err := far.CheckTable(t.Context(), "s1", users(t)); !isDown(err) {
		t.Errorf("unreachable: %v", err)
	}
}

func firstField(pattern string) string {
	name := pattern[strings.IndexByte(pattern, '{')+1:]
	return name[:strings.IndexAny(name, ":}")]
}
