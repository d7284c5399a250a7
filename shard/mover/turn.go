package mover

import (
	"context"
	"time"
)

// turn lets one part at a time be copied and cut over, so that those that have changed their shard can be tidied up meanwhile.
type turn struct{ token chan struct{} }

func newTurn() *turn {
	t := &turn{token: make(chan struct{}, 1)}
	t.token <- struct{}{}
	return t
}

// take waits for the turn for a moment; whoever has it keeps it.
func (t *turn) take(ctx context.Context, p *part) bool {
	if p.hasTurn {
		return true
	}
	timer := time.NewTimer(glance)
	defer timer.Stop()
	select {
	case <-t.token:
		p.hasTurn = true
	case <-timer.C:
	case <-ctx.Done():
	}
	return p.hasTurn
}

// leave gives the turn to another part, if this one has it.
func (t *turn) leave(p *part) {
	if p.hasTurn {
		p.hasTurn = false
		t.token <- struct{}{}
	}
}
