// Package mover carries out moves of vnodes between shards, online: it copies their rows, follows what changes meanwhile, and cuts over in a block of writes
// that is bounded. docs/RESHARDING.md describes the protocol for operators.
//
// A move is written down in the catalog (package catalog), in parts that each go from one shard to another. Every sidecar runs a Mover; the one that holds the
// catalog's lease drives, and any other takes over. What really happened stands on the two shards, in ringside.part; what is done next is decided by
// shard.NextMoveStep from there, and whether a shard lets it by shard.MoveRow.After, in the transaction that holds the part's row.
//
// # Invariants (promises P3 and P4)
//
//	I1  Every change on a shard is made in a transaction that holds the part's row, after MoveRow.After has agreed for this driver's token. A driver that was
//	    thought dead changes nothing.
//	I2  A page of rows and the note of how far copying is are one transaction on the destination. Pages and changes replace what is there, so that each may
//	    come twice, and in any order after the row was changed last.
//	I3  Changes are struck from the source's log by number, and only those that were applied: one with a lower number may still come, from a
//	    transaction that commits late. Those of the block of writes are not struck: thawed, the source has them applied again.
//	I4  The source is frozen and its capture switched on and off under the exclusive lock that every writer holds shared: nobody is inside. It stays
//	    frozen for Config.Block at most, else it is thawed and tried again later.
//	I5  Before the commit all rows were compared on both shards by count and a checksum that does not depend on their order: at leisure while
//	    writes went on, then one by one those that had changed since, and in the block what changed after that or was not found equal.
//	I6  From before the freeze until nobody can be using the former map, both shards keep the view that they had (ringside.view.cutover): readers by
//	    the former map and writers by the new one, or by the source's word, use the same cached copies. The source is let go first. A driver that finds the source serving lets both views go before
//	    anything else: one before it may have died between them, and what waits for the ring must not hold the ring up.
//	I7  Transactions of the mover say so in the write-ahead log (cdc.MoverOrigin), so that nobody takes what they write for changes of rows.
//	I8  No row is in the source's outbox when it is frozen: whoever reads by the new map is not told by the source to keep away from a cached copy.
//	I9  The owner of a vnode has a row in ringside.override for each key of it that an override places, and no other; such keys do not go with the vnode. A key and
//	    its vnode are not in moves at the same time (KeyClaim of package shard).
//
// Connections: of its own, one to each shard for each part under way, two parts at a time; text by COPY straight from one shard to the other, so any type of column
// will do.
package mover
