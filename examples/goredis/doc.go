// Goredis reads and writes rows through a sidecar with go-redis, as any application written in Go would.
package main
