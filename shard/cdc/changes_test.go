package cdc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"ringside/internal/realpg"
	"ringside/shard/keyspace"
)

const docID = "0b9c3c1e-5a5f-4a57-9d0e-0123456789ab"

// P3 for changes by others: whatever changes a row names its keys, before and after.
func TestEveryChangeNamesItsRows(t *testing.T) {
	b := newBed(t)
	var s sink
	f, _ := b.follow(quick(), &s)
	b.awaitRole(f, Active)
	for _, c := range []struct {
		sql  string
		want []string
	}{
		{"insert into users values (1, 'a', ''), (-9223372036854775808, 'b', '')", []string{"user:-9223372036854775808 -9223372036854775808", "user:1 1"}},
		{"update users set name = 'c' where id = 1", []string{"user:1 1"}},
		{"update users set id = 2 where id = 1", []string{"user:1 1", "user:2 2"}},
		{"delete from users where id = 2", []string{"user:2 2"}},
		{"insert into orders values ('acme', 7, 'x')", []string{"o/7/acme acme", "order:acme:7 acme"}},
		{"update orders set tenant = 'emca' where id = 7", []string{"o/7/acme acme", "o/7/emca emca", "order:acme:7 acme", "order:emca:7 emca"}},
		{"insert into orders values ('a:b', 8, 'no key of the first keyspace')", []string{"o/8/a:b a:b"}},
		{"insert into orders values ('', 9, 'no key at all')", nil},
		{"insert into orders values ('日本', 9, '')", []string{"o/9/日本 日本", "order:日本:9 日本"}},
		{"insert into docs values (upper('" + docID + "')::uuid, '')", []string{"doc:" + docID + " " + docID}},
		{"insert into other values (1)", nil},
		{"begin; insert into users values (5, 'gone', ''); rollback", nil},
		{"begin; insert into users values (6, '', ''); savepoint x; insert into users values (7, '', ''); rollback to x; insert into users values (8, '', ''); commit",
			[]string{"user:6 6", "user:8 8"}},
		{"prepare transaction_ as update users set name = 'd' where id = $1; execute transaction_(6)", []string{"user:6 6"}},
	} {
		b.script(c.sql)
		b.probe(&s)
		if got := s.taken(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.sql, got, c.want)
		}
	}
	if got := s.flushes(); len(got) > 0 {
		t.Errorf("flushed %q, but nothing was missed", got)
	}
	b.script("truncate orders")
	b.probe(&s)
	if got, want := s.flushes(), []string{"order", "order2"}; !slices.Equal(got, want) {
		t.Errorf("after TRUNCATE flushed %q, want %q", got, want)
	}
}

// A large value that is stored out of line, and a key of two thousand bytes, which no key can name.
func TestValuesOutOfLine(t *testing.T) {
	b := newBed(t)
	b.script(`create table wide (id text primary key, a text, b text); alter table wide alter a set storage external`)
	cfg := quick()
	cfg.Keyspaces = append(testKeyspaces(t), compile(t, keyspace.Spec{Name: "wide", Pattern: "wide:{id}", Table: "wide"}))
	var s sink
	f, _ := b.follow(cfg, &s)
	b.awaitRole(f, Active)
	id := strings.Repeat("k", 900)
	b.exec("insert into wide values ($1, repeat('a', 100000), ''), (repeat('z', 2000), '', '')", id)
	b.exec("update wide set b = 'changed'")
	b.exec("update wide set id = id || 'x'")
	b.probe(&s)
	want := []string{"wide:" + id + " " + id, "wide:" + id + "x " + id + "x"}
	if got := s.taken(); !slices.Equal(got, want) {
		t.Errorf("handed out %.300q", got)
	}
}

func TestPartitionsCountAsTheirTable(t *testing.T) {
	b := newBed(t)
	b.script(`create table parted (region int, id int, v text, primary key (region, id)) partition by list (region);
create table parted_1 partition of parted for values in (1); create table parted_2 partition of parted for values in (2)`)
	cfg := quick()
	cfg.Keyspaces = append(testKeyspaces(t), compile(t, keyspace.Spec{Name: "p", Pattern: "p:{region:int}:{id:int}", Table: "parted", ShardBy: "id"}))
	var s sink
	f, _ := b.follow(cfg, &s)
	b.awaitRole(f, Active)
	b.script("insert into parted values (1, 10), (2, 20); update parted set region = 2 where id = 10; delete from parted_2 where id = 20")
	b.probe(&s)
	if got, want := s.taken(), []string{"p:1:10 10", "p:2:10 10", "p:2:20 20"}; !slices.Equal(got, want) {
		t.Errorf("handed out %q, want %q", got, want)
	}
	b.script("truncate parted")
	b.probe(&s)
	if got := s.flushes(); !slices.Equal(got, []string{"p"}) {
		t.Errorf("after TRUNCATE flushed %q", got)
	}
}

