package origin

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"ringside/ring"
)

// newGuarded is a shard with an attached table of users, of whom user 1 is there.
func newGuarded(t *testing.T) *fixture {
	f := newFixture(t, Config{}, usersTable, `insert into users values (1, 'before')`)
	f.exec(`select ringside.attach('users', 'id')`)
	return f
}

func vnodeOf(shardKey string) int { return int(ring.Vnode([]byte(shardKey))) }

// part puts vnodes under a part of a move to shard s2, in a state.
func (f *fixture) part(id int, state string, capture bool, vnodes ...int) {
	f.t.Helper()
	f.exec(`begin`)
	f.exec(`select pg_advisory_xact_lock($1, 0)`, LockGlobal)
	f.exec(`insert into ringside.part (id, side, state, capture, peer) values ($1, 'source', $2, $3, 's2')
on conflict (id) do update set state = excluded.state, capture = excluded.capture`, id, state, capture)
	f.exec(`update ringside.owner set move_id = $1 where vnode = any($2)`, id, vnodes)
	f.exec(`select ringside.forward()`)
	f.exec(`commit`)
}

// refusal checks that an error is a refusal of the guard that names the new owner.
func refusal(t *testing.T, what string, err error, codes ...string) {
	t.Helper()
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || !strings.Contains(strings.Join(codes, " "), pg.Code) || !strings.Contains(pg.Message, "shard s2") || pg.Detail != "s2" {
		t.Errorf("%s: %v (%+v), want SQLSTATE %v and shard s2", what, err, pg, codes)
	}
}

// Guards P4: whoever writes past the sidecars is refused by the shard, whatever the isolation, also when its transaction had begun before.
func TestTheGuardRefusesWritersOfOthers(t *testing.T) {
	t.Parallel()
	f := newGuarded(t)
	ctx := t.Context()
	const update = `update users set name = 'after' where id = 1`
	for n, state := range []string{"frozen", "closed", "moved"} {
		f.part(1, "owned", true, vnodeOf("1"))
		want := []string{codeFrozen, codeClosed, codeNotOwner}[n]
		var begun []*pgx.Conn
		for _, level := range []string{"read committed", "repeatable read", "serializable"} {
			c := connect(t, f.dsn)
			for _, sql := range []string{`begin isolation level ` + level, `select count(*) from users`} {
				if _, err := c.Exec(ctx, sql); err != nil {
					t.Fatal(err)
				}
			}
			begun = append(begun, c)
		}
		f.part(1, state, true, vnodeOf("1"))
		for i, c := range begun {
			_, err := c.Exec(ctx, update)
			refusal(t, state+", in a transaction that had begun", err, []string{want, codeNotOwner, codeNotOwner}[i])
		}
		for _, level := range []string{"read committed", "repeatable read", "serializable"} {
			for _, sql := range []string{update, `delete from users where id = 1`, `insert into users values (1, 'again') on conflict (id) do update set name = 'again'`} {
				c := connect(t, f.dsn)
				if _, err := c.Exec(ctx, `begin isolation level `+level); err != nil {
					t.Fatal(err)
				}
				_, err := c.Exec(ctx, sql)
				refusal(t, state+", "+level+", "+sql, err, want)
			}
		}
		if got := f.text(`select name from users where id = 1`); got != "before" {
			t.Errorf("%s: the row is %q", state, got)
		}
	}
}

// Under READ COMMITTED a writer that waited behind the mover sees what the mover did; under REPEATABLE READ also if it knew nothing of the move.
func TestTheGuardOfAWriterThatWaited(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"read committed", "repeatable read"} {
		f := newGuarded(t)
		c := connect(t, f.dsn)
		for _, sql := range []string{`begin isolation level ` + level, `select count(*) from users`} {
			if _, err := c.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		f.exec(`begin`)
		f.exec(`select pg_advisory_xact_lock($1, 0)`, LockGlobal)
		written := make(chan error, 1)
		go func() {
			_, err := c.Exec(context.Background(), `update users set name = 'after' where id = 1`)
			written <- err
		}()
		probe := connect(t, f.dsn)
		eventually(t, "the writer waits for the lock", func() bool {
			var waiting bool
			err := probe.QueryRow(context.Background(), `select exists (select from pg_locks where locktype = 'advisory' and not granted and database =
				(select oid from pg_database where datname = current_database()))`).Scan(&waiting)
			return err == nil && waiting
		})
		f.exec(`update ringside.owner set state = 'moved', moved_to = 's2' where vnode = $1`, vnodeOf("1"))
		f.exec(`select ringside.forward()`)
		f.exec(`commit`)
		refusal(t, level, <-written, codeNotOwner)
	}
}

