// Package localcluster starts a whole ringside cluster on 127.0.0.1: real redis-servers, one real PostgreSQL server per shard, and sidecars as
// child processes. `ringside demo` and the end-to-end tests are made of it.
//
// Ports, counted from a base: sidecar i answers Redis on base+i, HTTP on base+100+i and gossips on base+200+i; cache server i is on
// base+300+i, shard i on base+400+i, the spare cache server on base+350. The catalog lives in the first shard's database.
//
// Nothing is restarted by itself: a server that was killed stays away until Restart is called or somebody else starts it on its port.
package localcluster
