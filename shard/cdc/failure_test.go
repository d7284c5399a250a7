package cdc

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"ringside/internal/realpg"
	"ringside/shard/keyspace"
)

func failures(t testing.TB, f *Followers) float64 {
	t.Helper()
	return testutil.ToFloat64(f.metrics.vecs["failures_total"])
}

// cutAndDrop drops the slot by hand, in spite of whoever follows.
func (b *bed) cutAndDrop() {
	b.t.Helper()
	eventually(b.t, "the slot can be dropped", func() bool {
		b.exec("select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = $1 and active", SlotName(b.name))
		_, err := b.sql.Exec(context.Background(), "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = $1", SlotName(b.name))
		return err == nil && b.text("select count(*) from pg_replication_slots where slot_name = $1 and confirmed_flush_lsn is not null and not active", SlotName(b.name)) == "0"
	})
}

// I3: what happens without a slot is missed, so everything is flushed, once the new slot is there.
func TestSlotDroppedWhileFollowed(t *testing.T) {
	b := newBed(t)
	var s sink
	f, _ := b.follow(quick(), &s)
	b.awaitRole(f, Active)
	b.probe(&s)
	b.cutAndDrop()
	eventually(t, "everything is flushed", func() bool { return slices.Contains(s.flushes(), "") })
	b.awaitRole(f, Active)
	b.probe(&s)
	if got := b.text("select flush_due from ringside.cdc"); got != "{}" {
		t.Errorf("still owed: %s", got)
	}
	if f.Degraded(b.name) {
		t.Error("degraded for good")
	}
}

func TestSlotDroppedWhileNobodyFollows(t *testing.T) {
	b := newBed(t)
	var s sink
	f, stop := b.follow(quick(), &s)
	b.awaitRole(f, Active)
	b.probe(&s)
	stop()
	if got := s.flushes(); len(got) > 0 {
		t.Errorf("flushed %q on the first time", got)
	}
	b.cutAndDrop()
	b.script("insert into users values (1, 'missed', '')")
	f, _ = b.follow(quick(), &s)
	b.awaitRole(f, Active)
	if got := s.flushes(); !slices.Equal(got, []string{""}) {
		t.Errorf("flushed %q, want everything once", got)
	}
	b.probe(&s)
}

// I3: a flush that was owed when its follower died is made by the next one.
func TestAnOwedFlushSurvivesWhoWasToMakeIt(t *testing.T) {
	b := newBed(t)
	var s sink
	f, stop := b.follow(quick(), &s)
	b.awaitRole(f, Active)
	stop()
	b.exec("update ringside.cdc set flush_due = '{*,order}', flush_seq = flush_seq + 1, flush_why = 'the test says so'")
	if got := b.text("select (select s from (" + LagSQL + ") as l(who, s)) is null"); got != "true" {
		t.Errorf("LagSQL says that all is well while a flush is owed")
	}
	f, _ = b.follow(quick(), &s)
	b.awaitRole(f, Active)
	if got := s.flushes(); !slices.Contains(got, "") {
		t.Errorf("flushed %q", got)
	}
}

// The server is on another timeline than what was followed, as after the promotion of a standby: what the log lost there cannot be known. A slot that
// it may have is not to be trusted either.
func TestTimelineChanged(t *testing.T) {
	b := newBed(t)
	var s sink
	f, stop := b.follow(quick(), &s)
	b.awaitRole(f, Active)
	stop()
	restart := "select restart_lsn from pg_replication_slots where slot_name = $1"
	before := b.text(restart, SlotName(b.name))
	b.exec("update ringside.cdc set timeline = timeline + 1")
	b.script("checkpoint")
	f, _ = b.follow(quick(), &s)
	b.awaitRole(f, Active)
	if got := s.flushes(); !slices.Equal(got, []string{""}) {
		t.Errorf("flushed %q, want everything once", got)
	}
	if b.text(restart, SlotName(b.name)) == before {
		t.Error("the slot is still the same")
	}
	if got := b.text("select timeline from ringside.cdc"); got != "1" {
		t.Errorf("ringside.cdc says timeline %s", got)
	}
	b.probe(&s)
}

// The server gave the slot up because it kept too much log.
func TestSlotInvalidatedByTheServer(t *testing.T) {
	server := realpg.Alone(t, map[string]string{"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"})
	b := bedAt(t, server.DSN())
	var s sink
	f, stop := b.follow(quick(), &s)
	b.awaitRole(f, Active)
	stop()
	eventually(t, "the slot is lost", func() bool {
		b.script("insert into users values (" + fmt.Sprint(time.Now().UnixNano()) + ", '', '')")
		b.script("select pg_switch_wal()")
		b.script("checkpoint")
		return b.text("select wal_status from pg_replication_slots") == "lost"
	})
	f, _ = b.follow(quick(), &s)
	b.awaitRole(f, Active)
	if got := s.flushes(); !slices.Equal(got, []string{""}) {
		t.Errorf("flushed %q, want everything once", got)
	}
	b.probe(&s)
	eventually(t, "the slot is well", func() bool { return b.text("select wal_status from pg_replication_slots") == "reserved" })
}

// A publication that somebody dropped makes the log undecodable up to where it is made anew.
func TestPublicationDropped(t *testing.T) {
	b := newBed(t)
	var s sink
	f, _ := b.follow(quick(), &s)
	b.awaitRole(f, Active)
	b.script("drop publication " + Publication)
	b.script("insert into users values (1, 'missed', '')")
	eventually(t, "everything is flushed", func() bool { return slices.Contains(s.flushes(), "") })
	eventually(t, "changes are followed again", func() bool {
		n := time.Now().UnixNano()
		b.exec("insert into users (id) values ($1)", n)
		for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			if _, ok := s.has(fmt.Sprintf("user:%d", n)); ok {
				return true
			}
		}
		return false
	})
}

