package cache

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"ringside/internal/realredis"
)

// TestRowsWithoutAServerAreNotMixed guards P7 where a cache server is out of use and its rows are read without one: what is loaded for one
// row is never given to the reader of another. Rows that have a name are still loaded once for all who wait.
func TestRowsWithoutAServerAreNotMixed(t *testing.T) {
	s := newSidecar(t, testConfig())
	const callers = 60
	for name, refOf := range map[string]func(row int) Ref{
		"named":   func(row int) Ref { return Ref{Name: "rs:0.0:" + strconv.Itoa(row)} },
		"unnamed": func(int) Ref { return Ref{} },
	} {
		var group sync.WaitGroup
		var mu sync.Mutex
		loads := 0
		release := make(chan struct{})
		for i := range callers {
			row := i % 20
			group.Go(func() {
				v, err := s.Read(ctxb, refOf(row), aMinute, aMinute, func(context.Context) (Loaded, error) {
					mu.Lock()
					loads++
					mu.Unlock()
					<-release
					return Loaded{Found: true, Body: []byte(strconv.Itoa(row)), MayFill: true}, nil
				})
				if err != nil || string(v.Body) != strconv.Itoa(row) {
					t.Errorf("%s: row %d is %q, %v", name, row, v.Body, err)
				}
			})
		}
		time.Sleep(50 * time.Millisecond) // all are under way, or will load for themselves
		close(release)
		group.Wait()
		if loads < 20 || loads > callers {
			t.Errorf("%s: %d loads", name, loads)
		}
	}
	// In one call too.
	items := make([]Item, 30)
	results := s.ReadMany(ctxb, items, func(_ context.Context, idx []int) ([]Loaded, error) {
		out := make([]Loaded, len(idx))
		for n, i := range idx {
			out[n] = Loaded{Found: true, Body: fmt.Append(nil, i)}
		}
		return out, nil
	})
	for i, r := range results {
		if r.Err != nil || string(r.Body) != strconv.Itoa(i) {
			t.Errorf("item %d is %q, %v", i, r.Body, r.Err)
		}
	}
}

// TestBusyIsNotDown guards P6: a writer that got no connection in time is told that too much is under way here, not that the server is gone.
func TestBusyIsNotDown(t *testing.T) {
	t.Parallel() // it waits
	r := realredis.T(t)
	cfg := testConfig()
	cfg.StepTimeout = 5 * time.Second // all have given up waiting for a connection before the first ones give theirs back
	s := newSidecar(t, cfg, r)
	if err := r.Pause(); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	var mu sync.Mutex
	busy, others := 0, 0
	for i := range 12 {
		group.Go(func() {
			reg := new(row)
			err := s.Write(ctxb, []Ref{{Server: "c1", Name: "rs:1.0:" + strconv.Itoa(i)}}, reg.writer)
			if _, ok := errors.AsType[*ServerError](err); !ok {
				t.Errorf("%v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(err, ErrBusy) {
				busy++
			} else {
				others++
			}
		})
	}
	group.Wait()
	if err := r.Resume(); err != nil {
		t.Fatal(err)
	}
	if busy == 0 || others == 0 || others > s.servers.cfg.Connections {
		t.Errorf("%d writers found no connection, %d no answer; there are %d connections", busy, others, s.servers.cfg.Connections)
	}
}
