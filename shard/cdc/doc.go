// Package cdc tells what rows were changed on the shards by anybody (psql, migrations, other services), from the write-ahead log of each shard:
// logical decoding by pgoutput, one replication slot per shard, from PostgreSQL 15 on.
//
// Every sidecar runs Followers. Of all, one at a time has a shard's slot (START_REPLICATION refuses the others: that is the election); it hands out
// the keys of changed rows, and only deletes are ever made of them, so that a change may be handed out twice and in any order. The others look every
// Config.Look whether the slot is free, and what the follower says about itself in the one row of ringside.cdc.
//
// # Invariants, on which promise P3 rests for changes made by others
//
//	I1  The log is acknowledged up to a commit only after all that was committed before it and can be seen has been handed out successfully. Who takes
//	    over, after whatever crash, begins there.
//	I2  A change is handed out only when its transaction is visible on that primary. A commit is in the log before it is visible; to delete an entry in
//	    between would let a reader fill it with the old row, and nobody would ever delete that.
//	I3  Where changes may have been missed, a Flush is owed. It is written down on the shard before the cause of it goes away, and struck out
//	    after it was done, so it survives whoever was to do it. First the new slot, then the Flush: what changes after the slot is in the slot.
//	I4  Nothing is skipped because it was not understood: a malformed stream is a lost slot.
//
// Changes may have been missed when the slot is gone, or was invalidated, though there was one; when the server is another, on another timeline, or
// its log ends before what had been followed; when a table was not in the publication, for instance because it was replaced by one of the same
// name. Then entries of that table are flushed twice: at once, and when all transactions have ended that may have changed it before it was
// published. For a shard or a table that is followed for the first time nothing is flushed: what was cached until then has its TTL as the bound.
//
// # Bounds (P6)
//
// A transaction is handed out in pieces while it is read, each row once per piece. At most Config.PendingKeys rows of a shard wait, then reading stops,
// and the server with it. Then the log grows: max_slot_wal_keep_size decides when the slot is given up rather than the disk. Beside the pools each
// sidecar has one session on every shard, and the follower a replication connection. A slot is never dropped because nobody follows any more: who
// gives a shard up drops it (SlotName) and the publication. A follower that stops without its machine telling holds the slot for 5 s (senderTimeout).
//
// # Lag
//
// The follower puts a mark into the log every Config.Beat. When it comes by, everything that was visible before it has been handed out; the server's time
// of the mark is written into ringside.cdc. So the lag that the others see is end to end and by one clock (LagSQL). A shard that lags by more than
// Config.LagLimit, or of which that is not known, is degraded; so is one whose follower does not know all keyspaces of this sidecar, as happens
// while a new configuration is rolled out.
//
// Where a shard cannot be followed because of its settings (wal_level, privileges, no free slot) the follower says once what to do, is Off, and asks
// again every Config.OffRetry: the TTL is the bound there. The same holds for a keyspace whose columns are not part of its table's replica identity.
//
// # What it does not see
//
// Definitions: a column that is added with a default, a partition that is detached, dropped or truncated by its own name. Whoever changes such
// things flushes. When a published table gets another replica identity (another primary key, or FULL), PostgreSQL refuses to update it until the
// publication has followed, within Config.Check: whoever does that takes the table out of the publication in the same transaction.
//
// # Imports
//
// Floor 1: shard/keyspace and pgx. It knows no cache, no ring and no topology: what is done about a change is a function that it is given.
package cdc
