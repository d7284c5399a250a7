package systemtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"ringside/internal/localcluster"
)

// incident is a server that died under load, and what the clients saw of it.
type incident struct {
	what   string
	server string // cache server or shard; "" for a sidecar
	side   int    // the sidecar that died; -1 for a server
	codes  []string

	killed, back time.Time // when it was killed; when it was started again and answered
	end          time.Time // when calm had returned, or was given up on
}

const (
	downFor = 2 * time.Second
	// firstSecond is what clients of other servers are given to get over it.
	firstSecond = time.Second
	// recovery is how long after its return a server's keys may still be refused, on a machine that kept up meanwhile; recoverySlowly, on one that did not.
	recovery       = (10 + 10*raceSlack) * time.Second
	recoverySlowly = 2 * time.Minute
	calm           = 1500 * time.Millisecond
)

// starved is the share of commands on living servers that may be shed although the machine kept up: with the race detector, which makes the program ten
// times slower, a deadline (200 ms for a connection, 500 ms for a step) is missed now and then. What is shed while the machine had no processor for the
// sidecars is not counted. Measured with processors to spare: none.
const starved = 0.002 + raceSlack*0.008

// Guards P3, P4 and P7: servers are killed with SIGKILL while 100 clients read and write rows and plain keys through both sidecars. Whatever dies: no reply
// is another's, none is nil for what could not be asked, none is older than what was acknowledged, no acknowledged write of a row is lost; keys on other
// servers go on; and when the server is back all is well without a restart of anything else.
func TestServersDie(t *testing.T) {
	// Whoever is killed refuses connections, which is seen at once. One that only waits for its share of a busy machine must not look dead.
	c := own(t, func(o *localcluster.Options) { o.Config = patient })
	t.Run("under load", func(t *testing.T) { underLoad(t, c) })
	t.Run("and the catalog with them", func(t *testing.T) { withoutTheCatalog(t, c) })
}

func underLoad(t *testing.T, c *cluster) {
	w := newWorkload(t, c)
	m := watchMachine(t, c.Caches[0].PID(), c.Caches[1].PID(), c.Caches[2].PID(), c.Sidecars[0].PID(), c.Sidecars[1].PID())
	w.run()
	ended := false
	defer func() {
		if !ended {
			w.end()
		}
	}()
	time.Sleep(calm)

	var all []*incident
	happen := func(i incident, kill func() error, restart func() error) {
		t.Helper()
		all = append(all, &i)
		i.killed = time.Now()
		if err := kill(); err != nil {
			t.Fatal(err)
		}
		if i.server != "" {
			w.forget(i.server)
		}
		time.Sleep(downFor)
		if err := restart(); err != nil {
			t.Fatal(err)
		}
		i.back = time.Now()
		if i.side >= 0 {
			m.watch(c.Sidecars[i.side].PID())
		}
		w.settle(i.back)
		c.awaitWhole(t)
		i.end = time.Now()
		t.Logf("%s: settled %v after its return; clients think for %v", i.what, i.end.Sub(i.back).Round(time.Millisecond), time.Duration(w.pace.Load()))
		w.await(i.end) // what began before the end of this incident is over when the next one begins
	}
	cacheCodes := []string{"CACHEDOWN", "TRYAGAIN", "OVERLOADED"}

	c1 := c.Caches[0]
	happen(incident{what: "a Redis that comes back empty", server: "c1", side: -1, codes: cacheCodes}, c1.Kill, func() error { return c1.Restart(t.Context()) })

	// c2 keeps what it holds now, and comes back with it after many of the rows have changed.
	c2 := c.Caches[1]
	eventually(t, time.Minute, "c2 holds entries of rows", func() bool { return entriesOfRows(t, c2) >= 20 })
	dial(t, c2.Addr()).want(t, "OK", "SAVE")
	t.Logf("c2 has saved about %d entries of rows", entriesOfRows(t, c2))
	time.Sleep(calm)
	happen(incident{what: "a Redis that comes back with old data", server: "c2", side: -1, codes: cacheCodes}, c2.Kill, func() error { return c2.Restart(t.Context()) })

	s2 := c.Shards[1]
	happen(incident{what: "a shard's PostgreSQL", server: "s2", side: -1, codes: []string{"SHARDDOWN", "OVERLOADED"}}, s2.Kill, func() error { return s2.Restart(t.Context()) })

	a2 := c.Sidecars[1]
	happen(incident{what: "a sidecar", side: 1, codes: []string{codeClosed}}, a2.Kill, func() error { return a2.Start(t.Context()) })

	w.end()
	ended = true
	for _, i := range all {
		w.judge(t, m, i)
	}
	w.judgeQuiet(t, m, all)
	for _, wrong := range w.wrong {
		t.Error(wrong)
	}
	w.readBack(t, c)
}

