package cache

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"ringside/internal/realredis"
)

// TestManyAreAskedAndFilledTogether: rows that are read together are asked for, and put, by scripts for many; what each finds is as if it had been read alone.
func TestManyAreAskedAndFilledTogether(t *testing.T) {
	t.Parallel() // it waits
	r := realredis.T(t)
	cfg := testConfig()
	cfg.LeaseWait = 3 * time.Second // in which all else is done
	s, db := newSidecar(t, cfg, r), admin(t, r)
	now := time.Now()
	there := map[int]string{
		3: string(AppendValue(nil, now, now.Add(time.Hour), []byte("cached"))),
		4: string(AppendAbsent(nil, now, now.Add(time.Hour))),
		5: string(AppendLease(nil, Token{9})),
		6: string(appendWriters(nil, Writer{Token{9}, now.Add(time.Hour)})),
		7: "?",
	}
	const rows, otherType = 3 * mostAtOnce, 8
	items := make([]Item, rows)
	for i := range items {
		items[i] = Item{Ref: Ref{Server: "c1", Name: "rs:1.0:" + strconv.Itoa(i)}, TTL: aMinute, NegTTL: aMinute}
		if entry := there[i]; entry != "" {
			db.Set(ctxb, items[i].Ref.Name, entry, time.Hour)
		}
	}
	db.LPush(ctxb, items[otherType].Ref.Name, "x")
	load := func(_ context.Context, idx []int) ([]Loaded, error) {
		out := make([]Loaded, len(idx))
		for n, i := range idx {
			out[n] = Loaded{Found: i%2 == 0, Body: fmt.Append(nil, i), MayFill: i != 10}
		}
		return out, nil
	}
	before := db.Info(ctxb, "commandstats").Val()
	for i, res := range s.ReadMany(ctxb, items, load) {
		want := Result{Value: Value{Found: i%2 == 0, Body: fmt.Append(nil, i), Source: Filled}}
		switch i {
		case 3:
			want.Value = Value{Found: true, Body: []byte("cached"), Source: Hit}
		case 4:
			want.Value = Value{Source: Hit}
		case 5, 6, 10:
			want.Source = Bypassed
		}
		if res.Err != nil || res.Found != want.Found || res.Source != want.Source || want.Found && string(res.Body) != string(want.Body) {
			t.Errorf("row %d: %+v, want %+v", i, res, want)
		}
	}
	for i, item := range items {
		got := db.Get(ctxb, item.Ref.Name).Val()
		switch i {
		case 3, 4, 6:
			if got != there[i] {
				t.Errorf("row %d: %q is there", i, got)
			}
		case 5:
			if got != string(awaited([]byte(there[i]))) {
				t.Errorf("row %d: %q is there", i, got)
			}
		case 10:
			if got != "" {
				t.Errorf("row %d: %q is there, and the lease was to be given back", i, got)
			}
		default:
			if k := Kind([]byte(got)); k != KindValue && i%2 == 0 || k != KindAbsent && i%2 == 1 {
				t.Errorf("row %d: %q is there", i, got)
			}
			if left := db.PTTL(ctxb, item.Ref.Name).Val(); left <= 0 || left > aMinute {
				t.Errorf("row %d lives %v", i, left)
			}
		}
	}
	scripts := func(text string) (n int) {
		for line := range strings.Lines(text) {
			_, _ = fmt.Sscanf(line, "cmdstat_evalsha:calls=%d", &n) // it is in one of them
		}
		return n
	}
	if n := scripts(db.Info(ctxb, "commandstats").Val()) - scripts(before); n > 20 {
		t.Errorf("%d scripts for %d rows", n, rows)
	}
	// The other type and what is malformed were discarded and asked for again.
	if got := testutil.ToFloat64(s.metrics.fills); got != rows-5 {
		t.Errorf("%v fills, want %d", got, rows-5)
	}
}

// TestRowsAreToldAsTheyCome: a row whose lease somebody else holds keeps no other row waiting.
func TestRowsAreToldAsTheyCome(t *testing.T) {
	r := realredis.T(t)
	cfg := testConfig()
	cfg.LeaseWait, cfg.ReadTimeout = time.Minute, 2*time.Minute
	s, db := newSidecar(t, cfg, r), admin(t, r)
	lease := AppendLease(nil, Token{9})
	items := make([]Item, 3)
	for i := range items {
		items[i] = Item{Ref: Ref{Server: "c1", Name: "rs:1.0:" + strconv.Itoa(i)}, TTL: aMinute}
	}
	db.Set(ctxb, items[1].Ref.Name, lease, aMinute)
	load := func(_ context.Context, idx []int) ([]Loaded, error) {
		out := make([]Loaded, len(idx))
		for n, i := range idx {
			out[n] = Loaded{Found: true, Body: fmt.Append(nil, i), MayFill: true}
		}
		return out, nil
	}
	var order []int
	s.ReadEach(ctxb, items, load, func(at []int, results []Result) {
		for _, i := range at {
			if results[i].Err != nil || string(results[i].Body) != strconv.Itoa(i) {
				t.Errorf("row %d: %+v", i, results[i])
			}
		}
		if order = append(order, at...); len(order) == 2 {
			entry := AppendValue(nil, time.Now(), time.Now().Add(time.Hour), []byte("1"))
			if err := db.Eval(ctxb, s.scripts.fill.source, []string{items[1].Ref.Name}, lease, entry, 60000, awaited(lease)).Err(); err != nil {
				t.Error(err)
			}
		}
	})
	if len(order) != 3 || order[2] != 1 {
		t.Errorf("told %v, want 1 last", order)
	}
	ended, cancel := context.WithCancel(ctxb)
	db.Set(ctxb, items[1].Ref.Name, lease, aMinute)
	told := map[int]error{}
	s.ReadEach(ended, items, load, func(at []int, results []Result) {
		for _, i := range at {
			told[i] = results[i].Err
		}
		if len(told) == 2 {
			cancel()
		}
	})
	if len(told) != 3 || told[0] != nil || told[1] == nil || told[2] != nil {
		t.Errorf("told %v, want that only 1 has ended with the context", told)
	}
}
