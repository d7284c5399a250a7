package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"ringside/loadtest/gauge"
)

// Clients that write, each rows of its own, one after the other: one alone, which finds nobody in its way, and so many.
const (
	writeClients = 4
	writeCount   = 150 // of each client and turn
)

// The statement by which ringside writes SET user:ID {"visits":N}, and the plainest one that does the same to a row that is there.
const (
	upsert = `with changed as (update "users" as t set "visits" = given."visits" from json_populate_record(null::"users", $1::json) as given
where t."id" = $2::bigint returning 1), inserted as (insert into "users" ("id", "visits") overriding system value select $2::bigint, given."visits"
from json_populate_record(null::"users", $1::json) as given where not exists (select from changed) on conflict ("id") do nothing returning 1)
select exists (select from changed), exists (select from inserted), null::bigint`
	plainUpdate = `update users set visits = $2 where id = $1`
)

// writes compares the time of a write with that of the same statement sent directly, by as many clients, which take turns.
func writes(ctx context.Context, r *rig) ([]gauge.Figure, error) {
	all, err := r.dial(ctx, writeClients, 0)
	if err != nil {
		return nil, err
	}
	defer all.hangup()
	direct := make([]*pgx.Conn, writeClients)
	for i := range direct {
		if direct[i], err = pgx.Connect(ctx, r.cluster.Shards[0].DSN()); err != nil {
			return nil, err
		}
		defer func() { _ = direct[i].Close(context.WithoutCancel(ctx)) }() // nothing is left to lose
	}
	first, err := r.fresh(writeClients)
	if err != nil {
		return nil, err
	}
	for i, c := range all {
		if _, err := c.Ask("SET", key(first+i), `{"visits":1}`); err != nil {
			return nil, err
		}
	}
	ways := map[string]func(i, n int) error{
		"ringside": func(i, n int) error {
			_, err := all[i].Ask("SET", key(first+i), fmt.Sprintf(`{"visits":%d}`, n))
			return err
		},
		"direct": func(i, n int) error {
			_, err := direct[i].Exec(ctx, upsert, fmt.Sprintf(`{"visits":%d}`, n), first+i)
			return err
		},
		"plain": func(i, n int) error {
			_, err := direct[i].Exec(ctx, plainUpdate, first+i, n)
			return err
		},
	}
	type turn struct {
		way     string
		clients int
	}
	medians := map[turn][]float64{}
	for range r.o.Rounds {
		for _, n := range []int{1, writeClients} {
			for _, way := range []string{"direct", "ringside", "plain"} {
				times := make([][]time.Duration, n)
				_, err := together(n, func(i int) error {
					for k := range r.o.Scaled(writeCount) {
						began := time.Now()
						if err := ways[way](i, k); err != nil {
							return err
						}
						times[i] = append(times[i], time.Since(began))
					}
					return nil
				})
				if err != nil {
					return nil, fmt.Errorf("%s: %w", way, err)
				}
				t := turn{way, n}
				medians[t] = append(medians[t], p50(times))
			}
		}
	}
	if err := r.sameStatement(ctx); err != nil {
		return nil, err
	}
	compare := func(clients int, what string, limit gauge.Limit, with string) gauge.Figure {
		ours, others := medians[turn{"ringside", clients}], medians[turn{with, clients}]
		return gauge.Judge(fmt.Sprintf("p50 of a write, clients: %d; %s", clients, what), limit, gauge.Ratios(ours, others), "%.2f : %.2f ms", gauge.Median(ours), gauge.Median(others))
	}
	const same, plain = "the same statement by pgx", "a plain UPDATE by pgx"
	return []gauge.Figure{
		compare(1, same, gauge.Limit{Most: 1.3}, "direct"),
		compare(1, plain, gauge.Limit{}, "plain"),
		compare(writeClients, same, gauge.Limit{Most: 1.3}, "direct"),
		compare(writeClients, plain, gauge.Limit{}, "plain"),
	}, nil
}

// sameStatement makes sure that both have sent what is one statement to the shard.
func (r *rig) sameStatement(ctx context.Context) error {
	var n int
	err := r.shard.QueryRow(ctx, `select count(distinct queryid) from pg_stat_statements where query like 'with changed as (update%visits%' and calls > 1`).Scan(&n)
	if err == nil && n != 1 {
		err = fmt.Errorf("what ringside writes is another statement than the one it is compared with: the shard has seen %d", n)
	}
	return err
}
