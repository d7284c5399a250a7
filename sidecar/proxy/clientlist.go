package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"ringside/resp"
)

// collect asks every loop and returns the answers. It waits for a second at most: a loop that is that late is left out. Not to be called on a
// loop.
func collect[T any](s *Server, ask func(w *worker) T) []T {
	answers := make(chan T, len(s.workers))
	asked := 0
	for _, w := range s.workers {
		if w.loop.Submit(func() { answers <- ask(w) }) {
			asked++
		}
	}
	var all []T
	late := time.NewTimer(time.Second)
	defer late.Stop()
	for range asked {
		select {
		case one := <-answers:
			all = append(all, one)
		case <-late.C:
			return all
		}
	}
	return all
}

// describe is the client's line in CLIENT LIST and CLIENT INFO. The fields are Redis's, because programs take the line apart; those about
// a server's buffers that have no like here are 0.
func (cl *client) describe() string {
	w := cl.worker
	command := "NULL" // what it sent last is not kept
	if cl.tail != nil && int(cl.tail.metric) < len(w.server.commands.list) {
		command = w.server.commands.list[cl.tail.metric].info.Name
	}
	multi, queued := -1, 0
	var channels, patterns, shards int
	if s := cl.session; s != nil {
		channels, patterns, shards = len(s.subs.topics[channelScope]), len(s.subs.topics[patternScope]), len(s.subs.topics[shardScope])
		if s.tx != nil {
			multi, queued = s.tx.n, len(s.tx.raw)
		}
	}
	events := "r"
	if cl.conn.Buffered() > 0 {
		events = "rw"
	}
	unread := cl.held + cl.conn.Buffered()
	idle := max(0, time.Duration(int64(w.loop.Now().Sub(w.server.started))-cl.heard))
	return fmt.Sprintf("id=%d addr=%s laddr=%s fd=-1 name=%s age=%d idle=%d flags=%s db=0 sub=%d psub=%d ssub=%d multi=%d qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=%d "+
		"rbs=0 rbp=0 obl=0 oll=%d omem=%d tot-mem=%d events=%s cmd=%s user=default redir=-1 resp=%d lib-name=%s lib-ver=%s",
		cl.id, cl.address(), addressOf(cl.conn.LocalAddr()), cl.name, int64(w.loop.Now().Sub(cl.opened).Seconds()), int64(idle.Seconds()), cl.flags(),
		channels, patterns, shards, multi, queued, cl.owed, unread, unread+queued, events, command, cl.proto, cl.libName, cl.libVersion)
}

// flags are Redis's letters for what a client is doing.
func (cl *client) flags() string {
	var flags string
	if s := cl.session; s != nil {
		if s.subs.count() > 0 {
			flags += "P"
		}
		if s.tx != nil {
			flags += "x"
		}
		if s.blocked {
			flags += "b"
		}
	}
	if cl.noReply {
		flags += "c"
	}
	if _, ok := cl.worker.server.socket(); ok {
		flags += "U"
	}
	if flags == "" {
		return "N"
	}
	return flags
}

// address is what tells this client in CLIENT LIST and CLIENT KILL.
func (cl *client) address() string { return cl.worker.server.addressOfClient(cl.conn.RemoteAddr()) }

// addressOfClient writes a client's address. As in Redis, clients of a Unix socket share one.
func (s *Server) addressOfClient(a net.Addr) string {
	if path, ok := s.socket(); ok {
		return path + ":0"
	}
	return addressOf(a)
}

// socket returns the path of the Unix socket that clients connect to, if they do.
func (s *Server) socket() (path string, ok bool) { return strings.CutPrefix(s.cfg.Listen, "unix:") }

// clientFilter says which clients are meant. Its zero value means all.
type clientFilter struct {
	ids           []int64
	kind          string // normal, pubsub, master or replica
	addr, laddr   string
	user          string
	sparesOneself bool
}

func (f *clientFilter) matches(cl *client) bool {
	kind := "normal"
	if cl.session != nil && cl.session.subs.count() > 0 {
		kind = "pubsub"
	}
	return (f.ids == nil || slices.Contains(f.ids, cl.id)) && (f.kind == "" || f.kind == kind) && (f.addr == "" || f.addr == cl.address()) &&
		(f.laddr == "" || f.laddr == addressOf(cl.conn.LocalAddr())) && (f.user == "" || f.user == "default")
}

// clientKind reads the value of TYPE.
func clientKind(b []byte) (string, error) {
	switch kind := string(bytes.ToLower(b)); kind {
	case "normal", "pubsub", "master", "replica":
		return kind, nil
	case "slave":
		return "replica", nil
	}
	return "", resp.Refusal("ERR Unknown client type '" + printable(b) + "'")
}

