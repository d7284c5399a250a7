package proxy

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"ringside/resp"
)

// slowlog is one worker's record of the requests that took long from being read to having a reply, the latest slowlogLength of them. A
// request's arguments are gone by then, and keeping those of every request for the few slow ones would cost too much: what is
// kept is the command, and the key when it is a row's. Commands that wait for data are left out.
type slowlog struct {
	entries []slowEntry // a ring buffer once it is full
	next    int
}

type slowEntry struct {
	id      int64
	at      time.Time
	took    time.Duration
	command *resp.CommandInfo
	key     string // of a row
	addr    net.Addr
	name    string
}

// words are what is known of the request's arguments.
func (e *slowEntry) words() []string {
	if e.key == "" {
		return []string{spoken(e.command.Name)}
	}
	return []string{spoken(e.command.Name), e.key}
}

// slowlogLength is how many entries each loop keeps.
const slowlogLength = 128

// noteSlow records an answered request.
func (w *worker) noteSlow(r *request, took time.Duration) {
	list := &w.server.commands.list
	if int(r.metric) >= len(list) {
		return
	}
	info := list[r.metric].info
	if info.Flags&(resp.FlagBlocking|resp.FlagSkipSlowlog) != 0 {
		return
	}
	// Nothing is put into words yet: when the machine is overloaded, every request is slow.
	key := ""
	if r.details != nil {
		key = string(r.details.key)
	}
	e := slowEntry{w.server.lastSlow.Add(1) - 1, w.server.started.Add(time.Duration(w.now)), took, info, key, r.client.conn.RemoteAddr(), r.client.name}
	w.logSlow(r, e)
	l := &w.slowlog
	if l.entries == nil {
		l.entries = make([]slowEntry, 0, slowlogLength)
	}
	if len(l.entries) < slowlogLength {
		l.entries = append(l.entries, e)
		return
	}
	l.entries[l.next] = e
	l.next = (l.next + 1) % slowlogLength
}

// slowEntries returns what all loops have recorded, the latest first. Not to be called on a loop.
func (s *Server) slowEntries() []slowEntry {
	var all []slowEntry
	for _, some := range collect(s, func(w *worker) []slowEntry { return slices.Clone(w.slowlog.entries) }) {
		all = append(all, some...)
	}
	slices.SortFunc(all, func(a, b slowEntry) int { return cmp.Compare(b.id, a.id) })
	return all
}

// fromSlowlog answers from what all loops have recorded.
func (w *worker) fromSlowlog(cl *client, c *command, reply func(entries []slowEntry) []byte) bool {
	r := w.newRequest(cl, c.index, kindAway)
	w.away(r, func() func() {
		out := reply(w.server.slowEntries())
		return func() {
			w.turn()
			w.finish(r, out)
		}
	})
	return true
}

// slowlogGet is SLOWLOG GET [count]: 10, or all with -1.
func (w *worker) slowlogGet(cl *client, c *command, cmd resp.Command) bool {
	count := int64(10)
	if len(cmd.Args) > 2 {
		var err error
		if count, err = strconv.ParseInt(string(cmd.Args[2]), 10, 64); len(cmd.Args) > 3 || err != nil || count < -1 {
			cl.refuse(w, resp.Refusal("ERR count should be greater than or equal to -1"))
			return true
		}
	}
	return w.fromSlowlog(cl, c, func(entries []slowEntry) []byte {
		if count >= 0 {
			entries = entries[:min(int(min(count, slowlogLength<<16)), len(entries))]
		}
		out := resp.AppendArray(nil, len(entries))
		for _, e := range entries {
			out = resp.AppendArray(out, 6)
			out = resp.AppendInt(out, e.id)
			out = resp.AppendInt(out, e.at.Unix())
			out = resp.AppendInt(out, e.took.Microseconds())
			words := e.words()
			out = resp.AppendArray(out, len(words))
			for _, word := range words {
				out = resp.AppendBulk(out, word)
			}
			out = resp.AppendBulk(resp.AppendBulk(out, w.server.addressOfClient(e.addr)), e.name)
		}
		return out
	})
}

