package cdc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"ringside/shard/keyspace"
)

// publication is what a shard publishes under our name. The zero value: nothing.
type publication struct {
	exists    bool
	allTables bool // FOR ALL TABLES: somebody else made it, and it has what we need
	complete  bool // all kinds of changes, of partitioned tables under their own name
	tables    map[uint32]published
}

type published struct {
	columns  []string // ascending; nil: all
	filtered bool     // by a row filter, which hides changes
}

// relation is a table that stands behind keyspaces, as the shard has it now.
type relation struct {
	oid         uint32
	name        tableName
	kind        string   // pg_class.relkind
	persistence string   // pg_class.relpersistence
	identity    string   // pg_class.relreplident
	columns     []string // of the replica identity, ascending
}

func (r relation) quoted() string { return pgx.Identifier{r.name.schema, r.name.name}.Sanitize() }

// published is how the table must be published. A publication that lacks a column of the replica identity would make the application's own
// updates fail, and so would one of a table without identity.
func (r relation) published() published {
	if r.identity == "f" {
		return published{} // a list is not allowed then
	}
	return published{columns: r.columns}
}

// unfit says why the changes of the table cannot be followed for a keyspace, "" if they can.
func (r relation) unfit(ks *keyspace.Keyspace) string {
	switch {
	case r.oid == 0:
		return "the table does not exist"
	case r.kind != "r" && r.kind != "p":
		return "it is not a table but a view, a foreign table or the like"
	case r.persistence != "p":
		return "the table is unlogged or temporary: its changes are not in the log"
	case r.identity == "f":
		return ""
	case len(r.columns) == 0:
		return "the table has no replica identity: give it a primary key, or alter table ... replica identity"
	}
	for _, f := range ks.Fields {
		if !slices.Contains(r.columns, f.Name) {
			return fmt.Sprintf("column %s is not part of the table's replica identity (%s): alter table ... replica identity using index (the unique index of the key), or full",
				f.Name, strings.Join(r.columns, ", "))
		}
	}
	return ""
}

// coverage is which keyspaces can be followed.
type coverage struct {
	byName map[tableName][]*keyspace.Keyspace
	byOID  map[uint32][]*keyspace.Keyspace // the same: a table that is renamed for a moment is still that table
	left   map[string]string               // why not, by the name of the keyspace
}

// of returns the keyspaces on a table of the change stream.
func (c coverage) of(oid uint32, name tableName) []*keyspace.Keyspace {
	if keyspaces := c.byOID[oid]; keyspaces != nil {
		return keyspaces
	}
	return c.byName[name]
}

// wantedTables are the tables to publish.
func wantedTables(keyspaces []*keyspace.Keyspace, relations map[string]relation) []relation {
	byOID := map[uint32]relation{}
	for _, ks := range keyspaces {
		if r := relations[ks.Table]; r.unfit(ks) == "" {
			byOID[r.oid] = r
		}
	}
	return slices.SortedFunc(maps.Values(byOID), func(a, b relation) int {
		return strings.Compare(a.quoted(), b.quoted())
	})
}

// alter returns the statements that make a publication of exactly the wanted tables, and the keyspaces on tables that were not published as they are
// to be: of those, changes may have been missed. Pure.
func (p publication) alter(keyspaces []*keyspace.Keyspace, relations map[string]relation) (statements, touched []string) {
	const options = "publish = 'insert, update, delete, truncate', publish_via_partition_root = true"
	wanted := wantedTables(keyspaces, relations)
	var list []string
	changed := map[uint32]bool{}
	for _, r := range wanted {
		want := r.published()
		text := r.quoted()
		if want.columns != nil {
			var quoted []string
			for _, c := range want.columns {
				quoted = append(quoted, pgx.Identifier{c}.Sanitize())
			}
			text += " (" + strings.Join(quoted, ", ") + ")"
		}
		list = append(list, text)
		have, ok := p.tables[r.oid]
		changed[r.oid] = !p.allTables && (!ok || have.filtered || !slices.Equal(have.columns, want.columns) || (have.columns == nil) != (want.columns == nil)) || !p.complete
	}
	switch {
	case !p.exists:
		statement := "CREATE PUBLICATION " + Publication
		if len(list) > 0 {
			statement += " FOR TABLE " + strings.Join(list, ", ")
		}
		statements = append(statements, statement+" WITH ("+options+")")
	default:
		if !p.complete {
			statements = append(statements, "ALTER PUBLICATION "+Publication+" SET ("+options+")")
		}
		extra := slices.ContainsFunc(slices.Collect(maps.Keys(p.tables)), func(oid uint32) bool {
			_, wanted := changed[oid]
			return !wanted
		})
		differs := slices.Contains(slices.Collect(maps.Values(changed)), true)
		if !p.allTables && len(list) > 0 && (differs || extra) {
			statements = append(statements, "ALTER PUBLICATION "+Publication+" SET TABLE "+strings.Join(list, ", "))
		}
	}
	for _, ks := range keyspaces {
		if r := relations[ks.Table]; r.unfit(ks) == "" && changed[r.oid] {
			touched = append(touched, ks.Name)
		}
	}
	return statements, touched
}

