package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"ringside/loadtest/gauge"
	"ringside/resp"
)

// The generator must not take the processors from what is measured: few connections, requests in batches, one goroutine that sends for all of them, and replies
// that are looked at no more than it takes to tell how they ended. Rows of different shards are asked for by different connections, since replies keep the order of
// requests.

// tick is how often what is due is sent.
const tick = 10 * time.Millisecond

// outcome is how a request ended.
type outcome uint8

const (
	served  outcome = iota
	shed            // -OVERLOADED
	refused         // any other error
)

// event is one request that has ended. Times are since the crew came.
type event struct {
	due, ended time.Duration
	shard      uint8
	outcome    outcome
	read       bool
}

func (e event) took() time.Duration { return e.ended - e.due }

// crew are the clients: one connection to each sidecar for each shard.
type crew struct {
	came    time.Time
	lines   []*line
	reading sync.WaitGroup
	window  atomic.Int64           // requests that each line has under way by itself; 0: it sends what is offered
	said    atomic.Pointer[string] // the first error reply that is not about overload
}

// line is one connection.
type line struct {
	crew  *crew
	conn  *gauge.Conn
	shard int
	rows  []int
	step  int // from one row to the next, so that the lines of a shard ask for different ones

	mu     sync.Mutex
	owed   []pending // what replies are owed to, the oldest first
	due    float64   // requests: the part of one that is not due yet
	next   int       // in rows
	count  int
	out    []byte
	events []event
	err    error
}

type pending struct {
	due  time.Duration
	read bool
}

// gather connects a crew to sidecars.
func (r *rig) gather(ctx context.Context) (*crew, error) {
	c := &crew{came: time.Now()}
	for i, s := range r.cluster.Sidecars {
		for shard := range shardCount {
			conn, err := gauge.Dial(ctx, s.Redis)
			if err != nil {
				c.hangup()
				return nil, err
			}
			n := len(r.cluster.Sidecars)
			rows := r.rows[shard]
			l := &line{crew: c, conn: conn, shard: shard, rows: rows, step: n, next: i, count: i, due: float64(i) / float64(n)}
			c.lines = append(c.lines, l)
			c.reading.Go(l.read)
		}
	}
	return c, nil
}

func (c *crew) hangup() {
	for _, l := range c.lines {
		l.conn.Hangup()
	}
	c.reading.Wait()
}

func (c *crew) now() time.Duration { return time.Since(c.came) }

// send asks for n rows, every other one by a write. l.mu is held.
func (l *line) send(n int, due time.Duration) {
	if l.err != nil {
		return
	}
	l.out = l.out[:0]
	for range n {
		id := l.rows[l.next%len(l.rows)]
		l.next += l.step
		l.count++
		read := l.count%2 == 0
		if read {
			l.out = resp.AppendCommandString(l.out, "GET", "cold:"+strconv.Itoa(id))
		} else {
			l.out = resp.AppendCommandString(l.out, "SET", "user:"+strconv.Itoa(id), `{"visits":`+strconv.Itoa(l.count)+`}`)
		}
		l.owed = append(l.owed, pending{due, read})
	}
	l.err = l.conn.Send(l.out)
}

