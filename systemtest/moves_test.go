package systemtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"ringside/internal/localcluster"
	"ringside/internal/realpg"
)

// increments raises counters of rows through all sidecars, and reads them back through others, until end.
type increments struct {
	c       *cluster
	from    int // counters are the visits of users from+1 to from+len(acked)
	before  int64
	acked   []atomic.Int64
	unknown atomic.Int64 // sent to a sidecar that was killed, or to a shard that did not answer in time
	tried   atomic.Int64 // refused with TRYAGAIN, or because the machine was overworked
	m       *machine
	stop    chan struct{}
	group   sync.WaitGroup

	mu      sync.Mutex
	wrong   []string
	slowest time.Duration
}

func increment(t *testing.T, c *cluster, from, n int) *increments {
	x := &increments{c: c, from: from, acked: make([]atomic.Int64, n), stop: make(chan struct{})}
	x.before, _ = x.sum(t)
	x.m = watchMachine(t)
	for _, s := range c.Sidecars {
		x.m.watch(s.PID())
	}
	for i := range 8 {
		x.group.Go(func() { x.run(i) })
	}
	t.Cleanup(x.end)
	return x
}

func (x *increments) run(i int) {
	var w [2]*wire // to write by, and to read by
	defer func() {
		for _, c := range w {
			if c != nil {
				c.close()
			}
		}
	}()
	for {
		select {
		case <-x.stop:
			return
		case <-time.After(time.Duration(rand.IntN(24_000)) * time.Microsecond): // so that the machine has time for what moves
		}
		for j := range w {
			if w[j] == nil {
				w[j], _ = open(x.c.Sidecars[(i+j)%len(x.c.Sidecars)].Redis) // it may be down: again in a moment
			}
		}
		if w[0] == nil || w[1] == nil {
			continue
		}
		at := rand.IntN(len(x.acked))
		key := "user:" + strconv.Itoa(x.from+1+at)
		begun := time.Now()
		v, err := w[0].ask([]string{"HINCRBY", key, "visits", "1"})
		switch {
		case err != nil:
			x.unknown.Add(1)
			w[0].close()
			w[0] = nil
			continue
		case strings.HasPrefix(show(v[0]), "-") && strings.Contains(show(v[0]), "may have been made") && x.m.overworked(begun, time.Now()):
			x.unknown.Add(1)
			continue
		case strings.HasPrefix(show(v[0]), "-TRYAGAIN"), strings.HasPrefix(show(v[0]), "-") && x.m.overworked(begun, time.Now()):
			x.tried.Add(1)
			continue
		case strings.HasPrefix(show(v[0]), "-"):
			x.fault("HINCRBY %s: %s", key, show(v[0]))
			continue
		}
		x.took(time.Since(begun))
		least := x.acked[at].Add(1)
		if v, err = w[1].ask([]string{"HGET", key, "visits"}); err != nil {
			w[1].close()
			w[1] = nil
			continue
		}
		// Each counter begins at id mod 100.
		got, err := strconv.ParseInt(show(v[0]), 10, 64)
		if strings.HasPrefix(show(v[0]), "-") && x.m.overworked(begun, time.Now()) {
			continue
		}
		if begunAt := int64((x.from + 1 + at) % 100); !strings.HasPrefix(show(v[0]), "-TRYAGAIN") && (err != nil || got < begunAt+least) {
			x.fault("stale: %s is %s after %d were acknowledged", key, show(v[0]), least)
		}
	}
}

func (x *increments) fault(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.wrong) < 20 {
		x.wrong = append(x.wrong, fmt.Sprintf(format, args...))
	}
}

func (x *increments) took(d time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.slowest = max(x.slowest, d)
}

func (x *increments) end() {
	select {
	case <-x.stop:
	default:
		close(x.stop)
	}
	x.group.Wait()
}

