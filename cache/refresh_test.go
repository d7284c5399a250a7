package cache

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"ringside/internal/realredis"
)

func TestDue(t *testing.T) {
	// Written at 0, soft expiry at 8000, so that the end is at 10000.
	for _, c := range []struct {
		what   string
		now    int64
		random float64
		want   bool
	}{
		{"at the soft expiry, one in three thousand", 8000, 0.00033, true},
		{"and no more", 8000, 0.00034, false},
		{"half way", 9000, 0.018, true},
		{"half way, and no more", 9000, 0.019, false},
		{"at the end nearly all", 9900, 0.67, true},
		{"and no more", 9900, 0.68, false},
		{"at the end", 10000, 0.9999, true},
		{"past it", 15999, 0.9999, true},
		{"by another clock", 16000, 0, false},
	} {
		if got := due(c.now, 0, 8000, c.random); got != c.want {
			t.Errorf("%s (%d, %v): %v", c.what, c.now, c.random, got)
		}
	}
	for _, soft := range []int64{0, -5} {
		if due(100, 0, soft, 0) {
			t.Errorf("an entry that was never fresh (%d) is refreshed", soft)
		}
	}
	at := time.UnixMilli(1000)
	for what, c := range map[string]struct {
		entry []byte
		want  bool
	}{
		"before the soft expiry": {AppendValue(nil, at, at.Add(time.Hour), nil), false},
		"long after it":          {AppendValue(nil, at, at.Add(40*time.Second), []byte("x")), true},
		"an absence":             {AppendAbsent(nil, at, at.Add(40*time.Second)), true},
		"claimed":                {claimed(AppendValue(nil, at, at.Add(40*time.Second), nil), 7), false},
	} {
		if got := Due(c.entry, at.Add(time.Minute)); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// hot is a row whose entry is past its end by its own header, though it lives on: every hit is due.
func hot(t *testing.T, s *sidecar, reg *row) Ref {
	t.Helper()
	ref := Ref{Server: "c1", Name: "rs:1.0:hot"}
	now := time.Now()
	srv := s.servers.acquire("c1")
	defer s.servers.release(srv)
	if err := srv.client.Set(ctxb, ref.Name, AppendValue(nil, now.Add(-10*time.Minute), now.Add(-3*time.Minute), reg.load().Body), aMinute).Err(); err != nil {
		t.Fatal(err)
	}
	return ref
}

// TestOneReaderRefreshesAndTheOthersKeepTheValue guards P5 at the end of an entry's life.
func TestOneReaderRefreshesAndTheOthersKeepTheValue(t *testing.T) {
	r := realredis.T(t)
	a, b := newSidecar(t, patient(), r), newSidecar(t, patient(), r)
	reg := new(row)
	ref := hot(t, a, reg)
	reg.commit() // behind our back, so that it can be seen which value is which
	goOn, loading := make(chan struct{}), make(chan struct{})
	var loads atomic.Int32
	load := func(context.Context) (Loaded, error) {
		if loads.Add(1) == 1 {
			close(loading)
		}
		<-goOn
		return reg.load(), nil
	}
	v, err := a.Read(ctxb, ref, aMinute, 0, load)
	wantVersion(t, v, err, 0)
	<-loading
	var group sync.WaitGroup
	for i := range 40 {
		group.Go(func() {
			v, err := []*sidecar{a, b}[i%2].Read(ctxb, ref, aMinute, 0, load)
			if err != nil || string(v.Body) != "0" {
				t.Errorf("%q, %v", v.Body, err)
			}
		})
	}
	group.Wait() // though the refresh has not ended
	close(goOn)
	within(t, "the new value is there", func() bool {
		v, err := b.Read(ctxb, ref, aMinute, 0, load)
		return err == nil && v.Source == Hit && string(v.Body) == "1"
	})
	if loads.Load() != 1 || testutil.ToFloat64(a.metrics.refreshes) != 1 {
		t.Errorf("%d loads, %v refreshes", loads.Load(), testutil.ToFloat64(a.metrics.refreshes))
	}
	if ttl := admin(t, r).PTTL(ctxb, ref.Name).Val(); ttl < 20*time.Second {
		t.Errorf("the new entry lives %v", ttl)
	}
}

// TestARefreshIsVoidedByWhatCameBetween guards P3: a write, an eviction, another value.
func TestARefreshIsVoidedByWhatCameBetween(t *testing.T) {
	r := realredis.T(t)
	db := admin(t, r)
	for what, between := range map[string]func(s *sidecar, ref Ref, reg *row){
		"a write": func(s *sidecar, ref Ref, reg *row) {
			if err := s.Write(ctxb, []Ref{ref}, reg.writer); err != nil {
				t.Error(err)
			}
		},
		"a write, and a fill": func(s *sidecar, ref Ref, reg *row) {
			if err := s.Write(ctxb, []Ref{ref}, reg.writer); err != nil {
				t.Error(err)
			}
			v, err := s.Read(ctxb, ref, aMinute, 0, reg.loader)
			wantVersion(t, v, err, 1)
		},
		"an eviction": func(_ *sidecar, ref Ref, _ *row) { db.Del(ctxb, ref.Name) },
		"a writer that has died": func(s *sidecar, ref Ref, reg *row) {
			w := s.newWrite(ctxb, []Ref{ref})
			defer w.close()
			if err := w.poison(); err != nil {
				t.Error(err)
			}
			reg.commit()
		},
	} {
		s, reg := newSidecar(t, patient(), r), new(row)
		ref := hot(t, s, reg)
		done := make(chan struct{})
		v, err := s.Read(ctxb, ref, aMinute, 0, func(context.Context) (Loaded, error) {
			defer close(done)
			l := reg.load()
			between(s, ref, reg)
			return l, nil
		})
		wantVersion(t, v, err, 0)
		<-done
		within(t, what+": the refresh has ended", func() bool { return testutil.ToFloat64(s.metrics.refreshesRefused) == 1 })
		if b, _ := db.Get(ctxb, ref.Name).Bytes(); Kind(b) == KindValue && string(Body(b)) == "0" {
			t.Errorf("%s: the refresh has put what it loaded before", what)
		}
		db.Del(ctxb, ref.Name)
	}
}

// TestAFailedRefreshKeepsTheValue, and another one is tried later.
func TestAFailedRefreshKeepsTheValue(t *testing.T) {
	r := realredis.T(t)
	db := admin(t, r)
	for what, l := range map[string]Loaded{
		"the shard cannot be asked":           {Err: errors.New("shard is down")},
		"it was at another view":              {Found: true, Body: []byte("1")},
		"the row is gone, and not remembered": {MayFill: true},
	} {
		s, reg := newSidecar(t, testConfig(), r), new(row)
		ref := hot(t, s, reg)
		v, err := s.Read(ctxb, ref, aMinute, 0, func(context.Context) (Loaded, error) { return l, nil })
		wantVersion(t, v, err, 0)
		var e Entry
		within(t, what+": the claim is given back", func() bool {
			b, err := db.Get(ctxb, ref.Name).Bytes()
			if err == nil {
				e, err = Decode(b)
			}
			return err == nil && e.Claim == 0 && e.SoftExpires.After(time.Now())
		})
		if string(e.Body) != "0" || time.Until(e.SoftExpires) > s.cfg.LeaseTTL || testutil.ToFloat64(s.metrics.refreshesFailed) != 1 {
			t.Errorf("%s: %q, soft expiry in %v", what, e.Body, time.Until(e.SoftExpires))
		}
		db.Del(ctxb, ref.Name)
	}
}

// TestAHotRowNeverMisses: it is read all the time, and lives two seconds.
func TestAHotRowNeverMisses(t *testing.T) {
	t.Parallel() // it waits
	s, reg := newSidecar(t, testConfig(), realredis.T(t)), new(row)
	ref := Ref{Server: "c1", Name: "rs:1.0:k"}
	const life = 2 * time.Second
	stalls := 0.0 // a time without reads, or too short for a refresh, that the machine is to blame for
	for end, last := time.Now().Add(3*life), time.Now(); last.Before(end); time.Sleep(time.Millisecond) {
		v, err := s.Read(ctxb, ref, life, 0, reg.loader)
		wantVersion(t, v, err, 0)
		now := time.Now()
		if now.Sub(last) > life/40 {
			stalls++
		}
		last = now
	}
	misses, refreshes := testutil.ToFloat64(s.metrics.misses), testutil.ToFloat64(s.metrics.refreshes)
	t.Logf("%v misses, %v refreshes", misses, refreshes)
	if misses > 1+stalls || refreshes+stalls < 2 {
		t.Errorf("%v misses, %v refreshes, %v stalls", misses, refreshes, stalls)
	}
}

// TestRefreshesAreBounded guards P6.
func TestRefreshesAreBounded(t *testing.T) {
	r := realredis.T(t)
	s, db := newSidecar(t, patient(), r), admin(t, r)
	goOn := make(chan struct{})
	var loads atomic.Int32
	long := time.Now().Add(-time.Hour)
	for i := range mostRefreshes + 10 {
		ref := Ref{Server: "c1", Name: "rs:1.0:" + string(rune('A'+i))}
		db.Set(ctxb, ref.Name, AppendValue(nil, long, long.Add(time.Minute), nil), aMinute)
		for range 3 {
			s.Refresh(Item{Ref: ref, TTL: aMinute}, func(context.Context, []int) ([]Loaded, error) {
				loads.Add(1)
				<-goOn
				return []Loaded{{Found: true, MayFill: true}}, nil
			})
		}
	}
	within(t, "as many as may are under way", func() bool { return loads.Load() == mostRefreshes })
	close(goOn)
	within(t, "all have ended", func() bool { return testutil.ToFloat64(s.metrics.refreshes) == mostRefreshes })
	if loads.Load() != mostRefreshes {
		t.Errorf("%d loads", loads.Load())
	}
}