// entriesOfRows is how many entries of rows a cache server holds.
func entriesOfRows(t *testing.T, s *localcluster.Cache) int {
	t.Helper()
	return strings.Count(dial(t, s.Addr()).do(t, "KEYS", "rs:*:user:*"), "rs:")
}

// awaitWhole waits until every cache server is active for every sidecar.
func (c *cluster) awaitWhole(t *testing.T) {
	t.Helper()
	for _, s := range c.Sidecars {
		eventually(t, 2*time.Minute, "all cache servers active on "+s.Name, func() bool {
			r, err := ringOf(s)
			return err == nil && !slices.ContainsFunc(r.Caches, func(x cacheOf) bool { return x.State != "active" })
		})
	}
}

// settle waits until what was asked before is answered, and no error was seen for a while.
func (w *workload) settle(since time.Time) {
	w.await(since)
	for time.Since(since) < recoverySlowly+calm {
		time.Sleep(100 * time.Millisecond)
		last := since
		w.mu.Lock()
		for i := len(w.events) - 1; i >= 0 && i >= len(w.events)-5000; i-- {
			if e := &w.events[i]; e.code != "" && e.begun.Add(e.took).After(last) {
				last = e.begun.Add(e.took)
			}
		}
		w.mu.Unlock()
		if time.Since(last) > calm {
			return
		}
	}
}

