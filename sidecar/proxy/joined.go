package proxy

import (
	"context"
	"sync"

	"ringside/cache"
	"ringside/resp"
	"ringside/shard/keyspace"
)

// joined goes on when the servers have answered: with the rows that are still to be read or written, or with the reply.
func (w *worker) joined(r *request) {
	j := r.join
	if j.kind == joinValues && j.err == nil && len(j.rows) > 0 {
		w.sortOut(j)
	}
	if j.err != nil {
		w.endJoin(r)
		return
	}
	var open []int
	for i := range j.rows {
		if !j.rows[i].usable {
			open = append(open, i)
		}
	}
	if len(open) == 0 {
		w.endJoin(r)
		return
	}
	if r.client == nil && !j.write {
		w.release(r) // nobody waits for it any more
		return
	}
	w.stats.misses += uint64(len(open))
	rows, write := j.rows, j.write
	w.awayJoin(r, func() {
		if write {
			w.server.deleteRows(rows)
			return
		}
		keys := make([]keyspace.Key, len(open))
		for i, n := range open {
			keys[i] = rows[n].key
		}
		ctx, cancel := w.server.rowContext()
		defer cancel()
		w.server.deps.Rows.Read(ctx, keys, func(at []int, read []Row) {
			for _, i := range at {
				rows[open[i]].row = read[i]
			}
		})
	})
}

// awayJoin runs work on a goroutine and then ends the join.
func (w *worker) awayJoin(r *request, work func()) {
	s := w.server
	if s.rowOps.Add(1) > int64(s.live().RowOps) {
		s.rowOps.Add(-1)
		w.stats.atLimit.rowOps++
		r.join.fail(errManyRowOps)
		w.endJoin(r)
		return
	}
	s.goroutines.Add(1)
	go func() {
		defer s.goroutines.Done()
		work()
		s.rowOps.Add(-1)
		w.loop.Submit(func() {
			w.turn()
			w.endJoin(r)
		})
	}()
}

// deleteAtOnce is how many rows of one DEL are deleted at the same time.
const deleteAtOnce = 8

// deleteRows deletes rows, each in a transaction of its own, since they may lie on different shards.
func (s *Server) deleteRows(rows []joinRow) {
	ctx, cancel := s.rowContext()
	defer cancel()
	var wg sync.WaitGroup
	turns := make(chan struct{}, deleteAtOnce)
	for i := range rows {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			rows[i].row = s.deleteRow(ctx, rows[i].key)
		})
	}
	wg.Wait()
}

func (s *Server) deleteRow(ctx context.Context, key keyspace.Key) Row {
	out, err := s.deps.Rows.Write(ctx, keyspace.Op{Kind: keyspace.Delete, Key: key})
	return Row{Found: out.Applied, Err: err}
}

// sortOut gives each row of an MGET the entry that its server had.
func (w *worker) sortOut(j *join) {
	walk := newWalk(j)
	rows := j.rows
	for i := range j.part {
		element := walk.next()
		if len(rows) == 0 {
			return
		}
		if rows[0].index != i {
			continue
		}
		row := &rows[0]
		rows = rows[1:]
		if element == nil || row.distrusted {
			continue
		}
		if body, ok := resp.BulkOf(element); ok {
			row.entry = body
			kind := cache.Kind(body)
			if row.usable = kind == cache.KindValue || kind == cache.KindAbsent; row.usable {
				w.refresh(row.key.Text, body)
			}
			if row.usable {
				w.stats.hits++
			}
		}
	}
}

// endJoin makes the one reply.
func (w *worker) endJoin(r *request) {
	j := r.join
	for i := range j.rows {
		if row := &j.rows[i].row; row.Err != nil {
			j.fail(row.Err)
		} else if row.Found {
			j.sum++
		}
	}
	if j.err != nil {
		w.fail(r, j.err)
		return
	}
	if j.kind == joinValues {
		w.endValues(r)
		return
	}
	if j.kind == joinOK {
		w.scratch = resp.AppendSimple(w.scratch[:0], "OK")
	} else {
		w.scratch = resp.AppendInt(w.scratch[:0], j.sum)
	}
	w.finish(r, w.scratch)
	w.trimScratch()
}

// endValues answers an MGET. A long reply is put together where it is sent from, if its turn has come: copied once, and into buffers that are
// there already.
func (w *worker) endValues(r *request) {
	j, cl := r.join, r.client
	defer func() { w.spare.put(j.parts) }()
	size := j.size()
	switch {
	case size <= keepScratch:
		w.scratch = w.scratch[:0]
		j.eachValue(func(value []byte) { w.scratch = append(w.scratch, value...) })
		w.finish(r, w.scratch)
		w.trimScratch()
	case cl != nil && cl.head == r:
		w.stats.observe(r, w.now)
		out := cl.conn.Out(outBatch)
		j.eachValue(func(value []byte) {
			if cap(out)-len(out) < len(value) {
				cl.conn.SetOut(out)
				out = cl.conn.Out(max(outBatch, len(value)))
			}
			out = append(out, value...)
		})
		cl.conn.SetOut(out)
		cl.advance()
	default:
		reply := make([]byte, 0, size)
		j.eachValue(func(value []byte) { reply = append(reply, value...) })
		w.finishOwned(r, reply)
	}
}

// outBatch is how much of a long reply is put together at a time.
const outBatch = 64 << 10

// finishOwned completes r, whose turn has not come and which writes no row, with a reply that nobody else uses any more.
func (w *worker) finishOwned(r *request, reply []byte) {
	cl := r.client
	if cl == nil {
		w.release(r)
		return
	}
	w.stats.observe(r, w.now)
	r.reply, r.done = reply, true
	cl.held += len(reply)
	cl.checkOutput()
}

// size is about how long the reply of an MGET is.
func (j *join) size() int {
	n := bulkFraming
	for i := range j.parts {
		n += len(j.parts[i].values)
	}
	for i := range j.rows {
		n += len(j.rows[i].row.Body) + bulkFraming
	}
	return n
}

// eachValue goes through the reply of an MGET: its header, then the values in the order of its keys. What it yields is good for that call.
func (j *join) eachValue(yield func([]byte)) {
	walk := newWalk(j)
	scratch := resp.AppendArray(nil, len(j.part))
	yield(scratch)
	rows := j.rows
	for i := range j.part {
		element := walk.next()
		if len(rows) == 0 || rows[0].index != i {
			yield(element)
			continue
		}
		row := &rows[0]
		rows = rows[1:]
		found, body := row.row.Found, row.row.Body
		if row.usable {
			found = cache.Kind(row.entry) == cache.KindValue
			if found {
				body = cache.Body(row.entry)
			}
		}
		scratch = renderRow(scratch[:0], j.proto, readGet, row.key.Keyspace, nil, found, body)
		yield(scratch)
	}
}
