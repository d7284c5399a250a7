package localcluster

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// The schema is named: the role's own name is that of ringside's schema, which comes first in its search path.
const tables = `
create table if not exists public.users (id bigint primary key, name text, email text, visits bigint, updated_at timestamptz);
create table if not exists public.orders (tenant text, id bigint, item text, cents bigint, primary key (tenant, id));`

// ordersPerTenant is how many orders each tenant has.
const ordersPerTenant = 100

// loadUsers and loadOrders insert the rows that the shard owns; $1 is how many there are on all shards together.
const (
	loadUsers = `
insert into public.users
select i, 'user ' || i, 'user' || i || '@example.com', i % 100, timestamptz '2026-01-01 00:00:00+00' + i * interval '1 second'
from generate_series(1, $1::bigint) i
where exists (select from ringside.ownership o where o.vnode = ringside.vnode(i::text) and o.state = 'owned')
on conflict do nothing`
	loadOrders = `
insert into public.orders
select 'tenant' || n, i, 'item ' || i, (n * 7919 + i * 104729) % 100000
from generate_series(1, $1::bigint / $2::bigint) n, generate_series(1, $2::bigint) i
where exists (select from ringside.ownership o where o.vnode = ringside.vnode('tenant' || n) and o.state = 'owned')
on conflict do nothing`
)

// onShards runs f with a connection to every shard at the same time.
func (c *Cluster) onShards(ctx context.Context, f func(ctx context.Context, conn *pgx.Conn) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, s := range c.Shards {
		group.Go(func() error {
			conn, err := pgx.Connect(ctx, s.DSN())
			if err != nil {
				return fmt.Errorf("shard %s: %w", s.Name, err)
			}
			defer func() { _ = conn.Close(ctx) }() // nothing is left to lose
			if err := f(ctx, conn); err != nil {
				return fmt.Errorf("shard %s: %w", s.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

func (c *Cluster) createTables(ctx context.Context) error {
	return c.onShards(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, tables)
		return err
	})
}

// load fills the tables of a new cluster and attaches them. What is there from an earlier start is left as it is.
func (c *Cluster) load(ctx context.Context) error {
	begun := time.Now()
	c.say("loading %d users and %d orders", c.o.Rows, c.o.Rows/5/ordersPerTenant*ordersPerTenant)
	err := c.onShards(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		var loaded bool
		if err := conn.QueryRow(ctx, "select exists (select from public.users) or exists (select from public.orders)").Scan(&loaded); err != nil {
			return err
		}
		if !loaded {
			if _, err := conn.Exec(ctx, loadUsers, c.o.Rows); err != nil {
				return err
			}
			if _, err := conn.Exec(ctx, loadOrders, c.o.Rows/5, ordersPerTenant); err != nil {
				return err
			}
		}
		for _, attach := range []string{"select ringside.attach('public.users', 'id')", "select ringside.attach('public.orders', 'tenant')"} {
			if _, err := conn.Exec(ctx, attach); err != nil {
				return err
			}
		}
		_, err := conn.Exec(ctx, "analyze public.users, public.orders")
		return err
	})
	c.say("loaded in %.1f s", time.Since(begun).Seconds())
	return err
}
