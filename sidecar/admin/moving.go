package admin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"ringside/sidecar/topology"
)

// moveWatch keeps what the catalog said last of moves, for the pages that are looked at: each asks every two seconds, and none is to wait long for a catalog that
// does not answer.
type moveWatch struct {
	mu    sync.Mutex // held by who asks
	asked time.Time
	parts []MovePart
	err   error
}

const (
	movesFresh  = 1500 * time.Millisecond
	movesWithin = 500 * time.Millisecond
	movesAgain  = 5 * time.Second // after it failed
)

// watchedMoves returns the parts of the latest moves, and why they may be old.
func (s *Server) watchedMoves(ctx context.Context) ([]MovePart, error) {
	w := &s.moves
	w.mu.Lock()
	defer w.mu.Unlock()
	fresh := movesFresh
	if w.err != nil {
		fresh = movesAgain
	}
	if !w.asked.IsZero() && time.Since(w.asked) < fresh {
		return w.parts, w.err
	}
	// It is also for others who wait, so that whoever asked first may go.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), movesWithin)
	defer cancel()
	parts, err := s.deps.Shards.Moves(ctx)
	if err == nil {
		w.parts = parts
	}
	w.err, w.asked = err, time.Now()
	return w.parts, w.err
}

// moving is what the page says of what is under way.
type moving struct {
	Shards    []ShardProgress // while the ring changes: how far each has come
	Done      int             // of them
	Handovers []HandoverProgress
	Servers   []ServerProgress // those that are not as they should be
	Lost      []Loss
	Moves     []moveRow // under way, and the latest one if some of it failed
	Ended     []moveRow
	Fault     string // why the moves may be old
}

// Nothing says whether all is quiet, whatever was before.
func (m *moving) Nothing() bool {
	return len(m.Shards) == 0 && len(m.Handovers) == 0 && len(m.Servers) == 0 && len(m.Moves) == 0 && m.Fault == ""
}

// moveRow is one move of vnodes between shards.
type moveRow struct {
	ID           int64
	Open         bool // some of it is still to be done
	Parts        int
	ByState      map[string]int // parts
	Vnodes       int            // in all
	VnodesDone   int
	Rows, Copied int64
	Blocked      float64 // the longest that writes were blocked, in milliseconds
	Shown        []MovePart
	Hidden       int     // parts of interest that are not shown
	done         float64 // vnodes, with those of which some is copied
}

// States counts the parts in words, such as "3 done".
func (r moveRow) States() []string {
	var out []string
	for _, state := range slices.Sorted(maps.Keys(r.ByState)) {
		out = append(out, fmt.Sprintf("%d %s", r.ByState[state], state))
	}
	return out
}

// Percent is how far the move is.
func (r moveRow) Percent() int { return int(100 * r.done / float64(max(1, r.Vnodes))) }

// partsShown bounds how many parts of a move are listed.
const partsShown = 8

func newMoving(p Progress, parts []MovePart, fault error) *moving {
	m := &moving{Lost: p.Lost}
	for i, row := range moveRows(parts) {
		if row.Open || i == 0 && row.ByState["failed"] > 0 {
			m.Moves = append(m.Moves, row)
		} else {
			m.Ended = append(m.Ended, row)
		}
	}
	if fault != nil {
		m.Fault = fault.Error()
	}
	for _, h := range p.Handovers {
		if !h.Done || h.Fault != "" || p.Changing {
			m.Handovers = append(m.Handovers, h)
		}
	}
	for _, s := range p.Servers {
		if len(s.Votes) > 0 || !s.Well || s.State != topology.Active {
			m.Servers = append(m.Servers, s)
		}
	}
	if p.Changing {
		m.Shards = p.Shards
		for _, s := range p.Shards {
			if s.Done {
				m.Done++
			}
		}
	}
	return m
}

// moveRows sums up the parts of each move, the latest move first.
func moveRows(parts []MovePart) []moveRow {
	var rows []moveRow
	for _, p := range parts {
		i := slices.IndexFunc(rows, func(r moveRow) bool { return r.ID == p.Move })
		if i < 0 {
			i = len(rows)
			rows = append(rows, moveRow{ID: p.Move, ByState: map[string]int{}})
		}
		r := &rows[i]
		r.Parts++
		r.ByState[p.State]++
		r.Vnodes += p.Vnodes
		r.Rows += p.Rows
		r.Copied += min(p.Copied, p.Rows)
		r.Blocked = max(r.Blocked, p.Blocked)
		switch p.State {
		case "done":
			r.VnodesDone += p.Vnodes
			r.done += float64(p.Vnodes)
		case "running":
			r.Open = true
			if p.Rows > 0 {
				r.done += 0.95 * min(1, float64(p.Copied)/float64(p.Rows)) * float64(p.Vnodes) // the rest is the cut-over
			}
		case "waiting":
			r.Open = true
		}
		if p.State == "running" || p.State == "failed" || p.State == "waiting" && p.Why != "" {
			if len(r.Shown) < partsShown {
				r.Shown = append(r.Shown, p)
			} else {
				r.Hidden++
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b moveRow) int { return int(b.ID - a.ID) })
	return rows
}
