package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const tablesExist = `select to_regclass('ringside.catalog') is not null and exists (
	select from pg_catalog.pg_attribute where attrelid = to_regclass('ringside.move_part') and attname = 'clear' and not attisdropped)`

const createTable = `create table if not exists ringside.catalog (
	one        boolean primary key default true check (one),
	epoch      bigint not null check (epoch > 0),
	digest     text not null,
	topology   bytea not null,
	changed_at timestamptz not null default now()
)`

// installRepeatedly tries again when somebody who takes no lock, such as a migration tool, has created the schema in the same moment.
func (c *Catalog) installRepeatedly(ctx context.Context) error {
	err := c.install(ctx)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == "23505" || pg.Code == "42P06") { // unique violation, duplicate schema
		err = c.install(ctx)
	}
	return err
}

// install makes the tables that are missing. A role that may only read and change it is enough once they are there.
func (c *Catalog) install(ctx context.Context) error {
	var there bool
	if err := c.db.QueryRow(ctx, tablesExist).Scan(&there); err != nil || there {
		return err
	}
	tx, err := c.db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return err
	}
	defer func() {
		// The caller's context may have ended; an open transaction would cost the connection.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = tx.Rollback(ctx) // nothing after a commit
	}()
	// "create ... if not exists" alone is not safe when two do it at once.
	if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock($1, 0)`, int32(lockSchema)); err != nil {
		return err
	}
	var schema bool
	if err := tx.QueryRow(ctx, `select to_regnamespace('ringside') is not null`).Scan(&schema); err != nil {
		return err
	}
	if !schema { // "if not exists" would ask for the right to create even where there is nothing to create
		if _, err := tx.Exec(ctx, `create schema ringside`); err != nil {
			return fmt.Errorf("creating the schema ringside: %w", err)
		}
	}
	if _, err := tx.Exec(ctx, createTable); err != nil {
		return fmt.Errorf("creating the table ringside.catalog: %w", err)
	}
	// A script of many statements goes by the simple protocol. It holds no parameters.
	if _, err := tx.Conn().PgConn().Exec(ctx, createMoves).ReadAll(); err != nil {
		return fmt.Errorf("creating the tables of moves: %w", err)
	}
	return tx.Commit(ctx)
}
