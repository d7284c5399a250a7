package origin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"ringside/shard"
	"ringside/shard/keyspace"
)

func upsert(t testing.TB, k keyspace.Key, doc string) keyspace.Op {
	t.Helper()
	return keyspace.Op{Kind: keyspace.Upsert, Key: k, Columns: columns(t, doc)}
}

func TestWriteKinds(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{}, usersTable)
	ks := users(t)
	k := key(t, ks, "user:1")
	const gone = "<none>"
	for i, step := range []struct {
		op   keyspace.Op
		want keyspace.Outcome
		row  string
	}{
		{keyspace.Op{Kind: keyspace.Delete, Key: k}, keyspace.Outcome{}, gone},
		{keyspace.Op{Kind: keyspace.Update, Key: k, Columns: columns(t, `{"name":"a"}`)}, keyspace.Outcome{}, gone},
		{keyspace.Op{Kind: keyspace.Update, Key: k}, keyspace.Outcome{}, gone},
		{upsert(t, k, `{"name":"a","visits":2}`), keyspace.Outcome{Applied: true, Inserted: true}, "1 a <null> 2"},
		// The row exists, so the column that an insert would need is not missed.
		{upsert(t, k, `{"email":"a@x"}`), keyspace.Outcome{Applied: true}, "1 a a@x 2"},
		{upsert(t, k, `{}`), keyspace.Outcome{Applied: true}, "1 a a@x 2"},
		{upsert(t, k, `{"id":1,"visits":null}`), keyspace.Outcome{Applied: true}, "1 a a@x <null>"},
		{upsert(t, k, `{"id":"1","visits":"7"}`), keyspace.Outcome{Applied: true}, "1 a a@x 7"},
		{keyspace.Op{Kind: keyspace.Insert, Key: k, Columns: columns(t, `{"name":"b"}`)}, keyspace.Outcome{}, "1 a a@x 7"},
		{keyspace.Op{Kind: keyspace.Insert, Key: k, Columns: columns(t, `{"visits":9}`)}, keyspace.Outcome{}, "1 a a@x 7"},
		{keyspace.Op{Kind: keyspace.Update, Key: k, Columns: columns(t, `{"name":"c"}`)}, keyspace.Outcome{Applied: true}, "1 c a@x 7"},
		{keyspace.Op{Kind: keyspace.Update, Key: k}, keyspace.Outcome{Applied: true}, "1 c a@x 7"},
		{keyspace.Op{Kind: keyspace.Increment, Key: k, Column: "visits", Delta: -10}, keyspace.Outcome{Applied: true, Value: -3}, "1 c a@x -3"},
		{keyspace.Op{Kind: keyspace.Delete, Key: k}, keyspace.Outcome{Applied: true}, gone},
		{keyspace.Op{Kind: keyspace.Insert, Key: k, Columns: columns(t, `{"name":"b"}`)}, keyspace.Outcome{Applied: true, Inserted: true}, "1 b <null> 0"},
	} {
		called := 0
		got, err := f.Write(t.Context(), "s1", at, step.op, func() (bool, error) { called++; return false, nil })
		if err != nil || got != step.want || called != 1 {
			t.Errorf("step %d: got %+v, %v, beforeCommit called %d times; want %+v", i, got, err, called, step.want)
		}
		row := f.text(`select concat_ws(' ', id, name, coalesce(email, '<null>'), coalesce(visits::text, '<null>')) from users where id = 1`)
		if row != step.row {
			t.Errorf("step %d: the row is %q, want %q", i, row, step.row)
		}
	}
	if got := f.text(`select count(*)::text from users`); got != "1" {
		t.Errorf("%s rows", got)
	}
	if _, standing := f.Confirmation("s1").Trust(time.Now(), time.Second, 0); standing == shard.Current {
		t.Error("a write does not tell the whole view, yet confirmed one that was never heard")
	}
	if _, _, err := f.Topology(t.Context(), "s1"); err != nil {
		t.Fatal(err)
	}
	_, before := f.Confirmation("s1").View()
	if _, err := f.Write(t.Context(), "s1", at, upsert(t, k, `{}`), nil); err != nil {
		t.Fatal(err)
	}
	if _, after := f.Confirmation("s1").View(); !after.After(before) {
		t.Error("a write did not confirm the view")
	}
}

