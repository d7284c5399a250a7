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
		for i, row := range w.server.deps.Rows.Read(ctx, keys) {
			rows[open[i]].row = row
		}
	})
}

// awayJoin runs work on a goroutine and then ends the join.
func (w *worker) awayJoin(r *request, work func()) {
	s := w.server
	if s.rowOps.Add(1) > int64(s.cfg.RowOps) {
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
	elements, err := j.elements()
	if err != nil {
		j.fail(err)
		return
	}
	rows := j.rows
	for i, part := range j.part {
		isRow := len(rows) > 0 && rows[0].index == i
		var frame []byte
		if part != rowKey && j.frames[part] != nil {
			var ok bool
			if frame, ok = elements[part].Next(); !ok {
				j.fail(errStrangeReply)
				return
			}
		}
		if !isRow {
			continue
		}
		row := &rows[0]
		rows = rows[1:]
		if frame == nil || row.distrusted {
			continue
		}
		if body, ok := resp.BulkOf(frame); ok {
			row.entry = body
			kind := cache.Kind(body)
			row.usable = kind == cache.KindValue || kind == cache.KindAbsent
			if row.usable {
				w.stats.hits++
			}
		}
	}
}

func (j *join) elements() ([]resp.Elements, error) {
	elements := make([]resp.Elements, len(j.frames))
	for i, f := range j.frames {
		if f == nil {
			continue // the server could not be asked; it held rows only
		}
		var ok bool
		if elements[i], ok = resp.ElementsOf(f); !ok {
			return nil, errStrangeReply
		}
	}
	return elements, nil
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

// endValues answers an MGET. A long reply is made in a buffer of the right size that is then the client's, so that it is copied once.
func (w *worker) endValues(r *request) {
	j := r.join
	size := j.size()
	if size <= keepScratch {
		reply, err := j.appendValues(w.scratch[:0])
		if err != nil {
			w.fail(r, err)
			return
		}
		w.scratch = reply
		w.finish(r, reply)
		w.trimScratch()
		return
	}
	reply, err := j.appendValues(make([]byte, 0, size))
	if err != nil {
		w.fail(r, err)
		return
	}
	w.finishOwned(r, reply)
}

// finishOwned completes r, which writes no row, with a reply that nobody else uses any more.
func (w *worker) finishOwned(r *request, reply []byte) {
	cl := r.client
	if cl == nil {
		w.release(r)
		return
	}
	w.stats.observe(r, w.now)
	if cl.head != r {
		r.reply, r.done = reply, true
		cl.held += len(reply)
		cl.checkOutput()
		return
	}
	cl.conn.WriteOwned(reply)
	cl.advance()
}

// size is about how long the reply of an MGET is.
func (j *join) size() int {
	n := bulkFraming
	for _, f := range j.frames {
		n += len(f)
	}
	for i := range j.rows {
		n += len(j.rows[i].row.Body) + bulkFraming
	}
	return n
}

// appendValues puts the values of an MGET in the order of its keys.
func (j *join) appendValues(dst []byte) ([]byte, error) {
	elements, err := j.elements()
	if err != nil {
		return nil, err
	}
	dst = resp.AppendArray(dst, len(j.part))
	rows := j.rows
	for i, part := range j.part {
		var frame []byte
		if part != rowKey && j.frames[part] != nil {
			var ok bool
			if frame, ok = elements[part].Next(); !ok {
				return nil, errStrangeReply
			}
		}
		if len(rows) == 0 || rows[0].index != i {
			dst = append(dst, frame...)
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
		dst = renderRow(dst, j.proto, readGet, row.key.Keyspace, nil, found, body)
	}
	return dst, nil
}
