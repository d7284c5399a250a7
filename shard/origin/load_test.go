package origin

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"ringside/internal/realpg"
	"ringside/shard"
	"ringside/shard/keyspace"
)

func TestLoadOneAndMany(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{}, usersTable,
		`insert into users values (1, 'Ann "A"', null, 3), (2, 'Bö', 'b@x', 9007199254740993), (-3, '', null, null)`)
	ks := users(t)
	keys := []keyspace.Key{key(t, ks, "user:1"), key(t, ks, "user:99"), key(t, ks, "user:2"), key(t, ks, "user:-3"), key(t, ks, "user:1")}

	rows, view, err := f.Load(t.Context(), "s1", ks, keys)
	if err != nil || view != at {
		t.Fatalf("view %v, error %v", view, err)
	}
	for i, k := range keys {
		want := f.text(`select row_to_json(t)::text from users t where id = $1::text::bigint`, string(k.Values[0]))
		one, view, err := f.Load(t.Context(), "s1", ks, keys[i:i+1])
		if err != nil || view != at {
			t.Fatalf("%s: view %v, error %v", k.Text, view, err)
		}
		for _, row := range []Row{rows[i], one[0]} {
			if row.Err != nil || row.Found != (want != "<none>") || row.Found && string(row.Body) != want {
				t.Errorf("%s: got %+v %s, want %s", k.Text, row, row.Body, want)
			}
		}
	}
	if v, standing := f.Confirmation("s1").Trust(time.Now(), plenty, 0); v.Epoch != at.Epoch || standing != shard.Current {
		t.Errorf("a load confirms the view, but standing is %v", standing)
	}
}

