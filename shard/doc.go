// Package shard is the vocabulary of sharded rows: views and their phases, what a shard last confirmed, and the errors by which
// a shard, its pool or its fence refuses.
//
// It is pure: it imports nothing of ringside and opens no socket. Every package that speaks of a shard may import it.
//
// Fencing, in one paragraph (promise P4). A vnode is owned by at most one shard. The owner says so in its own database, in
// ringside.owner; the view that its rows are governed by stands beside it, in ringside.view. A writer's transaction takes shared
// advisory locks and then reads both; whoever changes either takes the same locks exclusively. A sidecar whose map is old is
// therefore refused by the shard itself, however late it comes.
//
// Moving, likewise (NextMoveStep, MoveRow.After). Vnodes go from one shard to another in parts. What a shard keeps of a part is the state of its vnodes
// there, and changes only by After; a driver decides by NextMoveStep from both. The destination's becoming owned is the only commit. The tests go through every order of
// steps of drivers that die, are replaced and go on, writers, readers and an operator who calls it off. A part may have one shard key instead: KeyClaim decides what may begin, and
// what a shard keeps of the key.
package shard
