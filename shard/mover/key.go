package mover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"ringside/shard"
)

// readKey reads what a shard says of the key, and keeps others from changing it before the transaction ends.
func (p *part) readKey(ctx context.Context, tx pgx.Tx) (c shard.KeyClaim, err error) {
	if err := alone(ctx, tx); err != nil {
		return c, err
	}
	err = tx.QueryRow(ctx, `select coalesce(o.state, ''), coalesce(o.move_id is not null, false) or coalesce(k.move_id is not null, false), coalesce(k.state, '')
from (values (1)) one left join ringside.owner o on o.vnode = $1 left join ringside.override k on k.shard_key = $2`, int32(p.spec.Vnodes[0]), p.spec.Key).
		Scan(&c.Vnode, &c.Moving, &c.Key)
	return c, err
}

// beginKey puts the shard key under the part on one shard, if it may be: on the destination (step MoveExpect) it becomes incoming, where it must be nobody's and without
// rows; on the source nothing changes for anybody yet.
func (p *part) beginKey(ctx context.Context, tx pgx.Tx, s *side, step shard.MoveStep) error {
	c, err := p.readKey(ctx, tx)
	if err != nil {
		return err
	}
	if why := c.ForKey(step, p.spec.Clear, p.atHome()); why != "" {
		return fmt.Errorf("%w: shard %s: %s", errNotOwned, s.shard, why)
	}
	_, err = tx.Exec(ctx, `insert into ringside.override (shard_key, vnode, state, move_id) values ($1, $2, $3, $4)
on conflict (shard_key) do update set state = $3, move_id = $4, moved_to = null`, p.spec.Key, int32(p.spec.Vnodes[0]), string(c.KeyWith(step, p.atHome())), p.spec.ID)
	if err == nil {
		err = p.markVnode(ctx, tx)
	}
	if err == nil && step == shard.MoveExpect {
		err = p.empty(ctx, tx, p.scope)
	}
	return err
}

// markVnode says that the key's vnode has overrides. It is written also if that is known: transactions whose snapshot is older than the key's row must fail.
func (p *part) markVnode(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `update ringside.owner set overrides = true where vnode = $1`, int32(p.spec.Vnodes[0]))
	return err
}

// settleOwners ends the part's say about its vnodes, or its key.
func (p *part) settleOwners(ctx context.Context, s *side, tx pgx.Tx, step shard.MoveStep) error {
	for _, sql := range p.endings(step) {
		args := []any{s.part, s.peer}
		if _, err := tx.Exec(ctx, sql, args...); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, `delete from ringside.change where part = $1`, s.part); err != nil {
		return err
	}
	if err := s.unpin(ctx, tx); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `select ringside.forward()`); err != nil {
		return err
	}
	// What is remembered of parts that have ended keeps late drivers from beginning anew. Nobody is that late.
	_, err := tx.Exec(ctx, `delete from ringside.part where state = 'gone' and changed_at < now() - interval '30 days'`)
	return err
}

// endings are the statements by which a part leaves what it had to do with, as it is after the step. Their parameters are the part and the other shard.
func (p *part) endings(step shard.MoveStep) []string {
	const needsPeer = ` and $2::text is not null`
	if p.spec.Key == "" {
		return []string{map[shard.MoveStep]string{
			shard.MoveForget:  `update ringside.owner set state = 'owned', move_id = null, moved_to = null where move_id = $1` + needsPeer,
			shard.MoveRestore: `update ringside.owner set move_id = null where move_id = $1` + needsPeer,
			shard.MoveClean:   `update ringside.owner set state = 'moved', moved_to = $2, move_id = null where move_id = $1`,
			shard.MoveWipe:    `update ringside.owner set state = 'cancelled', moved_to = $2, move_id = null where move_id = $1`,
		}[step]}
	}
	const (
		moved   = `update ringside.override set state = 'moved', moved_to = $2, move_id = null where move_id = $1`
		owned   = `update ringside.override set state = 'owned', moved_to = null, move_id = null where move_id = $1` + needsPeer
		byVnode = `with gone as (delete from ringside.override where move_id = $1` + needsPeer + ` and state %s returning shard_key, vnode)
update ringside.owner o set overrides = exists (select from ringside.override k where k.vnode = o.vnode and k.shard_key <> g.shard_key) from gone g where o.vnode = g.vnode`
	)
	switch {
	case step == shard.MoveForget && p.spec.Clear:
		return []string{fmt.Sprintf(byVnode, `is not null`)}
	case step == shard.MoveForget:
		return []string{owned}
	case step == shard.MoveRestore:
		return []string{fmt.Sprintf(byVnode, `= 'vnode'`), owned}
	}
	return []string{moved}
}

// tellOwner lets the shard that owns the key's vnode name the key's new shard to whoever comes there. If it cannot be told, it names the one before, which knows.
func (p *part) tellOwner(ctx context.Context) {
	owner := p.deps.Ring().owner(p.spec.Vnodes[0])
	if p.spec.Key == "" || owner == "" || owner == p.spec.From || owner == p.spec.To {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err := onShard(ctx, owner, p.deps.DSN, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `update ringside.override set moved_to = $2 where shard_key = $1 and state = 'moved' and move_id is null`, p.spec.Key, p.spec.To)
		if err == nil {
			_, err = conn.Exec(ctx, `select ringside.forward()`)
		}
		return err
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		p.log.Warn("the owner of the key's vnode was not told where the key is", "shard", owner, "error", err)
	}
}