// sum is what the shards hold of the counters, and in how many rows.
func (x *increments) sum(t *testing.T) (sum, n int64) {
	t.Helper()
	for _, s := range x.c.Shards {
		conn, err := pgx.Connect(t.Context(), s.DSN())
		if err != nil {
			t.Fatal(err)
		}
		var a, b int64
		err = conn.QueryRow(t.Context(), `select coalesce(sum(visits), 0)::bigint, count(*) from users where id between $1 and $2`, x.from+1, x.from+len(x.acked)).Scan(&a, &b)
		_ = conn.Close(context.WithoutCancel(t.Context())) // only read
		if err != nil {
			t.Fatal(err)
		}
		sum, n = sum+a, n+b
	}
	return sum, n
}

// check compares the shards with what was acknowledged.
func (x *increments) check(t *testing.T) {
	t.Helper()
	x.end()
	var acked int64
	for i := range x.acked {
		acked += x.acked[i].Load()
	}
	sum, n := x.sum(t)
	if got := sum - x.before; got < acked || got > acked+x.unknown.Load() || n != int64(len(x.acked)) {
		t.Errorf("the shards hold %d increments in %d rows; acknowledged were %d in %d, %d are not known", got, n, acked, len(x.acked), x.unknown.Load())
	}
	for _, w := range x.wrong {
		t.Error(w)
	}
	if acked < 100 {
		t.Errorf("only %d increments", acked)
	}
	t.Logf("%d increments, the slowest took %v; %d were told to try again, %d not answered", acked, x.slowest, x.tried.Load(), x.unknown.Load())
}

// drivers are the sidecars that say that they drive moves.
func (c *cluster) drivers(t *testing.T) (out []*localcluster.Sidecar) {
	for _, s := range c.Sidecars {
		if body, err := tryGet(s, "/metrics"); err == nil && strings.Contains(string(body), "\nringside_move_driving 1") {
			out = append(out, s)
		}
	}
	return out
}

// moving asks a sidecar whether a move is under way.
func moving(s *localcluster.Sidecar) (bool, error) {
	body, err := tryGet(s, "/moves")
	return err == nil && (strings.Contains(string(body), `"running"`) || strings.Contains(string(body), `"waiting"`)), err
}

// Promises P3 and P4, on the whole: while 8 writers raise counters through 3 sidecars, half of the vnodes go to the other shard and come back, and the
// sidecar that drives is killed. A sidecar that was stopped meanwhile is sent on by the shard.
func TestVnodesMoveUnderWriters(t *testing.T) {
	c := own(t, func(o *localcluster.Options) { o.Sidecars = 3 })
	x := increment(t, c, 0, 2000)

	plan := c.command(t, "move", "plan", "--vnodes", "0-32767", "--to", "s2")
	if !strings.Contains(plan, "s1") || !strings.Contains(plan, "s2") {
		t.Fatalf("plan:\n%s", plan)
	}
	t.Log(c.command(t, "move", "start", "--vnodes", "0-32767", "--to", "s2", "--wait"))
	t.Log(c.command(t, "move", "verify"))
	t.Log(c.command(t, "move", "status"))

	// Back, by the weights; whoever drives is killed in the middle of it, and the ring of cache servers changes meanwhile.
	c.command(t, "move", "start")
	c.command(t, "cache", "add", "c4", c.Spares[0].Addr())
	var dead *localcluster.Sidecar
	eventually(t, time.Minute, "somebody drives", func() bool {
		for _, s := range c.drivers(t) {
			dead = s
		}
		return dead != nil
	})
	if err := dead.Kill(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s drove and was killed", dead.Name)
	if err := dead.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, 4*time.Minute, "the move is done", func() bool {
		under, err := moving(c.Sidecars[0])
		return err == nil && !under
	})
	t.Log(c.command(t, "move", "status"))
	eventually(t, time.Minute, "the ring has changed", func() bool {
		state, vnodes := cacheState(c.Sidecars[1], "c4")
		body, err := tryGet(c.Sidecars[1], "/changes")
		return state == "active" && vnodes > 0 && err == nil && strings.Contains(string(body), `"changing":false`)
	})
	t.Log(c.command(t, "move", "verify"))
	if plan := c.command(t, "move", "plan"); !strings.Contains(plan, "nothing to move") {
		t.Errorf("after it moved back: %s", plan)
	}
	x.check(t)
	if out := c.command(t, "verify", "cache", "--sample", "10000"); strings.Contains(out, "STALE KEY") {
		t.Errorf("stale copies: %s", out)
	}
	c.stoppedSidecarIsSentOn(t)
}

