package cache

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"ringside/internal/realredis"
	"ringside/shard"
)

// onePoison is a poison step that takes the place of other writers.
const onePoison = writers + `
local ours = now + ARGV[2]
put({ARGV[1] .. struct.pack('>I8', ours)}, ours)
return 1`

// writersOf returns the writers in an entry's poison, nil if it is none.
func writersOf(t *testing.T, db *redis.Client, name string) []Writer {
	t.Helper()
	b, err := db.Get(ctxb, name).Bytes()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	e, _ := Decode(b)
	return e.Writers
}

// TestAWriterThatDiesIsCoveredWhileOthersCome guards I2: two writes overlap, and the one that poisoned first commits last and dies before
// it cleans. Poison that only one writer can own fails this.
func TestAWriterThatDiesIsCoveredWhileOthersCome(t *testing.T) {
	for rule, want := range map[bool]int{true: 2, false: 1} {
		r := realredis.T(t)
		a, b := newSidecar(t, testConfig(), r), newSidecar(t, testConfig(), r)
		if !rule {
			a.scripts.poison, b.scripts.poison = newScript(onePoison), newScript(onePoison)
		}
		ref, reg := Ref{Server: "c1", Name: "rs:1.0:k"}, new(row)
		dying := a.newWrite(ctxb, []Ref{ref})
		if err := dying.poison(); err != nil {
			t.Fatal(err)
		}
		if err := b.Write(ctxb, []Ref{ref}, reg.writer); err != nil {
			t.Fatal(err)
		}
		v, err := b.Read(ctxb, ref, aMinute, 0, reg.loader)
		wantVersion(t, v, err, 1)
		reg.commit()
		dying.close()
		v, err = b.Read(ctxb, ref, aMinute, 0, reg.loader)
		wantVersion(t, v, err, want)
	}
}

// TestOverlappingWritesOfOneRow through Write itself: each takes away only its own poison, and the last one leaves nothing.
func TestOverlappingWritesOfOneRow(t *testing.T) {
	r := realredis.T(t)
	s, db := newSidecar(t, testConfig(), r), admin(t, r)
	ref, reg := Ref{Server: "c1", Name: "rs:1.0:k"}, new(row)
	err := s.Write(ctxb, []Ref{ref}, func(ctx context.Context, poisoned func() error) error {
		if err := poisoned(); err != nil {
			return err
		}
		first := writersOf(t, db, ref.Name)
		for _, outcome := range []error{nil, shard.ErrFrozen} {
			err := s.Write(ctxb, []Ref{ref}, func(_ context.Context, poisoned func() error) error {
				if err := poisoned(); err != nil {
					return err
				}
				if n := len(writersOf(t, db, ref.Name)); n != 2 {
					t.Errorf("%d writers during the second write", n)
				}
				return outcome
			})
			if !errors.Is(err, outcome) {
				t.Errorf("%v, want %v", err, outcome)
			}
			if left := writersOf(t, db, ref.Name); len(left) != 1 || left[0] != first[0] {
				t.Errorf("after a write that ended with %v: %v", outcome, left)
			}
			if v, err := s.Read(ctxb, ref, aMinute, 0, reg.loader); err != nil || v.Source != Bypassed {
				t.Errorf("a read beside a writer: %s, %v", v.Source, err)
			}
		}
		return nil
	})
	if err != nil || db.Exists(ctxb, ref.Name).Val() != 0 {
		t.Errorf("%v; left %v", err, writersOf(t, db, ref.Name))
	}
}