// What the mover writes changes no row.
func TestTheMoverIsIgnored(t *testing.T) {
	b := newBed(t)
	var s sink
	f, _ := b.follow(quick(), &s)
	b.awaitRole(f, Active)
	b.script(`begin; select pg_logical_emit_message(true, '` + MoverOrigin + `', ''); insert into users values (1, '', ''); truncate docs; commit`)
	b.probe(&s)
	origin := MoverOrigin // of the whole server: other tests' databases share it
	if b.text("select roname from pg_replication_origin where roname = $1", origin) == "" {
		b.exec("select pg_replication_origin_create($1)", origin)
	}
	b.exec("select pg_replication_origin_session_setup($1)", origin)
	b.script("update users set name = 'moved' where id = 1")
	b.exec("select pg_replication_origin_session_reset()")
	b.exec("select pg_replication_origin_drop($1)", origin)
	b.probe(&s)
	if got, flushes := s.taken(), s.flushes(); len(got) > 0 || len(flushes) > 0 {
		t.Errorf("handed out %q, flushed %q", got, flushes)
	}
	b.script("update users set name = 'changed' where id = 1")
	b.probe(&s)
	if got := s.taken(); !slices.Equal(got, []string{"user:1 1"}) {
		t.Errorf("handed out %q", got)
	}
}

// From the moment at which psql has its answer to the call of Invalidate.
func TestLatency(t *testing.T) {
	b := newBed(t)
	var s sink
	f, _ := b.follow(Config{Sidecar: "a1"}, &s)
	b.awaitRole(f, Active)
	const changes = 300
	var took []time.Duration
	for i := range changes {
		b.exec("insert into users (id) values ($1)", i)
		committed := time.Now()
		var at time.Time
		eventually(t, "the change is handed out", func() bool {
			var ok bool
			at, ok = s.has(fmt.Sprintf("user:%d", i))
			return ok
		})
		took = append(took, max(at.Sub(committed), 0))
	}
	slices.Sort(took)
	t.Logf("from commit to Invalidate: p50 %v, p99 %v, max %v", took[changes/2], took[changes*99/100], took[changes-1])
	if p99 := took[changes*99/100]; p99 > patience/2 {
		t.Errorf("p99 is %v", p99)
	}
}

// Many small transactions share hand-outs, and so the questions and round trips that each of those costs.
func TestHandOutsAreGathered(t *testing.T) {
	b := newBed(t)
	var s sink
	f, _ := b.follow(quick(), &s)
	b.awaitRole(f, Active)
	begun := time.Now()
	b.script(`do $$ begin for i in 1..2000 loop insert into users (id) values (i); commit; end loop; end $$`)
	eventually(t, "all rows are handed out", func() bool { return s.distinct() == 2000 })
	s.mu.Lock()
	defer s.mu.Unlock()
	if most := int(time.Since(begun)/gather) + 1; s.calls > most || s.calls > 2000/2 {
		t.Errorf("%d hand-outs in %v, want at most one in %v", s.calls, time.Since(begun), gather)
	}
}

func TestTenThousandRowsInOneTransaction(t *testing.T) {
	b := newBed(t)
	b.script("insert into users select n, '', '' from generate_series(1, 10000) n")
	var s sink
	f, _ := b.follow(quick(), &s)
	b.awaitRole(f, Active)
	begun := time.Now()
	b.script("update users set name = 'x'")
	committed := time.Now()
	eventually(t, "all rows are handed out", func() bool { return s.distinct() == 10000 })
	t.Logf("10,000 updates took %v, and were handed out %v later", committed.Sub(begun).Round(time.Millisecond), time.Since(committed).Round(time.Millisecond))
	// The same row ten thousand times is one key of each piece.
	b.probe(&s)
	s.taken()
	b.script(`do $$ begin for i in 1..10000 loop update users set name = i::text where id = 1; end loop; end $$`)
	b.probe(&s)
	if got := s.taken(); !slices.Equal(got, []string{"user:1 1"}) {
		t.Errorf("handed out %.300q", got)
	}
}

