package origin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"ringside/shard/keyspace"
)

// CheckTable reports whether the keyspace's table on that shard can stand behind it: it and its columns exist, the fields of the pattern
// are exactly a primary key or a unique key without NULLs, and the types of those columns give every row exactly one key.
// The error is a *TableError when the table or the configuration must change, anything else when the shard could not be asked.
func (f *Fleet) CheckTable(ctx context.Context, name string, ks *keyspace.Keyspace) error {
	p, err := f.pool(name)
	if err != nil {
		return err
	}
	var fault *TableError
	err = p.run(ctx, internal, f.cfg.LoadTimeout+Grace, func(ctx context.Context, conn *pgx.Conn) error {
		var err error
		fault, err = p.checkTable(ctx, conn, ks)
		return err
	})
	if err == nil && fault != nil {
		return fault
	}
	return err
}

const relationSQL = `select c.relkind::text, has_table_privilege(c.oid, 'select')
from pg_catalog.pg_class c where c.oid = pg_catalog.to_regclass($1)`

// uniqueSQL lists the keys that ON CONFLICT accepts: unique, whole, over plain columns, checked at once.
const uniqueSQL = `select (x.indkey::int2[])[0:x.indnkeyatts - 1] from pg_catalog.pg_index x
where x.indrelid = pg_catalog.to_regclass($1) and x.indisunique and x.indisvalid and x.indimmediate
	and x.indpred is null and x.indexprs is null`

func (p *pool) checkTable(ctx context.Context, conn *pgx.Conn, ks *keyspace.Keyspace) (*TableError, error) {
	fault := func(column, format string, args ...any) (*TableError, error) {
		return &TableError{Shard: p.name, Keyspace: ks.Name, Table: ks.Table, Column: column, Reason: fmt.Sprintf(format, args...)}, nil
	}
	quoted := quoteTable(ks.Table)
	var kind string
	var readable bool
	err := conn.QueryRow(ctx, relationSQL, quoted).Scan(&kind, &readable)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fault("", "the table does not exist")
	case err != nil:
		return nil, err
	case kind != "r" && kind != "p":
		return fault("", "it is not a table but a view, a foreign table or the like, which has no key")
	case !readable:
		return fault("", "the role of the dsn may not select from it")
	}
	t, err := p.table(ctx, conn, ks.Table, true)
	if err != nil {
		return nil, err
	}

	var key []int16
	for _, field := range ks.Fields {
		c, ok := t.columns[field.Name]
		if !ok {
			return fault(field.Name, "the pattern %q names it, but the table has no such column", ks.Pattern)
		}
		if reason := unfit(field, c); reason != "" {
			return fault(field.Name, "%s", reason)
		}
		key = append(key, c.num)
	}
	rows, err := conn.Query(ctx, uniqueSQL, quoted)
	if err != nil {
		return nil, err
	}
	uniques, err := pgx.CollectRows(rows, pgx.RowTo[[]int16])
	if err != nil {
		return nil, err
	}
	slices.Sort(key)
	if !slices.ContainsFunc(uniques, func(u []int16) bool {
		slices.Sort(u)
		return slices.Equal(u, key)
	}) {
		return fault("", "the fields of the pattern %q (%s) are neither its primary key nor exactly the columns of a unique index",
			ks.Pattern, fieldNames(ks))
	}
	if _, ok := t.columns[ks.Value]; ks.Value != keyspace.WholeRow && !ok {
		return fault(ks.Value, "the keyspace's value names it, but the table has no such column")
	}
	return nil, nil
}

// unfit says why a column cannot hold a field of the pattern, "" if it can. Types that compare different texts as equal would give one
// row several keys, each with a cached copy and a shard of its own.
func unfit(field keyspace.Field, c column) string {
	switch {
	case !c.notNull:
		return "it is part of the key and must be NOT NULL"
	case c.generated:
		return "it is part of the key and must not be computed by the database"
	}
	switch field.Type {
	case keyspace.Int:
		if !c.isInteger() {
			return fmt.Sprintf("its type is %s, but the pattern says int (smallint, integer or bigint)", c.shown)
		}
	case keyspace.UUID:
		if c.base != "uuid" {
			return fmt.Sprintf("its type is %s, but the pattern says uuid", c.shown)
		}
	default:
		if c.base != "text" && c.base != "varchar" {
			return fmt.Sprintf("its type is %s, but the pattern says text (text or character varying; "+
				"for integers and uuids write {%s:int} or {%s:uuid})", c.shown, field.Name, field.Name)
		}
		if !c.deterministic {
			return "its collation takes different texts for equal, so that one row would have several keys"
		}
	}
	return ""
}

func fieldNames(ks *keyspace.Keyspace) string {
	names := make([]string, len(ks.Fields))
	for i, f := range ks.Fields {
		names[i] = f.Name
	}
	return strings.Join(names, ", ")
}
