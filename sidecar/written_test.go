package sidecar

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"ringside/shard/keyspace"
	"ringside/sidecar/proxy"
	"ringside/sidecar/topology"
)

// Guards P4: a write that is committed and cannot be cleaned, because its cache server stands still, is reported as such, and is not made a second time
// because the ring has changed meanwhile.
func TestACommittedWriteIsNotTriedAgain(t *testing.T) {
	c := newRowCluster(t, 2)
	c.step = 2 * time.Second // less than the server stands still
	s := c.newSide(false)
	c.fill(50)
	k := c.key(7)
	increment := keyspace.Op{Kind: keyspace.Increment, Key: k, Column: "version", Delta: 1}
	if out, err := s.Write(t.Context(), increment); err != nil || out.Value != 1 {
		t.Fatalf("%+v %v", out, err)
	}
	p, err := s.locate(&k, "")
	if err != nil {
		t.Fatal(err)
	}
	dsn := c.shards[0].DSN
	if p.shard != c.shards[0].Name {
		dsn = c.shards[1].DSN
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }() // nothing is left to lose
	if _, err := conn.Exec(t.Context(), "begin; select from users where id = 7 for update"); err != nil {
		t.Fatal(err)
	}
	written := make(chan error)
	go func() {
		_, err := s.Write(t.Context(), increment)
		written <- err
	}()
	c.await("poison on the entry", func() bool {
		entry, _ := c.client(p.ref.Server).Get(t.Context(), p.ref.Name).Result()
		return len(entry) > 0 && entry[0] == 'P'
	})
	server := c.caches[p.ref.Server]
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	next, err := topology.WeighCache(c.now, "c1", 3)
	c.change(next, err)
	if _, err := conn.Exec(t.Context(), "commit"); err != nil {
		t.Fatal(err)
	}
	resumed := time.AfterFunc(4*time.Second, func() {
		if err := server.Resume(); err != nil {
			t.Error(err)
		}
	})
	defer resumed.Stop()
	err = <-written
	if _, ok := errors.AsType[*proxy.WrittenError](err); !ok {
		t.Errorf("the write was answered with %v", err)
	}
	var version int
	if err := conn.QueryRow(t.Context(), "select version from users where id = 7").Scan(&version); err != nil || version != 2 {
		t.Errorf("the row was raised to %d, want 2; %v", version, err)
	}
}
