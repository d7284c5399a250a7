package realpg

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// adminLimit bounds one administrative connection, with all that it does.
const adminLimit = 30 * time.Second

// createApp creates the role ringside and the database app where they are missing; a kept data directory has them.
func (s *Server) createApp(ctx context.Context) error {
	return s.admin(ctx, func(ctx context.Context, c *pgx.Conn) error {
		if err := createMissing(ctx, c, "SELECT FROM pg_roles WHERE rolname = 'ringside'", "CREATE ROLE ringside LOGIN SUPERUSER"); err != nil {
			return err
		}
		return createMissing(ctx, c, "SELECT FROM pg_database WHERE datname = 'app'", "CREATE DATABASE app OWNER ringside")
	})
}

func createMissing(ctx context.Context, c *pgx.Conn, exists, create string) error {
	tag, err := c.Exec(ctx, exists)
	if err != nil || tag.RowsAffected() > 0 {
		return err
	}
	_, err = c.Exec(ctx, create)
	return err
}

// admin runs f on a connection of its own, as the superuser.
func (s *Server) admin(ctx context.Context, f func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, adminLimit)
	defer cancel()
	c, err := pgx.Connect(ctx, s.AdminDSN())
	if err != nil {
		return err
	}
	return errors.Join(f(ctx, c), c.Close(ctx))
}

// Database creates an empty database for one test, owned by ringside, and returns its DSN. It is dropped when the test ends, with
// the sessions and replication slots that are left in it.
func (s *Server) Database(t TB) string {
	t.Helper()
	name := "test_" + strconv.FormatInt(s.databases.Add(1), 10)
	if err := s.admin(context.Background(), func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "CREATE DATABASE "+name+" OWNER ringside")
		return err
	}); err != nil {
		t.Fatalf("create database %s: %v", name, err)
	}
	t.Cleanup(func() {
		if !s.running() {
			return // gone with its server
		}
		if err := s.drop(name); err != nil {
			t.Errorf("drop database %s: %v", name, err)
		}
	})
	return s.dsn("ringside", name)
}

// drop drops a database. A replication slot keeps it alive, and a session a slot, so both go first.
func (s *Server) drop(name string) error {
	return s.admin(context.Background(), func(ctx context.Context, c *pgx.Conn) error {
		for {
			const dropSlots = `SELECT count(CASE WHEN active_pid IS NULL THEN pg_drop_replication_slot(slot_name)::text END),
				count(pg_terminate_backend(active_pid)) FROM pg_replication_slots WHERE database = $1`
			var dropped, held int
			if err := c.QueryRow(ctx, dropSlots, name).Scan(&dropped, &held); err != nil {
				return fmt.Errorf("drop replication slots: %w", err)
			}
			if held == 0 {
				break
			}
			select { // the context of admin bounds the loop
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(askEvery):
			}
		}
		_, err := c.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
		return err
	})
}
