package cache

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"ringside/internal/failpoint"
)

// mostAtOnce is how many entries one script asks for, or puts: its server does nothing else meanwhile. A command of its own for each costs both sides several
// times as much.
const mostAtOnce = 32

// question is one command that asks for the entries of flights, and leaves a lease in the place of those that are not there.
type question struct {
	step    *step
	flights []*flight
}

// ask is the first step of each flight: what is there, and our lease if nothing was. Every ask of an entry has a token that no other ask of it has (I3).
func (c *Cache) ask(ctx context.Context, flights []*flight) {
	c.begin(flights)
	now := time.Now()
	sent := make(map[*server][]*flight, 1)
	for _, f := range flights {
		f.asked, f.reply = asked{}, nil
		var err error
		if f.srv == nil && f.ref.Server != "" {
			f.srv, err = c.servers.of(f.ref)
		}
		switch {
		case f.ref.Server == "":
			f.asked.uncachable = true
		case f.srv == nil:
			f.asked.failed = true
			c.degraded(f.ref.Server, err)
		case !f.srv.gate.pass(now):
			f.asked.failed = true
			c.degraded(f.ref.Server, errSuspended)
		default:
			sent[f.srv] = append(sent[f.srv], f)
		}
	}
	var all []question
	var steps []*step
	for srv, some := range sent {
		for group := range slices.Chunk(some, mostAtOnce) {
			a := question{c.askFor(ctx, srv, group), group}
			all, steps = append(all, a), append(steps, a.step)
		}
	}
	c.exec(ctx, steps)
	for _, a := range all {
		c.answeredAsk(ctx, a)
	}
}

// askFor makes the command by which flights that use srv ask.
func (c *Cache) askFor(ctx context.Context, srv *server, flights []*flight) *step {
	lease, life := AppendLease(make([]byte, 0, HeaderSize), c.tokens.next()), c.cfg.LeaseTTL.Milliseconds()
	for _, f := range flights {
		f.lease = lease
	}
	if len(flights) == 1 {
		return &step{srv: srv, cmd: redis.NewCmd(ctx, "SET", flights[0].ref.Name, lease, "NX", "GET", "PX", life)}
	}
	s := &step{srv: srv, script: c.scripts.ask, name: flights[0].ref.Name, args: []any{lease, life}}
	for _, f := range flights[1:] {
		s.more = append(s.more, f.ref.Name)
	}
	return s
}

// answeredAsk tells flights what an ask has met.
func (c *Cache) answeredAsk(ctx context.Context, a question) {
	answer, err := a.step.cmd.(*redis.Cmd).Result()
	if ctx.Err() == nil { // else it was our time that ended
		a.step.srv.gate.report(fate(err), time.Now())
	}
	answers := []any{answer}
	if a.step.script != nil {
		if answers, _ = answer.([]any); err == nil && len(answers) != len(a.flights) {
			err = errStrangeAnswer
		}
	}
	for i, f := range a.flights {
		is := err
		var met any
		if err == nil {
			met = answers[i]
		}
		if failed, ok := met.(error); ok {
			is = failed
		}
		c.met(f, met, is)
	}
}

// met takes what was in the place of one entry: its text, nothing, or why it cannot be told.
func (c *Cache) met(f *flight, there any, err error) {
	text, isText := there.(string)
	wrongType := redis.HasErrorPrefix(err, "WRONGTYPE")
	switch {
	case errors.Is(err, redis.Nil) || err == nil && there == nil:
		f.asked.missing = true
	case err == nil && isText:
		f.reply = []byte(text)
		f.asked.kind = Kind(f.reply)
	case !wrongType:
		f.asked.failed = true
		c.degraded(f.ref.Server, err)
	}
	if f.asked.kind == KindMalformed && (err == nil || wrongType) {
		c.metrics.malformed.Inc()
	}
}

