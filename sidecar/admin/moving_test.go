package admin

import (
	"context"
	"errors"
	"testing"
	"time"

	"ringside/sidecar/topology"
)

func TestMoveRows(t *testing.T) {
	rows := moveRows([]MovePart{
		{Move: 3, Part: 1, Vnodes: 100, State: "done", Rows: 10, Copied: 12, Blocked: 7},
		{Move: 3, Part: 2, Vnodes: 100, State: "running", Rows: 10, Copied: 5, Blocked: 9},
		{Move: 3, Part: 3, Vnodes: 200, State: "waiting"},
		{Move: 4, Part: 4, Vnodes: 10, State: "failed", Why: "broken"},
		{Move: 4, Part: 5, Vnodes: 10, State: "done"},
		{Move: 2, Part: 6, Vnodes: 0, State: "done"},
	})
	if len(rows) != 3 || rows[0].ID != 4 || rows[1].ID != 3 || rows[2].ID != 2 {
		t.Fatalf("%+v", rows)
	}
	four, three, two := rows[0], rows[1], rows[2]
	if !three.Open || three.Parts != 3 || three.Vnodes != 400 || three.VnodesDone != 100 || three.Percent() != 36 || three.Copied != 15 || three.Blocked != 9 || len(three.Shown) != 1 {
		t.Errorf("under way: %d %% %+v", three.Percent(), three)
	}
	if four.Open || four.Percent() != 50 || len(four.Shown) != 1 || four.Shown[0].Why != "broken" {
		t.Errorf("failed: %d %% %+v", four.Percent(), four)
	}
	if two.Open || two.Percent() != 0 || len(two.Shown) != 0 {
		t.Errorf("of nothing: %+v", two)
	}
	var many []MovePart
	for i := range int64(partsShown + 5) {
		many = append(many, MovePart{Move: 1, Part: i, State: "running"})
	}
	if r := moveRows(many)[0]; len(r.Shown) != partsShown || r.Hidden != 5 {
		t.Errorf("%d are shown, %d are not", len(r.Shown), r.Hidden)
	}
}

func TestMoving(t *testing.T) {
	quiet := Progress{
		Shards:    []ShardProgress{{Name: "s1", Done: true}},
		Handovers: []HandoverProgress{{From: "c1", Done: true}},
		Servers:   []ServerProgress{{Name: "c1", State: topology.Active, Well: true}},
	}
	if m := newMoving(quiet, nil, nil); !m.Nothing() {
		t.Errorf("nothing is moving: %+v", m)
	}
	before := []MovePart{{Move: 7, State: "done", Vnodes: 5}, {Move: 6, State: "failed"}}
	quiet.Lost = []Loss{{From: "c9"}}
	if m := newMoving(quiet, before, nil); !m.Nothing() || len(m.Ended) != 2 || len(m.Lost) != 1 {
		t.Errorf("what was before is not moving: %+v", m)
	}
	if m := newMoving(quiet, before[1:], nil); m.Nothing() || len(m.Moves) != 1 || len(m.Ended) != 0 {
		t.Errorf("that the last move failed is to be seen: %+v", m)
	}
	busy := quiet
	busy.Changing = true
	busy.Shards = append(busy.Shards, ShardProgress{Name: "s2"})
	busy.Servers = append(busy.Servers, ServerProgress{Name: "c2", State: topology.Active, Well: true, Votes: []string{"a1"}}, ServerProgress{Name: "c3", State: topology.Joining, Well: true})
	m := newMoving(busy, []MovePart{{Move: 1, State: "running"}}, errors.New("too slow"))
	if m.Nothing() || m.Done != 1 || len(m.Shards) != 2 || len(m.Handovers) != 1 || len(m.Servers) != 2 || len(m.Moves) != 1 || m.Fault != "too slow" {
		t.Errorf("%+v", m)
	}
}

// TestPageDoesNotWaitForTheCatalog: at night, when it hangs, the page is what one looks at (promise P6).
func TestPageDoesNotWaitForTheCatalog(t *testing.T) {
	s := newSetup(t, small(t))
	asked := 0
	hang := false
	s.deps.Shards.Moves = func(ctx context.Context) ([]MovePart, error) {
		asked++
		if hang {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return []MovePart{{Move: 9, State: "done"}}, nil
	}
	server := s.server(t)
	for range 5 {
		if parts, err := server.watchedMoves(t.Context()); err != nil || len(parts) != 1 {
			t.Fatalf("%v %v", parts, err)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times at once", asked)
	}
	hang = true
	server.moves.asked = time.Now().Add(-time.Hour)
	for range 5 {
		if parts, err := server.watchedMoves(t.Context()); !errors.Is(err, context.DeadlineExceeded) || len(parts) != 1 {
			t.Fatalf("what was known is lost: %v %v", parts, err)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times although it hangs", asked)
	}
}
