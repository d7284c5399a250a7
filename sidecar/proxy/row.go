package proxy

import (
	"bytes"
	"context"

	"ringside/cache"
	"ringside/resp"
	"ringside/shard/keyspace"
)

// rowHandler begins a request on the row in w.key.
type rowHandler func(w *worker, cl *client, c *command, cmd resp.Command) bool

// rowHandlerOf returns what a command does on a row; nil when it makes no sense there.
func rowHandlerOf(name string) rowHandler {
	switch name {
	case "get":
		return reading(readGet)
	case "exists":
		return reading(readExists)
	case "touch":
		return reading(readExists)
	case "strlen":
		return reading(readStrlen)
	case "type":
		return reading(readType)
	case "ttl":
		return reading(readTTL)
	case "pttl":
		return reading(readPTTL)
	case "hgetall":
		return reading(readHGetAll)
	case "hkeys":
		return reading(readHKeys)
	case "hvals":
		return reading(readHVals)
	case "hlen":
		return reading(readHLen)
	case "hget":
		return reading(readHGet)
	case "hmget":
		return reading(readHMGet)
	case "hexists":
		return reading(readHExists)
	case "set":
		return (*worker).setRow
	case "hset", "hmset":
		return (*worker).hsetRow
	case "hincrby":
		return (*worker).incrementRow
	}
	return nil
}

// row begins the request of a command whose only key is the row in w.key.
func (w *worker) row(cl *client, c *command, cmd resp.Command) bool {
	if c.row == nil {
		cl.refuse(w, w.senseless(c))
		return true
	}
	if cl.holdsWrite(w.key.Text) {
		return false
	}
	return c.row(w, cl, c, cmd)
}

// The steps of a kindRow request, as call.part.
const (
	stepEntry int32 = iota
	stepTTL
)

// reading returns the handler of a command that reads the row.
func reading(read rowRead) rowHandler {
	return func(w *worker, cl *client, c *command, cmd resp.Command) bool {
		r := w.newRequest(cl, c.index, kindRow)
		r.read, r.keyspace = read, w.key.Keyspace
		r.key = append(r.key[:0], w.key.Text...)
		for _, field := range cmd.Args[min(2, len(cmd.Args)):] {
			r.fields = append(r.fields, bytes.Clone(field))
		}
		u, ok := w.entry(&w.key, cl.proto, &r.at)
		if !ok {
			w.rowMissed(r)
			return true
		}
		if read == readTTL || read == readPTTL {
			u.sendCommand(r, stepTTL, []byte("PTTL"), w.name)
		}
		u.sendGet(w.name, r, stepEntry)
		return true
	}
}

// sendGet sends the GET of an entry without allocating.
func (u *upstream) sendGet(name []byte, r *request, part int32) {
	u.expect(r, part)
	if !u.ready {
		u.early = appendGet(u.early, name)
		return
	}
	u.conn.SetOut(appendGet(u.conn.Out(len(name)+48), name))
}

func appendGet(dst, name []byte) []byte {
	return resp.AppendBulk(append(dst, "*2\r\n$3\r\nGET\r\n"...), name)
}

// rowReplied takes what the cache has of a row.
func (w *worker) rowReplied(u *upstream, r *request, step int32, frame []byte) {
	if step == stepTTL {
		r.ttl, _ = resp.IntOf(frame) // negative answers come with an entry that is no value
		return
	}
	if !w.trusted(u, &r.at) {
		w.rowMissed(r)
		return
	}
	entry, ok := resp.BulkOf(frame)
	if ok {
		switch cache.Kind(entry) {
		case cache.KindValue:
			w.stats.hits++
			w.refresh(r.key, entry)
			w.rowFound(r, true, cache.Body(entry))
			return
		case cache.KindAbsent:
			w.stats.hits++
			w.refresh(r.key, entry)
			w.rowFound(r, false, nil)
			return
		}
	}
	w.rowMissed(r)
}

// refresh has an entry that was hit refreshed if it is due.
func (w *worker) refresh(key, entry []byte) {
	if !cache.Due(entry, w.loop.Now()) {
		return
	}
	k, err := w.matchKey(key)
	if err != nil {
		return
	}
	s, own := w.server, k.Clone()
	s.goroutines.Add(1)
	go func() {
		defer s.goroutines.Done()
		s.deps.Rows.Refresh(own)
	}()
}

// rowFound answers from the row.
func (w *worker) rowFound(r *request, found bool, body []byte) {
	if found && r.read == readGet && r.keyspace.Value == keyspace.WholeRow {
		w.finishBulk(r, body)
		return
	}
	proto := 2
	if r.client != nil {
		proto = r.client.proto
	}
	switch r.read {
	case readTTL, readPTTL:
		w.scratch = appendTTL(w.scratch[:0], r.read, found, r.ttl)
	default:
		w.scratch = renderRow(w.scratch[:0], proto, r.read, r.keyspace, r.fields, found, body)
	}
	w.finish(r, w.scratch)
	w.trimScratch()
}

// rowMissed asks for a row that the cache does not have.
func (w *worker) rowMissed(r *request) {
	if r.client == nil {
		w.release(r) // nobody waits for it any more
		return
	}
	if r.read == readTTL || r.read == readPTTL {
		w.scratch = resp.AppendInt(w.scratch[:0], notCached)
		w.finish(r, w.scratch)
		return
	}
	w.stats.misses++
	key, err := w.matchKey(r.key)
	if err != nil {
		w.fail(r, err)
		return
	}
	w.missing.add(w, r, key)
}

// write runs a write to the row in w.key, after the connection's earlier reads of that row; render makes its reply.
func (w *worker) write(cl *client, c *command, op keyspace.Op, render func(dst []byte, proto int, out keyspace.Outcome) []byte) bool {
	if cl.holdsRead(w.key.Text) {
		return false
	}
	if err := w.server.deps.Rows.Refuses(&w.key); err != nil {
		cl.refuse(w, err)
		return true
	}
	op.Key = w.key.Clone()
	r := w.newRequest(cl, c.index, kindWrite)
	r.key = append(r.key[:0], op.Key.Text...)
	r.left = w.now
	cl.writes++
	s := w.server
	w.away(r, func() func() {
		ctx, cancel := s.rowContext()
		defer cancel()
		out, err := s.deps.Rows.Write(ctx, op)
		return func() {
			w.turn()
			r.back = w.now
			if err != nil {
				w.fail(r, err)
				return
			}
			w.scratch = render(w.scratch[:0], cl.proto, out)
			w.finish(r, w.scratch)
		}
	})
	return true
}

// rowContext bounds a miss or a write. It does not end when the client leaves: what others wait for goes on.
func (s *Server) rowContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.ctx, s.cfg.RowTimeout)
}