// A transaction of before that meets a vnode which has come here, or came back, is told to begin anew, and not that the vnode is elsewhere.
func TestTheGuardOfAVnodeThatCame(t *testing.T) {
	t.Parallel()
	f := newGuarded(t)
	c := connect(t, f.dsn)
	for _, sql := range []string{`begin isolation level repeatable read`, `select count(*) from users`} {
		if _, err := c.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	f.exec(`update ringside.owner set epoch = epoch + 1`)
	if _, err := c.Exec(t.Context(), `update users set name = 'after'`); code(err) != "40001" {
		t.Errorf("got %v, want a serialization failure", err)
	}
}

// What changes while its vnode is moved away is noted, and nothing else.
func TestTheGuardNotesChanges(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{}, `create table orders (tenant text, at timestamptz, item text, primary key (at, tenant))`)
	f.exec(`select ringside.attach('orders', 'tenant')`)
	f.exec(`set timezone = 'UTC'`)
	f.exec(`insert into orders values ('a', '2026-01-01', 'x'), ('b', '2026-01-02', 'x')`)
	f.exec(`set datestyle = 'German'`)
	f.part(3, "owned", true, vnodeOf("a"))
	for _, c := range []struct{ sql, want string }{
		{`update orders set item = 'y' where tenant = 'a'`, `["2026-01-01T00:00:00+00:00", "a"]`},
		{`update orders set item = 'y' where tenant = 'b'`, ``},
		{`update orders set tenant = 'a' where tenant = 'b'`, `["2026-01-02T00:00:00+00:00", "a"]`},
		{`update orders set tenant = 'b' where at = '02.01.2026'`, `["2026-01-02T00:00:00+00:00", "a"]`},
		{`insert into orders values ('a', '03.01.2026', null), ('b', '03.01.2026', null)`, `["2026-01-03T00:00:00+00:00", "a"]`},
		{`update orders set at = '04.01.2026' where tenant = 'a' and at = '03.01.2026'`, `["2026-01-03T00:00:00+00:00", "a"]["2026-01-04T00:00:00+00:00", "a"]`},
		{`delete from orders`, `["2026-01-01T00:00:00+00:00", "a"]["2026-01-04T00:00:00+00:00", "a"]`},
	} {
		f.exec(c.sql)
		if got := f.text(`select coalesce(string_agg(key::text, '' order by key::text), '') from ringside.change where part = 3 and vnode = $1 and tbl = 'orders'::regclass`, vnodeOf("a")); got != c.want {
			t.Errorf("%s: noted %s, want %s", c.sql, got, c.want)
		}
		f.exec(`delete from ringside.change`)
	}
}

func TestTheGuardIsForEverybodyButTheMover(t *testing.T) {
	t.Parallel()
	f := newGuarded(t)
	ctx := t.Context()
	f.exec(`create role teller_` + f.text(`select current_database()`))
	role := "teller_" + f.text(`select current_database()`)
	t.Cleanup(func() {
		f.exec(`reset role`)
		f.exec(`drop owned by ` + role + `; drop role ` + role)
	})
	f.exec(`grant select, insert, update, delete on users to ` + role)
	f.exec(`set role ` + role) // one that has no rights in schema ringside
	f.exec(`update users set name = 'teller' where id = 1`)
	f.exec(`reset role`)
	f.part(1, "moved", false, vnodeOf("1"))
	f.exec(`set role ` + role)
	_, err := f.sql.Exec(ctx, `delete from users`)
	refusal(t, "an ordinary role", err, codeNotOwner)
	f.exec(`reset role`)
	f.exec(`set session_replication_role = replica`)
	_, err = f.sql.Exec(ctx, `delete from users`)
	refusal(t, "as a replica", err, codeNotOwner)
	f.exec(`reset session_replication_role`)
	if _, err = f.sql.Exec(ctx, `copy users (id, name) from program 'echo 1,copied' with (format csv)`); code(err) == "" {
		t.Error("COPY passed")
	}
	f.part(1, "closed", false, vnodeOf("1"))
	if _, err = f.sql.Exec(ctx, `truncate users`); code(err) != codeFrozen {
		t.Errorf("truncate during a move: %v", err)
	}
	f.part(1, "moved", false, vnodeOf("1"))
	f.exec(`begin`)
	f.exec(`set local ringside.mover = 'on'`)
	f.exec(`delete from users`)
	f.exec(`commit`)
	_, err = f.sql.Exec(ctx, `insert into users values (1, 'x')`)
	refusal(t, "after the mover's own transaction", err, codeNotOwner)
	f.exec(`truncate users`)
}

// The locks of a statement that changes very many rows of very many vnodes are few.
func TestTheGuardOfManyRows(t *testing.T) {
	t.Parallel()
	f := newGuarded(t)
	f.exec(`insert into users select n, 'x' from generate_series(2, 30000) n`)
	f.exec(`begin`)
	f.exec(`update users set visits = 1`)
	if got := f.text(`select (count(*) <= 1 + $1::int)::text from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()`, LockStripes); got != "true" {
		t.Error("a large update holds more locks than there are stripes")
	}
	f.exec(`rollback`)
}

// What forward writes is what ownership says, of every vnode: also of the first and the last one, of runs, and of those that came back.
func TestForwardedIsWhatOwnershipSays(t *testing.T) {
	t.Parallel()
	f := newGuarded(t)
	for _, change := range []string{
		`select`,
		`update ringside.owner set state = 'moved', moved_to = 's3' where vnode in (0, 65535)`,
		`update ringside.owner set state = 'moved', moved_to = 's' || vnode % 3 where vnode between 1000 and 2000 or vnode % 1000 = 7`,
		`update ringside.owner set state = 'owned', moved_to = null where vnode < 1500`,
		`update ringside.owner set state = 'moved', moved_to = 's2'`,
		`update ringside.owner set state = 'owned', moved_to = null`,
	} {
		f.exec(change)
		f.exec(`select ringside.forward()`)
		f.exec(`begin`)
		wrong := f.text(`select coalesce(string_agg(format('%s: %L, not %L', vnode, ringside.forwarded(vnode, ''), coalesce(moved_to, '')), ', '), 'none') from (
select vnode, moved_to from ringside.ownership where (vnode % 97 = 0 or vnode in (999, 1000, 1001, 1499, 1500, 2000, 2001, 65535)) and ringside.forwarded(vnode, '') <> coalesce(moved_to, '')) x`)
		f.exec(`commit`)
		if wrong != "none" {
			t.Errorf("after %s: %s", change, wrong)
		}
	}
}
