#!/bin/sh
# Reads and writes rows through a sidecar with redis-cli.
set -eu

sidecar=${RINGSIDE:-127.0.0.1:16001}

# ring COMMAND...: shows a command and what the sidecar answers. An error ends the script.
ring() {
	printf '> %s\n' "$*"
	redis-cli -e -h "${sidecar%:*}" -p "${sidecar##*:}" "$@"
}

ring GET user:1004
ring SET user:1004 '{"name":"Barbara","visits":41}'
ring HINCRBY user:1004 visits 1
ring HMGET user:1004 name visits
ring TTL user:1004

# Plain keys go to the cache servers.
ring SET session:jkl 1004 EX 60
ring MGET session:jkl user:999999999

# Where a key lives, and why.
ring RING LOOKUP user:1004

# An error says what is wrong.
ring SET user:1004 '{"shoe_size":38}' || :
