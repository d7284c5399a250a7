package mover

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// table is an attached table as one shard describes it. Names are quoted.
type table struct {
	OID     int64    `json:"oid"`
	Name    string   `json:"name"` // with its schema
	Columns []column `json:"columns"`
	Key     []column `json:"key"`
	Rows    int64    `json:"rows"` // as estimated
	Bytes   int64    `json:"bytes"`
	// Triggers are those of others: they must not see what the mover writes.
	Triggers []string `json:"triggers"`
	// Foreign are foreign keys from or to it, each with what speaks against moving the table, if anything does.
	Foreign []foreignKey `json:"foreign"`
	Kind    string       `json:"kind"` // pg_class.relkind
	Secured bool         `json:"secured"`
	May     bool         `json:"may"`      // read, insert and delete
	Mute    bool         `json:"mute"`     // triggers of others can be kept from firing
	ShardBy string       `json:"shard_by"` // the column by which it is divided
}

type column struct {
	Name      string `json:"name"`
	Type      string `json:"type"`
	Generated bool   `json:"generated"`
	NotNull   bool   `json:"not_null"`
}

type foreignKey struct {
	Name     string `json:"name"`
	Other    string `json:"other"`
	Together bool   `json:"together"` // the rows that it joins have one shard key, and both tables are attached
}

const tablesSQL = `
with attached as (
	select c.oid, c.relname, n.nspname, c.relkind, c.reltuples, (
		select d.refobjsubid from pg_catalog.pg_attribute a
		join pg_catalog.pg_attrdef ad on ad.adrelid = a.attrelid and ad.adnum = a.attnum
		join pg_catalog.pg_depend d on d.classid = 'pg_catalog.pg_attrdef'::regclass and d.objid = ad.oid
			and d.refclassid = 'pg_catalog.pg_class'::regclass and d.refobjid = a.attrelid and d.refobjsubid <> a.attnum
		where a.attrelid = c.oid and a.attname = 'ringside_vnode' limit 1) as shard_by
	from pg_catalog.pg_trigger t join pg_catalog.pg_class c on c.oid = t.tgrelid join pg_catalog.pg_namespace n on n.oid = c.relnamespace
	where t.tgname = 'ringside_guard' and t.tgfoid = pg_catalog.to_regprocedure('ringside.guard()') and t.tgparentid = 0
)
select pg_catalog.json_build_object('oid', t.oid::bigint, 'name', pg_catalog.format('%I.%I', t.nspname, t.relname), 'kind', t.relkind::text,
	'rows', greatest(t.reltuples, 0)::bigint, 'bytes', pg_catalog.pg_total_relation_size(t.oid), 'secured', pg_catalog.row_security_active(t.oid),
	'may', pg_catalog.has_table_privilege(t.oid, 'select') and pg_catalog.has_table_privilege(t.oid, 'insert') and pg_catalog.has_table_privilege(t.oid, 'delete'),
	'mute', pg_catalog.has_parameter_privilege('session_replication_role', 'set'),
	'shard_by', (select pg_catalog.quote_ident(a.attname) from pg_catalog.pg_attribute a where a.attrelid = t.oid and a.attnum = t.shard_by),
	'columns', (select json_agg(json_build_object('name', pg_catalog.quote_ident(a.attname), 'type', pg_catalog.format_type(a.atttypid, a.atttypmod),
			'generated', a.attgenerated <> '', 'not_null', a.attnotnull) order by a.attname)
		from pg_catalog.pg_attribute a where a.attrelid = t.oid and a.attnum > 0 and not a.attisdropped),
	'key', (select json_agg(json_build_object('name', pg_catalog.quote_ident(a.attname), 'type', pg_catalog.format_type(a.atttypid, a.atttypmod)) order by k.i)
		from pg_catalog.pg_index x cross join lateral unnest(x.indkey::smallint[]) with ordinality as k(num, i)
		join pg_catalog.pg_attribute a on a.attrelid = x.indrelid and a.attnum = k.num
		where x.indrelid = t.oid and x.indisprimary and k.i <= x.indnkeyatts),
	'triggers', (select json_agg(g.tgname order by g.tgname) from pg_catalog.pg_trigger g where g.tgrelid = t.oid and not g.tgisinternal
		and g.tgenabled in ('O', 'A') and g.tgname not in ('ringside_guard', 'ringside_guard_truncate')),
	'foreign', (select json_agg(json_build_object('name', k.conname, 'other', (case when k.conrelid = t.oid then k.confrelid else k.conrelid end)::regclass::text,
			'together', exists (select from attached f, attached r, unnest(k.conkey, k.confkey) as p(f, r)
				where f.oid = k.conrelid and r.oid = k.confrelid and p.f = f.shard_by and p.r = r.shard_by)) order by k.conname)
		from pg_catalog.pg_constraint k where k.contype = 'f' and t.oid in (k.conrelid, k.confrelid)))
from attached t order by 1::text collate "C"`

// describe lists the attached tables of a shard, by name.
func describe(ctx context.Context, conn *pgx.Conn) ([]table, error) {
	rows, err := conn.Query(ctx, tablesSQL)
	if err != nil {
		return nil, err
	}
	tables, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t table, err error) {
		var text []byte
		if err = row.Scan(&text); err == nil {
			err = json.Unmarshal(text, &t)
		}
		return t, err
	})
	slices.SortFunc(tables, func(a, b table) int { return strings.Compare(a.Name, b.Name) })
	return tables, err
}

