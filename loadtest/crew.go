package loadtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Client is a client of something that does not take requests in a pipeline. It is used by one goroutine.
type Client interface {
	// Read returns the value of a key, and whether it was found; hit: without a shard.
	Read(ctx context.Context, id uint32) (value []byte, found, hit bool, err error)
	// Write returns when the write is acknowledged.
	Write(ctx context.Context, id uint32, version int64, filling string) error
	Close()
}

// crew is clients that take requests in the order in which they are due, each when it is free.
type crew struct {
	run     *run
	name    string
	random  *rand.Rand
	clients []Client
	late    *hdrhistogram.Histogram
	rec     *recorder
}

// backlog is how many requests may wait for a client.
const backlog = 1 << 16

func newCrew(ctx context.Context, r *run, target Target) (*crew, error) {
	c := &crew{run: r, name: target.Name, random: rand.New(rand.NewPCG(r.plan.Seed, 0)), late: newHistogram(fineDigits), rec: newRecorder(r.plan)}
	n := r.plan.Connections
	if target.MostClients > 0 {
		n = min(n, target.MostClients)
	}
	for i := range n {
		client, err := target.Client(ctx, i)
		if err != nil {
			c.close()
			return nil, err
		}
		c.clients = append(c.clients, client)
	}
	return c, nil
}

func (c *crew) recorders() []*recorder       { return []*recorder{c.rec} }
func (c *crew) lag() *hdrhistogram.Histogram { return c.late }

func (c *crew) close() {
	for _, client := range c.clients {
		client.Close()
	}
}

// load draws requests when they are due and gives them to whoever is free.
func (c *crew) load(ctx context.Context) {
	line := make(chan time.Duration, backlog)
	var working sync.WaitGroup
	for i, client := range c.clients {
		d := drawer{c.run, rand.New(rand.NewPCG(c.run.plan.Seed, uint64(i+1)))}
		working.Go(func() {
			for due := range line {
				if ctx.Err() == nil {
					c.do(ctx, client, &d, due)
				}
			}
		})
	}
	arrivals := newArrivals(c.run.plan.schedule(), 1, 0, c.run.plan.Poisson, c.random)
	for due := arrivals.next(); due < c.run.plan.Duration && !c.run.over.Load() && ctx.Err() == nil; {
		now := c.run.now()
		for ; due <= now && due < c.run.plan.Duration; due = arrivals.next() {
			put(c.late, now-due)
			select {
			case line <- due:
			default:
				c.rec.one(outcome{due: due, failed: kindUnsent})
			}
		}
		if wait := due - c.run.now(); wait > 0 {
			pause(min(max(wait, c.run.plan.Batch), longestPause))
		}
	}
	close(line)
	working.Wait()
}

// do carries out one request. One that has waited for too long already is given up, as its user would have done.
func (c *crew) do(ctx context.Context, client Client, d *drawer, due time.Duration) {
	o := outcome{due: due, counted: true}
	if o.took = c.run.now() - due; o.took > c.run.plan.Timeout {
		o.failed, o.timed = kindTimeout, true
		c.rec.one(o)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.run.plan.Timeout-o.took)
	defer cancel()
	q := d.request(due)
	var err error
	if o.write = q.write; q.write {
		err = client.Write(ctx, q.key, q.version, c.run.values.fill(d.random))
		c.run.ledger.endWrite(q.key, q.version, err == nil)
	} else {
		var value []byte
		var found bool
		value, found, o.hit, err = client.Read(ctx, q.key)
		if err == nil {
			c.run.ledger.endRead(q, c.run.values.versionOf(value), found, c.name)
		}
		if !o.hit {
			o.shardReads = 1
		}
	}
	o.took = c.run.now() - due
	if err != nil {
		o.failed = kindOf(err)
		if ctx.Err() != nil {
			o.failed, o.timed = kindTimeout, true
		}
	}
	c.rec.one(o)
}

// kindOf is the first word of an error of a server, or what it is about.
func kindOf(err error) string {
	word := firstWord([]byte("-" + err.Error()))
	if len(word) > 24 {
		word = fmt.Sprintf("%.24s", word)
	}
	return word
}