// discard deletes entries that are none. Whether it succeeds is seen at the next ask.
func (c *Cache) discard(ctx context.Context, flights []*flight) {
	steps := make([]*step, len(flights))
	for i, f := range flights {
		c.log.Warn("deleting a malformed cache entry", "server", f.ref.Server, "name", f.ref.Name, "bytes", len(f.reply))
		steps[i] = &step{srv: f.srv, script: c.scripts.discard, name: f.ref.Name, args: []any{f.reply}}
	}
	c.exec(ctx, steps)
}

// end is what one flight does with its lease.
type end struct {
	flight     *flight
	ending     ending
	loaded     Loaded
	entry      []byte        // nil: endRelease
	life       time.Duration // of entry
	at         int           // index of the flight in its group
	stillThere bool          // the lease was, and the step is done
}

// end ends leases: by a fill, or by giving them back.
func (c *Cache) end(ctx context.Context, ends []end) {
	if len(ends) == 0 {
		return
	}
	flights := make([]*flight, len(ends))
	byLease := make(map[string][]int, 1)
	for i := range ends {
		e := &ends[i]
		flights[i] = e.flight
		if e.ending == endFill || e.ending == endAbsent {
			e.entry, e.life = c.entryOf(e.ending, e.loaded, e.flight.item())
		}
		lease := string(e.flight.lease)
		byLease[lease] = append(byLease[lease], i)
	}
	var steps []*step
	var of [][]int
	for _, some := range byLease {
		for len(some) > 0 {
			s, n := c.endSome(ends, some)
			steps, of = append(steps, s), append(of, some[:n])
			some = some[n:]
		}
	}
	c.begin(flights)
	failpoint.At(failpoint.Filling)
	c.exec(ctx, steps)
	failpoint.At(failpoint.Filled)
	for n, s := range steps {
		answers, err := s.numbers()
		if err == nil && len(answers) != len(of[n]) {
			err = errStrangeAnswer
		}
		if err != nil {
			if ctx.Err() == nil {
				s.srv.gate.report(fate(err), time.Now())
			}
			c.log.Debug("ending a lease", "server", s.srv.cfg.Name, "error", err)
			continue
		}
		for i, at := range of[n] {
			ends[at].stillThere = answers[i] == 1
			c.countEnd(ends[at].ending, ends[at].stillThere)
		}
	}
}

// endSome makes the step that ends the first n of those leases, which are one, on one server.
func (c *Cache) endSome(ends []end, some []int) (s *step, n int) {
	first := &ends[some[0]]
	f := first.flight
	if len(some) > 1 && !failpoint.Without(failpoint.Lease) {
		list := make([]putting, len(some))
		for i, at := range some {
			list[i] = putting{ends[at].flight.ref.Name, ends[at].entry, ends[at].life}
		}
		return c.put(f.srv, f.lease, list)
	}
	s = &step{srv: f.srv, script: c.scripts.fill, name: f.ref.Name, args: []any{f.lease, first.entry, first.life.Milliseconds(), awaited(f.lease)}}
	switch {
	case first.ending == endRelease:
		s.script, s.args = c.scripts.release, []any{f.lease, awaited(f.lease)}
	case failpoint.Without(failpoint.Lease):
		s.script = newScript(unleased)
	}
	return s, 1
}

func (c *Cache) countEnd(e ending, done bool) {
	switch {
	case e == endRelease && done:
		c.metrics.released.Inc()
	case e == endRelease:
	case done:
		c.metrics.fills.Inc()
	default:
		c.metrics.fillsRefused.Inc()
	}
}

// putting is what comes in the place of a lease.
type putting struct {
	name  string
	entry []byte // nil: the lease is given back
	life  time.Duration
}

// putBytes is about how many bytes of entries are put, or handed over, by one script.
const putBytes = 256 << 10

