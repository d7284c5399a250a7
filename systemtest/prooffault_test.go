package systemtest

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"ringside/internal/failpoint"
	"ringside/internal/localcluster"
)

// journal is what happened when.
type journal struct {
	mu      sync.Mutex // guards the following
	entries []entry
}

func (j *journal) add(e entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, e)
}

// around returns what happened within some seconds of a time.
func (j *journal) around(at time.Duration) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := []string{fmt.Sprintf("around %v:", at)}
	for _, e := range j.entries {
		if e.from < at+2*time.Second && e.to > at-20*time.Second {
			out = append(out, e.String())
		}
	}
	return out
}

// schedule lets things fail while a proof runs. What each lane does follows from the seed; how it falls together, from the machine.
type schedule struct {
	p      *proof
	caches []*localcluster.Cache // that may be hurt
	stop   chan struct{}
	group  sync.WaitGroup
	points []failpoint.Point // at which sidecars are to die; none: at all of them
	mu     sync.Mutex        // guards the following
	turn   int
	counts map[string]int
	errors map[string]string // an example of what could not be done
}

// start begins with it.
func (s *schedule) start(seed uint64, lanes []lane) {
	s.stop, s.counts, s.errors = make(chan struct{}), map[string]int{}, map[string]string{}
	for _, l := range lanes {
		name := fnv.New64()
		_, _ = name.Write([]byte(l.name)) // never fails
		rnd := rand.New(rand.NewPCG(seed, name.Sum64()))
		s.group.Go(func() { s.run(l, rnd) })
	}
}

func (s *schedule) run(l lane, rnd *rand.Rand) {
	for s.pause(l.rest/2 + time.Duration(rnd.Int64N(int64(l.rest)))) {
		from := s.p.elapsed()
		what, err := l.act(s, rnd)
		e := entry{from, s.p.elapsed(), what}
		s.mu.Lock()
		kind, _, _ := strings.Cut(what, ":")
		s.counts[kind]++
		if err != nil {
			e.what += ": " + err.Error()
			s.counts[kind+" (failed)"]++
			s.errors[kind] = err.Error()
		}
		s.mu.Unlock()
		s.p.journal.add(e)
	}
}

// pause waits; false: the schedule is over.
func (s *schedule) pause(d time.Duration) bool {
	select {
	case <-s.stop:
		return false
	case <-time.After(d):
		return true
	}
}

// end ends the schedule. What is hurt then is healed first.
func (s *schedule) end() {
	close(s.stop)
	s.group.Wait()
}

// happened says how often each kind of failure happened.
func (s *schedule) happened() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for kind, n := range s.counts {
		line := fmt.Sprintf("    %4d times %s", n, kind)
		if rest, ok := strings.CutSuffix(kind, " (failed)"); ok {
			line += ": " + s.errors[rest]
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

func between(rnd *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(rnd.Int64N(int64(high-low)))
}

// hurtRedis hurts one cache server: never two at a time, as more than half of them cannot be down.
func (s *schedule) hurtRedis(rnd *rand.Rand) (string, error) {
	c := s.caches[rnd.IntN(len(s.caches))]
	what, d := rnd.IntN(8), between(rnd, 200*time.Millisecond, 4*time.Second)
	switch what {
	case 0, 1, 2:
		if err := c.Pause(); err != nil {
			return "a Redis is paused: " + c.Name, err
		}
		s.pause(d)
		return fmt.Sprintf("a Redis is paused: %s for %v", c.Name, d), c.Resume()
	case 3:
		out, err := exec.Command("redis-cli", "-p", fmt.Sprint(c.Port()), "client", "kill", "type", "normal").CombinedOutput()
		return fmt.Sprintf("connections of a Redis are cut: %s %s", c.Name, out), err
	case 4, 5:
		// It comes back with what it holds now, which will be old then.
		if out, err := exec.Command("redis-cli", "-p", fmt.Sprint(c.Port()), "save").CombinedOutput(); err != nil {
			return "a Redis is killed, with a snapshot: " + c.Name + string(out), err
		}
		s.pause(d / 4)
		if err := c.Kill(); err != nil {
			return "a Redis is killed, with a snapshot: " + c.Name, err
		}
		s.pause(d)
		return fmt.Sprintf("a Redis is killed, with a snapshot: %s for %v", c.Name, d), c.Restart(context.Background())
	}
	if err := c.Kill(); err != nil {
		return "a Redis is killed: " + c.Name, err
	}
	s.pause(d)
	return fmt.Sprintf("a Redis is killed: %s for %v", c.Name, d), c.Restart(context.Background())
}

func (s *schedule) hurtShard(rnd *rand.Rand) (string, error) {
	sh := s.p.c.Shards[rnd.IntN(len(s.p.c.Shards))]
	d := between(rnd, 200*time.Millisecond, 3*time.Second)
	switch rnd.IntN(6) {
	case 0, 1:
		if err := sh.Pause(); err != nil {
			return "a PostgreSQL is paused: " + sh.Name, err
		}
		s.pause(d)
		return fmt.Sprintf("a PostgreSQL is paused: %s for %v", sh.Name, d), sh.Resume()
	case 2:
		return "sessions of a PostgreSQL are ended: " + sh.Name,
			onShard(sh, "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'ringside' and pid <> pg_backend_pid()")
	case 3, 4:
		return fmt.Sprintf("a table is locked: %s for %v", sh.Name, d), onShard(sh, fmt.Sprintf("begin; lock table public.users in share mode; select pg_sleep(%f); commit", d.Seconds()))
	}
	if err := sh.Kill(); err != nil {
		return "a PostgreSQL is killed: " + sh.Name, err
	}
	s.pause(d / 2)
	return "a PostgreSQL is killed: " + sh.Name, sh.Restart(context.Background())
}

func onShard(sh *localcluster.Shard, text string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, sh.DSN())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }() // nothing is left to lose
	_, err = conn.PgConn().Exec(ctx, text).ReadAll()
	return err
}

