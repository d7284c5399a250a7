package systemtest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ringside/internal/localcluster"
)

// command runs the program against the cluster's first sidecar and returns what it printed.
func (c *cluster) command(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.tryCommand(args...)
	if err != nil {
		t.Fatalf("ringside %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (c *cluster) tryCommand(args ...string) (string, error) {
	cmd := exec.Command(suite.program, append(args, "--admin", c.Sidecars[0].Admin, "--token", c.Token)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// cacheState is what s says of a cache server: "" when it does not know it.
func cacheState(s *localcluster.Sidecar, name string) (state string, vnodes int) {
	r, err := ringOf(s)
	if err != nil {
		return "", 0
	}
	for _, c := range r.Caches {
		if c.Name == name {
			return c.State, c.Vnodes
		}
	}
	return "", 0
}

// steadyReads is a load of reads of warm rows, one after another on each connection at a fixed pace.
type steadyReads struct {
	stop  chan struct{}
	group sync.WaitGroup
	mu    sync.Mutex // guards the following
	took  []time.Duration
	wrong []string
}

func readSteadily(t *testing.T, c *cluster, rows, perSecond int) *steadyReads {
	t.Helper()
	r := &steadyReads{stop: make(chan struct{})}
	const conns = 20
	for i := range conns {
		w := dial(t, c.Sidecars[i%len(c.Sidecars)].Redis)
		r.group.Go(func() {
			pause := time.Second * conns / time.Duration(perSecond)
			for next := time.Now(); ; next = next.Add(pause) {
				select {
				case <-r.stop:
					return
				case <-time.After(time.Until(next)):
				}
				id := 1 + rand.IntN(rows)
				begun := time.Now()
				v, err := w.ask([]string{"GET", fmt.Sprintf("user:%d", id)})
				took := time.Since(begun)
				r.mu.Lock()
				r.took = append(r.took, took)
				if err != nil || !strings.HasPrefix(v[0].Text, fmt.Sprintf(`{"id":%d,`, id)) {
					r.wrong = append(r.wrong, fmt.Sprintf("user:%d: %v %v", id, v, err))
				}
				r.mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	t.Cleanup(r.end)
	return r
}

func (r *steadyReads) end() {
	select {
	case <-r.stop:
	default:
		close(r.stop)
	}
	r.group.Wait()
}

// lap returns the reads since the lap before and their 99th percentile.
func (r *steadyReads) lap() (reads int, p99 time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	took := r.took
	r.took = nil
	if len(took) == 0 {
		return 0, 0
	}
	slices.Sort(took)
	return len(took), took[len(took)*99/100]
}

// Guards P2 and P5: while a cache server joins and is drained again, rows that were cached are read from the cache. What the shards have to read because of the change is
// at most two in a hundred of the rows that move, where a router by modulo would read three quarters of all rows anew, and a plain ring all that move. Readers hardly
// notice: nearly every row is where it is looked for at first, so that the 99th percentile is at most twice what it was.
func TestMotionKeepsCachedRows(t *testing.T) {
	const rows, perSecond = 50_000, 5000
	c := own(t, func(o *localcluster.Options) { o.Rows, o.Config = rows, patient })
	warm := dial(t, c.Sidecars[0].Redis)
	for from := 1; from <= rows; from += 500 {
		args := []string{"MGET"}
		for id := from; id < from+500 && id <= rows; id++ {
			args = append(args, fmt.Sprintf("user:%d", id))
		}
		eventually(t, time.Minute, "rows are cached", func() bool { // a busy machine may shed some
			v, err := warm.ask(args)
			if err != nil {
				t.Fatal(err)
			}
			return len(v[0].Elems) == len(args)-1
		})
	}
	m := watchMachine(t, c.Sidecars[0].PID(), c.Sidecars[1].PID())
	load := readSteadily(t, c, rows, perSecond)
	time.Sleep(3 * time.Second)
	before := c.rowsRead(t)
	load.lap()
	time.Sleep(4 * time.Second)
	reads, calm := load.lap()
	if quiet := c.rowsRead(t) - before; quiet > rows/20 { // hardly any, on a machine that does not stand still
		t.Fatalf("%d rows were read from the shards while nothing changed", quiet)
	}
	t.Logf("nothing changes: %d reads, p99 %v", reads, calm)

	spare := c.Spares[0]
	for _, change := range []struct {
		what string
		args []string
	}{
		{"add", []string{"cache", "add", "c4", spare.Addr(), "--wait"}},
		{"drain", []string{"cache", "drain", "c4", "--wait"}},
	} {
		before, missed := c.rowsRead(t), c.counted(t, "ringside_row_misses_total")
		load.lap()
		begun := time.Now()
		c.command(t, change.args...)
		took := time.Since(begun)
		reads, p99 := load.lap()
		loaded := c.rowsRead(t) - before
		missed = c.counted(t, "ringside_row_misses_total") - missed
		moved := rows / 4
		t.Logf("%s: %v, %d reads, p99 %v (%.2f of before), %d not where they were looked for, %d rows read from the shards: %.2f%% of the %d that moved", change.what,
			took.Round(time.Millisecond), reads, p99, float64(p99)/float64(calm), missed, loaded, 100*float64(loaded)/float64(moved), moved)
		// One in a hundred is what it should be, or the 99th percentile is that of reads that have to look in two places. Before entries were taken over early it was one in ten.
		if 25*missed > reads {
			t.Errorf("%s: %d of %d rows were not where they were looked for at first", change.what, missed, reads)
		}
		// Twice is what it should be; but a machine that others use as well may be slow now and was not before.
		if p99 > 4*calm && p99 > 50*time.Millisecond && m.share(begun, time.Now()) < 0.01 {
			t.Errorf("%s: the 99th percentile is %v, before it was %v", change.what, p99, calm)
		}
		// Two in a hundred is what it should be, and is on a machine that keeps up; where it stands still, views expire.
		if 10*loaded > moved {
			t.Errorf("%s: the shards read %d rows because of it", change.what, loaded)
		}
	}
	load.end()
	for _, wrong := range load.wrong {
		t.Error(wrong)
	}
	c.command(t, "cache", "remove", "c4")
	for _, s := range c.Sidecars {
		eventually(t, time.Minute, "c4 gone on "+s.Name, func() bool { state, _ := cacheState(s, "c4"); return state == "" })
	}
}

// Guards P3 and P7: kill -9 of a Redis. Its rows are served by their shards at once, most sidecars agree that it is down, the others take its part over in
// equal shares, and when it comes back it is emptied before anybody reads it.
func TestMotionWhenAServerDies(t *testing.T) {
	c := own(t, func(o *localcluster.Options) { o.Caches, o.Sidecars = 6, 3 })
	victim := c.Caches[1]
	var lost []string
	for id := 1; len(lost) < 40; id++ {
		key := fmt.Sprintf("user:%d", id)
		if lookup(t, c.Sidecars[0], key).Cache == victim.Name {
			lost = append(lost, key)
		}
	}
	conns := make([]*wire, len(c.Sidecars))
	for i, s := range c.Sidecars {
		conns[i] = dial(t, s.Redis)
		for _, key := range lost {
			conns[i].do(t, "GET", key)
		}
	}
	share := map[string]int{}
	r, err := ringOf(c.Sidecars[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Caches {
		share[s.Name] = s.Vnodes
	}
	if err := victim.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	m := watchMachine(t)
	for _, s := range c.Sidecars {
		m.watch(s.PID())
	}
	var slowest time.Duration
	for n, key := range lost {
		begun := time.Now()
		if reply := conns[n%len(conns)].do(t, "GET", key); !strings.HasPrefix(reply, `{"id":`) {
			t.Errorf("%v after the death %s is %s", begun.Sub(killed), key, reply)
		}
		slowest = max(slowest, time.Since(begun))
	}
	t.Logf("%d rows of the dead server were served within %v of its death, each within %v", len(lost), time.Since(killed).Round(time.Millisecond), slowest)
	if slowest > time.Second && !m.overworked(killed, time.Now()) { // 50 ms is what it should be
		t.Errorf("a row of the dead server took %v", slowest)
	}
	live := eventually(t, time.Minute, "the new placement on all sidecars", func() bool {
		for _, s := range c.Sidecars {
			if state, vnodes := cacheState(s, victim.Name); state != "down" || vnodes != 0 {
				return false
			}
		}
		return true
	})
	served := eventually(t, time.Minute, "writes of its rows", func() bool {
		for n, key := range lost[:6] {
			if reply := conns[n%len(conns)].do(t, "HSET", key, "name", "after"); reply != ":0" {
				return false
			}
		}
		return true
	})
	t.Logf("live everywhere %v after the death, rows written %v later", live.Round(time.Millisecond), served.Round(time.Millisecond))
	if total := live + served; total > 10*time.Second && !m.overworked(killed, time.Now()) { // 4 s is what it should be
		t.Errorf("the new placement counted %v after the death", total)
	}
	if r, err = ringOf(c.Sidecars[1]); err != nil {
		t.Fatal(err)
	}
	var largest, sum float64
	for _, s := range r.Caches {
		if s.Name != victim.Name {
			extra := float64(s.Vnodes - share[s.Name])
			largest, sum = max(largest, extra), sum+extra
		}
	}
	if mean := sum / float64(len(r.Caches)-1); largest > 1.3*mean {
		t.Errorf("one server took over %.0f vnodes, the mean is %.0f", largest, mean)
	}

	if err := victim.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	dial(t, victim.Addr()).want(t, "OK", "SET", "plain:stale", "from before") // as if it had come back with old data
	eventually(t, time.Minute, "the server back in its place", func() bool {
		for _, s := range c.Sidecars {
			if state, vnodes := cacheState(s, victim.Name); state != "active" || vnodes != share[victim.Name] {
				return false
			}
		}
		return true
	})
	dial(t, victim.Addr()).want(t, "(nil)", "GET", "plain:stale")
	for n, key := range lost[:6] {
		eventually(t, time.Minute, key+" as written", func() bool { return conns[n%len(conns)].do(t, "HGET", key, "name") == "after" })
	}
}
