package mover

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"ringside/shard"
)

// release is how far a part is with letting the views of its shards change again.
type release struct {
	epoch  uint64    // the source must come to it: its topology has the new map
	began  time.Time // when the source was let go
	come   time.Time // when it was first seen to have come there
	source bool      // the source was let go
	done   bool
}

// sourcePatience is how long a source that cannot be reached keeps the destination's view where it is. While it is down its word expires everywhere, so that the cache is
// used by the former map only where when_shard_unreachable is serve.
const sourcePatience = 30 * time.Second

// letGo is one look at letting go: the source's view first; the destination's when nobody can be using the former map any more, because that was
// longer ago than a view may be relied on.
func (p *part) letGo(ctx context.Context) error {
	p.turn.leave(p)
	r := &p.release
	if !r.source {
		if err := p.drop(ctx, p.from); err != nil {
			return err
		}
		r.source, r.epoch, r.began = true, p.deps.Ring().Epoch, time.Now()
	}
	view, asked := p.deps.View(p.spec.From)
	if r.come.IsZero() && view.Epoch >= r.epoch && asked.After(r.began) {
		r.come = time.Now()
	}
	waited := !r.come.IsZero() && time.Since(r.come) > p.cfg.ViewTTL+p.cfg.ViewTTL/4
	if !waited && !(r.come.IsZero() && time.Since(r.began) > sourcePatience && time.Since(asked) > sourcePatience) {
		return sleep(ctx, glance)
	}
	if err := p.drop(ctx, p.to); err != nil {
		return err
	}
	r.done, p.aged = true, time.Now().Add(p.cfg.Grace)
	return nil
}

func (p *part) drop(ctx context.Context, s *side) error {
	return s.transaction(ctx, stepTimeout, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.leave(ctx, tx, shard.MoveRelease); err != nil {
			return err
		}
		return s.unpin(ctx, tx)
	})
}
