package proxy

import (
	"bytes"
	"errors"
	"fmt"

	"ringside/resp"
)

// The replies to a transaction, as call.part: to MULTI, to each command, to EXEC. Only the last one completes the request.
const (
	execMulti int32 = iota
	execQueued
	execLast
)

// exec is EXEC.
func (w *worker) exec(cl *client, c *command, _ resp.Command) bool {
	if !cl.inMulti() {
		cl.refuse(w, errNoMulti)
		return true
	}
	s := cl.session
	// Earlier commands went by a shared connection. Where the transaction goes the same way it cannot overtake them.
	if s.watch != nil && cl.owed > 0 {
		return false
	}
	tx, watched := s.tx, s.watch
	if tx.aborted {
		w.drop(cl)
		cl.refuse(w, errExecAbort)
		return true
	}
	if watched != nil && watched.moved {
		// The keys were handed over, and whether anybody has changed them meanwhile nobody knows.
		w.drop(cl)
		w.finish(w.newRequest(cl, c.index, kindAway), nullArray(cl.proto))
		return true
	}
	u, err := w.execVia(cl)
	if err == nil && u != nil && !u.ready {
		return w.await(cl, c, u)
	}
	if err == nil && u != nil && tx.scripts {
		err = w.teachAll(u, tx)
	}
	if err != nil {
		w.drop(cl)
		cl.refuse(w, err)
		return true
	}
	s.tx, s.watch = nil, nil
	r := w.begin(cl, c, tx)
	tx.request, tx.alone = r, watched != nil
	if u == nil {
		w.finishExec(tx, emptyArray)
		return true
	}
	if tx.alone {
		cl.hold() // what follows goes by a shared connection and must not overtake it
	}
	if tx.sent == 0 {
		tx.raw = resp.AppendCommandString(tx.raw, "MULTI")
	}
	u.expect(r, execMulti)
	for range tx.sent {
		u.expect(r, execQueued)
	}
	u.send(resp.AppendCommandString(tx.raw, "EXEC"), r, execLast)
	tx.raw = nil
	return true
}

var emptyArray = []byte("*0\r\n")

func nullArray(proto int) []byte {
	if proto == 3 {
		return []byte("_\r\n")
	}
	return []byte("*-1\r\n")
}

// execVia returns the connection for the transaction; nil when all of it is answered here. An error means that nothing has run.
func (w *worker) execVia(cl *client) (*upstream, error) {
	s := cl.session
	switch {
	case s.watch == nil && s.tx.sent == 0:
		return nil, nil
	case s.watch == nil:
		_, u, err := w.owner(s.tx.vnode, cl.proto)
		return u, err
	case s.watch.lost != nil:
		return nil, &CacheDownError{Server: s.watch.place.name, Err: fmt.Errorf("the connection that watched the keys is lost; nothing has run: %w", s.watch.lost)}
	}
	return s.own, s.own.room()
}

// replied implements task.
func (tx *transaction) replied(w *worker, _ *upstream, part int32, frame []byte) {
	if part != execLast {
		if frame[0] == '-' && tx.refusal == "" {
			tx.refusal = string(bytes.TrimRight(frame[1:], "\r\n"))
			tx.multiRefused = part == execMulti
		}
		return
	}
	tx.over(w)
	r := tx.request
	switch {
	case tx.multiRefused:
		w.stats.passedErrors++
		w.fail(r, resp.Refusal("ERR the cache server refused MULTI, so the commands may have run one by one: "+tx.refusal))
	case frame[0] == '-':
		w.stats.passedErrors++
		if tx.refusal != "" && bytes.HasPrefix(frame, []byte("-EXECABORT")) {
			w.fail(r, resp.Refusal("EXECABORT Transaction discarded because of: "+tx.refusal))
			return
		}
		w.finish(r, frame)
	default:
		w.finishExec(tx, frame)
	}
}

// over ends the wait of what follows.
func (tx *transaction) over(w *worker) {
	if tx.alone {
		w.endHold(tx.request.client)
	}
}

// refused implements task.
func (tx *transaction) refused(w *worker, part int32, err error) {
	if part != execLast {
		return
	}
	tx.over(w)
	r := tx.request
	if down, ok := errors.AsType[*CacheDownError](err); ok {
		what := "nothing has run"
		if down.Sent {
			what = "whether the transaction has run is not known"
		}
		err = &CacheDownError{Server: down.Server, Err: fmt.Errorf("%w; %s", down.Err, what), Sent: down.Sent}
	}
	w.fail(r, err)
}

// finishExec completes the request with the server's replies and, in their places, those that are made here. frame is an array or, if a watched key
// was changed, a null.
func (w *worker) finishExec(tx *transaction, frame []byte) {
	r, cl := tx.request, tx.request.client
	if cl == nil || len(tx.locals) == 0 || resp.IsNull(frame) {
		w.finish(r, frame)
		return
	}
	elements, ok := resp.ElementsOf(frame)
	if !ok || elements.Len() != tx.sent {
		w.fail(r, errStrangeReply)
		return
	}
	out := resp.AppendArray(nil, tx.n)
	locals := tx.locals
	for i := range tx.n {
		if len(locals) > 0 && locals[0].at == i {
			out = w.collect(out, cl, locals[0].c, locals[0].args)
			locals = locals[1:]
			continue
		}
		element, _ := elements.Next() // counted above
		out = append(out, element...)
	}
	w.finish(r, out)
}

// collect runs a command that is answered at once and appends its reply to dst.
func (w *worker) collect(dst []byte, cl *client, c *command, args [][]byte) []byte {
	w.collected, w.collecting = dst, true
	c.run(w, cl, c, resp.Command{Args: args})
	dst = w.collected
	w.collected, w.collecting = nil, false
	return dst
}
