package proxy

import (
	"bytes"
	"strconv"
	"strings"

	"ringside/resp"
)

// clientUnblock is CLIENT UNBLOCK id [TIMEOUT|ERROR]. The client waits on a cache server, by a connection of its own, and only that server
// can end the wait without losing what it may be about to hand over: it is asked which of its clients that connection is, and to
// unblock it.
func (w *worker) clientUnblock(cl *client, c *command, cmd resp.Command) bool {
	id, err := strconv.ParseInt(string(cmd.Args[2]), 10, 64)
	reason := "TIMEOUT"
	switch {
	case err != nil:
		cl.refuse(w, errNumber)
		return true
	case len(cmd.Args) > 4:
		cl.refuse(w, errSyntax)
		return true
	case len(cmd.Args) == 4 && bytes.EqualFold(cmd.Args[3], []byte("error")):
		reason = "ERROR"
	case len(cmd.Args) == 4 && !bytes.EqualFold(cmd.Args[3], []byte("timeout")):
		cl.refuse(w, resp.Refusal("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"))
		return true
	}
	r := w.newRequest(cl, c.index, kindAway)
	proto := cl.proto
	w.away(r, func() func() {
		type wait struct{ server, addr string }
		var found wait
		for _, one := range collect(w.server, func(w *worker) wait {
			blocked := w.clients[id]
			if blocked == nil || !blocked.isBlocked() || blocked.session.own == nil || blocked.session.own.conn == nil {
				return wait{}
			}
			own := blocked.session.own
			return wait{own.name, addressOf(own.conn.LocalAddr())}
		}) {
			if one.addr != "" {
				found = one
			}
		}
		return func() {
			w.turn()
			if found.addr == "" || w.route.topology.CacheIndex(found.server) < 0 {
				w.finish(r, resp.AppendInt(nil, 0))
				return
			}
			u, err := w.upstreamOf(found.server, proto)
			if err != nil {
				w.fail(r, err)
				return
			}
			r.kind, r.details = kindTask, &details{}
			listed := &everywhere{r: r, done: func(w *worker, r *request, frames [][]byte) {
				there := clientAt(frames[0], found.addr)
				if there == "" {
					w.finish(r, resp.AppendInt(nil, 0))
					return
				}
				unblock := &everywhere{r: r, done: func(w *worker, r *request, frames [][]byte) { w.finish(r, frames[0]) }}
				unblock.send(w, []*upstream{u}, [][]byte{[]byte("CLIENT"), []byte("UNBLOCK"), []byte(there), []byte(reason)})
			}}
			listed.send(w, []*upstream{u}, [][]byte{[]byte("CLIENT"), []byte("LIST")})
		}
	})
	return true
}

// clientAt finds the id of the client with an address in the reply to CLIENT LIST; empty if there is none.
func clientAt(frame []byte, addr string) string {
	list, _, err := resp.Decode(frame)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(list.Text) {
		id, rest, _ := strings.Cut(strings.TrimPrefix(line, "id="), " ")
		if at, _, _ := strings.Cut(strings.TrimPrefix(rest, "addr="), " "); at == addr {
			return id
		}
	}
	return ""
}
