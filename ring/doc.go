// Package ring says which server owns a key: hash, vnode, placement of cache servers, plan of shards.
//
// The ring is the circle of 2^32 murmur3 values, cut into 65,536 equal arcs, the vnodes. A key is hashed once; its vnode is the top
// 16 bits; a table of 16-bit indexes names the owner. Two fleets use the same ring with two tables of different nature:
//
//   - Cache servers: Place, a pure function of the set of (name, weight). Every sidecar computes it for itself and all of them get
//     the same table.
//   - Shards: PlanShards, which proposes the next table from the present one. Rows take time to move, so that table is an explicit,
//     versioned fact and not computed by whoever looks.
//
// # Promises kept here
//
// P1, same answer everywhere. Place depends only on names, weights, salt and Params: not on the order of the list, not on
// addresses, not on history. It uses integers only, because Go may fuse a multiplication and an addition of floats on one processor and
// not on another, and because math.Log is assembly on some.
//
// P2, least movement. A join, a leave or a changed weight moves the share that has to move and next to nothing between two
// servers that stay. PlanShards moves exactly the number of vnodes by which the receivers fall short of their targets.
//
// # How Place works
//
// Every server has its own keyed permutation of the vnodes (feistel.go), so its 65,536 draws u are spread evenly over (0,1) rather than
// at random; that alone nearly halves the imbalance of independent draws. The cost of a pair is -ln(1-u)/weight (cost.go). A vnode prefers the
// server with the least cost, a server prefers the vnodes that cost it least, and a server takes at most
// ceil(65536 * w/W * (1 + cap)) of them. Deferred acceptance (assign.go) finds the matching in which no vnode and server would both
// rather have each other.
//
// # Invariants
//
//	I1  Both sides rank by the same costs, so there is exactly one such matching: no order of proposals can change it.
//	I2  A server holds at most its cap. The caps add up to at least 65,536, so every vnode has an owner if any weight is above 0.
//	I3  A server of weight 0 owns nothing.
//	I4  Tables hold indexes into the list sorted by name (bytewise), and None where nobody owns a vnode.
//	I5  Tables and names are never changed after they were handed out; they may be read from any goroutine.
//	I6  The salts of the two fleets differ, so the cache owner of a vnode says nothing about its shard: the misses of a cache server that
//	    died spread over all shards in proportion.
//
// # What it does not do
//
// It knows no state, address or epoch (package topology does), opens no socket, starts no goroutine and reads no clock. It
// imports nothing of ringside: everything stands on it. Its only import outside the standard library is murmur3, and only hash.go knows that.
package ring