// A server that crashed comes back with its slot: nothing was missed.
func TestServerCrashes(t *testing.T) {
	server := realpg.Alone(t, nil)
	b := bedAt(t, server.DSN())
	var s sink
	f, _ := b.follow(quick(), &s)
	b.awaitRole(f, Active)
	for i := range 3 {
		b.exec("insert into users (id) values ($1)", i)
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.sql = b.connect()
		eventually(t, "the change from before the crash is handed out", func() bool { _, ok := s.has(fmt.Sprintf("user:%d", i)); return ok })
		b.probe(&s)
	}
	if got := s.flushes(); len(got) > 0 {
		t.Errorf("flushed %q, but nothing was missed", got)
	}
}

// Of two sidecars one follows, and when it stops or its connection is cut one of them goes on.
func TestOneOfTwoFollows(t *testing.T) {
	b := newBed(t)
	var s sink
	one, two := quick(), quick()
	two.Sidecar = "a2"
	f1, stop1 := b.follow(one, &s)
	b.awaitRole(f1, Active)
	f2, _ := b.follow(two, &s)
	if state := b.awaitRole(f2, StandBy); state.Follower != "a1" {
		t.Errorf("the second one says that %q follows", state.Follower)
	}
	b.probe(&s)
	b.exec("select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = $1", SlotName(b.name))
	b.probe(&s)
	stop1()
	b.awaitRole(f2, Active)
	b.probe(&s)
	if got := s.flushes(); len(got) > 0 {
		t.Errorf("flushed %q, but nothing was missed", got)
	}
	if got := b.text("select follower from ringside.cdc"); got != "a2" {
		t.Errorf("ringside.cdc says that %q follows", got)
	}
}

// A shard that nobody has followed yet, and many who want to.
func TestManyStartAtOnce(t *testing.T) {
	b := newBed(t)
	var s sink
	var all []*Followers
	for i := range 5 {
		cfg := quick()
		cfg.Sidecar = fmt.Sprint("a", i)
		f, _ := b.follow(cfg, &s)
		all = append(all, f)
	}
	count := func(role Role) int {
		n := 0
		for _, f := range all {
			if states := f.State(); len(states) == 1 && states[0].Role == role && states[0].Reason == "" {
				n++
			}
		}
		return n
	}
	eventually(t, "one follows and four stand by", func() bool { return count(Active) == 1 && count(StandBy) == 4 })
	b.probe(&s)
	if got := s.flushes(); len(got) > 0 {
		t.Errorf("flushed %q, but nothing was missed", got)
	}
}

// A slot can be made only when the transactions that are under way have ended. The wait is bounded, and tried again.
func TestASlotWaitsForOpenTransactions(t *testing.T) {
	b := newBed(t)
	slow := b.connect()
	if _, err := slow.PgConn().Exec(t.Context(), "begin; insert into users values (1, '', '')").ReadAll(); err != nil {
		t.Fatal(err)
	}
	cfg := quick()
	cfg.SlotWait = 300 * time.Millisecond
	var s sink
	f, _ := b.follow(cfg, &s)
	eventually(t, "the reason shows", func() bool {
		states := f.State()
		return len(states) == 1 && strings.Contains(states[0].Reason, "transactions that are under way")
	})
	if _, err := slow.PgConn().Exec(t.Context(), "commit").ReadAll(); err != nil {
		t.Fatal(err)
	}
	b.awaitRole(f, Active)
	b.probe(&s)
}

const childDSN = "RINGSIDE_TEST_CDC_CHILD_DSN"

// followAsChild is the main program of the process that TestKillNine kills. It takes the name of the shard from its argument.
func followAsChild(dsn string) int {
	ks, err := keyspace.Compile(keyspace.Spec{Name: "user", Pattern: "user:{id:int}", Table: "users", TTL: time.Minute})
	if err != nil {
		return 1
	}
	f := New(Config{Sidecar: "child", Keyspaces: []*keyspace.Keyspace{ks}}, Deps{
		Invalidate: func(context.Context, []Key) error { return nil },
		Flush:      func(context.Context, string, string, string) error { return nil },
	}, nil, nil)
	if err := f.Apply([]Shard{{Name: os.Getenv(childDSN + "_SHARD"), DSN: dsn}}); err != nil {
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience) // should the test die first
	defer cancel()
	if f.Run(ctx) != nil {
		return 1
	}
	return 0
}

func TestKillNine(t *testing.T) {
	b := newBed(t)
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childDSN+"="+b.dsn, childDSN+"_SHARD="+b.name)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	killed := false
	kill := func() {
		if !killed {
			killed = true
			_ = child.Process.Kill() // it may have ended
			_ = child.Wait()         // killed: that is its error
		}
	}
	defer kill()
	eventually(t, "the child follows", func() bool {
		return b.text("select beat is not null and follower = 'child' from ringside.cdc") == "true"
	})

	var s sink
	f, _ := b.follow(Config{Sidecar: "heir"}, &s)
	b.awaitRole(f, StandBy)
	if !f.Degraded(b.name) {
		t.Error("not degraded, though the child does not know all of our keyspaces")
	}
	kill()
	begun := time.Now()
	b.exec("insert into users (id) values (1)")
	eventually(t, "the change is handed out by the heir", func() bool { _, ok := s.has("user:1"); return ok })
	t.Logf("taken over %v after kill -9", time.Since(begun).Round(time.Millisecond))
	eventually(t, "no longer degraded", func() bool { return !f.Degraded(b.name) })
}