func TestWriteEveryColumnType(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{},
		`create type mood as enum ('sad', 'glad')`, `create domain small as int check (value < 10)`, `create type pair as (a int, b text)`,
		`create table things (id uuid primary key, i2 smallint, i4 int, i8 bigint, n numeric(12,4), f float8, b boolean, t text, v varchar(5), c char(3),
		d date, ts timestamp, tz timestamptz, iv interval, by bytea, j json, jb jsonb, arr int[], txt text[][], e mood, dom small, comp pair,
		ip inet, r int4range, u uuid, gen int generated always as (i4 * 2) stored)`)
	ks := compile(t, keyspace.Spec{Name: "thing", Pattern: "thing:{id:uuid}", Table: "things"})
	k := key(t, ks, "thing:11111111-2222-3333-4444-555555555555")
	const doc = `{"id":"11111111-2222-3333-4444-555555555555","i2":-5,"i4":7,"i8":9007199254740993,"n":1234.5600,"f":0.1,"b":true,` +
		`"t":"ünï \"q\" \\ \n","v":"abcde","c":"xy ","d":"2024-02-29","ts":"2024-01-02T03:04:05.678","tz":"2024-01-02T03:04:05+00:00",` +
		`"iv":"1 day 02:00:00","by":"\\x00ff","j":{"k" : 1,  "k":2},"jb":{"a": [1, 2.50, null]},"arr":[1,null,3],"txt":[["a","b"],["c","d"]],` +
		`"e":"glad","dom":9,"comp":{"a":1,"b":"z"},"ip":"10.0.0.1","r":"[1,5)","u":"aaaaaaaa-0000-0000-0000-000000000000","gen":14}`
	for range 2 { // inserted, then written back
		if _, err := f.Write(t.Context(), "s1", at, upsert(t, k, doc), nil); err != nil {
			t.Fatal(err)
		}
	}
	rows, _, err := f.Load(t.Context(), "s1", ks, []keyspace.Key{k})
	if err != nil || !rows[0].Found {
		t.Fatalf("%+v %v", rows, err)
	}
	first := string(rows[0].Body)
	for _, part := range []string{`"i8":9007199254740993`, `"n":1234.5600`, `"gen":14`, `"arr":[1,null,3]`, `"e":"glad"`, `"j":{"k" : 1,  "k":2}`, `"comp":{"a":1,"b":"z"}`} {
		if !strings.Contains(first, part) {
			t.Errorf("the row has no %s: %s", part, first)
		}
	}
	// What was read can be written back and changes nothing.
	if out, err := f.Write(t.Context(), "s1", at, upsert(t, k, first), nil); err != nil || !out.Applied || out.Inserted {
		t.Fatalf("%+v %v", out, err)
	}
	if rows, _, _ = f.Load(t.Context(), "s1", ks, []keyspace.Key{k}); string(rows[0].Body) != first {
		t.Errorf("written back, it became\n%s\nfrom\n%s", rows[0].Body, first)
	}
}

