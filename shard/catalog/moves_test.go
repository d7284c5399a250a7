package catalog

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringside/internal/realpg"
)

func vnodes(from, to int) (out []uint16) {
	for v := from; v < to; v++ {
		out = append(out, uint16(v))
	}
	return out
}

// A vnode is part of one move at a time.
func TestMovesDoNotOverlap(t *testing.T) {
	t.Parallel()
	c := open(t, realpg.T(t).Database(t))
	ctx := t.Context()
	first, err := c.CreateMove(ctx, []NewPart{{From: "s1", To: "s2", Vnodes: vnodes(0, 30_000), Rows: 5, Bytes: 6}, {From: "s1", To: "s3", Vnodes: vnodes(30_000, 30_001), Rows: 0, Bytes: 0}})
	if err != nil {
		t.Fatal(err)
	}
	for name, list := range map[string][]NewPart{
		"another move": {{From: "s2", To: "s1", Vnodes: vnodes(29_999, 30_000), Rows: 0, Bytes: 0}},
		"itself":       {{From: "s2", To: "s1", Vnodes: vnodes(50_000, 50_002), Rows: 0, Bytes: 0}, {From: "s2", To: "s3", Vnodes: vnodes(50_001, 50_003), Rows: 0, Bytes: 0}},
	} {
		if _, err := c.CreateMove(ctx, list); !errors.Is(err, ErrConflict) {
			t.Errorf("overlaps with %s: %v", name, err)
		}
	}
	parts, err := c.OpenParts(ctx)
	if err != nil || len(parts) != 2 {
		t.Fatalf("%d parts, %v", len(parts), err)
	}
	p := parts[0]
	if p.Move != first || p.From != "s1" || p.To != "s2" || !slices.Equal(p.Vnodes, vnodes(0, 30_000)) || p.Rows != 5 || p.Bytes != 6 || p.State != PartWaiting || p.Cancel || !p.Started.IsZero() || !p.Ended.IsZero() {
		p.Vnodes = nil
		t.Errorf("%+v", p)
	}
	token, ok, err := c.Lead(ctx, "a", 0, time.Minute)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	for _, p := range parts {
		if err := c.Report(ctx, token, p.ID, PartDone, Progress{Step: "done", Copied: 4, Blocked: 1500 * time.Microsecond}); err != nil {
			t.Fatal(err)
		}
	}
	if open, err := c.AnyOpen(ctx); err != nil || open {
		t.Errorf("open %v, %v", open, err)
	}
	if parts, err = c.Parts(ctx, 1); err != nil || len(parts) != 2 || parts[0].State != PartDone || parts[0].Copied != 4 || parts[0].Blocked != 1500*time.Microsecond || parts[0].Ended.IsZero() {
		t.Errorf("%d parts, %v", len(parts), err)
	}
	if _, err := c.CreateMove(ctx, []NewPart{{From: "s2", To: "s1", Vnodes: vnodes(0, 10), Rows: 0, Bytes: 0}}); err != nil {
		t.Errorf("after it: %v", err)
	}
	if found, open, err := c.CancelMove(ctx, first); err != nil || !found || open {
		t.Errorf("cancel what has ended: %v %v %v", found, open, err)
	}
	if found, _, err := c.CancelMove(ctx, 999); err != nil || found {
		t.Errorf("cancel what is not there: %v %v", found, err)
	}
}

