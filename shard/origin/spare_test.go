package origin

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"ringside/shard"
	"ringside/shard/keyspace"
)

// Guards P6: what nobody waits for takes nothing from those who wait, and never waits itself.
func TestSpareWorkHasWhatRequestsLeave(t *testing.T) {
	for _, c := range []struct {
		inUse, capacity, waiting int
		want                     bool
	}{
		{0, 1, 0, true}, {1, 1, 0, false}, {0, 0, 0, false}, {0, 1, 1, false},
		{1, 4, 0, true}, {2, 4, 0, false}, {2, 5, 0, true}, {3, 5, 0, false}, {0, 5, 1, false},
	} {
		if got := mayHaveSpare(c.inUse, c.capacity, c.waiting); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		a := admissionOf(2, 10, time.Hour)
		if err := a.enter(t.Context(), spare); err != nil {
			t.Fatal(err)
		}
		if err := a.enter(t.Context(), spare); !errors.Is(err, shard.ErrOverloaded) {
			t.Errorf("half of the sessions are in use: %v", err)
		}
		if err := a.enter(t.Context(), request); err != nil {
			t.Errorf("a request beside it: %v", err)
		}
		a.refuse(errReadOnly)
		if err := a.enter(t.Context(), spare); !errors.Is(err, errReadOnly) {
			t.Errorf("down: %v", err)
		}
		if s := a.stats(time.Now()); s != (admissionStats{inUse: 2, served: 1, spared: 1, spareShed: 1}) {
			t.Errorf("%+v", s)
		}
	})
}

func TestLoadSpareIsRefusedWhileRequestsWait(t *testing.T) {
	f := newFixture(t, Config{}, usersTable, `insert into users values (1, 'a')`)
	f.SetLimit("s1", 2)
	ks := users(t)
	keys := []keyspace.Key{key(t, ks, "user:1")}
	rows, view, err := f.LoadSpare(t.Context(), "s1", ks, keys)
	if err != nil || len(rows) != 1 || !rows[0].Found || view != at {
		t.Fatalf("%v %v %v", rows, view, err)
	}
	entered, release, done := make(chan struct{}), make(chan struct{}), make(chan error, 2)
	go func() {
		_, err := f.Write(context.Background(), "s1", at, upsert(t, keys[0], `{"name":"b"}`), func() (bool, error) { close(entered); <-release; return false, nil })
		done <- err
	}()
	<-entered
	go func() {
		_, _, err := f.Load(context.Background(), "s1", ks, keys)
		done <- err
	}()
	eventually(t, "a request waits", func() bool { return f.Pools()[0].Waiting == 1 })
	start := time.Now()
	if _, _, err := f.LoadSpare(t.Context(), "s1", ks, keys); !errors.Is(err, shard.ErrOverloaded) || time.Since(start) > plenty/4 {
		t.Errorf("got %v after %v", err, time.Since(start))
	}
	close(release)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if s := f.Pools()[0]; s.Spared != 1 || s.SpareShed != 1 {
		t.Errorf("%+v", s)
	}
}
