package cache

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"ringside/internal/failpoint"
)

// ask is the first step of each flight: what is there, and our lease if nothing was. Every ask has a token of its own (I3).
func (c *Cache) ask(ctx context.Context, flights []*flight) {
	c.begin(flights)
	now := time.Now()
	var sent []*step
	var of []*flight
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
			f.lease = AppendLease(make([]byte, 0, HeaderSize), c.tokens.next())
			cmd := redis.NewStringCmd(ctx, "SET", f.ref.Name, f.lease, "NX", "GET", "PX", c.cfg.LeaseTTL.Milliseconds())
			sent = append(sent, &step{srv: f.srv, cmd: cmd})
			of = append(of, f)
		}
	}
	c.exec(ctx, sent)
	for i, f := range of {
		reply, err := sent[i].cmd.(*redis.StringCmd).Bytes()
		wrongType := redis.HasErrorPrefix(err, "WRONGTYPE")
		if ctx.Err() == nil { // else it was our time that ended
			f.srv.gate.report(fate(err), time.Now())
		}
		switch {
		case errors.Is(err, redis.Nil):
			f.asked.missing = true
		case err == nil:
			f.reply, f.asked.kind = reply, Kind(reply)
		case !wrongType:
			f.asked.failed = true
			c.degraded(f.ref.Server, err)
		}
		if f.asked.kind == KindMalformed && (err == nil || wrongType) {
			c.metrics.malformed.Inc()
		}
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
	entry      []byte        // endCarry
	life       time.Duration // endCarry
	at         int           // index of the flight in its group
	stillThere bool          // the lease was, and the step is done
}

// end ends leases: by a fill, or by giving them back.
func (c *Cache) end(ctx context.Context, ends []end) {
	if len(ends) == 0 {
		return
	}
	flights := make([]*flight, len(ends))
	steps := make([]*step, len(ends))
	for i, e := range ends {
		f := e.flight
		flights[i] = f
		st := &step{srv: f.srv, script: c.scripts.fill, name: f.ref.Name}
		switch e.ending {
		case endFill, endAbsent:
			entry, life := c.entryOf(e.ending, e.loaded, f.item())
			st.args = []any{f.lease, entry, life.Milliseconds(), awaited(f.lease)}
		case endCarry:
			st.args = []any{f.lease, e.entry, e.life.Milliseconds(), awaited(f.lease)}
		case endRelease:
			st.script, st.args = c.scripts.release, []any{f.lease, awaited(f.lease)}
		}
		if failpoint.Without(failpoint.Lease) && e.ending != endRelease {
			st.script = newScript(unleased)
		}
		steps[i] = st
	}
	c.begin(flights)
	failpoint.At(failpoint.Filling)
	c.exec(ctx, steps)
	failpoint.At(failpoint.Filled)
	for i, st := range steps {
		n, err := st.number()
		ends[i].stillThere = err == nil && n == 1
		switch {
		case err != nil:
			if ctx.Err() == nil {
				flights[i].srv.gate.report(fate(err), time.Now())
			}
			c.log.Debug("ending a lease", "server", flights[i].ref.Server, "error", err)
		case ends[i].ending == endRelease:
			c.metrics.released.Inc()
		case n == 1:
			c.metrics.fills.Inc()
		default:
			c.metrics.fillsRefused.Inc()
		}
	}
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