// covers says which keyspaces are followed by what is published. Pure.
func (p publication) covers(keyspaces []*keyspace.Keyspace, relations map[string]relation) coverage {
	c := coverage{byName: map[tableName][]*keyspace.Keyspace{}, byOID: map[uint32][]*keyspace.Keyspace{}, left: map[string]string{}}
	for _, ks := range keyspaces {
		r := relations[ks.Table]
		why := r.unfit(ks)
		if have, ok := p.tables[r.oid]; why == "" && !p.allTables {
			lacks := func(f keyspace.Field) bool { return have.columns != nil && !slices.Contains(have.columns, f.Name) }
			switch {
			case !ok:
				why = "the publication " + Publication + " lacks the table"
			case have.filtered:
				why = "the publication " + Publication + " has a row filter for the table"
			case slices.ContainsFunc(ks.Fields, lacks):
				why = "the publication " + Publication + " lacks a column of the key"
			}
		}
		if why == "" && !p.complete {
			why = "the publication " + Publication + " lacks a kind of change, or publish_via_partition_root"
		}
		if why != "" {
			c.left[ks.Name] = why
			continue
		}
		c.byName[r.name] = append(c.byName[r.name], ks)
		c.byOID[r.oid] = append(c.byOID[r.oid], ks)
	}
	return c
}

const relationSQL = `
select c.oid, n.nspname::text, c.relname::text, c.relkind::text, c.relpersistence::text, c.relreplident::text,
	coalesce((select array_agg(a.attname::text order by a.attname::text collate "C") from pg_catalog.pg_index x
		join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum = any ((x.indkey::int2[])[0:x.indnkeyatts - 1])
		where x.indrelid = c.oid and x.indisvalid and case c.relreplident when 'd' then x.indisprimary when 'i' then x.indisreplident else false end), '{}')
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.oid = pg_catalog.to_regclass($1)`

// relations asks for the tables of the keyspaces, by the name that the keyspaces give them. One that does not exist is the zero relation.
func (s *site) relations(ctx context.Context, keyspaces []*keyspace.Keyspace) (map[string]relation, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	found := map[string]relation{}
	for _, ks := range keyspaces {
		if _, asked := found[ks.Table]; asked {
			continue
		}
		var r relation
		err := s.conn.QueryRow(ctx, relationSQL, pgx.Identifier(strings.Split(ks.Table, ".")).Sanitize()).
			Scan(&r.oid, &r.name.schema, &r.name.name, &r.kind, &r.persistence, &r.identity, &r.columns)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return nil, err
		}
		found[ks.Table] = r
	}
	return found, nil
}

func (s *site) publication(ctx context.Context) (publication, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	p := publication{tables: map[uint32]published{}}
	err := s.conn.QueryRow(ctx, `select puballtables, pubinsert and pubupdate and pubdelete and pubtruncate and pubviaroot
from pg_catalog.pg_publication where pubname = $1`, Publication).Scan(&p.allTables, &p.complete)
	if errors.Is(err, pgx.ErrNoRows) {
		return p, nil
	}
	if err != nil {
		return p, err
	}
	p.exists = true
	rows, err := s.conn.Query(ctx, `select r.prrelid, r.prqual is not null, r.prattrs is null, coalesce((select array_agg(a.attname::text order by a.attname::text collate "C")
		from pg_catalog.pg_attribute a where a.attrelid = r.prrelid and a.attnum = any (r.prattrs::int2[])), '{}')
from pg_catalog.pg_publication_rel r join pg_catalog.pg_publication p on p.oid = r.prpubid where p.pubname = $1`, Publication)
	if err != nil {
		return p, err
	}
	var oid uint32
	var t published
	var all bool
	_, err = pgx.ForEachRow(rows, []any{&oid, &t.filtered, &all, &t.columns}, func() error {
		kept := published{slices.Clone(t.columns), t.filtered}
		if all {
			kept.columns = nil
		}
		p.tables[oid] = kept
		return nil
	})
	return p, err
}

// survey is what a shard publishes and what it should. Two surveys that look the same ask for the same.
type survey struct {
	publication publication
	relations   map[string]relation
}

func (s *site) survey(ctx context.Context, keyspaces []*keyspace.Keyspace) (survey, error) {
	relations, err := s.relations(ctx, keyspaces)
	if err != nil {
		return survey{}, err
	}
	p, err := s.publication(ctx)
	return survey{p, relations}, err
}

func (v survey) fingerprint() string { return fmt.Sprint(v.publication, v.relations) } // maps are printed in order

// publish makes the publication what it should be, if the role may. What was not published before is owed a flush, written down in the same
// transaction; if this shard has never been followed nothing is, because what was cached until now has its TTL as the bound anyway. failed
// is why the publication is not what it should be.
func (s *site) publish(ctx context.Context, keyspaces []*keyspace.Keyspace, followed bool) (v survey, failed error, err error) {
	if v, err = s.survey(ctx, keyspaces); err != nil {
		return v, nil, err
	}
	statements, touched := v.publication.alter(keyspaces, v.relations)
	if len(statements) == 0 {
		return v, nil, nil
	}
	limited, cancel := s.bounded(ctx)
	defer cancel()
	failed = pgx.BeginFunc(limited, s.conn, func(tx pgx.Tx) error {
		if followed && len(touched) > 0 {
			if err := oweFlush(limited, tx, touched, "the tables were not published, or not as they are now"); err != nil {
				return err
			}
		}
		for _, statement := range statements {
			if _, err := tx.Exec(limited, statement); err != nil {
				return err
			}
		}
		return nil
	})
	if failed != nil && !v.publication.exists {
		if code(failed) == codePrivilege {
			return v, nil, &settingError{
				what:   fmt.Sprintf("the role of the dsn may not create the publication: %v", failed),
				advice: "let the owner of the tables run: " + strings.Join(statements, "; "),
			}
		}
		return v, nil, failed
	}
	if failed != nil {
		failed = fmt.Errorf("%s: %w", strings.Join(statements, "; "), failed)
	}
	again, err := s.survey(ctx, keyspaces)
	return again, failed, err
}
