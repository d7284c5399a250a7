package origin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"ringside/shard"
	"ringside/shard/keyspace"
)

// statement is one write as SQL. It returns one row: whether a row was changed or removed, whether one was inserted, and the new value of an
// incremented column.
type statement struct {
	sql   string
	args  []any
	given []keyspace.Column // the columns it stores, for finding the one at fault
	op    keyspace.Op
	table *table
}

func unknownColumn(name string) error {
	return &shard.BadRowError{Column: name, Reason: "the table has no such column"}
}

// newStatement builds the one statement of a write. Values reach it as one JSON object, read by json_populate_record, so that
// every column type works. Columns that the shard computes itself are left out, so that a client may write back
// what it read.
func newStatement(t *table, op keyspace.Op) (*statement, error) {
	if op.Kind == keyspace.Increment {
		return newIncrement(t, op)
	}
	s := &statement{op: op, table: t}
	if op.Kind != keyspace.Delete {
		if err := s.take(op.Columns); err != nil {
			return nil, err
		}
	}
	record, err := recordOf(s.given)
	if err != nil {
		return nil, err
	}
	b := builder{table: t, ks: op.Key.Keyspace, key: op.Key}
	if len(s.given) > 0 {
		b.args = append(b.args, record)
	}
	if err := b.takeKey(); err != nil {
		return nil, err
	}
	switch op.Kind {
	case keyspace.Upsert:
		s.sql = `with changed as (` + b.update(s.given) + `), inserted as (` + b.insert(s.given, "select from changed") + `)
select exists (select from changed), exists (select from inserted), null::bigint`
	case keyspace.Insert:
		// The row is looked for first: an existing one answers before the columns that a new one would need are missed.
		s.sql = `with inserted as (` + b.insert(s.given, "select from "+t.quoted+" t where "+b.match) + `)
select false, exists (select from inserted), null::bigint`
	case keyspace.Update:
		s.sql = `with changed as (` + b.update(s.given) + `) select exists (select from changed), false, null::bigint`
	case keyspace.Delete:
		s.sql = `with removed as (delete from ` + t.quoted + ` as t where ` + b.match + ` returning 1)
select exists (select from removed), false, null::bigint`
	default:
		return nil, fmt.Errorf("unknown kind of write %d", op.Kind)
	}
	s.args = b.args
	return s, nil
}

// newIncrement adds to one integer column. A missing row is inserted with the sum, a NULL counts as 0.
func newIncrement(t *table, op keyspace.Op) (*statement, error) {
	c, ok := t.columns[op.Column]
	switch {
	case !ok:
		return nil, unknownColumn(op.Column)
	case isKeyColumn(op.Key.Keyspace, op.Column):
		return nil, &shard.BadRowError{Column: op.Column, Reason: "is part of the key and cannot change"}
	case c.generated:
		return nil, &shard.BadRowError{Column: op.Column, Reason: "is computed by the database and cannot be written"}
	case !c.isInteger():
		return nil, &shard.BadRowError{Column: op.Column, Reason: "hash value is not an integer"}
	}
	b := builder{table: t, ks: op.Key.Keyspace, key: op.Key, args: []any{op.Delta}}
	if err := b.takeKey(); err != nil {
		return nil, err
	}
	col := quote(op.Column)
	sql := `with changed as (
update ` + t.quoted + ` as t set ` + col + ` = coalesce(t.` + col + `, 0) + $1::bigint where ` + b.match + ` returning t.` + col + `::bigint as value
), inserted as (
insert into ` + t.quoted + ` (` + b.keyNames + `, ` + col + `) overriding system value select ` + b.keyValues + `, $1::bigint
where not exists (select from changed) on conflict (` + b.keyNames + `) do nothing returning ` + col + `::bigint as value
)
select exists (select from changed), exists (select from inserted), coalesce((select value from changed), (select value from inserted))`
	return &statement{sql: sql, args: b.args, op: op, table: t}, nil
}

