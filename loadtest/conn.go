package loadtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"ringside/resp"
)

const (
	// window is how many requests may be on their way on one connection.
	window = 8192
	// mostUnsent is how many bytes may wait for a connection that does not take them.
	mostUnsent = 4 << 20
	// redialAfter is how long a lost connection is left alone.
	redialAfter = 100 * time.Millisecond
	dialTimeout = 3 * time.Second
)

// The kinds of errors that are ours; those of servers are the first words of their replies.
const (
	kindTimeout     = "timeout"     // no reply in time: the connection is given up
	kindClosed      = "closed"      // the connection was lost while the request was on its way
	kindUnconnected = "unconnected" // there was no connection when the request was due
	kindUnsent      = "unsent"      // too many requests were on their way already
	kindProtocol    = "protocol"    // what came is no reply to this request
)

// request is one that is on its way.
type request struct {
	due     time.Duration // since the start
	floor   floor
	version int64 // of a write
	key     uint32
	write   bool
}

// conn is one client connection. The worker sends on it, and one goroutine of its own reads and dials again.
type conn struct {
	run            *run
	addr, password string
	rec            *recorder

	mu      sync.Mutex // guards the following
	nc      net.Conn
	raw     syscall.RawConn // nil: not connected
	unsent  []byte
	pending queue
	scratch []byte
	wrote   int
	failed  error
	doWrite func(fd uintptr) bool
}

func newConn(r *run, addr, password string, rec *recorder) *conn {
	c := &conn{run: r, addr: addr, password: password, rec: rec, scratch: make([]byte, 0, 128+r.plan.MaxSize+len(r.plan.VersionColumn)+len(r.plan.TextColumn))}
	c.doWrite = func(fd uintptr) bool {
		c.wrote, c.failed = syscall.Write(int(fd), c.unsent)
		return true // whatever happened: nobody waits here
	}
	return c
}

// add puts a request into the buffer. flush sends it.
func (c *conn) add(q request, filling string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := ""
	switch {
	case c.raw == nil:
		kind = kindUnconnected
	case c.pending.len() >= window || len(c.unsent) >= mostUnsent:
		kind = kindUnsent
	}
	if kind != "" {
		if q.write {
			c.run.ledger.unsent(q.key)
		}
		c.rec.one(outcome{due: q.due, write: q.write, failed: kind})
		return
	}
	if q.write {
		c.unsent = c.run.values.appendWrite(c.unsent, c.scratch, q.key, q.version, filling)
	} else {
		c.unsent = c.run.values.appendRead(c.unsent, c.scratch, q.key)
	}
	c.pending.push(q)
}

// flush writes as much as the socket takes, and never waits. It reports whether something is left.
func (c *conn) flush() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.raw == nil || len(c.unsent) == 0 {
		return false
	}
	c.wrote = 0
	if err := c.raw.Write(c.doWrite); err != nil {
		c.failed = err
	}
	if c.wrote > 0 {
		c.unsent = append(c.unsent[:0], c.unsent[c.wrote:]...)
	}
	if c.failed != nil && !errors.Is(c.failed, syscall.EAGAIN) && !errors.Is(c.failed, syscall.EINTR) {
		_ = c.nc.Close() // the reader sees to the rest
		return false
	}
	return len(c.unsent) > 0
}

// sweep gives the connection up if the oldest request has waited for too long.
func (c *conn) sweep(now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.raw != nil && c.pending.len() > 0 && now-c.pending.first().due > c.run.plan.Timeout {
		_ = c.nc.Close()
	}
}

// owed is how many replies have not come.
func (c *conn) owed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending.len()
}

// dial connects once.
func (c *conn) dial(ctx context.Context) error {
	d := net.Dialer{Timeout: dialTimeout}
	nc, err := d.DialContext(ctx, "tcp", c.addr)
	if err != nil {
		return err
	}
	raw, err := nc.(*net.TCPConn).SyscallConn()
	if err != nil {
		_ = nc.Close()
		return err
	}
	if c.password != "" {
		if err := authenticate(nc, c.password); err != nil {
			_ = nc.Close()
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nc, c.raw = nc, raw
	return nil
}

func authenticate(nc net.Conn, password string) error {
	if err := nc.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return err
	}
	if _, err := nc.Write(resp.AppendCommandString(nil, "AUTH", password)); err != nil {
		return err
	}
	var buf [256]byte
	n, err := nc.Read(buf[:])
	if err != nil {
		return err
	}
	if reply := string(buf[:n]); reply != "+OK\r\n" {
		return fmt.Errorf("the password is refused: %s", strings.TrimSpace(reply))
	}
	return nc.SetDeadline(time.Time{})
}

// serve reads replies until ctx ends, and connects again whenever the connection is lost.
func (c *conn) serve(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.nc != nil {
			_ = c.nc.Close()
		}
	})
	defer stop()
	for {
		if c.raw != nil { // only this goroutine writes to it
			c.read()
			c.drop()
		}
		if ctx.Err() != nil {
			return
		}
		timer := time.NewTimer(redialAfter)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
		if c.dial(ctx) == nil && ctx.Err() != nil {
			_ = c.nc.Close()
		}
	}
}

