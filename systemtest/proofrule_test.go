package systemtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"ringside/internal/failpoint"
	"ringside/systemtest/history"
)

const second = time.Second

// Guards the proof itself: as soon as one rule of the protocol is left out, the same load and the same checks find a read that is too old. For each
// rule the failures are those from which it guards.
func TestProofCanFail(t *testing.T) {
	c, r := proofCluster(t, proofConfig(true)+"view_ttl: 400ms\n") // so that changes of the ring take less time
	afterwards := deathAfterCommit(t, c, r)
	for number, rule := range []struct {
		rule   failpoint.Rule
		points []failpoint.Point
		lanes  []lane
	}{
		// A fill that waits is overtaken by a write.
		{failpoint.Lease, nil, []lane{{"waits", second / 2, (*schedule).waitBeforeFilling}}},
		// What a writer put into the entry is evicted.
		{failpoint.Clean, nil, []lane{{"evicts", second / 10, (*schedule).evict}}},
		// Rows go to another cache server and come back to where they were.
		{failpoint.Generation, nil, []lane{{"ring", 2 * second, (*schedule).toAndFro}}},
		// Writers have found out where their rows are, and are late.
		{failpoint.Fence, nil, []lane{{"late", second / 10, (*schedule).writeThroughAChange}}},
		// A sidecar dies between commit and clean-up, and another one, which does not reach the cache server, reads from the shard what everybody else is to see.
		{failpoint.Poison, []failpoint.Point{failpoint.Cleaning}, []lane{{"dies", second / 4, (*schedule).dieAtPoint}, {"alone", second / 10, (*schedule).cutFromCaches}}},
	} {
		t.Run(string(rule.rule), func(t *testing.T) {
			p := newProof(t, c, r, 1+number)
			p.settle(true)
			if err := r.without(rule.rule); err != nil {
				t.Fatal(err)
			}
			if rule.rule == failpoint.Poison { // the log would show soon what the dead sidecar has left
				for _, a := range c.Sidecars {
					if err := r.order(a.Name, func(o *failpoint.Orders) { o.At[failpoint.Forgetting] = failpoint.Order{Sleep: 5000} }); err != nil {
						t.Fatal(err)
					}
				}
			}
			if rule.rule == failpoint.Fence {
				p.patience = longPatience
			}
			p.run()
			s := &schedule{p: p, caches: c.Caches, points: rule.points}
			s.start(1, rule.lanes)
			var found []history.Violation
			for begun := time.Now(); len(found) == 0 && time.Since(begun) < time.Minute; {
				time.Sleep(second)
				found = p.check()
			}
			took := p.elapsed()
			s.end()
			p.end()
			if err := errors.Join(r.without(), r.heal()); err != nil {
				t.Fatal(err)
			}
			p.tell()
			for _, line := range s.happened() {
				t.Log(line)
			}
			if len(found) == 0 {
				t.Fatal("nothing wrong was found within a minute")
			}
			t.Logf("found after %v: %v", took.Round(time.Millisecond), found[0])
			t.Log(strings.Join(p.journal.around(found[0].Op.End), "\n"))
			// Which absence was read nobody can say for certain once a read of that row is too old: only other rows tell of other faults.
			old := map[string]bool{}
			for _, v := range found {
				old[v.Register] = old[v.Register] || v.Kind == history.Back || v.Kind == history.Stale
			}
			for _, v := range found {
				if !old[v.Register] {
					t.Errorf("more is wrong than that reads are too old: %v", v)
				}
			}
		})
	}
	t.Run("cache-aside through twemproxy", func(t *testing.T) { findsCacheAside(t, newProof(t, c, r, 9)) })
	t.Run("the poison of the dead has ended", afterwards)
}

// waitBeforeFilling lets the fills of one sidecar wait.
func (s *schedule) waitBeforeFilling(rnd *rand.Rand) (string, error) {
	return s.waitAt(s.any(rnd), failpoint.Filling, between(rnd, 10*time.Millisecond, 100*time.Millisecond), time.Second)
}

// cutFromCaches lets a sidecar reach no cache server, so that it reads from the shards.
func (s *schedule) cutFromCaches(rnd *rand.Rand) (string, error) {
	a := s.any(rnd)
	for _, c := range s.p.c.Caches {
		l := s.p.rig.link(a.Name, c.Name)
		l.refuse()
		defer l.heal()
	}
	s.pause(between(rnd, second/4, second))
	return "a sidecar reaches no cache server: " + a.Name, nil
}

// evict lets a cache server forget what it holds.
func (s *schedule) evict(rnd *rand.Rand) (string, error) {
	c := s.p.c.Caches[rnd.IntN(len(s.p.c.Caches))]
	out, err := exec.Command("redis-cli", "-p", fmt.Sprint(c.Port()), "eval", "for _, k in ipairs(redis.call('KEYS', 'rs:*:user:*')) do redis.call('DEL', k) end", "0").CombinedOutput()
	return "entries are evicted: " + c.Name + string(out), err
}

// toAndFro gives one cache server most of the rows, and back what the others had.
func (s *schedule) toAndFro(*rand.Rand) (string, error) { return s.weigh("--wait") }

func (s *schedule) weigh(more ...string) (string, error) {
	s.mu.Lock()
	s.turn++
	weight := 1 + 4*(s.turn%2)
	s.mu.Unlock()
	return "the ring is changed, to and fro: ", s.command(s.p.c.Sidecars[0], append([]string{"cache", "weight", "c1", fmt.Sprint(weight)}, more...))
}

// writeThroughAChange lets the writers of one sidecar, who know where their rows are, wait while the ring changes.
func (s *schedule) writeThroughAChange(rnd *rand.Rand) (string, error) {
	a := s.any(rnd)
	order := failpoint.Order{Sleep: int((6 * second).Milliseconds())}
	if err := s.p.rig.order(a.Name, func(all *failpoint.Orders) { all.At[failpoint.WriteBegins] = order }); err != nil {
		return "writers wait while the ring changes: " + a.Name, err
	}
	s.pause(second / 4)
	_, err := s.weigh()
	for end := time.Now().Add(longPatience / 2); err == nil && time.Now().Before(end) && !s.settled(); {
		s.pause(second / 10)
	}
	s.pause(2 * second)
	return "writers wait while the ring changes: " + a.Name, errors.Join(err, s.p.rig.heal())
}

// settled reports whether all shards have done with the present change of the ring.
func (s *schedule) settled() bool {
	r, err := ringOf(s.p.c.Sidecars[0])
	if err != nil {
		return false
	}
	for _, sh := range s.p.c.Shards {
		ctx, cancel := context.WithTimeout(context.Background(), proofPatience)
		var done bool
		conn, err := pgx.Connect(ctx, sh.DSN())
		if err == nil {
			err = conn.QueryRow(ctx, "select epoch >= $1 and phase = 3 from ringside.view", r.Epoch).Scan(&done)
			_ = conn.Close(ctx) // nothing is left to lose
		}
		cancel()
		if err != nil || !done {
			return false
		}
	}
	return true
}