// take checks the columns given and keeps those that are to be stored.
func (s *statement) take(given []keyspace.Column) error {
	seen := map[string]bool{}
	for _, c := range given {
		known, ok := s.table.columns[c.Name]
		switch {
		case !ok:
			return unknownColumn(c.Name)
		case seen[c.Name]:
			return &shard.BadRowError{Column: c.Name, Reason: "is given twice"}
		case !json.Valid(c.Value):
			return &shard.BadRowError{Column: c.Name, Reason: "its value is not valid JSON"}
		}
		seen[c.Name] = true
		if i := keyField(s.op.Key.Keyspace, c.Name); i >= 0 {
			if want := s.op.Key.Values[i]; !sameKey(c.Value, want, s.op.Key.Keyspace.Fields[i].Type) {
				return &shard.BadRowError{Column: c.Name, Reason: fmt.Sprintf("must be %s, as in the key, or be left out", want)}
			}
			continue
		}
		if known.generated {
			continue
		}
		if c.Text && known.isJSON() {
			if err := unwrap(&c); err != nil {
				return err
			}
		}
		s.given = append(s.given, c)
	}
	return nil
}

// unwrap makes the document out of the text that stands for it.
func unwrap(c *keyspace.Column) error {
	var text string
	if err := json.Unmarshal(c.Value, &text); err != nil {
		return &shard.BadRowError{Column: c.Name, Reason: "its value is not valid JSON"}
	}
	if !json.Valid([]byte(text)) {
		return &shard.BadRowError{Column: c.Name, Reason: "holds JSON, and the text given is none"}
	}
	c.Value = json.RawMessage(text)
	return nil
}

// sameKey reports whether a JSON value says the same as a key's canonical text.
func sameKey(value json.RawMessage, want []byte, t keyspace.Type) bool {
	value = bytes.TrimSpace(value)
	if len(value) == 0 || value[0] != '"' {
		return t == keyspace.Int && bytes.Equal(value, want)
	}
	var text string
	if json.Unmarshal(value, &text) != nil {
		return false
	}
	if t == keyspace.UUID {
		return strings.EqualFold(text, string(want))
	}
	return text == string(want)
}

func keyField(ks *keyspace.Keyspace, column string) int {
	for i, f := range ks.Fields {
		if f.Name == column {
			return i
		}
	}
	return -1
}

func isKeyColumn(ks *keyspace.Keyspace, column string) bool { return keyField(ks, column) >= 0 }

// recordOf makes one JSON object of columns, their values as they were written.
func recordOf(columns []keyspace.Column) ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, c := range columns {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(c.Name)
		if err != nil {
			return nil, &shard.BadRowError{Column: c.Name, Reason: err.Error()}
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(c.Value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// builder puts the parts of a write together. When there are columns, the record is parameter 1.
type builder struct {
	table *table
	ks    *keyspace.Keyspace
	key   keyspace.Key
	args  []any

	match     string // condition on alias t
	keyNames  string // "a", "b"
	keyValues string // $2::bigint, $3::text
}

func (b *builder) takeKey() error {
	first := len(b.args) + 1
	match, args, err := matchKey(b.args, "t", b.ks, b.key)
	if err != nil {
		return err
	}
	b.match, b.args = match, args
	var names, values []string
	for i, f := range b.ks.Fields {
		_, cast, err := keyValue(b.ks, b.key, i)
		if err != nil {
			return err
		}
		names = append(names, quote(f.Name))
		values = append(values, fmt.Sprintf("$%d%s", first+i, cast))
	}
	b.keyNames, b.keyValues = strings.Join(names, ", "), strings.Join(values, ", ")
	return nil
}

// record is the given values as a row of the table.
func (b *builder) record() string {
	return "json_populate_record(null::" + b.table.quoted + ", $1::json) as given"
}

// update changes the given columns of the row; without columns it finds the row.
func (b *builder) update(given []keyspace.Column) string {
	if len(given) == 0 {
		return "select 1 from " + b.table.quoted + " t where " + b.match
	}
	set := make([]string, len(given))
	for i, c := range given {
		set[i] = quote(c.Name) + " = given." + quote(c.Name)
	}
	return "update " + b.table.quoted + " as t set " + strings.Join(set, ", ") +
		" from " + b.record() + " where " + b.match + " returning 1"
}

// insert adds the row unless the query "unless" finds something or somebody else is adding it right now. The latter inserts
// nothing, so that the statement can be repeated with a snapshot that shows the other's row.
func (b *builder) insert(given []keyspace.Column, unless string) string {
	names, values, from := b.keyNames, b.keyValues, ""
	for _, c := range given {
		names += ", " + quote(c.Name)
		values += ", given." + quote(c.Name)
	}
	if len(given) > 0 {
		from = " from " + b.record()
	}
	return "insert into " + b.table.quoted + " (" + names + ") overriding system value select " + values + from +
		" where not exists (" + unless + ") on conflict (" + b.keyNames + ") do nothing returning 1"
}