// A client that can only give text (HSET) means the document, not a JSON string of it.
func TestWriteTextIntoJSONColumns(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{}, `create table docs (id bigint primary key, j json, jb jsonb, t text)`)
	ks := compile(t, keyspace.Spec{Name: "doc", Pattern: "doc:{id:int}", Table: "docs"})
	write := func(column, text string) error {
		c, err := keyspace.TextColumn(column, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Write(t.Context(), "s1", at, keyspace.Op{Kind: keyspace.Upsert, Key: key(t, ks, "doc:1"), Columns: []keyspace.Column{c}}, nil)
		return err
	}
	for _, column := range []string{"j", "jb", "t"} {
		if err := write(column, `{"a": 1}`); err != nil {
			t.Fatal(err)
		}
		if bad, ok := errors.AsType[*shard.BadRowError](write(column, `{"a"`)); ok != (column != "t") || ok && bad.Column != column {
			t.Errorf("broken JSON into %s: %v", column, bad)
		}
	}
	if got, want := f.text(`select row_to_json(docs) from docs`), `{"id":1,"j":{"a": 1},"jb":{"a": 1},"t":"{\"a\""}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestWriteRefusesBadRowsNamingTheColumn(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{},
		`create table parents (id int primary key)`,
		`create table t (id bigint primary key, name text not null, age smallint check (age >= 0), email text unique, parent int references parents,
		code varchar(3), at timestamptz, tags int[], big int default 2147483600, gen int generated always as (age + 1) stored, day date,
		check (name <> code), unique (day) deferrable initially deferred)`,
		`create function veto() returns trigger language plpgsql as $$ begin if new.name = 'veto' then raise 'not that name'; end if; return new; end $$`,
		`create trigger veto before insert or update on t for each row execute function veto()`,
		`insert into t values (1, 'a', 1, 'taken'), (2, 'b', 2, 'free')`, `update t set day = '2024-01-01' where id = 1`)
	ks := compile(t, keyspace.Spec{Name: "t", Pattern: "t:{id:int}", Table: "t"})
	two, three := key(t, ks, "t:2"), key(t, ks, "t:3")
	before := f.text(`select md5(string_agg(t::text, ',' order by id)) from t`)
	refused := func(name string, op keyspace.Op, column, reason string) {
		t.Helper()
		_, err := f.Write(t.Context(), "s1", at, op, nil)
		bad, ok := errors.AsType[*shard.BadRowError](err)
		if !ok {
			t.Errorf("%s: got %v, want a BadRowError", name, err)
			return
		}
		if bad.Column != column || !strings.Contains(bad.Reason, reason) {
			t.Errorf("%s: got column %q, reason %q; want column %q, reason with %q", name, bad.Column, bad.Reason, column, reason)
		}
		if after := f.text(`select md5(string_agg(t::text, ',' order by id)) from t`); after != before {
			t.Errorf("%s: the table changed", name)
		}
	}
	for _, c := range []struct{ doc, column, reason string }{
		{`{"nope":1}`, "nope", "no such column"},
		{`{"name":"x","age":"old"}`, "age", "invalid input syntax"},
		{`{"name":"x","age":1.5}`, "age", "invalid input syntax"},
		{`{"name":"x","age":40000}`, "age", "out of range"},
		{`{"name":"x","at":"yesterday-ish"}`, "at", "invalid input syntax"},
		{`{"name":"x","tags":{"a":1}}`, "tags", "JSON array"},
		{`{"name":"x","code":"toolong"}`, "code", "too long"},
		{`{"name":null}`, "name", "null value"},
		{`{"age":-1}`, "age", "check constraint"},
		{`{"email":"taken"}`, "email", "unique constraint"},
		{`{"parent":99}`, "parent", "foreign key"},
		{`{"name":"b","code":"b"}`, "", "check constraint"}, // of two columns
		{`{"name":"veto"}`, "", "not that name"},
		{`{"id":3,"name":"x"}`, "id", "must be 2"},
		{`{"id":null}`, "id", "must be 2"},
		{`{"day":"2024-01-01"}`, "day", "unique constraint"}, // refused at COMMIT
	} {
		refused(c.doc, upsert(t, two, c.doc), c.column, c.reason)
	}
	refused("insert without a needed column", upsert(t, three, `{"age":3}`), "name", "null value")
	refused("increment without a needed column", keyspace.Op{Kind: keyspace.Increment, Key: three, Column: "age", Delta: 1}, "name", "null value")
	inc := func(column string, delta int64) keyspace.Op {
		return keyspace.Op{Kind: keyspace.Increment, Key: two, Column: column, Delta: delta}
	}
	refused("overflow", inc("big", 1000), "big", "increment or decrement would overflow")
	refused("overflow of 64 bits", inc("age", 1<<62), "age", "increment or decrement would overflow")
	refused("not an integer", inc("name", 1), "name", "hash value is not an integer")
	refused("generated", inc("gen", 1), "gen", "computed")
	refused("key", inc("id", 1), "id", "part of the key")
	refused("unknown", inc("nope", 1), "nope", "no such column")
	refused("broken JSON", keyspace.Op{Kind: keyspace.Upsert, Key: two, Columns: []keyspace.Column{{Name: "age", Value: []byte(`{`)}}}, "age", "not valid JSON")
	if n := f.Pools()[0]; n.Idle != 1 {
		t.Errorf("refusals cost connections: %+v", n)
	}
}

func TestWriteSeesAChangedTable(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{}, usersTable)
	k := key(t, users(t), "user:1")
	write := func(doc string) {
		t.Helper()
		if _, err := f.Write(t.Context(), "s1", at, upsert(t, k, doc), nil); err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
	}
	write(`{"name":"a","visits":1}`)
	f.exec(`alter table users add column city text`)
	write(`{"city":"Rome"}`)
	f.exec(`alter table users alter column visits type text, drop column city`)
	write(`{"visits":"many"}`)
	_, err := f.Write(t.Context(), "s1", at, upsert(t, k, `{"city":"Rome"}`), nil)
	if bad, ok := errors.AsType[*shard.BadRowError](err); !ok || bad.Column != "city" {
		t.Errorf("got %v", err)
	}
	f.exec(`drop table users`)
	_, err = f.Write(t.Context(), "s1", at, upsert(t, k, `{"name":"x"}`), nil)
	if _, ok := errors.AsType[*shard.DownError](err); !ok || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("got %v", err)
	}
}

func TestWriteRefusedByTheFenceWritesNothingAndKeepsTheConnection(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{}, usersTable)
	k := key(t, users(t), "user:1")
	write := func(v shard.View) error {
		_, err := f.Write(t.Context(), "s1", v, upsert(t, k, `{"name":"x"}`), func() (bool, error) { return false, nil })
		return err
	}
	f.setOwner(k.ShardVnode, "frozen")
	if err := write(at); !errors.Is(err, shard.ErrFrozen) {
		t.Errorf("frozen: %v", err)
	}
	for _, state := range []string{"closed", "moved", "incoming"} {
		f.setOwner(k.ShardVnode, state)
		if err := write(at); !errors.Is(err, shard.ErrNotOwner) {
			t.Errorf("%s: %v", state, err)
		}
	}
	f.setOwner(k.ShardVnode, "owned")
	stale, ok := errors.AsType[*shard.StaleViewError](write(shard.View{Epoch: 6, Phase: shard.Done}))
	if !ok || stale.View != at || stale.Shard != "s1" {
		t.Errorf("stale view: %v", stale)
	}
	if known, _ := f.Confirmation("s1").View(); known != at {
		t.Errorf("the refusal confirms the view, but %v is known", known)
	}
	if got := f.text(`select count(*)::text from users`); got != "0" {
		t.Errorf("%s rows", got)
	}
	if got := f.text(`select count(*)::text from pg_stat_activity where application_name = 'ringside' and datname = current_database()`); got != "1" {
		t.Errorf("%s sessions", got)
	}
}

func TestWriteRollsBackWhenBeforeCommitFails(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{}, usersTable)
	k := key(t, users(t), "user:1")
	refusal := errors.New("the poison did not get there")
	for range 3 {
		if _, err := f.Write(t.Context(), "s1", at, upsert(t, k, `{"name":"x"}`), func() (bool, error) { return false, refusal }); err != refusal {
			t.Errorf("got %v", err)
		}
	}
	if got := f.text(`select count(*)::text from users`); got != "0" {
		t.Errorf("%s rows", got)
	}
	if s := f.Pools()[0]; s.InUse != 0 || s.Idle != 1 {
		t.Errorf("%+v", s)
	}
}

// Upserts, increments and deletes of one row at once: each takes effect once, and exactly one of those that found no row inserts it.
func TestWriteRaces(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{}, usersTable)
	ks := users(t)
	const rows, writers = 20, 6
	var inserted [rows]int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for r := range rows {
				op := upsert(t, key(t, ks, fmt.Sprintf("user:%d", r)), fmt.Sprintf(`{"name":"w%d"}`, w))
				out, err := f.Write(context.Background(), "s1", at, op, nil)
				if err != nil || !out.Applied {
					t.Errorf("row %d: %+v %v", r, out, err)
				}
				if out.Inserted {
					mu.Lock()
					inserted[r]++
					mu.Unlock()
				}
				inc := keyspace.Op{Kind: keyspace.Increment, Key: op.Key, Column: "visits", Delta: 1}
				if _, err := f.Write(context.Background(), "s1", at, inc, nil); err != nil {
					t.Errorf("row %d: %v", r, err)
				}
			}
		})
	}
	wg.Wait()
	for r, n := range inserted {
		if n != 1 {
			t.Errorf("row %d was inserted %d times", r, n)
		}
	}
	if got := f.text(`select min(visits) || ' ' || max(visits) || ' ' || count(*) from users`); got != "6 6 20" {
		t.Errorf("increments were lost: %s", got)
	}
}

// A caller that goes away does not cost the connection, and what was sent is carried out.
func TestWriteIsNotCancelledByItsCaller(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{}, usersTable)
	k := key(t, users(t), "user:1")
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		out, err := f.Write(ctx, "s1", at, upsert(t, k, `{"name":"x"}`), func() (bool, error) { cancel(); return false, nil })
		if err != nil || !out.Applied {
			t.Fatalf("%+v %v", out, err)
		}
	}
	if s := f.Pools()[0]; s.Idle != 1 {
		t.Errorf("%+v", s)
	}
}
