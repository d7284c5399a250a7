package mover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"ringside/shard/keyspace"
)

// Admit looks at a database that is to become a shard: whether it can be reached, is no other shard's, and has the tables of the keyspaces. What it finds can
// change at once, but the mistakes that operators make do not.
func (m *Mover) Admit(ctx context.Context, name, dsn string, keyspaces []*keyspace.Keyspace) error {
	return onShard(ctx, name, func(string) (string, bool) { return dsn, true }, func(ctx context.Context, conn *pgx.Conn) error {
		var version int
		var installed, may bool
		err := conn.QueryRow(ctx, `select current_setting('server_version_num')::int, to_regclass('ringside.view') is not null,
	to_regnamespace('ringside') is not null or has_database_privilege(current_database(), 'create')`).Scan(&version, &installed, &may)
		switch {
		case err != nil:
			return err
		case version < 150000:
			return errors.New("it runs a PostgreSQL before 15")
		case !may:
			return errors.New("the role may not create the schema ringside there: grant create on the database, or create the schema for it")
		}
		if installed {
			var holds string
			err := conn.QueryRow(ctx, `select shard from ringside.view`).Scan(&holds)
			if err == nil && holds != name {
				return fmt.Errorf("it is the database of shard %s", holds)
			}
			if err != nil && !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
		}
		for _, ks := range keyspaces {
			var there bool
			if err := conn.QueryRow(ctx, `select to_regclass($1) is not null`, ks.Table).Scan(&there); err != nil {
				return err
			}
			if !there {
				return fmt.Errorf("it has no table %s (keyspace %s): create it as it is on the other shards (pg_dump --schema-only)", ks.Table, ks.Name)
			}
		}
		return nil
	})
}

// Attach gives a table on one shard what it needs to be moved: see ringside.attach. It rewrites the table the first time; meanwhile nobody else can use it.
func (m *Mover) Attach(ctx context.Context, name, table, shardBy string) error {
	return onShard(ctx, name, m.deps.DSN, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `set statement_timeout = 0`) // ctx bounds it
		if err == nil {
			_, err = conn.Exec(ctx, `select ringside.attach(to_regclass($1), $2)`, table, shardBy)
		}
		switch code(err) {
		case "42883", "3F000":
			return errors.New("it has not been set up for ringside yet: try again in a moment")
		case "55P03":
			return fmt.Errorf("table %s is in use: no moment was found to change it: %w", table, err)
		}
		return err
	})
}

// onShard runs do with a session on a shard.
func onShard(ctx context.Context, name string, dsn func(string) (string, bool), do func(ctx context.Context, conn *pgx.Conn) error) error {
	conn, err := dial(ctx, name, dsn)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx) // nothing is left to lose
	}()
	if err := do(ctx, conn); err != nil {
		return fmt.Errorf("shard %s: %w", name, err)
	}
	return nil
}
