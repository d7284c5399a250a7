package systemtest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// askTogether lets all connections send their command at the same moment and returns the replies.
func askTogether(t *testing.T, conns []*wire, command func(i int) []string) []string {
	t.Helper()
	replies := make([]string, len(conns))
	start := make(chan struct{})
	var group sync.WaitGroup
	for i, w := range conns {
		group.Go(func() {
			<-start
			v, err := w.ask(command(i))
			if err != nil {
				t.Errorf("connection %d: %v", i, err)
				return
			}
			replies[i] = show(v[0])
		})
	}
	close(start)
	group.Wait()
	return replies
}

// Guards P5: fifty connections that read one cold row at once cost one query, through one sidecar and through two, for a row that is there and
// for one that is not.
func TestFiftyColdReadersCostOneQuery(t *testing.T) {
	c := shared(t)
	for _, through := range []int{1, 2} {
		conns := make([]*wire, 50)
		for i := range conns {
			conns[i] = dial(t, c.Sidecars[i%through].Redis)
		}
		const rounds = 40
		before := c.loads(t)
		costly := 0
		for round := range rounds {
			id := 2000 + 100*through + round
			want := fmt.Sprintf(`{"id":%d,"name":"user %d",`, id, id)
			if round%4 == 3 {
				id, want = id+800000, "(nil)"
			}
			for i, reply := range askTogether(t, conns, func(int) []string { return []string{"GET", fmt.Sprintf("user:%d", id)} }) {
				if !strings.HasPrefix(reply, want) {
					t.Fatalf("connection %d: user:%d is %s", i, id, reply)
				}
			}
			now := c.loads(t)
			if now-before != 1 {
				costly++
				t.Logf("user:%d through %d sidecars: %d queries", id, through, now-before)
			}
			before = now
		}
		if costly > 0 {
			t.Errorf("through %d sidecars: %d of %d rows were not read exactly once", through, costly, rounds)
		}
	}
}

// Guards P5: a herd on many cold rows at once, through both sidecars. The shards count statements, of which one may bring several rows; the sidecars
// count the rows.
func TestAHerdReadsEachColdRowOnce(t *testing.T) {
	c := shared(t)
	const readers, cold, most = 400, 20, 21 // 1.05 for each row
	conns := make([]*wire, readers)
	for i := range conns {
		conns[i] = dial(t, c.Sidecars[i%2].Redis)
	}
	statements, rows := c.loads(t), c.rowsRead(t)
	for i, reply := range askTogether(t, conns, func(i int) []string { return []string{"GET", fmt.Sprintf("user:%d", 3000+i/2%cold)} }) {
		if want := fmt.Sprintf(`{"id":%d,`, 3000+i/2%cold); !strings.HasPrefix(reply, want) {
			t.Fatalf("connection %d: %s", i, reply)
		}
	}
	if n := c.loads(t) - statements; n < 1 || n > most {
		t.Errorf("%d readers of %d cold rows made %d statements", readers, cold, n)
	}
	if n := c.rowsRead(t) - rows; n < cold || n > most {
		t.Errorf("%d readers of %d cold rows asked the shards for %d", readers, cold, n)
	}
}

// Guards P6: with three sidecars and 200 writers at once the shards never have more sessions than their budget, although nothing moves for
// a while; all writers are answered.
func TestSessionsStayWithinTheBudget(t *testing.T) {
	c := shared(t)
	third := c.NewSidecar("a3", 3)
	if err := third.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := third.Stop(); err != nil {
			t.Error(err)
		}
	}()
	for _, s := range append(c.Sidecars, third) {
		eventually(t, 10*time.Second, "three sidecars known to "+s.Name, func() bool {
			all, err := members(s)
			return err == nil && all["a1"].State == "alive" && all["a2"].State == "alive" && all["a3"].State == "alive"
		})
	}
	var most [2]atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	for i, s := range c.Shards {
		conn := sql(t, s.DSN())
		watch.Go(func() {
			for ctx.Err() == nil {
				var n int64
				if err := conn.QueryRow(context.Background(), "select count(*) from pg_stat_activity where application_name = 'ringside'").Scan(&n); err != nil {
					t.Error(err)
					return
				}
				most[i].Store(max(most[i].Load(), n))
			}
		})
	}
	// As long as somebody holds the table, every write keeps its session.
	var holders sync.WaitGroup
	for _, s := range c.Shards {
		conn := sql(t, s.DSN())
		execute(t, conn, "begin")
		execute(t, conn, "lock table users in access exclusive mode")
		holders.Go(func() {
			time.Sleep(300 * time.Millisecond)
			if _, err := conn.Exec(context.Background(), "commit"); err != nil {
				t.Error(err)
			}
		})
	}
	conns := make([]*wire, 200)
	for i := range conns {
		conns[i] = dial(t, append(c.Sidecars, third)[i%3].Redis)
	}
	overloaded := 0
	for i, reply := range askTogether(t, conns, func(i int) []string {
		return []string{"HSET", fmt.Sprintf("user:%d", 2500+i), "name", fmt.Sprintf("user %d", 2500+i)}
	}) {
		switch {
		case strings.HasPrefix(reply, "-OVERLOADED "), raceDetector && (strings.HasPrefix(reply, "-SHARDDOWN ") || strings.HasPrefix(reply, "-CACHEDOWN ")):
			overloaded++ // in a queue; or, with the race detector, by a machine that does not do so much in the time there is
		case reply != ":0":
			t.Errorf("user:%d: %s", 2500+i, reply)
		}
	}
	holders.Wait()
	cancel()
	watch.Wait()
	t.Logf("at most %d and %d sessions of 64; %d of 200 writers were shed", most[0].Load(), most[1].Load(), overloaded)
	const least = 30 - 20*raceSlack
	for i := range most {
		if n := most[i].Load(); n > 64 || n < least {
			t.Errorf("%d sessions of shard s%d; the budget is 64, and the pressure should have used more of it", n, i+1)
		}
	}
}
