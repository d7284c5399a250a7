// Package origin is the sharded PostgreSQL fleet that owns the rows: pools per shard, admission, loads, fenced writes, and the
// word of each shard about its view.
//
// Promises (docs/ARCHITECTURE.md) it keeps:
//
//   - P3: every load and write learns the shard's view in the same statement or transaction, and a poller asks for it more often
//     than every ViewTTL/2. A Confirmation counts from when the shard was asked.
//   - P4: a write passes ringside.fence in its own transaction. A refusal writes nothing. A lost COMMIT is reported as unknown, never as
//     failed.
//   - P6: sessions of all sidecars together never exceed a shard's budget, nor those of one its limit; requests that wait are bounded in number and in time, and what is over
//     the bound, or would wait in vain, is refused before anything is sent.
//   - P7: a shard that could not be asked is a *shard.DownError, never an absent row.
//
// Invariants:
//
//   - A caller's cancelled context ends its waiting in the queue and nothing else. What is sent to a shard runs under the server's
//     own time limit, since a cancelled statement costs the connection just when connections are scarce.
//   - The advisory locks come first, the ownership is read afterwards in a statement of its own: in one statement the snapshot
//     would be older than the lock and still show the former owner.
//   - Only the view poller declares a shard down, and only because it cannot connect, is refused, or finds the database of another
//     shard. Waiting too long in our own queue
//     is saturation and never counts as down.
//
// The package knows nothing of caches, of the ring or of topologies: a view is a number to it and a topology a string of
// bytes. It may import shard and shard/keyspace, and is, with its siblings under shard, the only code that may import pgx.
package origin
