// Package proxy is what the application sees: a Redis server on localhost.
//
// One worker per event loop owns its client connections and its own upstream connections to each cache server, one for each
// protocol version that clients speak. Nothing on a loop blocks: a worker's state is touched on its loop only.
//
//	client --parse--> dispatch --+-- plain key ------> upstream (one write per turn) --> reply, in order
//	                             +-- row, read ------> upstream GET of its entry --hit--> reply, in order
//	                             |                         `--miss--> goroutine: Rows.Read --> back on the loop
//	                             +-- row, write -----> goroutine: Rows.Write --> back on the loop
//	                             `-- about the connection or the ring: answered here
//
// What it promises: replies come in the order of the requests, each to the connection that asked (a request holds its client, and
// both outlive neither's connection); an upstream that timed out is closed and never reused, so no reply can be taken for another's;
// "could not ask" is an error, never nil (P7); one bad command costs one error, only broken framing ends a connection (P8); every queue
// and buffer has a limit (P6). Commands of one connection on one row take effect in their order.
//
// A client that goes beyond that has a session (session.go): a transaction, queued here and sent as one piece; a connection of its own to a
// cache server, for WATCH and for commands that wait; subscriptions, whose messages come by one feed from each server for all clients of
// the loop (topic.go). Whatever goes by another connection than what came before waits until nothing is owed, and what follows waits for it.
//
// What is about all cache servers is a task (task.go), several steps on the loop: SCAN, the sweeps (KEYS, DBSIZE, FLUSHALL: sweep.go), scripts.
// While the ring changes, the cache server that lost vnodes decides who serves their plain keys (handover.go). A worker has a gate then, by which
// each command goes on, waits or is refused (admit.go), and a key that its former owner may still have is settled before its new owner is asked for
// it (settle.go). Each connection that carries plain keys says by which topology, and is of use only when the server is the process that the
// topology names and knows of no newer one (greeting.go); until then a command stays in its client's input (await.go). Rows have rules of their
// own: their shard decides.
//
// The scripts that clients have loaded are the one thing that loops share (scripts.go), behind a lock that is held for a look-up.
//
// It imports resp, ring, shard, keyspace, topology, internal/evloop and, for the format of entries, cache. It must not import membership or what
// speaks to PostgreSQL: misses and writes go through the interfaces in config.go, so that it can be tested without either.
package proxy
