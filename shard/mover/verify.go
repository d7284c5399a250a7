package mover

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"ringside/ring"
	"ringside/shard"
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
	Keys   int   // shard keys that it owns by overrides
	Vnodes int   // that it owns
	Rows   int64 // of attached tables
	Astray int64 // of them, those of vnodes that it does not own, and that no move under way accounts for
	Moving int   // vnodes, and shard keys, that are being moved, from it or to it
}

// Verify compares the shards with the map, within ctx. It reads an index of each attached table as a whole.
func (m *Mover) Verify(ctx context.Context) Verification {
	r := m.deps.Ring()
	v := Verification{Epoch: r.Epoch}
	owners := make([]int, ring.Vnodes) // how many
	moving := make([]bool, ring.Vnodes)
	keys := map[string][]verifiedKey{} // by shard
	whole := true
	for i, name := range r.Shards {
		owned, underWay, apart, found, err := m.verifyShard(ctx, name)
		if err != nil {
			v.Faults = append(v.Faults, fmt.Sprintf("not all could be looked at: %v", err))
			whole = false
			continue
		}
		keys[name] = apart
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
			v.Faults = append(v.Faults, fmt.Sprintf("shard %s holds %d rows of vnodes, or shard keys, that it does not own", name, found.Astray))
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
	if whole {
		v.Faults = append(v.Faults, keyFaults(r, keys, moving)...)
	}
	if m.deps.Ring().Epoch != r.Epoch && len(v.Faults) > 0 {
		v.Faults = append(v.Faults, "the map changed meanwhile: look again")
	}
	return v
}

// verifiedKey is what a shard says of one shard key.
type verifiedKey struct {
	Key    string
	Vnode  int32
	State  string
	Moving bool
}

// keyFaults compares what shards say of shard keys with the overrides. What is being moved is left out. Pure.
func keyFaults(r Ring, keys map[string][]verifiedKey, moving []bool) (faults []string) {
	owners, known := map[string][]string{}, map[string]bool{}
	busy := map[string]bool{}
	for name, list := range keys {
		for _, k := range list {
			busy[k.Key] = busy[k.Key] || k.Moving || moving[k.Vnode]
			if k.State == "owned" {
				owners[k.Key] = append(owners[k.Key], name)
			}
			known[k.Key] = known[k.Key] || r.owner(uint16(k.Vnode)) == name
		}
	}
	hasher := ring.NewHasher()
	for _, key := range slices.Sorted(maps.Keys(r.Overrides)) {
		if !busy[key] && !moving[hasher.Vnode([]byte(key))] && (!slices.Equal(owners[key], []string{r.Overrides[key]}) || !known[key]) {
			faults = append(faults, fmt.Sprintf("shard key %s has an override to shard %s; it is owned by %q, and the owner of its vnode knows: %t", shard.QuoteKey(key), r.Overrides[key], owners[key], known[key]))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(owners)) {
		if _, apart := r.Overrides[key]; !apart && !busy[key] {
			faults = append(faults, fmt.Sprintf("shard key %s has no override, and is owned apart from its vnode by %q", shard.QuoteKey(key), owners[key]))
		}
	}
	return faults
}

func (m *Mover) verifyShard(ctx context.Context, name string) (owned, moving []int32, keys []verifiedKey, found VerifiedShard, err error) {
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
			rows, err := tx.Query(ctx, `select shard_key, vnode, state, move_id is not null from ringside.key_ownership order by 1`)
			if err != nil {
				return err
			}
			if keys, err = pgx.CollectRows(rows, pgx.RowToStructByPos[verifiedKey]); err != nil {
				return err
			}
			tables, err := describe(ctx, conn)
			if err != nil {
				return err
			}
			for i := range tables {
				var rows, astray int64
				err := tx.QueryRow(ctx, `select coalesce(sum(n), 0)::bigint, coalesce(sum(n) filter (where
	case when k.shard_key is null then o.vnode is null or o.state not in ('owned', 'frozen', 'closed') and o.move_id is null
	else k.state not in ('owned', 'frozen', 'closed') and k.move_id is null end), 0)::bigint
from (select r.ringside_vnode, x.shard_key, count(*) as n from `+tables[i].Name+` r
	left join ringside.override x on x.vnode = r.ringside_vnode and x.shard_key = (r.`+tables[i].ShardBy+`::text collate "C") group by 1, 2) t
left join ringside.ownership o on o.vnode = t.ringside_vnode left join ringside.key_ownership k on k.shard_key = t.shard_key`).Scan(&rows, &astray)
				if err != nil {
					return err
				}
				found.Rows, found.Astray = found.Rows+rows, found.Astray+astray
			}
			return nil
		})
	})
	found.Vnodes, found.Moving = len(owned), len(moving)
	for _, k := range keys {
		if k.State == "owned" {
			found.Keys++
		}
		if k.Moving {
			found.Moving++
		}
	}
	return owned, moving, keys, found, err
}
