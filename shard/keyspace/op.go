package keyspace

import "encoding/json"

// OpKind is what a write does to its row.
type OpKind uint8

// The kinds of write. Each is one atomic statement on the shard.
const (
	Upsert    OpKind = iota // update the given columns, or insert the row with them (SET, HSET)
	Insert                  // insert, only if the row does not exist (SET NX)
	Update                  // update the given columns, only if the row exists (SET XX)
	Delete                  // delete the row (DEL, UNLINK)
	Increment               // add Delta to one integer column, inserting the row if it does not exist (HINCRBY)
)

// Column is one column given by a write. Value is JSON: what json_populate_record makes of it is what is stored; a JSON string is
// read by the column type's own input function, so that "8" is a bigint too.
type Column struct {
	Name  string
	Value json.RawMessage
	// Text says that Value is a JSON string made of a text that stands for the value itself, so that a json column gets the document
	// that the text is, not a string.
	Text bool
}

// Op is one write to one row.
type Op struct {
	Kind    OpKind
	Key     Key
	Columns []Column // for Upsert, Insert, Update; none is allowed
	Column  string   // for Increment
	Delta   int64    // for Increment
}

// Outcome is what a write did.
type Outcome struct {
	Applied  bool  // false: Insert found the row, Update or Delete did not
	Inserted bool  // the row did not exist before and does now
	Value    int64 // Increment: the column's new value
}
