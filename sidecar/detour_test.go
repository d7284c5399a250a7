package sidecar

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"ringside/shard"
	"ringside/shard/keyspace"
)

// Where a row that shards refuse is looked for, one refusal after the other.
func TestDetours(t *testing.T) {
	moved := func(at, to string) error { return &shard.ElsewhereError{Shard: at, To: to, Err: shard.ErrNotOwner} }
	frozen := &shard.ElsewhereError{Shard: "s1", To: "s2", CutOver: true, Err: shard.ErrFrozen}
	closed := &shard.ElsewhereError{Shard: "s1", To: "s2", CutOver: true, Err: shard.ErrNotOwner}
	type step struct {
		err   error
		after time.Duration // since the step before
		await string
		again bool
		to    string
	}
	for name, steps := range map[string][]step{
		"no refusal":                {{err: nil}},
		"another error":             {{err: errors.New("down")}},
		"nobody knows":              {{err: shard.ErrNotOwner}},
		"moved":                     {{err: moved("s1", "s2"), again: true, to: "s2"}},
		"moved on":                  {{err: moved("s1", "s2"), again: true, to: "s2"}, {err: moved("s2", "s3"), again: true, to: "s3"}},
		"not there":                 {{err: moved("s1", "s2"), again: true, to: "s2"}, {err: moved("s2", "")}},
		"in a circle":               {{err: moved("s1", "s2"), again: true, to: "s2"}, {err: moved("s2", "s1"), again: true, to: "s1"}, {err: moved("s1", "s2"), again: true, to: "s2"}, {err: moved("s2", "s1")}},
		"frozen, then committed":    {{err: frozen, await: "s1", again: true, to: "s2"}, {err: nil}},
		"closed, then committed":    {{err: closed, await: "s1", again: true, to: "s2"}, {err: nil}},
		"frozen, then thawed":       {{err: frozen, await: "s1", again: true, to: "s2"}, {err: moved("s2", ""), again: true}, {err: nil}},
		"frozen for too long":       {{err: frozen, await: "s1", again: true, to: "s2"}, {err: frozen, after: cutOverFor - 1, await: "s1", again: true, to: "s2"}, {err: frozen, after: 1}},
		"a view that is not known":  {{err: moved("s1", "s2"), again: true, to: "s2"}, {err: &shard.StaleViewError{Shard: "s2"}}},
		"frozen where it was going": {{err: moved("s1", "s2"), again: true, to: "s2"}, {err: &shard.ElsewhereError{Shard: "s2", To: "s3", CutOver: true, Err: shard.ErrFrozen}, await: "s2", again: true, to: "s3"}},
	} {
		var d detour
		now := time.Now()
		for i, s := range steps {
			now = now.Add(s.after)
			err := s.err
			if err != nil {
				err = fmt.Errorf("wrapped: %w", err)
			}
			if await, again := d.next(err, now); await != s.await || again != s.again || d.to != s.to {
				t.Errorf("%s, step %d: waits for %q, again %t, on %q; want %+v", name, i, await, again, d.to, s)
			}
		}
	}
}

// Guards P3 and P4: a row whose vnode moves to another shard is written and read there as soon as the cut-over is over, though the map is still the former one.
func TestRowsAreFollowedToTheirNewShard(t *testing.T) {
	c := newRowCluster(t, 1)
	s := c.newSide(false)
	k := c.key(7)
	from := c.now.Shards[c.now.ShardOf(k.ShardKey, k.ShardVnode)].Name
	to := map[string]string{"s1": "s2", "s2": "s1"}[from]
	conns := map[string]*pgx.Conn{}
	for _, sh := range c.shards {
		conn, err := pgx.Connect(t.Context(), sh.DSN)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) }) // nothing is left to lose
		conns[sh.Name] = conn
	}
	exec := func(name, sql string, args ...any) {
		t.Helper()
		if _, err := conns[name].Exec(t.Context(), sql, args...); err != nil {
			t.Errorf("%s: %s: %v", name, sql, err)
		}
	}
	c.fill(50)
	increment := keyspace.Op{Kind: keyspace.Increment, Key: k, Column: "version", Delta: 1}
	write := func(want int64) {
		t.Helper()
		out, err := s.Write(t.Context(), increment)
		for errors.Is(err, shard.ErrFrozen) { // the machine may be slow
			out, err = s.Write(t.Context(), increment)
		}
		if err != nil || out.Value != want || out.Inserted {
			t.Fatalf("written: %+v, %v, want %d", out, err, want)
		}
		row := s.read(t.Context(), []keyspace.Key{k})[0]
		if row.Err != nil || !row.Found {
			t.Fatalf("read: %+v", row)
		}
	}
	n := int64(1)
	write(n)
	// soon does something while a write waits for it.
	soon := func(do func()) {
		t.Helper()
		done := make(chan struct{})
		time.AfterFunc(50*time.Millisecond, func() { do(); close(done) })
		defer func() { <-done }()
		n++
		write(n)
	}
	exec(from, `insert into ringside.part (id, side, peer, state, token) values (5, 'source', $1, 'frozen', 1)`, to)
	exec(from, `update ringside.owner set move_id = 5 where vnode = $1`, int32(k.ShardVnode))
	exec(from, `update ringside.view set cutover = 5`)
	exec(to, `insert into ringside.part (id, side, peer, state, token) values (5, 'destination', $1, 'incoming', 1)`, from)
	exec(to, `insert into ringside.owner (vnode, state, epoch, move_id) values ($1, 'incoming', 1, 5) on conflict (vnode) do update set state = 'incoming', move_id = 5`, int32(k.ShardVnode))

	soon(func() { exec(from, `update ringside.part set state = 'owned' where id = 5`) }) // thawed: it is written where it was
	exec(from, `update ringside.part set state = 'frozen' where id = 5`)
	soon(func() {
		exec(from, `update ringside.part set state = 'closed' where id = 5`)
		exec(to, `insert into users (id, version) values (7, 2)`)
		exec(to, `update ringside.part set state = 'owned' where id = 5`)
		exec(from, `update ringside.part set state = 'moved' where id = 5`)
	})
	write(4) // the map is still the former one
	var version int64
	if err := conns[to].QueryRow(t.Context(), `select version from users where id = 7`).Scan(&version); err != nil || version != 4 {
		t.Errorf("on %s it is %d, %v", to, version, err)
	}
}
