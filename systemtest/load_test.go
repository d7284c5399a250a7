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
		m, begun := watchMachine(t, c.Sidecars[0].PID(), c.Sidecars[1].PID()), time.Now()
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
		// Where nobody is given the processor, whoever loads a row loses its lease, and somebody else asks once more.
		if costly > 0 && !m.overworked(begun, time.Now()) || costly > rounds/4 {
			t.Errorf("through %d sidecars: %d of %d rows were not read exactly once", through, costly, rounds)
		}
	}
}

// Guards P5: a herd on many cold rows at once, through both sidecars. The shards count statements, of which one may bring several rows; the sidecars
// count the rows.
func TestAHerdReadsEachColdRowOnce(t *testing.T) {
	c := shared(t)
	const readers, cold = 400, 20
	most := 21 // 1.05 for each row
	m, begun := watchMachine(t, c.Sidecars[0].PID(), c.Sidecars[1].PID()), time.Now()
	conns := make([]*wire, readers)
	for i := range conns {
		conns[i] = dial(t, c.Sidecars[i%2].Redis)
	}
	for id := 3000; id < 3000+cold; id++ { // whoever has read it before, it is cold now
		conns[0].want(t, ":0", "HSET", fmt.Sprintf("user:%d", id), "visits", "1")
	}
	statements, rows := c.loads(t), c.rowsRead(t)
	for i, reply := range askTogether(t, conns, func(i int) []string { return []string{"GET", fmt.Sprintf("user:%d", 3000+i/2%cold)} }) {
		if want := fmt.Sprintf(`{"id":%d,`, 3000+i/2%cold); !strings.HasPrefix(reply, want) {
			t.Fatalf("connection %d: %s", i, reply)
		}
	}
	if m.overworked(begun, time.Now()) {
		most = 2 * cold // whoever loads a row and is not given the processor loses its lease
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
		eventually(t, time.Minute, "three sidecars known to "+s.Name, func() bool {
			all, err := members(s)
			return err == nil && all["a1"].State == "alive" && all["a2"].State == "alive" && all["a3"].State == "alive"
		})
	}
	m := watchMachine(t, c.Sidecars[0].PID(), c.Sidecars[1].PID(), third.PID())
	var counts [2]sessions
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
				counts[i].note(n, time.Now())
			}
		})
	}
	// As long as somebody holds the table, every write keeps its session: until there are many, but not for so long that the shard cuts them off.
	begun := time.Now()
	var holders sync.WaitGroup
	for i, s := range c.Shards {
		conn := sql(t, s.DSN())
		execute(t, conn, "begin")
		execute(t, conn, "lock table users in access exclusive mode")
		holders.Go(func() {
			for time.Since(begun) < 2*time.Second && (counts[i].most.Load() < manySessions || time.Since(begun) < 300*time.Millisecond) {
				time.Sleep(10 * time.Millisecond)
			}
			if _, err := conn.Exec(context.Background(), "commit"); err != nil {
				t.Error(err)
			}
		})
	}
	conns := make([]*wire, 200)
	for i := range conns {
		conns[i] = dial(t, append(c.Sidecars, third)[i%3].Redis)
	}
	shed := map[string]int{}
	for i, reply := range askTogether(t, conns, func(i int) []string {
		return []string{"HSET", fmt.Sprintf("user:%d", 2500+i), "name", fmt.Sprintf("user %d", 2500+i)}
	}) {
		word, _, _ := strings.Cut(reply, " ")
		switch {
		case reply == ":0":
		case word == "-OVERLOADED", word == "-TRYAGAIN", m.overworked(begun, time.Now()) && (word == "-SHARDDOWN" || word == "-CACHEDOWN"):
			shed[word]++ // in a queue, or by the lock; or by a machine that does not do so much in the time there is
		default:
			t.Errorf("user:%d: %s", 2500+i, reply)
		}
	}
	holders.Wait()
	cancel()
	watch.Wait()
	for i := range counts {
		n := &counts[i]
		t.Logf("s%d: at most %d sessions, for at most %v more than 64; shed: %v", i+1, n.most.Load(), n.over, shed)
		if n.most.Load() < manySessions && !m.overworked(begun, time.Now()) {
			t.Errorf("at most %d sessions of shard s%d: the pressure should have used more of the budget", n.most.Load(), i+1)
		}
		if n.over > time.Second && !m.overworked(begun, time.Now()) {
			t.Errorf("more than 64 sessions of shard s%d for %v", i+1, n.over)
		}
	}
}

// manySessions is how many of the 64 of a budget are used under pressure.
const manySessions = 30 - 20*raceSlack

// sessions is what was counted of a shard's sessions. One that was closed is counted until the server has seen that, so there may be more than the budget
// for a moment.
type sessions struct {
	most  atomic.Int64
	since time.Time // when more than the budget were counted first; zero: the last count was within it
	over  time.Duration
}

func (s *sessions) note(n int64, now time.Time) {
	s.most.Store(max(s.most.Load(), n))
	switch {
	case n <= 64:
		s.since = time.Time{}
	case s.since.IsZero():
		s.since = now
	default:
		s.over = max(s.over, now.Sub(s.since))
	}
}
