// Package topology says what the cluster looks like: cache servers, shards, who owns which vnode, and under which epoch.
//
// A Topology is immutable. Everything that a request needs from it is worked out before it is published, and it is published through one
// atomic pointer (Holder), so that nobody pairs a new ring with an old map. Placement follows from the live cache servers alone
// (promise P1); the shard map is explicit, because rows take time to move.
//
// Generations. Entries of rows are cached under a name that carries the generation of the row's cache vnode and the flush generation
// of its shard vnode. A generation is the epoch in which the vnode's present owner was appointed, or in which the incarnation of
// that server that may be used now was adopted, whichever is later. So nothing that was cached by an earlier owner, or by
// a server's life before its restart, can be read again (promise P3).
//
// The functions that make one topology from another are pure; who commits the result decides outside. The package
// imports ring and nothing else of ringside, and touches no network. Its only input and output is the file
// that keeps the last topology across restarts.
package topology