// TestEachWriterEndsByItself by the server's clock: the entry lives as long as its last writer, and those whose time is over are dropped.
func TestEachWriterEndsByItself(t *testing.T) {
	t.Parallel() // it waits
	r := realredis.T(t)
	db := admin(t, r)
	a, b := newSidecar(t, testConfig(), r), newSidecar(t, testConfig(), r)
	a.cfg.PoisonTTL = 3 * time.Second // too short for a commit, and there is none
	short, long := a.cfg, b.cfg
	ref := Ref{Server: "c1", Name: "rs:1.0:k"}
	poison := func(s *sidecar) *write {
		w := s.newWrite(ctxb, []Ref{ref})
		t.Cleanup(w.close)
		if err := w.poison(); err != nil {
			t.Fatal(err)
		}
		return w
	}
	lives := func(want time.Duration) {
		t.Helper()
		if left := db.PTTL(ctxb, ref.Name).Val(); left > want || left < want-30*time.Second {
			t.Errorf("the entry lives %v, its last writer %v", left, want)
		}
	}
	poison(a)
	lives(short.PoisonTTL)
	first := poison(b)
	poison(a) // it does not shorten the life of the others
	lives(long.PoisonTTL)
	if n := len(writersOf(t, db, ref.Name)); n != 3 {
		t.Errorf("%d writers", n)
	}
	time.Sleep(short.PoisonTTL + 20*time.Millisecond)
	second := poison(b)
	if left := writersOf(t, db, ref.Name); len(left) != 2 || left[0].Token != first.token || left[1].Token != second.token {
		t.Errorf("left %v", left)
	}
	poison(a)
	for _, w := range []*write{second, first} {
		if err := w.clean(); err != nil {
			t.Fatal(err)
		}
	}
	lives(short.PoisonTTL)
	within(t, "the last one ends by itself", func() bool { return db.Exists(ctxb, ref.Name).Val() == 0 })
}

// TestACrowdOfWritersIsBounded: of more writers than an entry has room for those that came first share a place, which ends by itself
// only. Nobody is refused and nobody uncovered.
func TestACrowdOfWritersIsBounded(t *testing.T) {
	r := realredis.T(t)
	s, db := newSidecar(t, testConfig(), r), admin(t, r)
	ref := Ref{Server: "c1", Name: "rs:1.0:k"}
	const merged = 11 // the ten that there is no room for, and the place that they share
	var all []*write
	var lastMerged time.Time
	for range mostWriters + merged - 1 {
		w := s.newWrite(ctxb, []Ref{ref})
		defer w.close()
		if err := w.poison(); err != nil {
			t.Fatal(err)
		}
		if all = append(all, w); len(all) == merged {
			lastMerged = writersOf(t, db, ref.Name)[merged-1].Expires
		}
		time.Sleep(time.Millisecond) // each has a time of its own
	}
	got := writersOf(t, db, ref.Name)
	if crowd := (Writer{Token{}, lastMerged}); len(got) != mostWriters || got[0] != crowd || got[1].Token != all[merged].token {
		t.Fatalf("%d writers, the first are %v; want %v", len(got), got[:2], crowd)
	}
	if n := testutil.ToFloat64(s.metrics.crowded); n != merged-1 {
		t.Errorf("%v were counted", n)
	}
	for _, w := range all[1:] {
		if err := w.clean(); err != nil {
			t.Fatal(err)
		}
	}
	all[0].lift()
	if left := writersOf(t, db, ref.Name); len(left) != 1 || left[0] != got[0] {
		t.Errorf("left %v, want the crowd", left)
	}
	if want, left := time.Until(got[0].Expires), db.PTTL(ctxb, ref.Name).Val(); left > want+time.Millisecond || left < want-30*time.Second {
		t.Errorf("the entry lives %v, the crowd %v", left, want)
	}
}

// TestAFullServerCanBeCleaned: a committed write must not be held up because its server's memory is full.
func TestAFullServerCanBeCleaned(t *testing.T) {
	r := realredis.T(t)
	s, db := newSidecar(t, testConfig(), r), admin(t, r)
	ref, reg := Ref{Server: "c1", Name: "rs:1.0:k"}, new(row)
	other := s.newWrite(ctxb, []Ref{ref})
	defer other.close()
	if err := other.poison(); err != nil {
		t.Fatal(err)
	}
	err := s.Write(ctxb, []Ref{ref}, func(ctx context.Context, poisoned func() error) error {
		err := reg.writer(ctx, poisoned)
		if err := db.ConfigSet(ctxb, "maxmemory", "1").Err(); err != nil {
			t.Error(err)
		}
		return err
	})
	if left := writersOf(t, db, ref.Name); err != nil || len(left) != 1 || left[0].Token != other.token {
		t.Errorf("%v; left %v", err, left)
	}
	if err := other.poison(); !redis.HasErrorPrefix(err, "OOM") {
		t.Errorf("poison on a full server: %v", err)
	}
}
