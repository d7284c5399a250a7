package origin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"ringside/internal/realpg"
	"ringside/shard"
	"ringside/shard/keyspace"
)

// address is one that leads to another server after a failover, as a proxy or a connection pooler does: sessions that were opened before stay where they are.
// Their role was checked when they were opened, so the check is left out.
func (p *pool) address(t *testing.T, port *atomic.Int64) {
	t.Helper()
	conf := p.db.Config()
	conf.ConnConfig.ValidateConnect = nil
	conf.ConnConfig.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, "127.0.0.1:"+strconv.FormatInt(port.Load(), 10))
	}
	db, err := pgxpool.NewWithConfig(context.Background(), conf)
	if err != nil {
		t.Fatal(err)
	}
	p.db.Close()
	p.db = db
}

// Guards P3 and P4: no answer comes from a standby, whichever way a session came to it, and callers do not notice as long as there is a primary. When the
// primary dies, the other host of the DSN is the shard as soon as it is promoted, with all that was acknowledged.
func TestFailoverToAStandby(t *testing.T) {
	t.Parallel()
	primary := realpg.Alone(t, nil)
	standby := primary.Standby(t)
	dsn := fmt.Sprintf("postgres://ringside@127.0.0.1:%d,127.0.0.1:%d/app?sslmode=disable&target_session_attrs=", standby.Port(), primary.Port())
	f := fixtureAt(t, dsn+"read-write", Config{}, usersTable)
	ks := users(t)
	k := key(t, ks, "user:1")
	write := func(fleet *Fleet, name string) error {
		_, err := fleet.Write(t.Context(), "s1", at, upsert(t, k, `{"name":"`+name+`"}`), nil)
		return err
	}
	load := func(fleet *Fleet) (string, error) {
		rows, _, err := fleet.Load(t.Context(), "s1", ks, []keyspace.Key{k})
		if err != nil {
			return "", err
		}
		return string(rows[0].Body), rows[0].Err
	}
	if err := write(f.Fleet, "old"); err != nil {
		t.Fatal(err)
	}
	behind := connect(t, standby.DSN())
	eventually(t, "the standby has the row", func() bool {
		var name string
		return behind.QueryRow(t.Context(), `select name from users`).Scan(&name) == nil && name == "old"
	})
	if _, err := behind.Exec(t.Context(), `select pg_wal_replay_pause()`); err != nil {
		t.Fatal(err)
	}
	if err := write(f.Fleet, "new"); err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"any", "prefer-standby"} {
		if got, err := load(newFleet(t, Config{}, ShardConfig{"s1", dsn + role, 9})); err != nil || got != f.text(`select row_to_json(users)::text from users`) {
			t.Errorf("whatever the DSN asks for (%s): read %s, error %v", role, got, err)
		}
	}

	var port atomic.Int64
	moved := newFleet(t, Config{}, ShardConfig{"s1", standby.DSN(), 9})
	p := moved.pools["s1"]
	p.address(t, &port)
	left := func() { // sessions of the pool lead to the standby, new ones to the primary
		t.Helper()
		port.Store(int64(standby.Port()))
		var held []*pgxpool.Conn
		for range 3 {
			c, err := p.db.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, c)
		}
		for _, c := range held {
			c.Release()
		}
		port.Store(int64(primary.Port()))
	}
	poller := &poller{pool: p}
	defer poller.drop()
	for what, do := range map[string]func() error{
		"load": func() error {
			got, err := load(moved)
			if err == nil && got != f.text(`select row_to_json(users)::text from users`) {
				err = errors.New("read " + got)
			}
			return err
		},
		"write": func() error { return write(moved, "newer") },
		"a write that changes nothing": func() error {
			_, err := moved.Write(t.Context(), "s1", at, keyspace.Op{Kind: keyspace.Update, Key: k}, nil)
			return err
		},
		"poll": func() error { return poller.ask(t.Context(), time.Now()) },
	} {
		left()
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if c, err := p.db.Acquire(t.Context()); err != nil {
			t.Error(err)
		} else {
			if c.Conn().PgConn().Conn().RemoteAddr().(*net.TCPAddr).Port != primary.Port() {
				t.Errorf("%s: a session is left with the standby", what)
			}
			c.Release()
		}
		p.db.Reset()
	}
	// Where there is no primary at all, the error is that of a shard that is down, and nothing counts as said.
	p.word.forget()
	poller.drop()
	left()
	port.Store(int64(standby.Port()))
	if got, err := load(moved); !isDown(err) {
		t.Errorf("read %s from a standby, error %v", got, err)
	}
	if err := write(moved, "lost"); !isDown(err) || errors.Is(err, shard.ErrOutcomeUnknown) {
		t.Errorf("written to a standby: %v", err)
	}
	if _, _, err := moved.Topology(t.Context(), "s1"); !isDown(err) {
		t.Errorf("the topology of a standby: %v", err)
	}
	p.judge(poller.ask(t.Context(), time.Now()))
	if s := moved.Pools()[0]; s.DownSince.IsZero() {
		t.Errorf("%+v", s)
	}
	if _, standing := moved.Confirmation("s1").Trust(time.Now(), time.Hour, 0); standing != shard.Unheard {
		t.Errorf("the word of a standby counts: %v", standing)
	}

	// The failover, once the standby has the log of all that was acknowledged.
	f.run()
	written := f.text(`select pg_current_wal_flush_lsn()::text`)
	eventually(t, "the standby has the log", func() bool {
		var has bool
		return behind.QueryRow(t.Context(), `select pg_last_wal_receive_lsn() >= $1::text::pg_lsn`, written).Scan(&has) == nil && has
	})
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := load(f.Fleet); !isDown(err) {
		t.Errorf("without a primary: %v", err)
	}
	promoter := connect(t, standby.AdminDSN())
	if _, err := promoter.Exec(t.Context(), `select pg_promote(true, 60)`); err != nil {
		t.Fatal(err)
	}
	want := `{"id":1,"name":"newer","email":null,"visits":0}`
	eventually(t, "the standby is the shard", func() bool {
		got, err := load(f.Fleet)
		if err == nil && got != want {
			t.Fatalf("read %s, want %s", got, want)
		}
		return err == nil
	})
	if err := write(f.Fleet, "after"); err != nil {
		t.Error(err)
	}
}
