package keyspace

import "time"

// Type is the type of a field in a pattern; it fixes the one canonical text of a value.
type Type uint8

// The types of a field. Text is the default.
const (
	Text Type = iota // any valid UTF-8 without NUL, at least one byte
	Int              // a 64-bit integer: no sign but a minus, no leading zero, not "-0"
	UUID             // 8-4-4-4-12 hexadecimal digits, lower case
)

// Field is one {name:type} of a pattern. Its name is a column of the table.
type Field struct {
	Name string
	Type Type
}

// Keyspace is one table keyspace, compiled from its configuration. Immutable.
type Keyspace struct {
	Name        string        // as configured
	Pattern     string        // as configured
	Table       string        // table name, optionally schema.table
	Value       string        // "row", or the one column that GET and SET speak of
	ShardBy     string        // name of the field whose text is the shard key
	TTL         time.Duration // life of a cached row
	NegativeTTL time.Duration // life of a cached absence; 0: absences are not cached
	Fields      []Field       // in the order of the pattern; together they are the table's key

	literals []string // what stands before each field; one more for what follows the last
	shardBy  int      // index into Fields
}

// Key is one key of a table keyspace, taken apart. Its slices alias the bytes that were matched; Clone detaches it.
type Key struct {
	Keyspace *Keyspace
	Text     []byte   // the whole key, canonical
	Values   [][]byte // canonical text of each field, as in Keyspace.Fields
	ShardKey []byte   // canonical text of the shard_by field

	CacheVnode uint16 // vnode of the cache key (the {tag}, else the whole key)
	ShardVnode uint16 // vnode of the shard key
}
