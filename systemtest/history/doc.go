// Package history decides whether what clients saw of a row can be true: a linearizability checker for registers whose order of writes is known.
//
// The general question (is there any order of these operations that explains what was seen?) is hard, and a checker that searches for one, as
// porcupine does, takes exponential time where many writes of unknown outcome lie open at once: after faults, that is always. Here the order need
// not be searched for. A row's writes are ordered by the shard, under the lock of the row, and a trigger notes them in that order (the caller
// brings the note: Register). So each operation has a version, and a history is linearizable exactly if no operation contradicts one that had ended
// before it began. That is one pass over begins and ends in the order of time, and it is exact: it finds all that is wrong, and nothing else. (Where
// writes cannot be told apart, as two deletions of one row, each is taken for the earliest that it can be: then something wrong may be missed.)
//
// What can be wrong with an operation is a Kind. Stale is promise P3 broken, Lost and Denied are P4, Invented is P8.
//
// # Imports
//
// Nothing of the module: it must not share the mistakes of what it judges. It has no clock and no socket.
package history
