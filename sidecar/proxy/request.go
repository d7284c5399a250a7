package proxy

import (
	"ringside/resp"
	"ringside/shard/keyspace"
)

// kind is what a request waits for.
type kind uint8

const (
	kindPass  kind = iota // one upstream reply, passed on as it is
	kindRow               // the entry of a row, then perhaps a miss
	kindJoin              // several upstream replies and misses, made into one
	kindAway              // a goroutine
	kindTask              // several steps with cache servers: see task
	kindWrite             // a goroutine that writes the row whose key is in key
)

// request is one reply owed to a client. It lives on one loop. It is completed exactly once (finish or fail), also when the client has
// gone meanwhile, and only then is it reused. Hundreds wait at a time, so what most of them need is one cache line.
type request struct {
	client *client  // nil once the client has gone
	next   *request // the client's next request, or the next free one
	start  int64    // worker.now at dispatch
	reply  []byte   // buffer, kept for reuse when small
	*details
	metric int32 // index of the command's counters
	kind   kind
	done   bool // reply holds the reply, which waits for its turn
}

// details is the rest of a request that is more than one reply passed on; nil for kindPass and kindAway.
type details struct {
	key      []byte // kindRow, kindWrite: the row's key, canonical
	keyspace *keyspace.Keyspace
	at       entryAt // where the entry was asked for
	read     rowRead
	fields   [][]byte // arguments of HGET, HMGET, HEXISTS
	ttl      int64    // PTTL of the entry, for TTL
	join     *join
	task     task
	// When the request went to a goroutine for its row, and came back: worker.now; 0: it did not.
	left, back int64
}

// keepReply is the largest reply buffer that a free request keeps.
const keepReply = 4 << 10

func (w *worker) newRequest(cl *client, metric int, k kind) *request {
	var r *request
	if k == kindPass || k == kindAway {
		if r = w.free.take(); r == nil {
			r = &request{}
		}
	} else if r = w.freeDetailed.take(); r == nil {
		var both struct { // side by side, because they are used together
			request request
			details details
		}
		r = &both.request
		r.details = &both.details
	}
	r.client, r.next, r.start, r.metric, r.kind = cl, nil, w.now, int32(metric), k
	if r.details != nil {
		r.left, r.back = 0, 0
	}
	if cl.tail == nil {
		cl.head = r
	} else {
		cl.tail.next = r
	}
	cl.tail = r
	cl.owed++
	return r
}

// errand returns the request of a task that no client waits for. The task does not complete it.
func errand(t task) *request { return &request{kind: kindTask, details: &details{task: t}} }

// freeRequests are requests that are not in use.
type freeRequests struct {
	first *request
	count int
}

// keepFree is how many of each kind a worker keeps.
const keepFree = 4096

func (f *freeRequests) take() *request {
	r := f.first
	if r != nil {
		f.first = r.next
		f.count--
	}
	return r
}

func (f *freeRequests) put(r *request) {
	if f.count < keepFree {
		r.next = f.first
		f.first = r
		f.count++
	}
}

func (w *worker) release(r *request) {
	if cap(r.reply) > keepReply {
		r.reply = nil
	}
	r.reply = r.reply[:0]
	r.client, r.done = nil, false
	d := r.details
	if d == nil {
		w.free.put(r)
		return
	}
	if r.kind == kindRow && d.read == readGet { // as nearly all are: the rest is not set
		d.at.topology, d.at.confirmation = nil, nil
	} else {
		*d = details{key: d.key}
	}
	d.key = d.key[:0]
	w.freeDetailed.put(r)
}

// finish completes r with a reply, which it copies.
func (w *worker) finish(r *request, reply []byte) {
	cl := r.client
	if cl == nil {
		w.release(r)
		return
	}
	w.stats.observe(r, w.now)
	if r.kind == kindWrite || r.kind == kindJoin && r.join.write {
		r.kind = kindAway // no longer under way: what waits for it may be read
		cl.wrote()
	}
	if cl.head != r {
		r.reply = append(r.reply[:0], reply...)
		r.done = true
		cl.held += len(reply)
		cl.checkOutput()
		return
	}
	cl.conn.Write(reply)
	cl.advance()
}

// finishBulk completes r, which writes no row, with a bulk string, copied once into the connection's buffer when its turn has come.
func (w *worker) finishBulk(r *request, body []byte) {
	cl := r.client
	if cl == nil {
		w.release(r)
		return
	}
	w.stats.observe(r, w.now)
	if cl.head != r {
		r.reply = resp.AppendBulk(r.reply[:0], body)
		r.done = true
		cl.held += len(r.reply)
		cl.checkOutput()
		return
	}
	cl.writeBulk(body)
	cl.advance()
}

// fail completes r with the error's reply.
func (w *worker) fail(r *request, err error) {
	code, text := errorReply(err)
	w.stats.failed(code)
	w.scratch = resp.AppendError(w.scratch[:0], text)
	w.finish(r, w.scratch)
	w.trimScratch()
}

// keepScratch is the largest scratch buffer that a worker keeps.
const keepScratch = 64 << 10

func (w *worker) trimScratch() {
	if cap(w.scratch) > keepScratch {
		w.scratch = nil
	}
}

// away runs work on a goroutine of its own and then what it returns back on the loop, where it must complete r.
// It refuses, completing r, when too many are under way already.
func (w *worker) away(r *request, work func() func()) {
	s := w.server
	if s.rowOps.Add(1) > int64(s.live().RowOps) {
		s.rowOps.Add(-1)
		w.stats.atLimit.rowOps++
		w.fail(r, errManyRowOps)
		return
	}
	s.goroutines.Add(1)
	go func() {
		defer s.goroutines.Done()
		back := work()
		s.rowOps.Add(-1)
		w.loop.Submit(back) // false: the loop has ended, and with it every client
	}()
}

// matchKey takes a request's own copy of a key apart again.
func (w *worker) matchKey(key []byte) (keyspace.Key, error) {
	var k keyspace.Key
	_, err := w.server.keyspaces.Match(w.hasher, key, &k)
	return k, err
}
