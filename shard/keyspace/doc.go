// Package keyspace says which keys are rows, and of which table; and it takes rows apart.
//
// A keyspace is a key pattern such as "order:{tenant}:{id:int}" and what stands behind it. Every key that no table keyspace
// matches is plain.
//
// It keeps these invariants, by which other packages keep promises P3 and P8:
//
//	I1  A row has exactly one key, its canonical one: equal typed values never come from two keys. Another spelling of a
//	    row's key ("user:042") is a *BadKeyError, never a second name of the row and never a plain key.
//	I2  At most one keyspace of a Set claims a key, as a row or as a bad spelling of one. NewSet refuses patterns for which
//	    that would not hold.
//	I3  A key is a row only if its text could be one: whatever client libraries probe with stays plain.
//	I4  What cannot be stored (broken JSON, a column given twice, NUL) is refused here, before a shard is asked, and a value
//	    is passed on as it was written: no number is rounded, no byte replaced.
//
// The package is pure: it imports ring, for the vnodes of a key, and shard, for its errors; it opens no socket and reads no
// clock. Match runs on the event loops for every key of every request, and allocates nothing for a good key.
package keyspace
