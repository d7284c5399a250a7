#!/bin/sh
# Makes a keyspace of a table that exists already.
set -eu

demo=${RINGSIDE_DEMO:-$(dirname "$(ls -t "${TMPDIR:-/tmp}"/ringside-*/token | head -n 1)")}
ringside=${RINGSIDE_PROGRAM:-bin/ringside}
sidecar=${RINGSIDE:-127.0.0.1:16001}
admin=${RINGSIDE_ADMIN:-127.0.0.1:16101}
RINGSIDE_TOKEN=$(cat "$demo/token")
export RINGSIDE_TOKEN

echo "1. the table, with rows, on every shard"
dsns=$(sed -n 's/.*dsn: "\(postgres:[^"]*\)".*/\1/p' "$demo/a1.yaml" | sort -u)
for dsn in $dsns; do
	psql --quiet --no-psqlrc --set ON_ERROR_STOP=1 "$dsn" <<-'SQL'
		set client_min_messages = warning;
		create table if not exists public.products (id bigint primary key, name text not null, cents bigint);
		insert into public.products select i, 'product ' || i, 100 * i from generate_series(1, 1000) i
		 where exists (select from ringside.ownership o where o.vnode = ringside.vnode(i::text) and o.state = 'owned')
		on conflict do nothing;
	SQL
	psql --no-psqlrc --tuples-only --no-align --command "select '   ' || count(*) || ' rows at ' || inet_server_port() from public.products" "$dsn"
done

echo "2. the keyspace, in the file of each sidecar, which reads it again"
for file in "$demo"/a[0-9]*.yaml; do
	grep -q 'name: product,' "$file" ||
		sed -i.before 's/^keyspaces:$/&\n  - { name: product, pattern: "product:{id:int}", table: products, ttl: 10m }/' "$file"
	"$ringside" check-config "$file" >/dev/null
done
# shellcheck disable=SC2046 # numbers
kill -HUP ${RINGSIDE_PIDS:-$(pgrep -f "serve -c $demo/a[0-9]*.yaml")}

row() { redis-cli -h "${sidecar%:*}" -p "${sidecar##*:}" "$@"; }
for try in 1 2 3 4 5 6 7 8 9 10; do
	[ -n "$(row GET product:7)" ] && break
	sleep "$try"
done
row GET product:7

echo "3. what moves and fences need"
"$ringside" shard attach products --admin "$admin"
row HSET product:7 cents 650
row GET product:7