// P6: a transaction of any size takes a bounded amount of memory, and a server that waits for us keeps the connection.
func TestReadingStopsWhileNothingCanBeHandedOut(t *testing.T) {
	b := newBed(t)
	cfg := quick()
	cfg.BatchKeys, cfg.PendingKeys = 50, 200
	var s sink
	var refuse atomic.Bool
	refuse.Store(true)
	s.setFail(func() error {
		if refuse.Load() {
			return errors.New("the cache servers are away")
		}
		return nil
	})
	f, _ := b.follow(cfg, &s)
	b.awaitRole(f, Active)
	pid := b.text("select active_pid from pg_replication_slots where slot_name = $1", SlotName(b.name))
	b.script("insert into users select n, '', '' from generate_series(1, 100000) n")
	confirmed := func() string {
		return b.text("select confirmed_flush_lsn from pg_replication_slots where slot_name = $1", SlotName(b.name))
	}
	// Longer than the server waits for a sidecar that is silent.
	until := time.Now().Add(senderTimeout + 2*time.Second)
	eventually(t, "the lag shows", func() bool { lag, known := f.Lag(b.name); return known && lag > time.Second && time.Now().After(until) })
	before := confirmed()
	if now := b.text("select active_pid from pg_replication_slots where slot_name = $1", SlotName(b.name)); now != pid {
		t.Errorf("the slot was lost meanwhile: pid %s, now %s", pid, now)
	}
	if n := s.distinct(); n != 0 {
		t.Fatalf("%d rows were taken by nobody", n)
	}
	refuse.Store(false)
	eventually(t, "all rows are handed out", func() bool { return s.distinct() == 100000 })
	if s.largest > cfg.BatchKeys+cfg.pieceKeys() {
		t.Errorf("a batch of %d rows, the limit is about %d", s.largest, cfg.BatchKeys)
	}
	eventually(t, "the log is acknowledged", func() bool { return confirmed() != before })
}

// I1: what was not handed out successfully is not acknowledged, and comes again.
func TestWhatFailedComesAgain(t *testing.T) {
	b := newBed(t)
	var first, second sink
	f, stop := b.follow(quick(), &first)
	b.awaitRole(f, Active)
	b.probe(&first)
	first.setFail(func() error { return errors.New("no") })
	b.script("insert into users values (1, '', '')")
	eventually(t, "the failure is counted", func() bool { return f.State()[0].Role == Active && failures(t, f) > 0 })
	stop()
	g, _ := b.follow(quick(), &second)
	b.awaitRole(g, Active)
	eventually(t, "the change comes again", func() bool { _, ok := second.has("user:1"); return ok })
	if got := second.flushes(); len(got) > 0 {
		t.Errorf("flushed %q", got)
	}
}

// I2, the hazard of a commit that is in the log and not yet visible: here because it waits for a standby that is not there.
func TestNothingIsHandedOutBeforeItIsVisible(t *testing.T) {
	server := realpg.Alone(t, map[string]string{"synchronous_standby_names": "nobody", "synchronous_commit": "local"})
	b := bedAt(t, server.DSN())
	b.script("insert into users values (1, 'old', '')")
	var s sink
	cfg := quick()
	f, _ := b.follow(cfg, &s)
	b.awaitRole(f, Active)

	writer := b.connect()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var pid int
	if err := writer.QueryRow(ctx, "select pg_backend_pid() from set_config('synchronous_commit', 'on', false)").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := writer.Exec(ctx, "update users set name = 'new' where id = 1", pgx.QueryExecModeSimpleProtocol)
		ended <- err
	}()
	eventually(t, "the commit waits for the standby", func() bool {
		return b.text("select wait_event from pg_stat_activity where pid = $1", pid) == "SyncRep"
	})
	// Another transaction, which waits for no standby, is handed out although it is behind in the log; so it was read, and the first one too.
	b.probe(&s)
	if got := b.text("select name from users where id = 1"); got != "old" {
		t.Fatalf("a reader sees %q: the test shows nothing", got)
	}
	lag, known := f.Lag(b.name)
	if _, ok := s.has("user:1"); ok {
		t.Fatal("the change was handed out while readers see the old row")
	}
	eventually(t, "heartbeats pass what is not visible", func() bool {
		later, ok := f.Lag(b.name)
		return known && ok && later < lag+cfg.Beat*5
	})
	b.exec("select pg_cancel_backend($1)", pid) // "canceling wait for synchronous replication": committed, and visible now
	if err := <-ended; err != nil {
		t.Logf("the writer was told: %v", err)
	}
	eventually(t, "the change is handed out", func() bool { _, ok := s.has("user:1"); return ok })
	if got := b.text("select name from users where id = 1"); got != "new" {
		t.Errorf("a reader sees %q", got)
	}
}
