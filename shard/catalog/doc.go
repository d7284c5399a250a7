// Package catalog keeps the topology's truth in a PostgreSQL database: one row, changed only from the epoch that the writer knows to the next.
//
// It promises (its part of P1 and P4): of all who create the topology at once exactly one succeeds and the others get that one's; of
// all who change epoch N exactly one does, and the others are told. So there is one topology per epoch, and no change is
// made by somebody who has not seen the one before it.
//
// Invariants
//
//	I1  ringside.catalog has at most one row (its primary key can only be true), and its epoch only rises, by one.
//	I2  What a row holds goes in and comes out whole, in one statement. Nothing here knows what the bytes mean.
//	I3  No error shows the connection string or a part of it.
//
// The catalog only orders changes. Reading and writing rows does not depend on it, so a call that fails is the caller's to repeat when it
// suits: every call ends within its context's deadline and Timeout, whichever is first, and the connections mend themselves.
// There is no LISTEN: whoever wants news polls, or follows a hint of gossip.
//
// It also keeps the journal of moves of vnodes between shards: what is to be moved, how far it is, and who drives it, by a lease whose token rises with each
// new holder. The token is what the shards check; the lease only keeps two from driving at once.
//
// The database may be a shard as well: the table stands in the schema "ringside" beside the shard's own, and is installed under the same
// advisory lock.
//
// Imports nothing of ringside.
package catalog
