package mover

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"ringside/shard"
)

// scope says which rows a part moves: those of vnodes, but for shard keys that overrides place; or those of one shard key.
type scope struct {
	vnodes  []uint16
	key     string   // empty: vnodes
	without []string // of vnodes: shard keys that do not go with them, wherever their rows are
	known   bool     // without was read
}

// also is what a condition on ringside_vnode needs besides.
func (s *scope) also(t *table) string {
	by := fmt.Sprintf(` and (%s::text collate "C")`, t.ShardBy)
	switch {
	case s.key != "":
		return by + " = " + quoteText(s.key)
	case len(s.without) > 0:
		quoted := make([]string, len(s.without))
		for i, k := range s.without {
			quoted[i] = quoteText(k)
		}
		return by + " not in (" + strings.Join(quoted, ", ") + ")"
	}
	return ""
}

// mine is the condition that a row is one of the part's, on a shard that knows of the part; on another one nothing is.
func (s *scope) mine(t *table, part int64) string {
	if s.key != "" {
		return fmt.Sprintf("ringside_vnode = (select k.vnode from ringside.override k where k.move_id = %d)", part) + s.also(t)
	}
	return fmt.Sprintf("ringside_vnode in (select o.vnode from ringside.owner o where o.move_id = %d)", part) + s.also(t)
}

// apart lists the shard keys of vnodes that a shard knows to be placed by overrides. The owner of a vnode knows them all.
func apart(ctx context.Context, q querier, vnodes []uint16) (keys []string, err error) {
	err = q.QueryRow(ctx, `select coalesce(array_agg(shard_key order by shard_key), '{}') from ringside.override where vnode = any($1)`, numbersOf(vnodes)).Scan(&keys)
	return keys, err
}

// narrow finds out which shard keys do not go with the vnodes. From when the source has enlisted them until the part is gone this does not change.
func (p *part) narrow(ctx context.Context) (err error) {
	if p.spec.Key != "" || p.scope.known {
		return nil
	}
	if p.scope.without, err = apart(ctx, p.from.conn, p.spec.Vnodes); err == nil {
		p.scope.known = true
	}
	return err
}

// alone keeps others from beginning to move keys or vnodes on this shard before the transaction ends: a key's row and its vnode's are looked at together.
func alone(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `lock table ringside.override in share row exclusive mode`)
	return err
}

// expectVnodes makes the vnodes incoming on the destination, where they must be nobody's, and without rows. Their overrides become known there: from
// the owner, who knows all of them.
func (p *part) expectVnodes(ctx context.Context, tx pgx.Tx) error {
	if err := alone(ctx, tx); err != nil {
		return err
	}
	var keys, at []string
	var of []int32
	err := p.from.conn.QueryRow(ctx, `select coalesce(array_agg(shard_key order by shard_key), '{}'), coalesce(array_agg(vnode order by shard_key), '{}'),
	coalesce(array_agg(case state when 'moved' then coalesce(moved_to, '') else $2 end order by shard_key), '{}') from ringside.override where vnode = any($1)`,
		numbersOf(p.spec.Vnodes), p.spec.From).Scan(&keys, &of, &at)
	if err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, `insert into ringside.owner as o (vnode, state, epoch, move_id, token) select n, 'incoming', $3, $1, $4 from unnest($2::int[]) n
on conflict (vnode) do update set state = 'incoming', epoch = $3, move_id = $1, token = $4, moved_to = null where o.state in ('moved', 'cancelled') and o.move_id is null`,
		p.spec.ID, numbersOf(p.spec.Vnodes), int64(p.deps.Ring().Epoch), int64(p.token))
	if err != nil {
		return err
	}
	if n := int(tag.RowsAffected()); n != len(p.spec.Vnodes) {
		return fmt.Errorf("%w: shard %s can take only %d of %d: the others are its own, or in another move", errNotOwned, p.spec.To, n, len(p.spec.Vnodes))
	}
	var busy string
	err = tx.QueryRow(ctx, `select coalesce(min(shard_key), '') from ringside.override where vnode = any($1) and (move_id is not null or state <> 'moved' and shard_key <> all($2))`,
		numbersOf(p.spec.Vnodes), keys).Scan(&busy)
	if err != nil {
		return err
	}
	if busy != "" {
		return fmt.Errorf("%w: shard key %s is in a move of its own on shard %s, or has an override that shard %s does not know of", errNotOwned, shard.QuoteKey(busy), p.spec.To, p.spec.From)
	}
	vnodes := numbersOf(p.spec.Vnodes)
	for _, do := range []struct {
		sql  string
		args []any
	}{
		{`delete from ringside.override where vnode = any($1) and shard_key <> all($2)`, []any{vnodes, keys}},
		{`insert into ringside.override as o (shard_key, vnode, state, moved_to) select k, v, 'moved', m from unnest($1::text[], $2::int[], $3::text[]) x(k, v, m)
on conflict (shard_key) do update set moved_to = excluded.moved_to where o.state = 'moved'`, []any{keys, of, at}},
		{`update ringside.owner o set overrides = not o.overrides where o.vnode = any($1) and o.overrides <> (o.vnode = any($2))`, []any{vnodes, of}},
	} {
		if _, err := tx.Exec(ctx, do.sql, do.args...); err != nil {
			return err
		}
	}
	return p.empty(ctx, tx, scope{vnodes: p.spec.Vnodes, without: keys})
}

// empty checks that the destination holds no rows of the part.
func (p *part) empty(ctx context.Context, tx pgx.Tx, s scope) error {
	for i := range p.tables {
		t := &p.tables[i]
		var rows bool
		err := tx.QueryRow(ctx, fmt.Sprintf(`select exists (select from %s where ringside_vnode = any(%s)%s)`, t.Name, numbers(p.spec.Vnodes), s.also(t))).Scan(&rows)
		if err == nil && rows {
			err = fmt.Errorf("%w: table %s on shard %s holds rows of them already", errNotOwned, t.Name, p.spec.To)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// enlistVnodes puts the vnodes under the part on the source, which must own them. Nothing changes for anybody yet. From now on no key of theirs begins to move.
func (p *part) enlistVnodes(ctx context.Context, tx pgx.Tx) error {
	if err := alone(ctx, tx); err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, `update ringside.owner set move_id = $1, token = $3 where vnode = any($2) and state = 'owned' and move_id is null`,
		p.spec.ID, numbersOf(p.spec.Vnodes), int64(p.token))
	if err != nil {
		return err
	}
	if n := int(tag.RowsAffected()); n != len(p.spec.Vnodes) {
		return fmt.Errorf("%w: shard %s owns only %d of %d", errNotOwned, p.spec.From, n, len(p.spec.Vnodes))
	}
	here, err := apart(ctx, tx, p.spec.Vnodes)
	if err != nil {
		return err
	}
	there, err := apart(ctx, p.to.conn, p.spec.Vnodes)
	if err != nil {
		return err
	}
	var busy bool
	if err := tx.QueryRow(ctx, `select exists (select from ringside.override where vnode = any($1) and move_id is not null)`, numbersOf(p.spec.Vnodes)).Scan(&busy); err != nil {
		return err
	}
	if busy || !slices.Equal(here, there) {
		return fmt.Errorf("%w: shard keys of them are being moved by overrides, or were since this move was begun", errNotOwned)
	}
	return nil
}