// stoppedSidecarIsSentOn stops a sidecar, moves a vnode and a shard key, and lets the sidecar go on: the former owner refuses its first write of each, and it lands on the new one.
func (c *cluster) stoppedSidecarIsSentOn(t *testing.T) {
	old := c.Sidecars[2]
	type row struct {
		id, was  int
		from, to string
	}
	w := dial(t, old.Redis)
	var all []row
	var vnodes []int
	for _, id := range []int{4321, 4322} {
		key := "user:" + strconv.Itoa(id)
		l := lookup(t, c.Sidecars[0], key)
		x := row{id: id, from: l.Shard, to: map[string]string{"s1": "s2", "s2": "s1"}[l.Shard]}
		x.was, _ = strconv.Atoi(w.do(t, "HGET", key, "visits"))
		all, vnodes = append(all, x), append(vnodes, l.ShardVnode)
	}
	if err := old.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = old.Signal(syscall.SIGCONT) }() // it goes on already, if all is well
	c.command(t, "move", "start", "--vnodes", strconv.Itoa(vnodes[0]), "--to", all[0].to, "--wait")
	c.command(t, "override", "set", strconv.Itoa(all[1].id), all[1].to, "--wait")
	for _, x := range all {
		former := sql(t, c.shard(t, x.from).DSN())
		if _, err := former.Exec(t.Context(), "update users set visits = -1 where id = $1", x.id); err != nil {
			t.Errorf("an update of no row at the former owner: %v", err) // the row is gone there
		}
		_, err := former.Exec(t.Context(), "insert into users values ($1)", x.id)
		if err == nil || !strings.Contains(err.Error(), "RS002") || !strings.Contains(err.Error(), "shard "+x.to) {
			t.Errorf("an insert at the former owner: %v", err)
		}
	}
	if err := old.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	replies, err := w.ask([]string{"HINCRBY", "user:4321", "visits", "1"}, []string{"HINCRBY", "user:4322", "visits", "1"})
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range all {
		now := strconv.Itoa(x.was + 1)
		if got := show(replies[i]); got != ":"+now {
			t.Errorf("user:%d is %s, want %s", x.id, got, now)
		}
		if got := query(t, sql(t, c.shard(t, x.to).DSN()), "select visits::text from users where id = "+strconv.Itoa(x.id)); got != now {
			t.Errorf("user:%d on %s is %s", x.id, x.to, got)
		}
		for _, s := range c.Sidecars {
			dial(t, s.Redis).want(t, now, "HGET", "user:"+strconv.Itoa(x.id), "visits")
		}
	}
}