// One drives at a time; whoever takes over has a higher token, and what the one before reports does not count any more.
func TestOneDrives(t *testing.T) {
	t.Parallel()
	c := open(t, realpg.T(t).Database(t))
	ctx := t.Context()
	id, err := c.CreateMove(ctx, []NewPart{{From: "s1", To: "s2", Vnodes: vnodes(0, 1), Rows: 0, Bytes: 0}})
	if err != nil {
		t.Fatal(err)
	}
	var leaders atomic.Int32
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			_, ok, err := c.Lead(ctx, fmt.Sprint("racer", i), 0, time.Minute)
			if err != nil {
				t.Error(err)
			}
			if ok {
				leaders.Add(1)
			}
		})
	}
	group.Wait()
	if leaders.Load() != 1 {
		t.Fatalf("%d lead", leaders.Load())
	}
	sql(t, c.db.Config().ConnString(), `update ringside.driver set until = now() - interval '1 second' returning token::text`)
	a, ok, err := c.Lead(ctx, "a", 0, time.Minute)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if again, ok, err := c.Lead(ctx, "a", a, time.Minute); err != nil || !ok || again != a {
		t.Errorf("renewed: %d, %v, %v; it was %d", again, ok, err, a)
	}
	if _, ok, err := c.Lead(ctx, "b", 0, time.Minute); err != nil || ok {
		t.Errorf("while a leads: %v, %v", ok, err)
	}
	if err := c.Resign(ctx, "a", a); err != nil {
		t.Fatal(err)
	}
	b, ok, err := c.Lead(ctx, "b", 0, time.Minute)
	if err != nil || !ok || b <= a {
		t.Errorf("after a has resigned: %d, %v, %v", b, ok, err)
	}
	if _, ok, err := c.Lead(ctx, "a", a, time.Minute); err != nil || ok {
		t.Errorf("a renews what it has lost: %v, %v", ok, err)
	}
	parts, err := c.Parts(ctx, 1)
	if err != nil || len(parts) != 1 || parts[0].Move != id {
		t.Fatal(err)
	}
	if err := c.Report(ctx, a, parts[0].ID, PartRunning, Progress{}); !errors.Is(err, ErrConflict) {
		t.Errorf("a reports: %v", err)
	}
	if err := c.Report(ctx, b, parts[0].ID, PartRunning, Progress{}); err != nil {
		t.Errorf("b reports: %v", err)
	}
	if err := c.Resign(ctx, "a", a); err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := c.Lead(ctx, "c", 0, time.Minute); ok {
		t.Error("a has resigned for b")
	}
}

// A catalog that an older ringside made gets the journal.
func TestTheJournalIsAdded(t *testing.T) {
	t.Parallel()
	dsn := realpg.T(t).Database(t)
	c := open(t, dsn)
	if _, _, err := c.Create(t.Context(), rec(1, "a")); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"move_part", "move", "driver"} {
		if _, err := c.db.Exec(t.Context(), `drop table ringside.`+table); err != nil {
			t.Fatal(err)
		}
	}
	again := open(t, dsn)
	if _, err := again.CreateMove(t.Context(), []NewPart{{From: "s1", To: "s2", Vnodes: vnodes(0, 1), Rows: 0, Bytes: 0}}); err != nil {
		t.Error(err)
	}
	if r := load(t, again); r.Epoch != 1 {
		t.Errorf("the topology is of epoch %d", r.Epoch)
	}
}

// A driver that was replaced does not change the map any more.
func TestOnlyTheDriverChangesTheMapAsSuch(t *testing.T) {
	t.Parallel()
	c := open(t, realpg.T(t).Database(t))
	ctx := t.Context()
	if _, _, err := c.Create(ctx, Record{Epoch: 1, Digest: "a", Body: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	token, ok, err := c.Lead(ctx, "one", 0, time.Minute)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := c.CompareAndSwapAs(ctx, token, 1, Record{Epoch: 2, Digest: "b", Body: []byte("2")}); err != nil {
		t.Error(err)
	}
	if err := c.CompareAndSwapAs(ctx, token, 1, Record{Epoch: 2, Digest: "b", Body: []byte("2")}); !errors.Is(err, ErrConflict) {
		t.Errorf("at a former epoch: %v", err)
	}
	if err := c.Resign(ctx, "one", token); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := c.Lead(ctx, "two", 0, time.Minute); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := c.CompareAndSwapAs(ctx, token, 2, Record{Epoch: 3, Digest: "c", Body: []byte("3")}); !errors.Is(err, ErrDeposed) {
		t.Errorf("when another one drives: %v", err)
	}
}
