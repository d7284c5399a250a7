// Package ringside is the root of the module. It holds no code, only this map of the packages and the tests that keep it true.
//
// Ringside is a sidecar: it runs beside each application pod, speaks the Redis protocol to the application, and stands between it
// and two fleets on one ring, Redis servers that cache and PostgreSQL shards that own the data. docs/ARCHITECTURE.md says how.
//
// The packages stand on floors, and imports lead only downward:
//
//	4  cmd/ringside      the program: flags and files are read only here, one file per subcommand
//	   loadtest          load over the wire, checked and reported; it could test another build
//	   examples          programs to read and run
//	3  sidecar           composition: it starts and stops everything below, and only programs import it
//	2  sidecar/proxy     client connections, upstreams, dispatch, the one table of errors
//	   sidecar/handover  plain keys carried from a former owner to the new one
//	   sidecar/admin     HTTP: the ring page, JSON, metrics, changes
//	   shard/mover       moves of rows between shards while they are used
//	1  sidecar/topology  the immutable topology and the one pointer that publishes it
//	   sidecar/config    the configuration file: every fault with its line, secrets kept out of sight
//	   cache             the coherence protocol over Redis
//	   membership        gossip, votes, hints
//	   shard/catalog     the truth about the topology, in PostgreSQL
//	   shard/origin      the shards: pools, admission, rows, fence
//	   shard/cdc         changes read from the write-ahead log
//	0  ring              hash, vnodes, placement of cache servers, plan for shards
//	   resp              the Redis protocol and its command table, without sockets
//	   shard             epochs, phases, the errors by which a shard refuses
//	   shard/keyspace    which keys are rows, and of which table
//	   internal/evloop   sockets, timers and tasks of one event loop; it knows no Redis
//	   internal/failpoint  named points at which tests let a program fail; nothing in the product
//	   internal/heat       what is used most, from samples, in bounded memory
//
// Packages of floor 1 do one thing each and never import each other: what they must agree on is a type of floor 0, and who needs
// two of them is on a higher floor and declares the interface that it wants. The packages of floor 0, but for the event loop, are
// pure: values in, values out, no socket, no clock, no file.
//
// Beside the floors, internal/realredis and internal/realpg run real servers for tests and for the demo, and internal/realbrowser a browser, on top of
// internal/childproc; internal/localcluster runs a whole cluster, internal/twemproxy what it is compared with. No package that serves imports them.
//
// layering_test.go has the same in a table, with the reason for each rule, and fails where an import breaks it or where a package
// is missing from it.
package ringside