// drop forgets the connection and all that was on its way on it.
func (c *conn) drop() {
	c.mu.Lock()
	_ = c.nc.Close()
	c.nc, c.raw, c.unsent = nil, nil, c.unsent[:0]
	var left []request
	for c.pending.len() > 0 {
		left = append(left, c.pending.pop())
	}
	c.mu.Unlock()
	now := c.run.now()
	for _, q := range left {
		if q.write {
			c.run.ledger.endWrite(q.key, q.version, false)
		}
		o := outcome{due: q.due, took: now - q.due, write: q.write, failed: kindClosed}
		if o.took >= c.run.plan.Timeout {
			o.failed, o.timed = kindTimeout, true
		}
		c.rec.one(o)
	}
}

// read takes replies until the connection ends.
func (c *conn) read() {
	var scan resp.Scanner
	buf := make([]byte, 0, 16<<10)
	var replies [][]byte
	for {
		if cap(buf)-len(buf) < 4<<10 {
			buf = append(make([]byte, 0, 2*cap(buf)), buf...)
		}
		n, err := c.nc.Read(buf[len(buf):cap(buf)])
		if n == 0 && err != nil {
			return
		}
		now := c.run.now()
		buf = buf[:len(buf)+n]
		replies = replies[:0]
		at := 0
		for at < len(buf) {
			size, err := scan.Next(buf[at:])
			if err != nil {
				return // what is on its way is lost: nobody knows where the next reply begins
			}
			if size == 0 {
				break
			}
			replies = append(replies, buf[at:at+size])
			at += size
		}
		if !c.answer(replies, now) {
			return
		}
		buf = append(buf[:0], buf[at:]...)
	}
}

// answer matches replies with the requests that they are for; false if nothing was asked.
func (c *conn) answer(replies [][]byte, now time.Duration) bool {
	if len(replies) == 0 {
		return true
	}
	var room [64]request
	asked := room[:0]
	c.mu.Lock()
	for range min(len(replies), c.pending.len()) {
		asked = append(asked, c.pending.pop())
	}
	c.mu.Unlock()
	c.rec.mu.Lock()
	defer c.rec.mu.Unlock()
	for i, q := range asked {
		c.rec.add(c.run.settle(q, replies[i], c.addr, now))
	}
	return len(asked) == len(replies)
}

// settle says what became of a request, and has the answer judged.
func (r *run) settle(q request, reply []byte, from string, now time.Duration) outcome {
	o := outcome{due: q.due, took: now - q.due, write: q.write}
	if reply[0] == '-' {
		o.failed = firstWord(reply)
	} else if q.write {
		if !bytes.Equal(reply, []byte("+OK\r\n")) {
			o.failed = kindProtocol
		}
	}
	if q.write {
		r.ledger.endWrite(q.key, q.version, o.failed == "")
		return o
	}
	if o.failed != "" {
		return o
	}
	body, found := resp.BulkOf(reply)
	if !found && !bytes.Equal(reply, []byte("$-1\r\n")) {
		o.failed = kindProtocol
		return o
	}
	o.hit, o.counted = found, r.countFound
	r.ledger.endRead(q, r.values.versionOf(body), found, from)
	return o
}

// firstWord is the kind of an error reply.
func firstWord(reply []byte) string {
	word, _, _ := strings.Cut(strings.TrimSpace(string(reply[1:min(len(reply), 60)])), " ")
	if word == "" {
		return "ERR"
	}
	return word
}

// queue is a first-in first-out queue of requests in a ring of slots.
type queue struct {
	slots       []request
	head, count int
}

func (q *queue) len() int        { return q.count }
func (q *queue) first() *request { return &q.slots[q.head] }
func (q *queue) push(r request) {
	if q.count == len(q.slots) {
		larger := make([]request, max(16, 2*q.count))
		for i := range q.count {
			larger[i] = q.slots[(q.head+i)%len(q.slots)]
		}
		q.slots, q.head = larger, 0
	}
	q.slots[(q.head+q.count)%len(q.slots)] = r
	q.count++
}

func (q *queue) pop() request {
	r := q.slots[q.head]
	q.head = (q.head + 1) % len(q.slots)
	q.count--
	return r
}