// put makes the step that puts the first n of list, at least one, in the place of one lease.
func (c *Cache) put(srv *server, lease []byte, list []putting) (s *step, n int) {
	s = &step{srv: srv, script: c.scripts.put, name: list[0].name, args: []any{lease, awaited(lease)}}
	for bytes := 0; n < len(list) && n < mostAtOnce && bytes < putBytes; n++ {
		p := &list[n]
		if n > 0 {
			s.more = append(s.more, p.name)
		}
		s.args = append(s.args, p.entry, p.life.Milliseconds())
		bytes += len(p.entry)
	}
	return s, n
}

// entryOf makes the entry of what was loaded, and says how long it lives. e is endFill or endAbsent.
func (c *Cache) entryOf(e ending, l Loaded, item *Item) (entry []byte, life time.Duration) {
	now := time.Now()
	if e == endAbsent {
		life, soft := c.lives(item.NegTTL)
		return AppendAbsent(make([]byte, 0, HeaderSize), now, now.Add(soft)), life
	}
	life, soft := c.lives(item.TTL)
	return AppendValue(make([]byte, 0, HeaderSize+len(l.Body)), now, now.Add(soft), l.Body), life
}

// lives returns how long an entry lives, never longer than ttl, and until when it counts as fresh.
func (c *Cache) lives(ttl time.Duration) (life, soft time.Duration) {
	life = max(time.Duration(float64(ttl)*(1-c.cfg.TTLJitter*rand.Float64())), time.Millisecond)
	return life, time.Duration(float64(life) * c.cfg.SoftTTL)
}

// step is one command for one entry, or a script for many: cmd, or else script.
type step struct {
	srv    *server
	cmd    redis.Cmder
	script *script
	name   string
	more   []string // further keys of the script
	args   []any
}

// number is the answer of a script.
func (s *step) number() (int64, error) { return s.cmd.(*redis.Cmd).Int64() }

// list is the answer of a script about many entries.
func (s *step) list() ([]any, error) { return s.cmd.(*redis.Cmd).Slice() }

// numbers is the answer of a script about many entries that says a number for each; of one about a single entry it is its only one.
func (s *step) numbers() ([]int64, error) {
	if n, one := s.cmd.(*redis.Cmd).Val().(int64); one {
		return []int64{n}, s.cmd.Err()
	}
	return s.cmd.(*redis.Cmd).Int64Slice()
}

// exec runs steps: those for one server in one pipeline, the servers at a time. Errors are in the steps' commands.
func (c *Cache) exec(ctx context.Context, steps []*step) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StepTimeout)
	defer cancel()
	groups := make(map[*server][]*step, 1)
	for _, s := range steps {
		groups[s.srv] = append(groups[s.srv], s)
	}
	var others sync.WaitGroup
	for srv, group := range groups {
		if len(groups) == 1 {
			pipeline(ctx, srv, group)
			return
		}
		others.Go(func() { pipeline(ctx, srv, group) })
	}
	others.Wait()
}

// pipeline sends scripts by their digest, and in full to a server that does not know them (SCRIPT FLUSH, a restart).
func pipeline(ctx context.Context, srv *server, steps []*step) {
	pipe := srv.client.Pipeline()
	for _, s := range steps {
		if s.script != nil {
			s.cmd = s.eval(ctx, "EVALSHA", s.script.sha)
		}
		pipe.Process(ctx, s.cmd) // queues; cannot fail
	}
	pipe.Exec(ctx) // the error is that of the first command that failed
	again := srv.client.Pipeline()
	for _, s := range steps {
		if s.script != nil && redis.HasErrorPrefix(s.cmd.Err(), "NOSCRIPT") {
			s.cmd = s.eval(ctx, "EVAL", s.script.source)
			again.Process(ctx, s.cmd)
		}
	}
	if again.Len() > 0 {
		again.Exec(ctx)
	}
}

func (s *step) eval(ctx context.Context, how, what string) *redis.Cmd {
	args := append(make([]any, 0, 4+len(s.more)+len(s.args)), how, what, 1+len(s.more), s.name)
	for _, name := range s.more {
		args = append(args, name)
	}
	return redis.NewCmd(ctx, append(args, s.args...)...)
}
