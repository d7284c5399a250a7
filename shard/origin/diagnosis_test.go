package origin

import (
	"context"
	"testing"
	"time"
)

func TestDiagnose(t *testing.T) {
	now := time.Now()
	at := now.Add(-time.Second)
	for _, c := range []struct {
		name string
		s    PoolStats
		want Diagnosis
	}{
		{"nothing waits", PoolStats{InUse: 5}, Fine},
		{"nothing waits, although a transaction is old", PoolStats{Activity: Activity{At: at, Idle: 1, Oldest: time.Hour}}, Fine},
		{"what was shed is forgotten", PoolStats{LastShed: now.Add(-recently)}, Fine},
		{"down", PoolStats{DownSince: at, Waiting: 3}, Down},
		{"not known what it does", PoolStats{Waiting: 1, InUse: 4}, Protecting},
		{"known too long ago", PoolStats{Waiting: 1, InUse: 4, Activity: Activity{At: now.Add(-recently), Locked: 4}}, Protecting},
		{"all work", PoolStats{Waiting: 9, InUse: 4, Activity: Activity{At: at, Working: 4}}, Protecting},
		{"all worked a moment ago", PoolStats{LastShed: at, InUse: 4, Activity: Activity{At: at, Working: 4}}, Protecting},
		{"half of them work", PoolStats{Waiting: 9, InUse: 4, Activity: Activity{At: at, Working: 2, Idle: 2}}, Protecting},
		{"few of them work", PoolStats{Waiting: 9, InUse: 5, Activity: Activity{At: at, Working: 1, Idle: 1}}, BudgetTooSmall},
		{"they are between two statements", PoolStats{Waiting: 9, InUse: 4, Activity: Activity{At: at, Idle: 3, Oldest: time.Second}}, BudgetTooSmall},
		{"they wait for each other", PoolStats{Waiting: 9, InUse: 4, Activity: Activity{At: at, Working: 1, Locked: 3, Oldest: time.Second}}, HotKey},
		{"somebody else holds a lock", PoolStats{Waiting: 9, InUse: 4, Activity: Activity{At: at, Locked: 4, Idle: 1, Oldest: longOpen}}, LongTransaction},
		{"somebody holds a session", PoolStats{Waiting: 9, InUse: 1, Activity: Activity{At: at, Idle: 1, Oldest: time.Minute}}, LongTransaction},
		{"a long statement that nobody waits for", PoolStats{Waiting: 9, InUse: 4, Activity: Activity{At: at, Working: 4, Oldest: time.Minute}}, Protecting},
	} {
		if got := Diagnose(c.s, now); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// What the shard's own sessions do is asked while requests are shed, and only then.
func TestALongTransactionIsFound(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{QueueLimit: 1, QueueWait: 50 * time.Millisecond}, usersTable, `insert into users values (1, 'a')`)
	f.SetLimit("s1", 2)
	f.run()
	if d := f.Pools()[0].Diagnosis; d != Fine {
		t.Errorf("at rest: %s", d)
	}
	f.exec(`begin`)
	f.exec(`update users set name = 'b' where id = 1`)
	k := key(t, users(t), "user:1")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			both := make(chan error, 2)
			for range 2 {
				go func() {
					_, err := f.Write(ctx, "s1", at, upsert(t, k, `{"name":"c"}`), nil)
					both <- err
				}()
			}
			<-both
			<-both
		}
	}()
	eventually(t, "the transaction is long", func() bool { return f.Pools()[0].Diagnosis == LongTransaction })
	cancel()
	f.exec(`rollback`)
	<-ended
}
