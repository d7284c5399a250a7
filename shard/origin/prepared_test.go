package origin

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringside/shard"
	"ringside/shard/keyspace"
)

// Statements that were prepared on a session and are lost there (a pooler's DEALLOCATE ALL), or were built for a table that has changed since, cost no caller an
// error, on any session, and do what the table as it is now asks for.
func TestPreparedStatementsSurvive(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{LoadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second, LockTimeout: 30 * time.Second},
		`create table users (id int primary key, name text not null, visits bigint, length int generated always as (length(name)) stored, extra text)`,
		`insert into users values (1, 'a', 0), (2, 'b', 0)`)
	type transaction = write // what is called write below is Fleet.Write
	ks := users(t)
	keys := []keyspace.Key{key(t, ks, "user:1"), key(t, ks, "user:2")}
	p := f.pools["s1"]
	write := func(what string, op keyspace.Op) keyspace.Outcome {
		t.Helper()
		called := 0
		out, err := f.Write(t.Context(), "s1", at, op, func() (bool, error) { called++; return false, nil })
		if err != nil || called != 1 {
			t.Errorf("%s: a write: %v, beforeCommit called %d times", what, err, called)
		}
		return out
	}
	use := func(what, row string) {
		t.Helper()
		for n := 1; n <= 2; n++ {
			rows, _, err := f.Load(t.Context(), "s1", ks, keys[:n])
			if err != nil {
				t.Errorf("%s: a load of %d: %v", what, n, err)
			} else if got := string(rows[0].Body); row != "" && got != row {
				t.Errorf("%s: read %s, want %s", what, got, row)
			}
		}
		write(what, upsert(t, keys[1], `{"name":"c"}`))
		write(what, keyspace.Op{Kind: keyspace.Increment, Key: keys[1], Column: "visits", Delta: 1})
		write(what, keyspace.Op{Kind: keyspace.Update, Key: keys[1], Columns: columns(t, `{"visits":2}`)})
	}
	// everywhere does something on three sessions, which are idle afterwards.
	everywhere := func(do func(c *pgxpool.Conn)) {
		t.Helper()
		var held []*pgxpool.Conn
		for range 3 {
			c, err := p.db.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, c)
		}
		for _, c := range held {
			do(c)
			c.Release()
		}
	}
	everywhere(func(c *pgxpool.Conn) {
		if _, err := fetchTable(t.Context(), c.Conn(), "users"); err != nil {
			t.Fatal(err)
		}
		for n := 1; n <= 2; n++ {
			sql, args, err := loadStatement("s1", ks, keys[:n], false)
			if err == nil {
				_, _, _, _, err = p.load(t.Context(), c.Conn(), sql, args, keys[:n], false)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	for range 2 { // first the statements of writes are prepared, then they are lost
		everywhere(func(c *pgxpool.Conn) {
			for _, op := range []keyspace.Op{upsert(t, keys[1], `{"name":"c"}`), {Kind: keyspace.Increment, Key: keys[1], Column: "visits", Delta: 1}} {
				if err := (&transaction{pool: p, view: at, op: op}).run(t.Context(), c.Conn()); err != nil {
					t.Error(err)
				}
			}
			if _, err := c.Exec(t.Context(), `deallocate all`); err != nil {
				t.Fatal(err)
			}
		})
	}
	p.excess.Store(1) // the session that is used first is the last time: another one has lost its statements, too
	use("deallocated", `{"id":1,"name":"a","visits":0,"length":1,"extra":null}`)

	for _, c := range []struct{ ddl, row string }{
		{`alter table users add column city text default 'Rome'`, `{"id":1,"name":"a","visits":0,"length":1,"extra":null,"city":"Rome"}`},
		{`alter table users drop column city`, `{"id":1,"name":"a","visits":0,"length":1,"extra":null}`},
		{`alter table users alter column visits type int`, `{"id":1,"name":"a","visits":0,"length":1,"extra":null}`},
		{`alter table users alter column id type bigint`, `{"id":1,"name":"a","visits":0,"length":1,"extra":null}`},
		{`alter table users alter column name type varchar(20)`, ``}, // refused: a computed column depends on it
		{`alter table users rename to former; create table users as select * from former; alter table users add primary key (id)`, `{"id":1,"name":"a","visits":0,"length":1,"extra":null}`},
		{`drop table users; alter table former rename to users`, `{"id":1,"name":"a","visits":0,"length":1,"extra":null}`},
	} {
		if _, err := f.sql.Exec(t.Context(), c.ddl, pgx.QueryExecModeSimpleProtocol); err != nil && c.row != "" {
			t.Fatal(err)
		}
		use(c.ddl, c.row)
	}

	// What the client was told of the table as it was is no answer.
	increment := keyspace.Op{Kind: keyspace.Increment, Key: keys[0], Column: "extra", Delta: 5}
	if _, err := f.Write(t.Context(), "s1", at, increment, nil); err == nil {
		t.Error("a text was incremented")
	}
	f.exec(`alter table users alter column extra type int using 1`)
	if out := write("text to int", increment); out.Value != 6 {
		t.Errorf("incremented to %d", out.Value)
	}
	f.exec(`alter table users alter column extra type text`)
	_, err := f.Write(t.Context(), "s1", at, increment, nil)
	if bad, ok := errors.AsType[*shard.BadRowError](err); !ok || bad.Column != "extra" || bad.Reason != "hash value is not an integer" {
		t.Errorf("int to text: %v", err)
	}
	// Where no statement fails, what is known of the table is old soon.
	f.exec(`alter table users alter column length drop expression`)
	p.tables.Lock()
	known := *p.tables.byName["users"]
	known.asked = known.asked.Add(-tableLife)
	p.tables.byName["users"] = &known
	p.tables.Unlock()
	write("no longer computed", upsert(t, keys[0], `{"length":77}`))
	if got := f.text(`select length::text from users where id = 1`); got != "77" {
		t.Errorf("a column that is not computed any more holds %s", got)
	}
}