// listFilter reads the arguments of CLIENT LIST: nothing, TYPE type or ID id...
func listFilter(args [][]byte) (clientFilter, error) {
	var f clientFilter
	var err error
	switch {
	case len(args) == 0:
	case len(args) == 2 && bytes.EqualFold(args[0], []byte("type")):
		f.kind, err = clientKind(args[1])
	case len(args) >= 2 && bytes.EqualFold(args[0], []byte("id")):
		for _, a := range args[1:] {
			id, err := strconv.ParseInt(string(a), 10, 64)
			if err != nil {
				return f, resp.Refusal("ERR Invalid client ID")
			}
			f.ids = append(f.ids, id)
		}
	default:
		err = errSyntax
	}
	return f, err
}

// clientList is CLIENT LIST [TYPE type | ID id...], of this sidecar's clients.
func (w *worker) clientList(cl *client, c *command, cmd resp.Command) bool {
	f, err := listFilter(cmd.Args[2:])
	if err != nil {
		cl.refuse(w, err)
		return true
	}
	r := w.newRequest(cl, c.index, kindAway)
	proto := cl.proto
	w.away(r, func() func() {
		type line struct {
			id   int64
			text string
		}
		var lines []line
		for _, some := range collect(w.server, func(w *worker) (lines []line) {
			for _, one := range w.clients {
				if one.conn != nil && f.matches(one) {
					lines = append(lines, line{one.id, one.describe()})
				}
			}
			return lines
		}) {
			lines = append(lines, some...)
		}
		slices.SortFunc(lines, func(a, b line) int { return int(a.id - b.id) })
		var text strings.Builder
		for _, l := range lines {
			text.WriteString(l.text + "\n")
		}
		return func() {
			w.turn()
			w.finish(r, resp.AppendVerbatim(nil, proto, [3]byte{'t', 'x', 't'}, text.String()))
		}
	})
	return true
}

// killFilter reads the arguments of CLIENT KILL in its new form.
func killFilter(args [][]byte) (clientFilter, error) {
	f := clientFilter{sparesOneself: true}
	if len(args)%2 != 0 {
		return f, errSyntax
	}
	for ; len(args) > 0; args = args[2:] {
		value := string(args[1])
		var err error
		switch string(bytes.ToLower(args[0])) {
		case "id":
			id, e := strconv.ParseInt(value, 10, 64)
			if e != nil || id <= 0 {
				err = resp.Refusal("ERR client-id should be greater than 0")
			}
			f.ids = []int64{id}
		case "type":
			f.kind, err = clientKind(args[1])
		case "addr":
			f.addr = value
		case "laddr":
			f.laddr = value
		case "user":
			if f.user = value; value != "default" {
				err = resp.Refusal("ERR No such user '" + printable(args[1]) + "'")
			}
		case "skipme":
			switch strings.ToLower(value) {
			case "yes":
				f.sparesOneself = true
			case "no":
				f.sparesOneself = false
			default:
				err = errSyntax
			}
		default:
			err = errSyntax
		}
		if err != nil {
			return f, err
		}
	}
	return f, nil
}

// clientKill is CLIENT KILL addr:port and CLIENT KILL filter value... A client that ends itself has the reply first.
func (w *worker) clientKill(cl *client, c *command, cmd resp.Command) bool {
	old := len(cmd.Args) == 3
	f := clientFilter{}
	if old {
		f.addr = string(cmd.Args[2])
	} else {
		var err error
		if f, err = killFilter(cmd.Args[2:]); err != nil {
			cl.refuse(w, err)
			return true
		}
	}
	r := w.newRequest(cl, c.index, kindAway)
	asker := cl.id
	w.away(r, func() func() {
		type count struct {
			killed  int64
			oneself bool
		}
		var all count
		for _, n := range collect(w.server, func(w *worker) (n count) {
			for _, one := range w.clients {
				switch {
				case one.conn == nil || !f.matches(one):
				case one.id != asker:
					n.killed++
					one.conn.Close(errKilled)
				case !f.sparesOneself:
					n.killed++
					n.oneself = true
				}
			}
			return n
		}) {
			all.killed += n.killed
			all.oneself = all.oneself || n.oneself
		}
		return func() {
			w.turn()
			cl := r.client
			switch {
			case !old:
				w.finish(r, resp.AppendInt(nil, all.killed))
			case all.killed == 0:
				w.fail(r, resp.Refusal("ERR No such client"))
			default:
				w.finish(r, resp.AppendSimple(nil, "OK"))
			}
			if all.oneself && cl != nil {
				cl.endAfterReplies()
			}
		}
	})
	return true
}

var errKilled = errors.New("ended by CLIENT KILL")
