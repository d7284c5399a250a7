package systemtest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// MGET of rows, missing rows and plain keys keeps the order of its keys.
func TestMgetKeepsOrder(t *testing.T) {
	c := shared(t)
	a1 := dial(t, c.Sidecars[0].Redis)
	var keys, want []string
	for i := range 200 {
		var key, value string
		switch i % 5 {
		case 0, 1:
			key = fmt.Sprintf("user:%d", 3000+i)
			value = query(t, sql(t, c.shard(t, lookup(t, c.Sidecars[0], key).Shard).DSN()), "select row_to_json(u)::text from users u where id = $1", 3000+i)
		case 2:
			key, value = fmt.Sprintf("user:%d", 910000+i), "(nil)"
		case 3:
			key, value = fmt.Sprintf("mget:%d", i), fmt.Sprintf("plain %d", i)
			a1.want(t, "OK", "SET", key, value)
		case 4:
			key, value = fmt.Sprintf("mget:none:%d", i), "(nil)"
		}
		keys, want = append(keys, key), append(want, value)
	}
	for range 2 {
		for _, s := range c.Sidecars {
			v, err := dial(t, s.Redis).ask(append([]string{"MGET"}, keys...))
			if err != nil {
				t.Fatal(err)
			}
			if len(v[0].Elems) != len(keys) {
				t.Fatalf("%d values for %d keys: %s", len(v[0].Elems), len(keys), show(v[0]))
			}
			for i, e := range v[0].Elems {
				if show(e) != want[i] {
					t.Errorf("%s: key %d, %s, is %s, want %s", s.Name, i, keys[i], show(e), want[i])
				}
			}
		}
	}
}

// Guards P8: what is wrong is refused with the right word and the name of what is wrong, changes nothing, and the connection lives on.
func TestWhatIsWrongChangesNothing(t *testing.T) {
	c := shared(t)
	a1 := dial(t, c.Sidecars[0].Redis)
	const key, id = "user:3300", 3300
	conn := sql(t, c.shard(t, lookup(t, c.Sidecars[0], key).Shard).DSN())
	execute(t, conn, "alter table users add constraint at_least_0 check (visits >= 0) not valid")
	defer execute(t, conn, "alter table users drop constraint at_least_0")
	read := func() string {
		return query(t, conn, "select row_to_json(u)::text from users u where id = $1", id)
	}
	before := read()
	for _, x := range []struct {
		command []string
		want    []string // the reply begins with the first and holds the others
	}{
		{[]string{"GET", "user:03300"}, []string{"-BADKEY ", "user:03300", "3300"}},
		{[]string{"GET", "user:+3300"}, []string{"-BADKEY ", "user:+3300"}},
		{[]string{"GET", "user:x"}, []string{"(nil)"}}, // a plain key: no spelling of any row
		{[]string{"SET", "user:03300", `{"visits":1}`}, []string{"-BADKEY "}},
		{[]string{"MGET", key, "user:03300"}, []string{"-BADKEY ", "user:03300"}},
		{[]string{"DEL", "user:03300"}, []string{"-BADKEY "}},
		{[]string{"SET", key, `{"visits":1`}, []string{"-BADROW "}},
		{[]string{"SET", key, `[1]`}, []string{"-BADROW "}},
		{[]string{"SET", key, `{"visits":1}}`}, []string{"-BADROW "}},
		{[]string{"SET", key, `{"nosuch":1}`}, []string{"-BADROW ", "nosuch"}},
		{[]string{"SET", key, `{"name":"changed","nosuch":1}`}, []string{"-BADROW ", "nosuch"}},
		{[]string{"SET", key, `{"name":"changed","visits":"many"}`}, []string{"-BADROW ", "visits"}},
		{[]string{"SET", key, `{"name":"changed","visits":-1}`}, []string{"-BADROW ", "at_least_0"}},
		{[]string{"SET", key, `{"id":3301,"name":"changed"}`}, []string{"-BADROW ", `"id"`, "3300"}},
		{[]string{"SET", key, `{"visits":1,"visits":2}`}, []string{"-BADROW ", "visits"}},
		{[]string{"HSET", key, "nosuch", "1"}, []string{"-BADROW ", "nosuch"}},
		{[]string{"HSET", key, "name", "changed", "visits", "many"}, []string{"-BADROW ", "visits"}},
		{[]string{"HINCRBY", key, "name", "1"}, []string{"-BADROW ", "name"}},
		{[]string{"HINCRBY", key, "visits", "-100000"}, []string{"-BADROW ", "at_least_0"}},
		{[]string{"EXPIRE", key, "5"}, []string{"-ERR ", "row"}},
		{[]string{"SET", key, `{"visits":1}`, "EX", "5"}, []string{"-ERR ", "row"}},
		{[]string{"LPUSH", key, "x"}, []string{"-ERR ", "row"}},
		{[]string{"INCR", key}, []string{"-ERR ", "row"}},
		{[]string{"NOSUCHCOMMAND", key}, []string{"-ERR unknown command"}},
		{[]string{"GET"}, []string{"-ERR wrong number of arguments"}},
	} {
		got := a1.do(t, x.command...)
		for i, part := range x.want {
			if (i == 0 && !strings.HasPrefix(got, part)) || !strings.Contains(got, part) {
				t.Errorf("%q: %s, want %q in it", x.command, got, part)
			}
		}
		t.Logf("%-60s %s", strings.Join(x.command, " "), got)
	}
	if after := read(); after != before {
		t.Errorf("the row was %s and is %s", before, after)
	}
	a1.want(t, before, "GET", key)
	a1.want(t, "PONG", "PING")
}

// A plain key is as on one Redis.
func TestPlainKeysAreAsOnRedis(t *testing.T) {
	c := shared(t)
	a1, a2 := dial(t, c.Sidecars[0].Redis), dial(t, c.Sidecars[1].Redis)
	a1.want(t, "OK", "SET", "plain:1", "x", "EX", "5")
	ttl, err := strconv.Atoi(strings.TrimPrefix(a2.do(t, "PTTL", "plain:1"), ":"))
	if err != nil || ttl <= 3000 || ttl > 5000 {
		t.Errorf("PTTL %d, %v", ttl, err)
	}
	a2.want(t, "OK", "SET", "plain:2", "x", "PX", "50")
	time.Sleep(80 * time.Millisecond)
	a1.want(t, "(nil)", "GET", "plain:2")
	a1.want(t, ":1", "EXPIRE", "plain:1", "100")
	a2.want(t, ":100", "TTL", "plain:1")
	a1.want(t, ":1", "DEL", "plain:1")
	for i := 1; i <= 100; i++ { // over all cache servers
		a1.want(t, ":1", "INCR", fmt.Sprintf("count:%d", i))
		a2.want(t, ":2", "INCR", fmt.Sprintf("count:%d", i))
	}
	a1.want(t, ":2", "RPUSH", "{plain}:list", "a", "b")
	a2.want(t, "[a b]", "LRANGE", "{plain}:list", "0", "-1")
	a2.want(t, "-WRONGTYPE Operation against a key holding the wrong kind of value", "GET", "{plain}:list")
	used := 0
	for _, cache := range c.Caches {
		if n := dial(t, cache.Addr()).do(t, "EXISTS", "count:1", "count:2", "count:3", "count:4", "count:5", "count:6", "count:7", "count:8", "count:9"); n != ":0" {
			used++
		}
	}
	if used < 2 {
		t.Errorf("nine keys are on %d cache servers", used)
	}
}