// fingerprint changes whenever what sameTables compares of a shard's description does, and costs little.
func fingerprint(ctx context.Context, s *side) (print string, err error) {
	err = s.conn.QueryRow(ctx, `select coalesce(pg_catalog.md5(string_agg(row(c.oid, c.relnamespace, c.relname, t.tgfoid, a.attnum, a.attname, a.atttypid, a.atttypmod, a.attgenerated,
	a.attnotnull, (select x.indkey from pg_catalog.pg_index x where x.indrelid = c.oid and x.indisprimary))::text, ',' order by c.oid, a.attnum)), '')
from pg_catalog.pg_trigger t join pg_catalog.pg_class c on c.oid = t.tgrelid join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
where t.tgname = 'ringside_guard'`).Scan(&print)
	return print, err
}

// sameTables reports how what is moved differs between two descriptions; empty: it does not. What only one shard can know is left out.
func sameTables(a, b []table, of, other string) string {
	for _, t := range a {
		i := slices.IndexFunc(b, func(o table) bool { return o.Name == t.Name })
		if i < 0 {
			return fmt.Sprintf("table %s is attached on shard %s, not on shard %s", t.Name, of, other)
		}
		if !slices.Equal(t.Columns, b[i].Columns) {
			return fmt.Sprintf("table %s has other columns on shard %s than on shard %s: %s", t.Name, other, of, differing(t.Columns, b[i].Columns))
		}
		if !slices.Equal(t.Key, b[i].Key) {
			return fmt.Sprintf("table %s has another primary key on shard %s than on shard %s", t.Name, other, of)
		}
	}
	for _, t := range b {
		if !slices.ContainsFunc(a, func(o table) bool { return o.Name == t.Name }) {
			return fmt.Sprintf("table %s is attached on shard %s, not on shard %s", t.Name, other, of)
		}
	}
	return ""
}

func differing(a, b []column) string {
	var names []string
	for _, pair := range [][2][]column{{a, b}, {b, a}} {
		for _, c := range pair[0] {
			if !slices.Contains(pair[1], c) && !slices.Contains(names, c.Name) {
				names = append(names, c.Name)
			}
		}
	}
	return strings.Join(names, ", ")
}

// columns lists what is copied: all that the database does not compute itself.
func (t *table) columns() string {
	var names []string
	for _, c := range t.Columns {
		if !c.Generated {
			names = append(names, c.Name)
		}
	}
	return strings.Join(names, ", ")
}

func (t *table) key() string {
	names := make([]string, len(t.Key))
	for i, c := range t.Key {
		names[i] = c.Name
	}
	return strings.Join(names, ", ")
}

// keyLiteral is an expression that writes a row's key as SQL: 'a'::text, '1'::bigint.
func (t *table) keyLiteral() string {
	parts := make([]string, len(t.Key))
	for i, c := range t.Key {
		parts[i] = fmt.Sprintf("pg_catalog.format('%%L::%%s', %s, %s)", c.Name, quoteText(c.Type))
	}
	return strings.Join(parts, ` || ', ' || `)
}

// among is the condition that a row is one of those keys, given as a JSON array of arrays, and meets another condition.
func (t *table) among(keys, mine string) string {
	parts := make([]string, len(t.Key))
	for i, c := range t.Key {
		parts[i] = fmt.Sprintf("(k.value ->> %d)::%s", i, c.Type)
	}
	return fmt.Sprintf(`(%s) in (select %s from pg_catalog.jsonb_array_elements(%s::jsonb) k) and %s`, t.key(), strings.Join(parts, ", "), quoteText(keys), mine)
}

// checksum is what two shards must agree on: how many rows, and a sum that does not depend on their order.
func (t *table) checksum() string {
	return fmt.Sprintf(`count(*), coalesce(sum(pg_catalog.hashtextextended(row(%s)::text, 0)), 0)::text`, t.columns())
}

// hashes returns a hash of each row that has one of those keys and meets another condition, by its key.
func (t *table) hashes(ctx context.Context, conn *pgx.Conn, keys []string, mine string) (map[string]int64, error) {
	rows, err := conn.Query(ctx, fmt.Sprintf(`select pg_catalog.jsonb_build_array(%s)::text, pg_catalog.hashtextextended(row(%s)::text, 0) from %s where `, t.key(), t.columns(), t.Name)+
		t.among("["+strings.Join(keys, ",")+"]", mine), pgx.QueryExecModeExec)
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	var key string
	var hash int64
	_, err = pgx.ForEachRow(rows, []any{&key, &hash}, func() error {
		out[key] = hash
		return nil
	})
	return out, err
}

// muted reports whether triggers of others have to be kept from firing.
func (t *table) muted() bool { return len(t.Triggers) > 0 || len(t.Foreign) > 0 }

// quoteText writes a text literal that means the same whatever standard_conforming_strings is.
func quoteText(s string) string {
	quoted := "'" + strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), "'", "''") + "'"
	if strings.Contains(s, `\`) {
		return " E" + quoted
	}
	return quoted
}
