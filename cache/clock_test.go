package cache

import (
	"context"
	"testing"
	"time"

	"ringside/internal/realredis"
)

// Guards P3 against clocks that are wrong or are set: the times in an entry are of the clock of whoever wrote it, and no sidecar decides by them
// what it serves, fills, cleans or takes over. Poison ends by the clock of its own cache server alone (TestEachWriterEndsByItself).
func TestEntriesOfAWrongClockAreServedAndCleaned(t *testing.T) {
	r := realredis.T(t)
	s, db := newSidecar(t, testConfig(), r), admin(t, r)
	ref := Ref{Server: "c1", Name: "rs:1.0:k"}
	none := func(context.Context) (Loaded, error) {
		t.Error("loaded although it was cached")
		return Loaded{}, nil
	}
	for _, step := range []time.Duration{-10 * 365 * 24 * time.Hour, -time.Hour, time.Hour, 10 * 365 * 24 * time.Hour} {
		then := time.Now().Add(step)
		entry := AppendValue(nil, then, then.Add(time.Second), []byte("7"))
		if err := db.Set(ctxb, ref.Name, entry, aMinute).Err(); err != nil {
			t.Fatal(err)
		}
		if v, err := s.Read(ctxb, ref, aMinute, 0, none); err != nil || string(v.Body) != "7" || v.Source != Hit {
			t.Errorf("written %v from now: %q %s, %v", step, v.Body, v.Source, err)
		}
		entry = AppendAbsent(nil, then, then.Add(time.Second))
		if err := db.Set(ctxb, ref.Name, entry, aMinute).Err(); err != nil {
			t.Fatal(err)
		}
		if v, err := s.Read(ctxb, ref, aMinute, aMinute, none); err != nil || v.Found || v.Source != Hit {
			t.Errorf("absence of %v from now: found %v, %s, %v", step, v.Found, v.Source, err)
		}
		// A life that is taken over is what is left of it by the old server's clock; the entry's own times do not count.
		if life := carriedLife(Kind(entry), 3*time.Second, aMinute, aMinute); life != 3*time.Second {
			t.Errorf("an entry of %v from now would live %v", step, life)
		}
		err := s.Write(ctxb, []Ref{ref}, func(_ context.Context, poisoned func() error) error { return poisoned() })
		if n := db.Exists(ctxb, ref.Name).Val(); err != nil || n != 0 {
			t.Errorf("after a write the entry of %v from now is there: %d, %v", step, n, err)
		}
	}
}