// A shard joins, is given its share, is drained, and is empty then.
func TestAShardJoinsAndIsDrained(t *testing.T) {
	c := own(t, nil)
	server := realpg.Alone(t, map[string]string{"wal_level": "logical"})
	third := sql(t, server.DSN())
	execute(t, third, "create table public.users (id bigint primary key, name text, email text, visits bigint, updated_at timestamptz)")
	if out, err := c.tryCommand("shard", "add", "s3", server.DSN()); err == nil || !strings.Contains(out, "no table orders") {
		t.Errorf("without a table: %v, %s", err, out)
	}
	execute(t, third, "create table public.orders (tenant text, id bigint, item text, cents bigint, primary key (tenant, id))")
	c.command(t, "shard", "add", "s3", server.DSN(), "--wait")
	if out, err := c.tryCommand("move", "start"); err == nil || !strings.Contains(out, "ringside shard attach users") {
		t.Errorf("before the tables are attached: %v, %s", err, out)
	}
	c.command(t, "shard", "attach", "users")
	c.command(t, "shard", "attach", "orders")
	x := increment(t, c, 0, 1000)
	c.Shards = append(c.Shards, &localcluster.Shard{Name: "s3", Server: server})
	defer func() { c.Shards = c.Shards[:2] }() // the other one is not the cluster's to stop

	t.Log(c.command(t, "move", "plan"))
	c.command(t, "move", "start", "--wait")
	if got := query(t, third, "select count(*)::text from ringside.ownership where state = 'owned'"); got != "21845" && got != "21846" {
		t.Errorf("s3 owns %s vnodes", got)
	}
	if got, _ := strconv.Atoi(query(t, third, "select count(*)::text from users")); got < rows/4 || got > rows/2 {
		t.Errorf("s3 holds %d of %d users", got, rows)
	}
	c.command(t, "move", "verify")
	c.command(t, "shard", "weight", "s3", "0")
	c.command(t, "move", "start", "--wait")
	if got := query(t, third, "select (select count(*) from users) + (select count(*) from orders) || ' ' || (select count(*) from ringside.ownership where state = 'owned')"); got != "0 0" {
		t.Errorf("s3 was drained and holds %s (rows, vnodes)", got)
	}
	c.keyHasItsOwnShard(t, third)
	t.Log(c.command(t, "move", "verify"))
	x.check(t)
	c.command(t, "shard", "remove", "s3")
	if out := c.command(t, "ring"); strings.Contains(out, "s3") {
		t.Errorf("s3 was removed: %s", out)
	}
}

// keyHasItsOwnShard gives one tenant to a shard of weight 0, and takes it back.
func (c *cluster) keyHasItsOwnShard(t *testing.T, third *pgx.Conn) {
	l := lookup(t, c.Sidecars[0], "order:tenant7:7")
	home := sql(t, c.shard(t, l.Shard).DSN())
	const count = "select count(*)::text from orders where tenant = 'tenant7'"
	all := query(t, home, count)
	t.Log(c.command(t, "move", "plan", "--by", "load"))
	if hot := string(get(t, c.Sidecars[0], "/hotkeys?n=3")); !strings.Contains(hot, `"shard_keys":[{"shard_key":"`) || !strings.Contains(hot, `"keys":[{"key":"`) {
		t.Errorf("what is hot is not known: %s", hot)
	}
	t.Log(c.command(t, "override", "set", "tenant7", "s3", "--dry-run"))
	t.Log(c.command(t, "override", "set", "tenant7", "s3", "--wait"))
	if there, here := query(t, third, count), query(t, home, count); there != all || here != "0" || all == "0" {
		t.Errorf("of %s rows %s are on s3, %s where they were", all, there, here)
	}
	for _, s := range c.Sidecars {
		if l := lookup(t, s, "order:tenant7:7"); l.Shard != "s3" {
			eventually(t, time.Minute, "all sidecars know", func() bool { return lookup(t, s, "order:tenant7:7").Shard == "s3" })
		}
		if got := dial(t, s.Redis).do(t, "HGET", "order:tenant7:7", "item"); got == "" {
			t.Errorf("%s does not read it", s.Name)
		}
	}
	if _, err := home.Exec(t.Context(), "insert into orders values ('tenant7', 7)"); err == nil || !strings.Contains(err.Error(), "RS002") || !strings.Contains(err.Error(), "shard s3") {
		t.Errorf("an insert where it was: %v", err)
	}
	for want, args := range map[string][]string{
		"has 1 shard keys by overrides":              {"shard", "remove", "s3"},
		`shard key "tenant7" is on shard s3 already`: {"override", "set", "tenant7", "s3"},
		"there is no shard s9":                       {"override", "set", "tenant7", "s9"},
		`shard key "tenant8" has no override`:        {"override", "clear", "tenant8"},
		"has weight 1: give it weight 0":             {"shard", "remove", "s2"},
		"there is no shard s8: ringside ring lists":  {"shard", "remove", "s8"},
	} {
		if out, err := c.tryCommand(args...); err == nil || !strings.Contains(out, want) {
			t.Errorf("%v: %v, %s; want %s", args, err, out, want)
		}
	}
	c.command(t, "override", "clear", "tenant7", "--wait")
	if here := query(t, home, count); here != all {
		t.Errorf("%s of %s rows came back", here, all)
	}
}