// read takes replies until the connection ends.
func (l *line) read() {
	var scan resp.Scanner
	in := make([]byte, 0, 64<<10)
	for {
		n, err := l.conn.Read(in[len(in):cap(in)])
		in = in[:len(in)+n]
		now := l.crew.now()
		l.mu.Lock()
		at, ended := 0, 0
		for err == nil {
			var size int
			if size, err = scan.Next(in[at:]); size == 0 {
				break
			}
			if len(l.owed) == ended {
				err = errors.New("a reply that nobody is owed")
				break
			}
			how := outcomeOf(in[at : at+size])
			if how == refused {
				text := string(in[at : at+size])
				l.crew.said.CompareAndSwap(nil, &text)
			}
			l.events = append(l.events, event{due: l.owed[ended].due, ended: now, shard: uint8(l.shard), outcome: how, read: l.owed[ended].read})
			at, ended = at+size, ended+1
		}
		l.owed = slices.Delete(l.owed, 0, ended)
		in = in[:copy(in, in[at:])]
		if again := int(l.crew.window.Load()) - len(l.owed); ended > 0 && again > 0 {
			l.send(min(again, ended), now)
		}
		if err == nil && len(in) == cap(in) {
			err = errors.New("a reply is too long")
		}
		if l.err == nil {
			l.err = err
		}
		l.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func outcomeOf(reply []byte) outcome {
	switch {
	case reply[0] != '-':
		return served
	case bytes.HasPrefix(reply, []byte("-OVERLOADED")):
		return shed
	}
	return refused
}

// saturate has every line keep so many requests under way, for as long.
func (c *crew) saturate(ctx context.Context, window int, d time.Duration) error {
	c.window.Store(int64(window))
	now := c.now()
	for _, l := range c.lines {
		l.mu.Lock()
		l.send(max(window-len(l.owed), 0), now)
		l.mu.Unlock()
	}
	err := wait(ctx, d)
	c.window.Store(0)
	return errors.Join(err, c.broken())
}

// offer sends so many requests a second, whether they are served or not, for as long. What it could not send in time is sent late and counts from when it was due.
func (c *crew) offer(ctx context.Context, rate float64, d time.Duration) error {
	begun := c.now()
	for done := time.Duration(0); done < d; {
		if err := wait(ctx, begun+done+tick-c.now()); err != nil {
			return err
		}
		done += tick
		each := rate * tick.Seconds() / float64(len(c.lines))
		for _, l := range c.lines {
			l.mu.Lock()
			l.due += each
			if n := int(l.due); n > 0 {
				l.due -= float64(n)
				l.send(n, begun+done)
			}
			l.mu.Unlock()
		}
	}
	return c.broken()
}

// drain waits until nothing is owed.
func (c *crew) drain(ctx context.Context) error {
	const limit = 20 * time.Second
	for begun := c.now(); ; {
		owed := 0
		for _, l := range c.lines {
			l.mu.Lock()
			owed += len(l.owed)
			l.mu.Unlock()
		}
		if owed == 0 {
			return c.broken()
		}
		if c.now()-begun > limit {
			return errors.Join(fmt.Errorf("%d requests were not answered within %v", owed, limit), c.broken())
		}
		if err := wait(ctx, tick); err != nil {
			return err
		}
	}
}

// broken is what is wrong with the connections.
func (c *crew) broken() error {
	for _, l := range c.lines {
		l.mu.Lock()
		err := l.err
		l.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// ended are the requests that have ended between two moments.
func (c *crew) ended(from, to time.Duration) (list events) {
	return c.events(func(e event) bool { return e.ended >= from && e.ended < to })
}

// due are the requests that were due between two moments.
func (c *crew) due(from, to time.Duration) events {
	return c.events(func(e event) bool { return e.due >= from && e.due < to })
}

func (c *crew) events(want func(event) bool) (list events) {
	for _, l := range c.lines {
		l.mu.Lock()
		for _, e := range l.events {
			if want(e) {
				list = append(list, e)
			}
		}
		l.mu.Unlock()
	}
	return list
}

// events are requests that have ended.
type events []event

func (list events) count(how outcome) int {
	n := 0
	for _, e := range list {
		if e.outcome == how {
			n++
		}
	}
	return n
}

// percentile is how long requests of one outcome took, in ms: that share of them no longer. 0: there were none.
func (list events) percentile(share float64, how outcome) float64 {
	var took []time.Duration
	for _, e := range list {
		if e.outcome == how {
			took = append(took, e.took())
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[min(int(share*float64(len(took))), len(took)-1)].Seconds() * 1e3
}

// of are those of one shard.
func (list events) of(shard int) (some events) {
	for _, e := range list {
		if int(e.shard) == shard {
			some = append(some, e)
		}
	}
	return some
}
