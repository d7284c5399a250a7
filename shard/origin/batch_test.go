package origin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringside/shard"
	"ringside/shard/keyspace"
)

// statements is how many loads went to the shard, and how many rows they asked for.
func statements(t *testing.T, f *Fleet) (n uint64, rows float64) {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(f.metrics.batch)
	families, err := reg.Gather()
	if err != nil || len(families) != 1 {
		t.Fatal(families, err)
	}
	h := families[0].Metric[0].GetHistogram()
	return h.GetSampleCount(), h.GetSampleSum()
}

// Guards P5: loads that wait at the same time share a statement, each gets its own rows in its own order, and one that finds the shard idle waits for nobody.
func TestLoadsThatWaitShareAStatement(t *testing.T) {
	f := newFixture(t, Config{}, usersTable, `insert into users select n, 'user ' || n from generate_series(1, 600) n`)
	f.run()
	ks := users(t)
	load := func(from, n int) error {
		keys := make([]keyspace.Key, n)
		for i := range keys {
			keys[i] = key(t, ks, fmt.Sprintf("user:%d", from+i))
		}
		rows, _, err := f.Load(context.Background(), "s1", ks, keys)
		if err != nil {
			return err
		}
		for i := range keys {
			if want := fmt.Sprintf(`{"id":%d,`, from+i); !rows[i].Found || len(rows[i].Body) < len(want) || string(rows[i].Body[:len(want)]) != want {
				return fmt.Errorf("row %d is %q", from+i, rows[i].Body)
			}
		}
		return nil
	}
	if err := load(1, 3); err != nil {
		t.Fatal(err)
	}
	if n, rows := statements(t, f.Fleet); n != 1 || rows != 3 {
		t.Fatalf("a lone load: %d statements for %.0f rows", n, rows)
	}
	// While the table is locked statements stay under way, so what comes meanwhile has to wait for a lane.
	holder := connect(t, f.dsn)
	if _, err := holder.Exec(t.Context(), "begin; lock table users in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	var loads sync.WaitGroup
	errs := make(chan error, 300)
	for i := range 300 {
		loads.Go(func() { errs <- load(2*i+1, 1+i%2) })
	}
	eventually(t, "all wait", func() bool { n, _ := f.pools["s1"].queuedLoads(time.Now()); return n == 300-lanes })
	if _, err := holder.Exec(t.Context(), "commit"); err != nil {
		t.Fatal(err)
	}
	loads.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	if n, rows := statements(t, f.Fleet); n > 2*lanes+1 || rows != 453 {
		t.Errorf("%d statements for %.0f rows", n, rows)
	}
}

// A caller that gives up leaves nothing behind, and one whose time is over is refused as by any queue.
func TestLoadsThatWaitGiveUp(t *testing.T) {
	f := newFixture(t, Config{QueueWait: 4 * time.Second}, usersTable)
	f.run()
	ks := users(t)
	holder := connect(t, f.dsn)
	if _, err := holder.Exec(t.Context(), "begin; lock table users in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	keys := []keyspace.Key{key(t, ks, "user:1")}
	answers := make(chan error, lanes)
	for range lanes {
		go func() {
			_, _, err := f.Load(context.Background(), "s1", ks, keys)
			answers <- err
		}()
	}
	b := f.pools["s1"].batcher(ks)
	eventually(t, "all lanes are taken", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.flying == lanes && b.unsent == 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := f.Load(ctx, "s1", ks, keys); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller that gives up: %v", err)
	}
	if _, _, err := f.Load(t.Context(), "s1", ks, keys); !errors.Is(err, shard.ErrOverloaded) {
		t.Errorf("a caller whose time is over: %v", err)
	}
	if n, _ := b.queued(time.Now()); n != 0 || f.Pools()[0].ShedLate != 1 {
		t.Errorf("%d wait, %d were shed", n, f.Pools()[0].ShedLate)
	}
	if _, err := holder.Exec(t.Context(), "commit"); err != nil {
		t.Fatal(err)
	}
	for range lanes {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
}
