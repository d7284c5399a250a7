package systemtest

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Guards P4: a row is on the shard that the ring names and on no other, and reading it gives that row, byte for byte.
func TestARowIsTheShardsRow(t *testing.T) {
	c := shared(t)
	a1 := dial(t, c.Sidecars[0].Redis)
	onShard := map[string]int{}
	for id := 42; id < 62; id++ {
		key := fmt.Sprintf("user:%d", id)
		l := lookup(t, c.Sidecars[1], key)
		onShard[l.Shard]++
		var want string
		for _, s := range c.Shards {
			conn := sql(t, s.DSN())
			got := query(t, conn, "select row_to_json(u)::text from users u where id = $1", id)
			if s.Name == l.Shard {
				want = got
				if vnode := query(t, conn, "select ringside_vnode::text from users where id = $1", id); vnode != strconv.Itoa(l.ShardVnode) {
					t.Errorf("%s has vnode %s on %s, the ring says %d", key, vnode, s.Name, l.ShardVnode)
				}
			} else if got != "<none>" {
				t.Errorf("%s is on %s too: %s", key, s.Name, got)
			}
		}
		if !strings.HasPrefix(want, fmt.Sprintf(`{"id":%d,"name":"user %d","email":"user%d@example.com","visits":%d,`, id, id, id, id%100)) {
			t.Fatalf("%s on %s is %s", key, l.Shard, want)
		}
		for range 2 { // a miss and a hit
			a1.want(t, want, "GET", key)
		}
	}
	if onShard["s1"] == 0 || onShard["s2"] == 0 {
		t.Errorf("20 rows should be spread over both shards: %v", onShard)
	}
}

// Guards P4 for composite keys: the rows of one tenant are on one shard, while their cached copies spread.
func TestTheRowsOfATenantAreTogether(t *testing.T) {
	c := shared(t)
	a2 := dial(t, c.Sidecars[1].Redis)
	shards := map[string]bool{}
	for _, tenant := range []string{"tenant1", "tenant2", "tenant3", "tenant4", "tenant5", "tenant6"} {
		first := lookup(t, c.Sidecars[0], "order:"+tenant+":1")
		shards[first.Shard] = true
		caches := map[string]bool{}
		for id := 1; id <= 20; id++ {
			key := fmt.Sprintf("order:%s:%d", tenant, id)
			l := lookup(t, c.Sidecars[0], key)
			caches[l.Cache] = true
			if l.Shard != first.Shard || l.ShardKey != tenant || l.ShardVnode != first.ShardVnode {
				t.Fatalf("%s is on %+v, order 1 on %+v", key, l, first)
			}
		}
		if len(caches) < 2 {
			t.Errorf("20 orders of %s are cached on %v only", tenant, caches)
		}
		for _, s := range c.Shards {
			n, want := query(t, sql(t, s.DSN()), "select count(*)::text from orders where tenant = $1", tenant), "0"
			if s.Name == first.Shard {
				want = "100"
			}
			if n != want {
				t.Errorf("%s has %s orders of %s, want %s", s.Name, n, tenant, want)
			}
		}
		want := query(t, sql(t, c.shard(t, first.Shard).DSN()), "select row_to_json(o)::text from orders o where tenant = $1 and id = 7", tenant)
		a2.want(t, want, "GET", "order:"+tenant+":7")
		a2.want(t, want, "GET", "order:"+tenant+":7")
	}
	if len(shards) != 2 {
		t.Errorf("six tenants are all on %v", shards)
	}
}

// A hit touches no shard: the shards' own logs show every statement.
func TestASecondReadTouchesNoShard(t *testing.T) {
	c := shared(t)
	a1, a2 := dial(t, c.Sidecars[0].Redis), dial(t, c.Sidecars[1].Redis)
	keys := make([]string, 30)
	for i := range keys {
		keys[i] = fmt.Sprintf("user:%d", 100+i)
	}
	before := c.loads(t)
	first := map[string]string{}
	for _, k := range keys {
		first[k] = a1.do(t, "GET", k)
		if !strings.HasPrefix(first[k], `{"id":`) {
			t.Fatalf("%s: %s", k, first[k])
		}
	}
	if n := c.loads(t) - before; n != len(keys) {
		t.Errorf("%d cold reads made %d statements", len(keys), n)
	}
	before = c.loads(t)
	for range 3 {
		for _, k := range keys {
			a1.want(t, first[k], "GET", k)
			a2.want(t, first[k], "GET", k)
			a2.want(t, ":1", "EXISTS", k)
			a1.want(t, "user "+k[5:], "HGET", k, "name")
		}
	}
	a1.want(t, ":"+strconv.Itoa(len(keys)), append([]string{"EXISTS"}, keys...)...)
	if n := c.loads(t) - before; n != 0 {
		t.Errorf("hits made %d statements", n)
	}
	ttl, err := strconv.Atoi(strings.TrimPrefix(a2.do(t, "TTL", keys[0]), ":"))
	if err != nil || ttl < 300 || ttl > 600 {
		t.Errorf("TTL of a cached row is %d, %v; its keyspace says 10 minutes, less at most a tenth", ttl, err)
	}
}