// await waits until all that was asked before a moment is answered. Every wait for a reply has its limit.
func (w *workload) await(moment time.Time) {
	for i := range w.busy {
		for {
			if began := w.busy[i].Load(); began == 0 || began > moment.UnixNano() {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

func (i *incident) touches(e *event) bool {
	if i.server == "" {
		return e.sidecar == i.side
	}
	return e.touches(i.server)
}

// judge looks at what happened between the death and the calm after it.
func (w *workload) judge(t *testing.T, m *machine, i *incident) {
	t.Helper()
	type side struct {
		events, errors int
		slowest        time.Duration
	}
	var on, off side
	shed, excused := 0, 0
	codes := map[string]int{}
	var last time.Time
	examples := map[string]string{}
	for n := range w.events {
		e := &w.events[n]
		ended := e.begun.Add(e.took)
		if ended.Before(i.killed) || e.begun.After(i.end) {
			continue
		}
		s := &off
		if i.touches(e) {
			s = &on
		}
		s.events++
		s.slowest = max(s.slowest, e.took)
		if e.code == "" {
			continue
		}
		s.errors++
		if s == &off {
			examples["of others, "+e.code] = e.text
			if !e.begun.After(i.killed.Add(firstSecond)) {
				continue
			}
			switch {
			case e.maybeLater() && m.overworked(e.begun, ended):
				excused++ // deadlines were missed, or a sidecar has not heard yet that the ring has changed
				continue
			case e.shed():
				shed++
				continue
			}
			t.Errorf("%s: %v after its death %s via sidecar %d was refused: %s", i.what, e.begun.Sub(i.killed), describe(e), e.sidecar+1, e.text)
			continue
		}
		codes[e.code]++
		examples[e.code] = e.text
		if ended.After(last) {
			last = ended
		}
		switch {
		case slices.Contains(i.codes, e.code):
		case e.maybeLater() && m.overworked(e.begun, ended): // by the living server of a pipeline
		default:
			t.Errorf("%s: %v after its death %s via sidecar %d was refused with the wrong word: %s", i.what, e.begun.Sub(i.killed), describe(e), e.sidecar+1, e.text)
		}
	}
	t.Logf("%s: down %v; on it %d of %d refused %v, slowest %v; elsewhere %d of %d refused, slowest %v; last refusal %v after its return", i.what,
		i.back.Sub(i.killed).Round(time.Millisecond), on.errors, on.events, codes, on.slowest.Round(time.Millisecond), off.errors, off.events, off.slowest.Round(time.Millisecond),
		last.Sub(i.back).Round(time.Millisecond))
	for _, code := range slices.Sorted(maps.Keys(examples)) {
		t.Logf("    %s: %s", code, examples[code])
	}
	slow := m.share(i.killed, i.end)
	t.Logf("    the machine was overworked for %.0f%% of the time; %d were shed, %d because of that", 100*slow, shed+excused, excused)
	if on.errors == 0 {
		t.Errorf("%s: nobody noticed", i.what)
	}
	if allowed := starved * float64(off.events); float64(shed) > allowed {
		t.Errorf("%s: %d of %d on other servers were shed, at most %.0f may be", i.what, shed, off.events, allowed)
	}
	if allowed := 0.2 * float64(off.events); float64(excused) > allowed {
		t.Errorf("%s: %d of %d on other servers were refused because the machine was overworked, at most %.0f may be", i.what, excused, off.events, allowed)
	}
	limit := recovery
	if m.overworked(i.back, last) {
		limit = recoverySlowly
	}
	if last.Sub(i.back) > limit {
		t.Errorf("%s: still refused %v after its return; at most %v may be", i.what, last.Sub(i.back), limit)
	}
}

// shed reports whether a sidecar did not get through to a living cache server in its half second.
func (e *event) shed() bool {
	return e.code == "OVERLOADED" || e.code == "CACHEDOWN" && (strings.HasSuffix(e.text, "i/o timeout") || strings.HasSuffix(e.text, "context deadline exceeded"))
}

// maybeLater reports whether the client was told to try again, as it may be while a machine does not do what it should in time.
func (e *event) maybeLater() bool {
	return slices.Contains([]string{"CACHEDOWN", "SHARDDOWN", "OVERLOADED", "TRYAGAIN"}, e.code)
}

func describe(e *event) string {
	keys := make([]string, len(e.items))
	for i, it := range e.items {
		keys[i] = fmt.Sprintf("%s (%s %s)", it.key, it.cache, it.shard)
	}
	return strings.Join(keys, " ")
}

// judgeQuiet looks at what happened while nothing was dead.
func (w *workload) judgeQuiet(t *testing.T, m *machine, all []*incident) {
	t.Helper()
	shed, excused := 0, 0
	for n := range w.events {
		e := &w.events[n]
		ended := e.begun.Add(e.took)
		switch {
		case e.code == "" || slices.ContainsFunc(all, func(i *incident) bool { return ended.After(i.killed) && e.begun.Before(i.end) }):
		case e.maybeLater() && m.overworked(e.begun, ended):
			excused++
		case e.shed():
			shed++
		default:
			t.Errorf("refused while all was well: %s: %s", describe(e), e.text)
		}
	}
	t.Logf("%d commands and pipelines in all; while all was well %d were shed, %d because the machine was overworked; it kept a thread waiting for %v at worst",
		len(w.events), shed+excused, excused, m.worst)
	if allowed := starved * float64(len(w.events)); float64(shed) > allowed {
		t.Errorf("%d were shed while all was well, at most %.0f may be", shed, allowed)
	}
}

// readBack compares the end with what was acknowledged: on the shards, and through every sidecar.
func (w *workload) readBack(t *testing.T, c *cluster) {
	t.Helper()
	shards := map[string]*pgx.Conn{}
	for _, s := range c.Shards {
		shards[s.Name] = sql(t, s.DSN())
	}
	var sides []*wire
	for _, s := range c.Sidecars {
		sides = append(sides, dial(t, s.Redis))
	}
	unknown := 0
	for _, it := range w.items {
		least := it.floor()
		if it.id != 0 {
			name := query(t, shards[it.shard], "select name from users where id = $1", it.id)
			w.check(it, least, name == "<none>", name, "psql at the end")
			if name != it.value(least.acked) {
				unknown++
			}
			for _, s := range sides {
				if got := s.patiently(t, "HGET", it.key, "name"); got != name {
					t.Errorf("%s is %s through %s, and %s on %s", it.key, got, s.conn.RemoteAddr(), name, it.shard)
				}
			}
			continue
		}
		values := map[string]bool{}
		for _, s := range sides {
			values[s.patiently(t, "GET", it.key)] = true
		}
		if len(values) != 1 {
			t.Errorf("%s differs: %v", it.key, slices.Collect(maps.Keys(values)))
		}
	}
	for _, wrong := range w.wrong {
		if strings.Contains(wrong, "at the end") {
			t.Error(wrong)
		}
	}
	t.Logf("%d rows hold a write that was refused as not acknowledged", unknown)
}
