#!/bin/sh
# Moves a tenant to another shard while one of its rows is written.
set -eu

demo=${RINGSIDE_DEMO:-$(dirname "$(ls -t "${TMPDIR:-/tmp}"/ringside-*/token | head -n 1)")}
ringside=${RINGSIDE_PROGRAM:-bin/ringside}
sidecar=${RINGSIDE:-127.0.0.1:16001}
admin=${RINGSIDE_ADMIN:-127.0.0.1:16101}
RINGSIDE_TOKEN=$(cat "$demo/token")
export RINGSIDE_TOKEN
order=order:tenant7:1

row() { redis-cli -h "${sidecar%:*}" -p "${sidecar##*:}" "$@"; }
# where FIELD: of the order, as ringside lookup says it.
where() { "$ringside" lookup "$order" --admin "$admin" --json | sed -n "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p"; }

from=$(where shard)
case $from in s1) to=s2 ;; *) to=s1 ;; esac
echo "tenant7 is on $from"

# The writer counts how many of its writes were acknowledged, until it is told to stop.
acknowledged=$(mktemp)
go=$(mktemp)
trap 'rm -f "$acknowledged" "$go"' EXIT
row HSET "$order" cents 0 >/dev/null
(
	n=0
	while [ -e "$go" ]; do
		# A reply that is not a number is an error: TRYAGAIN says that nothing was written.
		case $(row HINCRBY "$order" cents 1) in
		*[!0-9]*) ;;
		*) n=$((n + 1)) ;;
		esac
	done
	echo "$n" >"$acknowledged"
) &
writer=$!

"$ringside" override set tenant7 "$to" --admin "$admin" --wait
rm "$go"
wait "$writer"
echo "tenant7 is on $(where shard)"
echo "acknowledged: $(cat "$acknowledged"), counted: $(row HGET "$order" cents)"
[ "$(where shard)" = "$to" ] && [ "$(cat "$acknowledged")" = "$(row HGET "$order" cents)" ]