func (s *schedule) hurtSidecar(rnd *rand.Rand) (string, error) {
	a := s.p.c.Sidecars[rnd.IntN(len(s.p.c.Sidecars))]
	d := between(rnd, 100*time.Millisecond, 5*time.Second)
	busy := s.p.rig.alone(a.Name)
	defer busy.Unlock()
	switch rnd.IntN(5) {
	case 0, 1:
		if err := a.Signal(syscall.SIGSTOP); err != nil {
			return "a sidecar is paused: " + a.Name, err
		}
		s.pause(d)
		return fmt.Sprintf("a sidecar is paused: %s for %v", a.Name, d), a.Signal(syscall.SIGCONT)
	case 2:
		if err := a.Stop(); err != nil {
			return "a sidecar is stopped: " + a.Name, err
		}
		return "a sidecar is stopped: " + a.Name, s.startSidecar(a)
	}
	if err := a.Kill(); err != nil {
		return "a sidecar is killed: " + a.Name, err
	}
	s.pause(d / 3)
	return "a sidecar is killed: " + a.Name, s.startSidecar(a)
}

// startSidecar starts a sidecar again. While a shard is paused it may not become ready in time.
func (s *schedule) startSidecar(a *localcluster.Sidecar) error {
	var err error
	for range 3 {
		if err = a.Start(context.Background()); err == nil {
			return nil
		}
		_ = a.Kill() // it is started again anyway
	}
	return err
}

func (s *schedule) changeRing(rnd *rand.Rand) (string, error) {
	admin := s.p.c.Sidecars[rnd.IntN(len(s.p.c.Sidecars))]
	c := s.p.c.Caches[rnd.IntN(len(s.p.c.Caches))]
	var args []string
	switch n := rnd.IntN(8); {
	case n < 4: // whatever of these can be done now
		for _, args = range [][]string{{"cache", "add", "c4", s.p.c.Spares[0].Addr(), "--flush"}, {"cache", "drain", "c4"}, {"cache", "remove", "c4"}} {
			if err := s.command(admin, args); err == nil {
				return "the ring is changed: " + strings.Join(args, " "), nil
			}
		}
	case n < 6:
		args = []string{"cache", "weight", c.Name, fmt.Sprint(1 + rnd.IntN(3))}
	case n == 6:
		args = []string{"cache", "drain", c.Name}
	default:
		args = []string{"cache", "weight", c.Name, "1"}
	}
	return "the ring is changed: " + strings.Join(args, " "), s.command(admin, args)
}

// command changes something through one sidecar.
func (s *schedule) command(at *localcluster.Sidecar, args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, suite.program, append(args, "--admin", at.Admin, "--token", s.p.c.Token)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s", strings.TrimSpace(string(out)))
	}
	return nil
}

// settle waits until the sidecars are ready again; wholly: and all servers are in their places.
func (p *proof) settle(wholly bool) {
	p.t.Helper()
	for _, s := range p.c.Sidecars {
		eventually(p.t, 2*time.Minute, s.Name+" and all servers in their places", func() bool {
			if _, err := tryGet(s, "/readyz"); err != nil || !wholly {
				return err == nil
			}
			r, err := ringOf(s)
			if err != nil {
				return false
			}
			for _, each := range r.Caches {
				if each.State != "active" && each.State != "draining" {
					return false
				}
			}
			return true
		})
	}
}