// Guards P3: a write through one sidecar is seen at once through the other, and on the shard.
func TestAWriteIsSeenEverywhereAtOnce(t *testing.T) {
	c := shared(t)
	a1, a2 := dial(t, c.Sidecars[0].Redis), dial(t, c.Sidecars[1].Redis)
	for i := range 50 {
		id := 200 + i%5
		key := fmt.Sprintf("user:%d", id)
		conn := sql(t, c.shard(t, lookup(t, c.Sidecars[0], key).Shard).DSN())
		writer, reader := a1, a2
		if i%2 == 1 {
			writer, reader = a2, a1
		}
		reader.do(t, "GET", key) // so that there is something to be stale
		writer.want(t, "OK", "SET", key, fmt.Sprintf(`{"visits":%d}`, 7+i))
		want := query(t, conn, "select row_to_json(u)::text from users u where id = $1", id)
		if !strings.Contains(want, fmt.Sprintf(`"visits":%d,`, 7+i)) {
			t.Fatalf("the shard has %s", want)
		}
		reader.want(t, want, "GET", key)
		writer.want(t, want, "GET", key)
		writer.want(t, ":0", "HSET", key, "email", fmt.Sprintf("%d@here", i))
		reader.want(t, fmt.Sprintf("[user %d %d %d@here]", id, 7+i, i), "HMGET", key, "name", "visits", "email")
	}
}

// Guards P4: additions from many connections through both sidecars are all there.
func TestAdditionsSumExactly(t *testing.T) {
	c := shared(t)
	const key, connections, additions = "user:300", 8, 40
	dial(t, c.Sidecars[0].Redis).want(t, "OK", "SET", key, `{"visits":0}`)
	var group sync.WaitGroup
	for i := range connections {
		w := dial(t, c.Sidecars[i%2].Redis)
		group.Go(func() {
			last := ""
			for range additions {
				v, err := w.ask([]string{"HINCRBY", key, "visits", strconv.Itoa(i + 1)})
				if err != nil {
					t.Error(err)
					return
				}
				if last = show(v[0]); last[0] != ':' {
					t.Errorf("HINCRBY: %s", last)
				}
			}
		})
	}
	group.Wait()
	const sum = additions * connections * (connections + 1) / 2
	conn := sql(t, c.shard(t, lookup(t, c.Sidecars[0], key).Shard).DSN())
	if got := query(t, conn, "select visits::text from users where id = 300"); got != strconv.Itoa(sum) {
		t.Errorf("the shard has %s, want %d", got, sum)
	}
	for _, s := range c.Sidecars {
		dial(t, s.Redis).want(t, strconv.Itoa(sum), "HGET", key, "visits")
	}
}

func TestDelRemovesTheRow(t *testing.T) {
	c := shared(t)
	a1, a2 := dial(t, c.Sidecars[0].Redis), dial(t, c.Sidecars[1].Redis)
	count := func() string {
		sum := 0
		for _, s := range c.Shards {
			n, err := strconv.Atoi(query(t, sql(t, s.DSN()), "select count(*)::text from users where id between 400 and 409"))
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
		return strconv.Itoa(sum)
	}
	for id := 400; id < 410; id++ {
		a2.do(t, "GET", fmt.Sprintf("user:%d", id))
	}
	a1.want(t, ":1", "DEL", "user:400")
	a2.want(t, "(nil)", "GET", "user:400")
	a2.want(t, ":0", "EXISTS", "user:400")
	a2.want(t, "none", "TYPE", "user:400")
	a2.want(t, "[]", "HGETALL", "user:400")
	a1.want(t, ":0", "DEL", "user:400")
	a1.want(t, ":3", "DEL", "user:401", "user:402", "user:400", "user:403")
	a1.want(t, ":1", "UNLINK", "user:404")
	if got := count(); got != "5" {
		t.Errorf("%s of 10 rows are left after 5 were removed", got)
	}
	a1.want(t, "(nil)", "SET", "user:401", `{"name":"again"}`, "XX")
	a1.want(t, "OK", "SET", "user:401", `{"name":"again"}`, "NX")
	a2.want(t, "again", "HGET", "user:401", "name")
	a1.want(t, "(nil)", "SET", "user:401", `{"name":"never"}`, "NX")
	a2.want(t, "again", "HGET", "user:401", "name")
}

// A missing row is remembered too, and a write voids that memory at once.
func TestAMissingRowCostsOneQuery(t *testing.T) {
	c := shared(t)
	a1, a2 := dial(t, c.Sidecars[0].Redis), dial(t, c.Sidecars[1].Redis)
	before := c.loads(t)
	begun := time.Now()
	const missing = 20
	for range 3 {
		for i := range missing {
			a1.want(t, "(nil)", "GET", fmt.Sprintf("user:%d", 900000+i))
			a2.want(t, "(nil)", "GET", fmt.Sprintf("user:%d", 900000+i))
		}
	}
	took := time.Since(begun)
	if n := c.loads(t) - before; n != missing && took < 4*time.Second {
		t.Errorf("%d missing rows read 6 times each in %v made %d statements", missing, took, n)
	}
	for i := range missing {
		key := fmt.Sprintf("user:%d", 900000+i)
		a1.want(t, "(nil)", "GET", key)
		a2.want(t, "OK", "SET", key, fmt.Sprintf(`{"name":"new %d","visits":1}`, i))
		a1.want(t, fmt.Sprintf("new %d", i), "HGET", key, "name")
		a1.want(t, ":1", "DEL", key)
		a2.want(t, "(nil)", "GET", key)
	}
}
