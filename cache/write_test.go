package cache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"ringside/internal/realredis"
	"ringside/shard"
)

func TestWritePoisonsCommitsCleans(t *testing.T) {
	r1, r2 := realredis.T(t), realredis.T(t)
	s := newSidecar(t, testConfig(), r1, r2)
	db := []*redis.Client{admin(t, r1), admin(t, r2)}
	refs := []Ref{{Server: "c1", Name: "rs:1.0:k"}, {Server: "c2", Name: "rs:2.0:k"}} // old and new owner
	reg := new(row)
	for _, ref := range refs {
		if _, err := s.Read(ctxb, ref, aMinute, 0, reg.loader); err != nil {
			t.Fatal(err)
		}
	}
	err := s.Write(ctxb, refs, func(ctx context.Context, poisoned func() error) error {
		if d, ok := ctx.Deadline(); !ok || time.Until(d) > s.cfg.WriteTimeout {
			t.Errorf("deadline %v, %v", d, ok)
		}
		if err := poisoned(); err != nil {
			return err
		}
		for i, ref := range refs {
			b, _ := db[i].Get(ctxb, ref.Name).Bytes()
			if left := db[i].PTTL(ctxb, ref.Name).Val(); Kind(b) != KindPoison || left > s.cfg.PoisonTTL || left < s.cfg.PoisonTTL-30*time.Second {
				t.Errorf("before the commit %s holds %s for %v", ref.Server, Kind(b), left)
			}
		}
		v, err := s.Read(ctxb, refs[0], aMinute, 0, reg.loader)
		wantVersion(t, v, err, 0)
		reg.commit()
		v, err = s.Read(ctxb, refs[0], aMinute, 0, reg.loader)
		wantVersion(t, v, err, 1)
		if v.Source != Bypassed {
			t.Errorf("read through poison: %s", v.Source)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, ref := range refs {
		if db[i].Exists(ctxb, ref.Name).Val() != 0 {
			t.Errorf("%s is not clean", ref.Server)
		}
		v, err := s.Read(ctxb, ref, aMinute, 0, reg.loader)
		wantVersion(t, v, err, 1)
	}
}

func TestAFailedWriteLiftsItsPoisonOnly(t *testing.T) {
	r := realredis.T(t)
	s, db := newSidecar(t, testConfig(), r), admin(t, r)
	ref := Ref{Server: "c1", Name: "rs:1.0:k"}
	refused := &shard.BadRowError{Column: "visits", Reason: "is a number"}
	if err := s.Write(ctxb, []Ref{ref}, func(_ context.Context, poisoned func() error) error { return refused }); err != error(refused) {
		t.Errorf("error %v", err)
	}
	if db.Exists(ctxb, ref.Name).Val() != 0 {
		t.Error("the poison was not lifted")
	}
	theirs := appendWriters(nil, Writer{Token{9}, time.Now().Add(aMinute)})
	err := s.Write(ctxb, []Ref{ref}, func(_ context.Context, poisoned func() error) error {
		if err := poisoned(); err != nil {
			return err
		}
		db.Set(ctxb, ref.Name, theirs, aMinute)
		return refused
	})
	if b, _ := db.Get(ctxb, ref.Name).Bytes(); !errors.Is(err, refused) || !slices.Equal(b, theirs) {
		t.Errorf("%v, left %q", err, b)
	}
	// a write that is committed leaves another writer's poison too
	reg := new(row)
	if err := s.Write(ctxb, []Ref{ref}, func(ctx context.Context, poisoned func() error) error {
		err := reg.writer(ctx, poisoned)
		db.Set(ctxb, ref.Name, theirs, aMinute)
		return err
	}); err != nil {
		t.Error(err)
	}
	if b, _ := db.Get(ctxb, ref.Name).Bytes(); !slices.Equal(b, theirs) {
		t.Errorf("left %q", b)
	}
}

// TestUnknownOutcomeKeepsThePoison: the commit may still become visible, so nobody may fill until the poison expires.
func TestUnknownOutcomeKeepsThePoison(t *testing.T) {
	r := realredis.T(t)
	s, db := newSidecar(t, testConfig(), r), admin(t, r)
	ref, reg := Ref{Server: "c1", Name: "rs:1.0:k"}, new(row)
	lost := &shard.DownError{Shard: "s1", Err: fmt.Errorf("commit: %w", shard.ErrOutcomeUnknown)}
	if err := s.Write(ctxb, []Ref{ref}, func(_ context.Context, poisoned func() error) error {
		if err := poisoned(); err != nil {
			return err
		}
		return lost
	}); !errors.Is(err, shard.ErrOutcomeUnknown) {
		t.Errorf("error %v", err)
	}
	if b, _ := db.Get(ctxb, ref.Name).Bytes(); Kind(b) != KindPoison {
		t.Fatalf("left %q", b)
	}
	for i := range 3 {
		v, err := s.Read(ctxb, ref, aMinute, 0, reg.loader)
		wantVersion(t, v, err, i)
		reg.commit()
	}
}

func TestNothingIsCommittedWithoutPoison(t *testing.T) {
	r1, r2 := realredis.T(t), realredis.T(t)
	s, db := newSidecar(t, testConfig(), r1, r2), admin(t, r1)
	if err := r2.Kill(); err != nil {
		t.Fatal(err)
	}
	reg := new(row)
	for _, server := range []string{"c2", "c9"} {
		err := s.Write(ctxb, []Ref{{Server: "c1", Name: "rs:1.0:k"}, {Server: server, Name: "rs:1.0:k"}}, reg.writer)
		if se := (*ServerError)(nil); !errors.As(err, &se) || se.Server != server {
			t.Errorf("%s: %v", server, err)
		}
		within(t, "the other server's poison is lifted", func() bool { return db.Exists(ctxb, "rs:1.0:k").Val() == 0 })
	}
	if v := version(reg.load().Body); v != 0 {
		t.Errorf("%d writes were committed", v)
	}
}

func TestCommittedWriteThatCannotBeCleaned(t *testing.T) {
	r1, r2 := realredis.T(t), realredis.T(t)
	s := newSidecar(t, testConfig(), r1, r2)
	reg, refs := new(row), []Ref{{Server: "c1", Name: "rs:1.0:k"}, {Server: "c2", Name: "rs:1.0:k"}}
	started := time.Now()
	err := s.Write(ctxb, refs, func(ctx context.Context, poisoned func() error) error {
		err := reg.writer(ctx, poisoned)
		r2.Kill()
		s.hurry()
		return err
	})
	var ce *CleanError
	if !errors.As(err, &ce) || !slices.Equal(ce.Refs, refs[1:]) {
		t.Errorf("error %v", err)
	}
	if took := time.Since(started); took < s.cfg.CleanTimeout*9/10 || took > s.cfg.LongestWrite() {
		t.Errorf("took %v", took)
	}
	if admin(t, r1).Exists(ctxb, refs[0].Name).Val() != 0 {
		t.Error("c1 is not clean")
	}
}

func TestCleaningIsRepeatedUntilTheServerAnswers(t *testing.T) {
	r := realredis.T(t)
	s := newSidecar(t, testConfig(), r)
	reg, ref := new(row), Ref{Server: "c1", Name: "rs:1.0:k"}
	var resumed sync.WaitGroup
	err := s.Write(ctxb, []Ref{ref}, func(ctx context.Context, poisoned func() error) error {
		err := reg.writer(ctx, poisoned)
		if err := r.Pause(); err != nil {
			t.Error(err)
		}
		s.cfg.StepTimeout = 200 * time.Millisecond
		resumed.Go(func() {
			time.Sleep(600 * time.Millisecond)
			r.Resume()
		})
		return err
	})
	resumed.Wait()
	if err != nil {
		t.Fatal(err)
	}
	v, err := s.Read(ctxb, ref, aMinute, 0, reg.loader)
	wantVersion(t, v, err, 1)
}

func TestCleaningSurvivesTheCallersCancel(t *testing.T) {
	r := realredis.T(t)
	s, db := newSidecar(t, testConfig(), r), admin(t, r)
	reg, ref := new(row), Ref{Server: "c1", Name: "rs:1.0:k"}
	ctx, cancel := context.WithCancel(ctxb)
	if err := s.Write(ctx, []Ref{ref}, func(ctx context.Context, poisoned func() error) error {
		err := reg.writer(ctx, poisoned)
		cancel()
		return err
	}); err != nil {
		t.Errorf("a committed and cleaned write: %v", err)
	}
	if db.Exists(ctxb, ref.Name).Val() != 0 {
		t.Error("not clean")
	}
	// and a caller that is gone before the commit is told so by poisoned, or writes nothing by its own context
	err := s.Write(ctx, []Ref{ref}, func(ctx context.Context, poisoned func() error) error { return ctx.Err() })
	if !errors.Is(err, context.Canceled) || db.Exists(ctxb, ref.Name).Val() != 0 {
		t.Errorf("%v", err)
	}
}

func TestWriteWithoutEntries(t *testing.T) {
	s, reg := newSidecar(t, testConfig()), new(row)
	if err := s.Write(ctxb, nil, reg.writer); err != nil || version(reg.load().Body) != 1 {
		t.Error(err)
	}
}