func TestLoadCompositeAndUUIDKeys(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{},
		`create table orders (tenant varchar(20), id int, item text, primary key (tenant, id))`,
		`insert into orders values ('a b', 1, 'x'), ('a b', 2, 'y'), ('b', 1, 'z')`,
		`create schema app`, `create table app."Docs" ("Doc_Id" uuid primary key, body jsonb)`,
		`insert into app."Docs" values ('11111111-2222-3333-4444-555555555555', '{"a": [1, 2.50]}')`)
	orders := compile(t, keyspace.Spec{Name: "order", Pattern: "order:{tenant}:{id:int}", ShardBy: "tenant", Table: "orders"})
	var keys []keyspace.Key
	for _, k := range []string{"order:a b:2", "order:b:1", "order:b:2", "order:a b:99999999999"} {
		keys = append(keys, key(t, orders, k))
	}
	rows, _, err := f.Load(t.Context(), "s1", orders, keys)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%s|%s|%v|%v", rows[0].Body, rows[1].Body, rows[2].Found, rows[3].Found)
	if want := `{"tenant":"a b","id":2,"item":"y"}|{"tenant":"b","id":1,"item":"z"}|false|false`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}

	docs := compile(t, keyspace.Spec{Name: "doc", Pattern: "doc:{Doc_Id:uuid}", Table: "app.Docs"})
	there, not := key(t, docs, "doc:11111111-2222-3333-4444-555555555555"), key(t, docs, "doc:11111111-2222-3333-4444-555555555556")
	for _, keys := range [][]keyspace.Key{{there}, {there, not}} {
		rows, _, err = f.Load(t.Context(), "s1", docs, keys)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(rows[0].Body), `{"Doc_Id":"11111111-2222-3333-4444-555555555555","body":{"a": [1, 2.50]}}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// Guards P3, P4: what a shard says of a vnode that it may not answer for is not taken for the row's absence.
func TestLoadAnswersOnlyForWhatIsOwned(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{}, usersTable, `insert into users values (1, 'a'), (2, 'b')`)
	ks := users(t)
	one, two := key(t, ks, "user:1"), key(t, ks, "user:2")
	for _, c := range []struct {
		state string
		ok    bool
	}{{"owned", true}, {"frozen", true}, {"incoming", false}, {"closed", false}, {"moved", false}, {"cancelled", false}, {"", false}} {
		if c.state == "" {
			f.exec(`delete from ringside.owner where vnode = $1`, int32(one.ShardVnode))
		} else {
			f.setOwner(one.ShardVnode, c.state)
		}
		for _, keys := range [][]keyspace.Key{{one}, {one, two}} {
			rows, view, err := f.Load(t.Context(), "s1", ks, keys)
			if err != nil || view != at {
				t.Fatalf("%q: view %v, error %v", c.state, view, err)
			}
			if c.ok != (rows[0].Err == nil) || c.ok != rows[0].Found || !c.ok && !errors.Is(rows[0].Err, shard.ErrNotOwner) {
				t.Errorf("%q: got %+v", c.state, rows[0])
			}
			if len(keys) == 2 && !rows[1].Found {
				t.Errorf("%q: the other key was not answered: %+v", c.state, rows[1])
			}
		}
	}
}

func TestLoadSeesANewColumnWithoutAnError(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{}, usersTable, `insert into users values (1, 'a'), (2, 'b')`)
	ks := users(t)
	keys := []keyspace.Key{key(t, ks, "user:1"), key(t, ks, "user:2")}
	load := func(n int) []Row {
		t.Helper()
		rows, _, err := f.Load(t.Context(), "s1", ks, keys[:n])
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	for range 3 {
		load(1)
		load(2)
	}
	f.exec(`alter table users add column city text default 'Rome'`)
	for n := 1; n <= 2; n++ {
		if got, want := string(load(n)[0].Body), `{"id":1,"name":"a","email":null,"visits":0,"city":"Rome"}`; got != want {
			t.Errorf("%d keys: got %s, want %s", n, got, want)
		}
	}
	f.exec(`alter table users drop column email, alter column visits type int`)
	if got, want := string(load(2)[0].Body), `{"id":1,"name":"a","visits":0,"city":"Rome"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Guards P5 at the shard: whatever the number of keys, a load is one statement.
func TestLoadIsOneStatement(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	server, err := realpg.Start(t.Context(), realpg.Options{Log: &log, Settings: map[string]string{"fsync": "off", "log_statement": "all"}})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	f := fixtureAt(t, server.DSN(), Config{}, usersTable, `insert into users select n, 'u' || n from generate_series(1, 500) n`)
	ks := users(t)
	var keys []keyspace.Key
	for n := range 500 {
		keys = append(keys, key(t, ks, fmt.Sprintf("user:%d", n+1)))
	}
	for _, n := range []int{1, 2, 500} {
		if _, _, err := f.Load(t.Context(), "s1", ks, keys[:n]); err != nil { // opens a connection, prepares
			t.Fatal(err)
		}
	}
	executed := func() int { return strings.Count(log.String(), "LOG:  execute") }
	marker := 0
	mark := func() { // what the server logs reaches us through a pipe, in order
		marker++
		f.exec(fmt.Sprintf("select 'marker %d'", marker))
		eventually(t, "the log", func() bool { return strings.Contains(log.String(), fmt.Sprintf("'marker %d'", marker)) })
	}
	mark()
	for _, n := range []int{1, 2, 500} {
		before := executed()
		if _, _, err := f.Load(t.Context(), "s1", ks, keys[:n]); err != nil {
			t.Fatal(err)
		}
		mark()
		if got := executed() - before; got != 1 {
			t.Errorf("%d keys took %d statements", n, got)
		}
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestLoadWithoutSetupOrShard(t *testing.T) {
	t.Parallel()
	// As many connections as the fixtures' own fleets may have: of two there is one seat, which theirs may be sitting on.
	f := newFleet(t, Config{}, ShardConfig{Name: "s1", DSN: newFixture(t, Config{}, usersTable).dsn, MaxConnections: 9},
		ShardConfig{Name: "other", DSN: newFixture(t, Config{}, usersTable).dsn, MaxConnections: 9})
	ks := users(t)
	keys := []keyspace.Key{key(t, ks, "user:1")}
	for name, want := range map[string]error{"other": errNotSetUp, "nowhere": errNotInTopology} {
		_, _, err := f.Load(t.Context(), name, ks, keys)
		if _, ok := errors.AsType[*shard.DownError](err); !ok || !errors.Is(err, want) {
			t.Errorf("%s: got %v, want a DownError with %v", name, err, want)
		}
	}
}
