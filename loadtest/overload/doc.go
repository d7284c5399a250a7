// Command overload measures what a cluster of 40 sidecars does to two shards, each with a budget of 40 sessions, and says which of its figures are
// reached. `make bench` runs it.
//
// What limits the shards is not this machine's processors, which the sidecars and the generator of the load need too, but time: each row that is read or written
// takes as long as on a shard that waits for its disks (--row-time). What the shards can do is measured on the same machine, by the same generator and in the same
// round: by clients that always have something waiting, before and after. Then more is offered, whether it is served or not: half of it writes, half misses.
//
// Everything runs on 127.0.0.1 and is stopped, each process by its id, when the program ends. Sidecars are processes of their own, and asked over the wire only.
package main
