package origin

import (
	"context"
	"errors"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"ringside/shard"
	"ringside/shard/keyspace"
)

// isBadRow reports whether the server refused the values of a write: data exceptions, constraints, a column that is not there or may not
// be written, or a trigger of the application that raised.
func isBadRow(err *pgconn.PgError) bool {
	switch err.Code {
	case codeUndefinedColumn, codeMismatch, codeCannotCoerce, codeGenerated, "44000", "P0001":
		return true
	}
	return strings.HasPrefix(err.Code, "22") || strings.HasPrefix(err.Code, "23")
}

// keyDetail is how PostgreSQL names the column of a unique or foreign key of one column: Key (email)=(...) already exists.
var keyDetail = regexp.MustCompile(`^Key \(("?)([^",()]+)"?\)=`)

// badRow turns such a refusal into the error for the client, and finds out which column is at fault when PostgreSQL did not say. The
// transaction was rolled back.
func (w *write) badRow(ctx context.Context, conn *pgx.Conn, s *statement, pg *pgconn.PgError) error {
	bad := &shard.BadRowError{Column: pg.ColumnName, Reason: pg.Message}
	if w.op.Kind == keyspace.Increment && pg.Code == codeOutOfRange {
		return &shard.BadRowError{Column: w.op.Column, Reason: "increment or decrement would overflow"}
	}
	if bad.Column == "" {
		if m := keyDetail.FindStringSubmatch(pg.Detail); m != nil {
			bad.Column = m[2]
		}
	}
	if bad.Column == "" && pg.ConstraintName != "" {
		bad.Column = constraintColumn(ctx, conn, s.table.quoted, pg.ConstraintName)
	}
	if bad.Column == "" {
		bad.Column = faultyColumn(ctx, conn, s)
	}
	return bad
}

const constraintColumnSQL = `
select a.attname::text from pg_catalog.pg_constraint c
join pg_catalog.pg_attribute a on a.attrelid = c.conrelid and a.attnum = c.conkey[1]
where c.conrelid = pg_catalog.to_regclass($1) and c.conname = $2 and cardinality(c.conkey) = 1`

// constraintColumn returns the only column of a constraint, "" if it has several or that cannot be found out.
func constraintColumn(ctx context.Context, conn *pgx.Conn, table, constraint string) string {
	var name string
	if conn.QueryRow(ctx, constraintColumnSQL, table, constraint).Scan(&name) != nil {
		return ""
	}
	return name
}

// faultyColumn reads the given columns one by one as the statement did, and returns the first that fails, "" if none does.
func faultyColumn(ctx context.Context, conn *pgx.Conn, s *statement) string {
	sql := "select json_populate_record(null::" + s.table.quoted + ", $1::json) is null"
	for _, c := range s.given {
		record, err := recordOf([]keyspace.Column{c})
		if err != nil {
			return c.Name
		}
		var ignored bool
		err = conn.QueryRow(ctx, sql, record).Scan(&ignored)
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && isBadRow(pg) {
			return c.Name
		}
		if err != nil {
			return ""
		}
	}
	return ""
}
