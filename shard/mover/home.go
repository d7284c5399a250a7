package mover

import (
	"context"

	"github.com/jackc/pgx/v5"

	"ringside/shard"
)

// atHome reports whether the part only lets a key's override begin, or end, to name the shard that has it already.
func (p *part) atHome() bool { return p.spec.From == p.spec.To }

func (p *part) nextAtHome(ctx context.Context) (shard.MoveStep, error) {
	row, err := p.from.look(ctx)
	return shard.NextHomeStep(row, p.token, p.cancel.Load() || p.fault != nil, p.published), err
}

func (p *part) actAtHome(ctx context.Context, step shard.MoveStep) error {
	switch step {
	case shard.MoveWait:
		return shard.ErrMoveTaken
	case shard.MoveClaimFrom:
		return p.from.claim(ctx)
	case shard.MoveEnlist:
		return p.from.step(ctx, step, stepTimeout, func(ctx context.Context, tx pgx.Tx) error { return p.beginKey(ctx, tx, p.from, step) })
	case shard.MovePublish:
		return p.publish(ctx)
	case shard.MoveRestore:
		return p.from.step(ctx, step, stepTimeout, func(ctx context.Context, tx pgx.Tx) error { return p.settleOwners(ctx, p.from, tx, shard.MoveForget) })
	}
	return nil
}
