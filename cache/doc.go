// Package cache keeps rows on cache servers without ever serving one that is too old: the coherence protocol of
// docs/ARCHITECTURE.md, for table keyspaces. It knows entries, leases, poison and Redis; it is told where the entry of a row is
// (Ref) and how to load or write the row (callbacks).
//
// # The protocol
//
// One Redis string per row (AppendName), which is a value, an absence, a lease or poison (entry.go). All that happens to it is one
// atomic command or script:
//
//	reader   ask      SET name lease NX GET PX     what is there; a lease of ours if nothing was
//	         fill     lease -> value or absence    only if our lease is still there
//	         release  lease -> nothing             only if our lease is still there
//	         await    lease -> the same, awaited   whoever takes that away tells those who wait for it (listener.go)
//	         claim    value -> the same, claimed   whoever refreshes an entry that is about to expire (refresh.go)
//	         renew    claimed value -> new one     only if our claim is still there
//	         hand     (on the row's former server) gives value or absence to the reader whose lease is on the new one
//	carrier  take     nothing -> lease             for many rows at once
//	         hand     as above
//	         put      lease -> value or absence, or nothing, as fill and release
//	writer   poison   anything -> poison           before the transaction commits; poison of other writers stays beside ours
//	         clean    anything -> nothing          after it committed, before it is acknowledged; poison of other writers stays
//	         lift     poison -> without ours       when nothing was written; nothing, if there is no other writer
//
// While a row changes servers, writers poison and clean its entry on both, and a reader that got the lease on the new one asks the former one
// before it loads (Carry): what is handed is put like a fill, only in place of the lease. What nobody has asked for yet is taken over likewise
// (CarryOver). Before writers leave the former server alone it is closed for that change, by a marker on itself that the script hand looks at:
// however late a reader asks, nothing old comes across.
//
// Poison is a set of writers, each with a time at which it ends by itself. A writer puts and takes away only itself, so however writers
// of one row overlap, nobody can fill its entry from before one of them commits until that one has cleaned or its time is over: a
// writer that dies after its commit makes the row slow, never stale.
//
// # Invariants
//
//	I1  A value is put only in place of the lease, or the value that it claimed, which its loader got before it loaded.
//	I2  From before a write commits until it has ended nobody can get a lease (poison, which only its own writer or its time takes
//	    away), and every lease and value from before its clean is gone when it is acknowledged (clean).
//	I3  Each ask of an entry has a token that no other ask of it has, and only the answered ask's token is ever used to fill. A
//	    command that timed out may still be executed, however late: then it leaves a lease that nobody fills, poison that expires,
//	    or one deletion too many.
//	I4  A server is used only while its process is the one that the configuration names (run_id, checked on every connection): a
//	    server that came back may hold entries from before writes that it never heard of.
//	I5  A value that a flight brought is given only to callers that came before the step as of which it is known to be fresh
//	    (flight.go).
//
// I1 and I2 make a fill that a write overtook impossible; what forgets (eviction, expiry, a flush) is made harmless by clean coming
// last. Nothing here is ever made stale by deleting too much.
//
// # Promises
//
// P3: no stale read after an acknowledged write; here for one name, the caller chooses the names. P5: one load per miss: in one
// process by flights, between processes by the lease. P6: every wait has a bound (Config). P7: a cache server that could not be
// asked is never taken for a missing row: the row is loaded.
//
// What it does not promise. All of it concerns writes that were never acknowledged, or not written through here:
//   - A write whose outcome nobody knows (commit lost, sidecar dead) may become visible only when its poison has expired.
//   - If the server forgets the poison of a writer (evicts it) that then dies between its commit and its clean, a reader may have filled
//     what the writer replaced: the older value stays until its life ends.
//   - What others changed on the shard is deleted when somebody says so (CleanMany), which is after their commit.
//
// # Imports
//
// Floor 1: it imports shard for the errors, go-redis, and nothing of the floors above or beside it. It never sees a topology, a
// connection to PostgreSQL or a client's protocol, so that the protocol can be tested with a shard made of memory.
package cache
