package mover

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"ringside/ring"
)

// Verification says whether the shards have what the shard map says, and nothing else.
type Verification struct {
	Epoch  uint64
	Shards []VerifiedShard
	Faults []string // empty: all is well
}

// VerifiedShard is what was found on one shard.
type VerifiedShard struct {
	Name   string
	Vnodes int   // that it owns
	Rows   int64 // of attached tables
	Astray int64 // of them, those of vnodes that it does not own, and that no move under way accounts for
	Moving int   // vnodes that are being moved, from it or to it
}

// Verify compares the shards with the map, within ctx. It reads an index of each attached table as a whole.
func (m *Mover) Verify(ctx context.Context) Verification {
	r := m.deps.Ring()
	v := Verification{Epoch: r.Epoch}
	owners := make([]int, ring.Vnodes) // how many
	moving := make([]bool, ring.Vnodes)
	whole := true
	for i, name := range r.Shards {
		owned, underWay, found, err := m.verifyShard(ctx, name)
		if err != nil {
			v.Faults = append(v.Faults, fmt.Sprintf("not all could be looked at: %v", err))
			whole = false
			continue
		}
		strangers := 0
		for _, n := range underWay {
			moving[n] = true
		}
		for _, n := range owned {
			owners[n]++
			if int(r.Owners[n]) != i && !moving[n] {
				strangers++
			}
		}
		if strangers > 0 {
			v.Faults = append(v.Faults, fmt.Sprintf("shard %s owns %d vnodes that the shard map gives to others", name, strangers))
		}
		if found.Astray > 0 {
			v.Faults = append(v.Faults, fmt.Sprintf("shard %s holds %d rows of vnodes that it does not own", name, found.Astray))
		}
		v.Shards = append(v.Shards, found)
	}
	nobody, several := 0, 0
	for n, count := range owners {
		switch {
		case count > 1:
			several++
		case count == 0 && !moving[n]:
			nobody++
		}
	}
	if several > 0 {
		v.Faults = append(v.Faults, fmt.Sprintf("%d vnodes are owned by more than one shard", several))
	}
	if nobody > 0 && whole {
		v.Faults = append(v.Faults, fmt.Sprintf("%d vnodes are owned by no shard", nobody))
	}
	if !slices.Equal(m.deps.Ring().Owners, r.Owners) && len(v.Faults) > 0 {
		v.Faults = append(v.Faults, "vnodes changed their shard meanwhile: look again")
	}
	return v
}

func (m *Mover) verifyShard(ctx context.Context, name string) (owned, moving []int32, found VerifiedShard, err error) {
	found.Name = name
	err = onShard(ctx, name, m.deps.DSN, func(ctx context.Context, conn *pgx.Conn) error {
		return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `set local statement_timeout = 0`); err != nil { // ctx bounds it
				return err
			}
			err := tx.QueryRow(ctx, `select coalesce(array_agg(vnode) filter (where state in ('owned', 'frozen', 'closed')), '{}'),
	coalesce(array_agg(vnode) filter (where move_id is not null), '{}') from ringside.ownership`).Scan(&owned, &moving)
			if err != nil {
				return err
			}
			tables, err := describe(ctx, conn)
			if err != nil {
				return err
			}
			for i := range tables {
				var rows, astray int64
				err := tx.QueryRow(ctx, `select coalesce(sum(n), 0)::bigint, coalesce(sum(n) filter (where o.vnode is null or o.state not in ('owned', 'frozen', 'closed') and o.move_id is null), 0)::bigint
from (select ringside_vnode, count(*) as n from `+tables[i].Name+` group by 1) t left join ringside.ownership o on o.vnode = t.ringside_vnode`).Scan(&rows, &astray)
				if err != nil {
					return err
				}
				found.Rows, found.Astray = found.Rows+rows, found.Astray+astray
			}
			return nil
		})
	})
	found.Vnodes, found.Moving = len(owned), len(moving)
	return owned, moving, found, err
}
