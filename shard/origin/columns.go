package origin

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// table is what a shard says of one table. Immutable.
type table struct {
	asked   time.Time // the shard, for it
	quoted  string    // the name as it stands in a statement
	columns map[string]column
}

// column is one column of a table. A domain counts as its base type.
type column struct {
	num           int16
	base          string // pg_type.typname of the base type
	shown         string // the type as PostgreSQL writes it
	notNull       bool
	generated     bool
	deterministic bool // equal only if the bytes are
}

func (c column) isInteger() bool {
	return c.base == "int2" || c.base == "int4" || c.base == "int8"
}

func (c column) isJSON() bool { return c.base == "json" || c.base == "jsonb" }

// quoteTable quotes a table name as keyspaces give it: name or schema.name, unquoted.
func quoteTable(name string) string { return pgx.Identifier(strings.Split(name, ".")).Sanitize() }

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

const columnsSQL = `
with recursive base as (
	select a.attnum, a.attname, a.attnotnull, a.attgenerated <> '' as generated,
		pg_catalog.format_type(a.atttypid, a.atttypmod) as shown, coalesce(c.collisdeterministic, true) as deterministic,
		t.typname, t.typtype, t.typbasetype
	from pg_catalog.pg_attribute a
	join pg_catalog.pg_type t on t.oid = a.atttypid
	left join pg_catalog.pg_collation c on c.oid = a.attcollation
	where a.attrelid = pg_catalog.to_regclass($1) and a.attnum > 0 and not a.attisdropped
	union all
	select b.attnum, b.attname, b.attnotnull, b.generated, b.shown, b.deterministic, t.typname, t.typtype, t.typbasetype
	from base b join pg_catalog.pg_type t on t.oid = b.typbasetype
	where b.typtype = 'd'
)
select attnum, attname::text, typname::text, shown, attnotnull, generated, deterministic from base where typtype <> 'd'`

// fetchTable asks for a table's columns. Its error for a table that is not there has the SQLSTATE that PostgreSQL would give.
func fetchTable(ctx context.Context, conn *pgx.Conn, name string) (*table, error) {
	t := &table{asked: time.Now(), quoted: quoteTable(name), columns: map[string]column{}}
	rows, err := conn.Query(ctx, columnsSQL, pgx.QueryExecModeExec, t.quoted) // not prepared: it is asked when those are lost, too
	if err != nil {
		return nil, err
	}
	var attname string
	var c column
	_, err = pgx.ForEachRow(rows, []any{&c.num, &attname, &c.base, &c.shown, &c.notNull, &c.generated, &c.deterministic}, func() error {
		t.columns[attname] = c
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(t.columns) == 0 {
		return nil, &pgconn.PgError{Severity: "ERROR", Code: codeUndefinedTable, Message: "table " + t.quoted + " does not exist"}
	}
	return t, nil
}

// tableLife is for how long what is known of a table is relied on. A column that is retyped, or computed by the database from now on or no longer, need not make a
// statement fail.
const tableLife = 5 * time.Second

// table returns what is known of a table, asking the shard the first time and every tableLife. With refresh it asks anyway.
func (p *pool) table(ctx context.Context, conn *pgx.Conn, name string, refresh bool) (*table, error) {
	if !refresh {
		p.tables.Lock()
		t := p.tables.byName[name]
		p.tables.Unlock()
		if t != nil && time.Since(t.asked) < tableLife {
			return t, nil
		}
	}
	t, err := fetchTable(ctx, conn, name)
	if err != nil {
		return nil, err
	}
	p.tables.Lock()
	defer p.tables.Unlock()
	p.tables.byName[name] = t
	return t, nil
}
