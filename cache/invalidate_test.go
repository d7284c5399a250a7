package cache

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"ringside/internal/realredis"
)

// TestManyRowsAreCleaned: whatever is there goes, but poison of writers; rows in one call may have one place or two.
func TestManyRowsAreCleaned(t *testing.T) {
	c1, c2 := realredis.T(t), realredis.T(t)
	s := newSidecar(t, testConfig(), c1, c2)
	db1, db2 := admin(t, c1), admin(t, c2)
	var rows [][]Ref
	for i := range 300 {
		name := fmt.Sprintf("rs:1.0:user:%d", i)
		row := []Ref{{Server: "c1", Name: name}}
		entry := AppendValue(nil, time.Now(), time.Now(), []byte("{}"))
		switch i % 4 {
		case 1:
			entry = AppendAbsent(nil, time.Now(), time.Now())
		case 2:
			entry = AppendLease(nil, Token{1})
		}
		if err := db1.Set(ctxb, name, entry, 0).Err(); err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 {
			second := fmt.Sprintf("rs:2.0:user:%d", i)
			row = append(row, Ref{Server: "c2", Name: second})
			if err := db2.Set(ctxb, second, entry, 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		rows = append(rows, row)
	}
	living := s.newWrite(ctxb, []Ref{{Server: "c1", Name: "rs:1.0:user:7"}})
	defer living.close()
	if err := living.poison(); err != nil {
		t.Fatal(err)
	}
	if err := s.CleanMany(ctxb, rows); err != nil {
		t.Fatal(err)
	}
	if left := db1.Keys(ctxb, "*").Val(); !slices.Equal(left, []string{"rs:1.0:user:7"}) || len(writersOf(t, db1, "rs:1.0:user:7")) != 1 {
		t.Errorf("left on c1: %v", left)
	}
	if left := db2.Keys(ctxb, "*").Val(); len(left) > 0 {
		t.Errorf("left on c2: %v", left)
	}
	if err := s.CleanMany(ctxb, nil); err != nil {
		t.Errorf("no rows: %v", err)
	}
}

// TestAFormerCopyThatIsNotCleanKeepsTheNewOne (P3): what cannot be cleaned in the first place is not cleaned in the second one either, since it could be
// carried there afterwards; and the other rows are cleaned nevertheless.
func TestAFormerCopyThatIsNotCleanKeepsTheNewOne(t *testing.T) {
	c1, c2 := realredis.T(t), realredis.T(t)
	s := newSidecar(t, testConfig(), c1, c2)
	db2 := admin(t, c2)
	for _, name := range []string{"rs:2.0:a", "rs:2.0:b"} {
		if err := db2.Set(ctxb, name, AppendValue(nil, time.Now(), time.Now(), nil), 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	a := []Ref{{Server: "c1", Name: "rs:1.0:a"}, {Server: "c2", Name: "rs:2.0:a"}}
	b := []Ref{{Server: "c2", Name: "rs:2.0:b"}}
	if err := c1.Pause(); err != nil {
		t.Fatal(err)
	}
	s.hurry()
	err := s.CleanMany(ctxb, [][]Ref{a, b})
	if resumed := c1.Resume(); resumed != nil {
		t.Fatal(resumed)
	}
	unclean, ok := errors.AsType[*CleanError](err)
	if !ok || !slices.Equal(unclean.Refs, a) {
		t.Errorf("%v", err)
	}
	if left := db2.Keys(ctxb, "*").Val(); !slices.Equal(left, []string{"rs:2.0:a"}) {
		t.Errorf("left on c2: %v", left)
	}

	err = s.CleanMany(ctxb, [][]Ref{{{Server: "c1", Name: "rs:1.0:a", RunID: "another"}}, {{Server: "c9", Name: "rs:1.0:a"}}})
	if unclean, ok = errors.AsType[*CleanError](err); !ok || len(unclean.Refs) != 2 {
		t.Errorf("servers that are not there: %v", err)
	}
}

func TestEntriesAreReadAsTheyAre(t *testing.T) {
	r := realredis.T(t)
	s, db := newSidecar(t, testConfig(), r), admin(t, r)
	entry := AppendValue(nil, time.Now(), time.Now(), []byte("{\xff}"))
	if err := errors.Join(db.Set(ctxb, "rs:1.0:a", entry, 0).Err(), db.RPush(ctxb, "rs:1.0:list", "x").Err()); err != nil {
		t.Fatal(err)
	}
	got, err := s.servers.Entries(ctxb, "c1", runIDOf(t, r), []string{"rs:1.0:none", "rs:1.0:a", "rs:1.0:list"})
	if err != nil || len(got) != 3 || got[0] != nil || !bytes.Equal(got[1], entry) || got[2] != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := s.servers.Entries(ctxb, "c1", "another", []string{"rs:1.0:a"}); err == nil {
		t.Error("entries of another process")
	}
}