func (w *worker) slowlogLen(cl *client, c *command, _ resp.Command) bool {
	return w.fromSlowlog(cl, c, func(entries []slowEntry) []byte { return resp.AppendInt(nil, int64(len(entries))) })
}

func (w *worker) slowlogReset(cl *client, c *command, _ resp.Command) bool {
	w.onAllLoops(cl, c, func(w *worker) { w.slowlog = slowlog{} })
	return true
}

// The events of LATENCY are the slow requests too: all are of the event "command".
const latencyEvent = "command"

// sinceReset keeps the entries since LATENCY RESET.
func (s *Server) sinceReset(entries []slowEntry) []slowEntry {
	first := s.latencyReset.Load()
	return slices.DeleteFunc(entries, func(e slowEntry) bool { return e.id < first })
}

func (w *worker) latencyLatest(cl *client, c *command, _ resp.Command) bool {
	return w.fromSlowlog(cl, c, func(entries []slowEntry) []byte {
		entries = w.server.sinceReset(entries)
		if len(entries) == 0 {
			return resp.AppendArray(nil, 0)
		}
		longest := slices.MaxFunc(entries, func(a, b slowEntry) int { return cmp.Compare(a.took, b.took) })
		out := resp.AppendArray(resp.AppendArray(nil, 1), 4)
		out = resp.AppendBulk(out, latencyEvent)
		out = resp.AppendInt(out, entries[0].at.Unix())
		out = resp.AppendInt(out, entries[0].took.Milliseconds())
		return resp.AppendInt(out, longest.took.Milliseconds())
	})
}

func (w *worker) latencyHistory(cl *client, c *command, cmd resp.Command) bool {
	asked := bytes.EqualFold(cmd.Args[2], []byte(latencyEvent))
	return w.fromSlowlog(cl, c, func(entries []slowEntry) []byte {
		entries = w.server.sinceReset(entries)
		if !asked {
			entries = nil
		}
		slices.Reverse(entries)
		out := resp.AppendArray(nil, len(entries))
		for _, e := range entries {
			out = resp.AppendInt(resp.AppendInt(resp.AppendArray(out, 2), e.at.Unix()), e.took.Milliseconds())
		}
		return out
	})
}

// latencyReset is LATENCY RESET [event...]; its reply is how many events had something.
func (w *worker) latencyReset(cl *client, c *command, cmd resp.Command) bool {
	asked := len(cmd.Args) == 2
	for _, a := range cmd.Args[2:] {
		asked = asked || bytes.EqualFold(a, []byte(latencyEvent))
	}
	return w.fromSlowlog(cl, c, func(entries []slowEntry) []byte {
		if !asked || len(w.server.sinceReset(entries)) == 0 {
			return resp.AppendInt(nil, 0)
		}
		w.server.latencyReset.Store(w.server.lastSlow.Load())
		return resp.AppendInt(nil, 1)
	})
}

func (w *worker) latencyDoctor(cl *client, c *command, _ resp.Command) bool {
	proto := cl.proto
	return w.fromSlowlog(cl, c, func(entries []slowEntry) []byte {
		entries = w.server.sinceReset(entries)
		text := fmt.Sprintf("No request has taken %v or longer.\n", w.server.live().SlowFrom)
		if len(entries) > 0 {
			longest := slices.MaxFunc(entries, func(a, b slowEntry) int { return cmp.Compare(a.took, b.took) })
			text = fmt.Sprintf("Of the latest requests %d took %v or longer, the longest %v (%s). SLOWLOG GET -1 lists them; the times of all requests are at /metrics of the admin address.\n",
				len(entries), w.server.live().SlowFrom, longest.took, spoken(longest.command.Name))
		}
		return resp.AppendVerbatim(nil, proto, [3]byte{'t', 'x', 't'}, text)
	})
}
