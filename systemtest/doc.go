// Package systemtest runs the real program on real servers and asks what an application and an operator would ask.
//
// It holds tests only. They build cmd/ringside once, with the race detector when they run with it themselves, start clusters of it
// through internal/localcluster, and speak to them over the wire. Nothing of the program is linked in: what is tested is what is shipped.
// make test runs them without the detector, but for TestServersDie.
//
// The tests of one file share one kind of question:
//
//	rows_test.go      a row through the cache equals the row on its shard (P3, P4, P7)
//	commands_test.go  what is refused, and with which words (P8)
//	load_test.go      one load per miss (P5); sessions and queues stay within their bounds (P6)
//	chaos_test.go     servers die under load: no wrong, stale, crossed or lost value (P3, P4, P7), and everything else goes on
//	motion_test.go    the ring in motion: what was cached stays so, nobody waits for long; and plainmotion_test.go, flap_test.go (P2, P3, P5, P7)
//	badpath_test.go   one sidecar of five loses its path to one cache server: nothing moves (P3, P7)
//	proof_test.go     everything fails at once, on a schedule that a seed repeats, and all that clients saw is checked (P3, P4); the checker is in history/
//	failpoint_test.go the product holds nothing of what makes it fail in tests
//	invalidation_test.go  what others change on the shards is seen
//	verify_test.go    a stale copy, planted by hand, is found
//	join_test.go      sidecars come, go and start without the catalog (P1)
//	stop_test.go      a sidecar that is asked to end
//	config_test.go    configurations that cannot work
//	clients_test.go   unchanged clients: redis-cli, redis-benchmark
//	goredis_test.go   unchanged clients: go-redis
//	node_test.go      unchanged clients of Node.js: ioredis, node-redis; their suites are in node/
//
// Tests that leave the cluster as they found it share one; each keeps to its own keys. Tests that kill start their own.
package systemtest
