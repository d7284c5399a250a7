package origin

import (
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"ringside/ring"
	"ringside/shard"
	"ringside/shard/keyspace"
)

// neighbour is another number whose vnode is that of the given one.
func neighbour(id int) int {
	want := ring.Vnode([]byte(strconv.Itoa(id)))
	for n := id + 1; ; n++ {
		if ring.Vnode([]byte(strconv.Itoa(n))) == want {
			return n
		}
	}
}

// override says what a shard says of a key: a row of the table of overrides, as the mover leaves it; an empty state removes it.
func (f *fixture) override(key, state, movedTo string) {
	f.t.Helper()
	vnode := vnodeOf(key)
	f.exec(`begin`)
	f.exec(`select pg_advisory_xact_lock($1, 0)`, LockGlobal)
	f.exec(`delete from ringside.override where shard_key = $1`, key)
	if state != "" {
		f.exec(`insert into ringside.override (shard_key, vnode, state, moved_to) values ($1, $2, $3, nullif($4, ''))`, key, vnode, state, movedTo)
	}
	f.exec(`update ringside.owner set overrides = $2 where vnode = $1`, vnode, state != "")
	f.exec(`select ringside.forward()`)
	f.exec(`commit`)
}

var levels = []string{"read committed", "repeatable read", "serializable"}

// Guards P4: whoever writes rows of a key that an override gives to another shard is refused, with that shard's name, also when its transaction had begun
// before; whoever writes other rows of the vnode is not.
func TestTheGuardKnowsOverrides(t *testing.T) {
	t.Parallel()
	f := newGuarded(t)
	ctx := t.Context()
	other := neighbour(1)
	f.exec(`insert into users values ($1, 'before')`, other)
	writes := []string{`update users set name = 'after' where id = %d`, `delete from users where id = %d`, `insert into users values (%d, 'x') on conflict (id) do update set name = 'y'`}
	begin := func(level string) *pgx.Conn {
		c := connect(t, f.dsn)
		for _, sql := range []string{`begin isolation level ` + level, `select count(*) from users`} {
			if _, err := c.Exec(ctx, sql); err != nil {
				t.Fatal(err)
			}
		}
		return c
	}
	attempt := func(level, sql string) error {
		c := begin(level)
		defer func() { _, _ = c.Exec(ctx, `rollback`) }() // the mover would wait for it
		_, err := c.Exec(ctx, sql)
		return err
	}
	var begun []*pgx.Conn
	for _, level := range levels {
		begun = append(begun, begin(level))
	}
	f.override("1", "moved", "s2")
	for i, c := range begun {
		_, err := c.Exec(ctx, fmt.Sprintf(writes[0], 1))
		refusal(t, levels[i]+", in a transaction that had begun", err, codeNotOwner)
		_, _ = c.Exec(ctx, `rollback`)
	}
	for _, level := range levels {
		for _, sql := range writes {
			err := attempt(level, fmt.Sprintf(sql, 1))
			refusal(t, level+", "+sql, err, codeNotOwner)
			if err := attempt(level, fmt.Sprintf(sql, other)); err != nil {
				t.Errorf("%s, another key of the vnode: %v", level, err)
			}
		}
		// A row may neither leave the key nor come to it.
		for _, sql := range []string{`update users set id = 1 where id = ` + strconv.Itoa(other), `update users set id = 12345 where id = 1`} {
			err := attempt(level, sql)
			if code(err) != codeNotOwner && code(err) != "23505" {
				t.Errorf("%s, %s: %v", level, sql, err)
			}
		}
	}

	// The other way round: the shard has the key, and not its vnode.
	f.override("1", "owned", "")
	f.exec(`update ringside.owner set state = 'moved', moved_to = 's2' where vnode = $1`, vnodeOf("1"))
	f.exec(`select ringside.forward()`)
	for _, level := range levels {
		if err := attempt(level, fmt.Sprintf(writes[0], 1)); err != nil {
			t.Errorf("%s: %v", level, err)
		}
		err := attempt(level, fmt.Sprintf(writes[0], other))
		refusal(t, level+", another key of the vnode", err, codeNotOwner)
	}
}

// Guards P3, P4 for sidecars: fence, load and outbox go by the key's row where there is one.
func TestFenceAndLoadGoByTheKeyFirst(t *testing.T) {
	t.Parallel()
	f := newGuarded(t)
	ks := users(t)
	one, two := key(t, ks, "user:1"), key(t, ks, "user:"+strconv.Itoa(neighbour(1)))
	f.exec(`insert into users values ($1, 'before')`, neighbour(1))
	try := func(what string, k keyspace.Key, owned, readable bool) {
		t.Helper()
		_, err := f.Write(t.Context(), "s1", at, keyspace.Op{Key: k, Kind: keyspace.Increment, Column: "visits", Delta: 1}, nil)
		if (err == nil) != owned || err != nil && !errors.Is(err, shard.ErrNotOwner) && !errors.Is(err, shard.ErrFrozen) {
			t.Errorf("%s: writing %s: %v", what, k.Text, err)
		}
		if err := f.Remember(t.Context(), "s1", &k); (err == nil) != owned {
			t.Errorf("%s: remembering %s: %v", what, k.Text, err)
		}
		f.exec(`delete from ringside.outbox`)
		for _, keys := range [][]keyspace.Key{{k}, {k, k, key(t, ks, "user:3")}} {
			rows, _, err := f.Load(t.Context(), "s1", ks, keys)
			if err != nil || (rows[0].Err == nil) != readable || rows[0].Found != readable || rows[len(rows)-1].Err != nil && len(rows) > 1 {
				t.Errorf("%s: reading %s: %+v, %v", what, k.Text, rows, err)
			}
		}
	}
	try("without overrides", one, true, true)
	f.override("1", "moved", "s2")
	try("moved", one, false, false)
	try("moved", two, true, true)
	f.override("1", "owned", "")
	f.setOwner(one.ShardVnode, "moved")
	try("only the key is here", one, true, true)
	try("only the key is here", two, false, false)
	f.exec(`insert into ringside.part (id, side, state, peer) values (5, 'source', 'frozen', 's3')`)
	f.exec(`update ringside.override set move_id = 5`)
	try("frozen", one, false, true)
	f.exec(`update ringside.part set state = 'closed'`)
	try("closed", one, false, false)
	f.override("1", "", "")
	f.setOwner(one.ShardVnode, "owned")
	try("no override any more", one, true, true)
}

// What a row that an override does not concern costs: the key's table is not read for it.
func TestOverridesOfOthersAreNotLookedAt(t *testing.T) {
	t.Parallel()
	f := newGuarded(t)
	f.override("2", "moved", "s2")
	f.exec(`drop view ringside.key_ownership`) // whoever looked would fail
	f.exec(`update users set name = 'after' where id = 1`)
	ks := users(t)
	one := key(t, ks, "user:1")
	if _, err := f.Write(t.Context(), "s1", at, keyspace.Op{Key: one, Kind: keyspace.Increment, Column: "visits", Delta: 1}, nil); err != nil {
		t.Error(err)
	}
	if rows, _, err := f.Load(t.Context(), "s1", ks, []keyspace.Key{one}); err != nil || !rows[0].Found {
		t.Errorf("%+v, %v", rows, err)
	}
}
