package proxy

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"path"
	"sort"
	"strconv"
	"strings"
	"time"

	"ringside/resp"
)

// redisVersion is the version of Redis whose commands this server speaks.
const redisVersion = "7.0.15"

// localHandler returns the handler of a command that is answered here, and whether it is allowed before the password was given.
func localHandler(name string) (h handler, open bool) {
	switch name {
	case "ping":
		return answer(ping), false
	case "echo":
		return answer(echo), false
	case "hello":
		return (*worker).hello, true
	case "auth":
		return (*worker).auth, true
	case "quit":
		return (*worker).quit, true
	case "reset":
		return (*worker).reset, true
	case "select":
		return answer(selectDB), false
	case "readonly", "readwrite":
		return answer(ok), false
	case "time":
		return answer(clock), false
	case "info":
		return (*worker).info, false
	case "role":
		return answer(role), false
	case "config|get":
		return answer(configGet), false
	case "command", "command|count", "command|info", "command|list", "command|getkeys", "command|getkeysandflags":
		return answer(commandCommand), false
	}
	if strings.HasPrefix(name, "client|") {
		return clientHandler(name), false
	}
	if strings.HasPrefix(name, "cluster|") || name == "cluster" {
		return answer(func(_ *client, _ resp.Command, dst []byte) []byte {
			return resp.AppendError(dst, "ERR This instance has cluster support disabled")
		}), false
	}
	return nil, false
}

// answer makes a handler of a function that appends the reply at once.
func answer(reply func(cl *client, cmd resp.Command, dst []byte) []byte) handler {
	return func(w *worker, cl *client, c *command, cmd resp.Command) bool {
		if w.collecting {
			w.collected = reply(cl, cmd, w.collected)
			return true
		}
		r := w.newRequest(cl, c.index, kindAway)
		w.scratch = reply(cl, cmd, w.scratch[:0])
		w.finish(r, w.scratch)
		w.trimScratch()
		return true
	}
}

func ok(_ *client, _ resp.Command, dst []byte) []byte { return resp.AppendSimple(dst, "OK") }

func ping(_ *client, cmd resp.Command, dst []byte) []byte {
	switch len(cmd.Args) {
	case 1:
		return resp.AppendSimple(dst, "PONG")
	case 2:
		return resp.AppendBulk(dst, cmd.Args[1])
	}
	return resp.AppendError(dst, string(resp.WrongArity("ping")))
}

func echo(_ *client, cmd resp.Command, dst []byte) []byte { return resp.AppendBulk(dst, cmd.Args[1]) }

func selectDB(_ *client, cmd resp.Command, dst []byte) []byte {
	n, err := strconv.Atoi(string(cmd.Args[1]))
	switch {
	case err != nil:
		return resp.AppendError(dst, string(errNotNumber))
	case n != 0:
		return resp.AppendError(dst, "ERR DB index is out of range")
	}
	return resp.AppendSimple(dst, "OK")
}

func clock(cl *client, _ resp.Command, dst []byte) []byte {
	now := cl.worker.loop.Now()
	dst = resp.AppendArray(dst, 2)
	dst = resp.AppendBulk(dst, strconv.FormatInt(now.Unix(), 10))
	return resp.AppendBulk(dst, strconv.Itoa(now.Nanosecond()/int(time.Microsecond)))
}

func role(_ *client, _ resp.Command, dst []byte) []byte {
	dst = resp.AppendArray(dst, 3)
	dst = resp.AppendBulk(dst, "master")
	dst = resp.AppendInt(dst, 0)
	return resp.AppendArray(dst, 0)
}

// permits compares a password in a time that does not depend on where it differs. There is one user, as in a Redis without an
// access control list; without a password configured any will do.
func (s *Server) permits(user, password []byte) bool {
	given, wanted := sha256.Sum256(password), sha256.Sum256([]byte(s.cfg.Password))
	same := subtle.ConstantTimeCompare(given[:], wanted[:]) == 1
	return string(user) == "default" && (same || s.cfg.Password == "")
}

const (
	errWrongPass  = resp.Refusal("WRONGPASS invalid username-password pair or user is disabled.")
	errNoPassword = resp.Refusal("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?")
	errHelloWatch = resp.Refusal("ERR HELLO cannot change the protocol between WATCH and EXEC")
	errNoProto    = resp.Refusal("NOPROTO unsupported protocol version")
	errHelloAuth  = resp.Refusal("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
)

func (w *worker) auth(cl *client, c *command, cmd resp.Command) bool {
	user, password := []byte("default"), cmd.Args[len(cmd.Args)-1]
	switch len(cmd.Args) {
	case 2:
		if w.server.cfg.Password == "" {
			cl.refuse(w, errNoPassword)
			return true
		}
	case 3:
		user = cmd.Args[1]
	default:
		cl.refuse(w, errSyntax)
		return true
	}
	if !w.server.permits(user, password) {
		w.stats.badPasswords++
		cl.refuse(w, errWrongPass)
		return true
	}
	cl.setAuthed(true)
	return answer(ok)(w, cl, c, cmd)
}

func (cl *client) setAuthed(yes bool) {
	cl.authed = yes
	cl.parser.Unauthenticated = !yes
}

// hello is HELLO [2|3 [AUTH user password] [SETNAME name]]. It waits until nothing is owed: the replies to earlier requests are in the
// earlier protocol, and later requests, which may take another connection to the same server, must not overtake them.
func (w *worker) hello(cl *client, c *command, cmd resp.Command) bool {
	if cl.owed > 0 {
		return false
	}
	proto, name := cl.proto, cl.name
	authed := cl.authed
	args := cmd.Args[1:]
	if len(args) > 0 {
		switch string(args[0]) {
		case "2", "3":
			proto = int(args[0][0] - '0')
		default:
			if _, err := strconv.Atoi(string(args[0])); err != nil {
				cl.refuse(w, resp.Refusal("ERR Protocol version is not an integer or out of range"))
				return true
			}
			cl.refuse(w, errNoProto)
			return true
		}
		args = args[1:]
	}
	for len(args) > 0 {
		switch {
		case bytes.EqualFold(args[0], []byte("auth")) && len(args) >= 3:
			if !w.server.permits(args[1], args[2]) {
				w.stats.badPasswords++
				cl.refuse(w, errWrongPass)
				return true
			}
			authed = true
			args = args[3:]
		case bytes.EqualFold(args[0], []byte("setname")) && len(args) >= 2:
			if !validName(args[1]) {
				cl.refuse(w, errBadName)
				return true
			}
			name = string(args[1])
			args = args[2:]
		default:
			cl.refuse(w, resp.Refusal("ERR Syntax error in HELLO option '"+printable(args[0])+"'"))
			return true
		}
	}
	if !authed {
		cl.refuse(w, errHelloAuth)
		return true
	}
	if proto != cl.proto && cl.session != nil && cl.session.watch != nil {
		cl.refuse(w, errHelloWatch)
		return true
	}
	cl.proto, cl.name = proto, name
	cl.setAuthed(true)
	return answer(appendHello)(w, cl, c, cmd)
}

func appendHello(cl *client, _ resp.Command, dst []byte) []byte {
	dst = resp.AppendMap(dst, cl.proto, 7)
	dst = resp.AppendBulk(resp.AppendBulk(dst, "server"), "redis")
	dst = resp.AppendBulk(resp.AppendBulk(dst, "version"), redisVersion)
	dst = resp.AppendInt(resp.AppendBulk(dst, "proto"), int64(cl.proto))
	dst = resp.AppendInt(resp.AppendBulk(dst, "id"), cl.id)
	dst = resp.AppendBulk(resp.AppendBulk(dst, "mode"), "standalone")
	dst = resp.AppendBulk(resp.AppendBulk(dst, "role"), "master")
	return resp.AppendArray(resp.AppendBulk(dst, "modules"), 0)
}

func (w *worker) quit(cl *client, c *command, cmd resp.Command) bool {
	answer(ok)(w, cl, c, cmd)
	cl.endAfterReplies()
	return true
}

// reset waits as hello does, because it changes the protocol too.
func (w *worker) reset(cl *client, c *command, _ resp.Command) bool {
	if cl.owed > 0 {
		return false
	}
	cl.endSession(errNotNeeded)
	cl.proto, cl.name, cl.silent = 2, "", false
	cl.conn.Mute(false)
	cl.setAuthed(w.server.cfg.Password == "")
	r := w.newRequest(cl, c.index, kindAway)
	w.finish(r, resp.AppendSimple(nil, "RESET"))
	return true
}

// configGet answers what clients and tools ask before they work. CONFIG SET is not offered: the configuration is a file.
func configGet(cl *client, cmd resp.Command, dst []byte) []byte {
	settings := map[string]string{
		"save": "", "appendonly": "no", "databases": "1", "timeout": strconv.Itoa(int(cl.worker.server.live().ClientIdle / time.Second)), "maxmemory": "0", "maxmemory-policy": "noeviction",
		"slave-read-only": "yes", "replica-read-only": "yes", "port": strconv.Itoa(cl.worker.server.port()),
		"cluster-enabled": "no", "notify-keyspace-events": "", "latency-monitor-threshold": strconv.FormatInt(cl.worker.server.live().SlowFrom.Milliseconds(), 10),
		"slowlog-log-slower-than": strconv.FormatInt(cl.worker.server.live().SlowFrom.Microseconds(), 10), "slowlog-max-len": strconv.Itoa(slowlogLength * len(cl.worker.server.workers)),
		"maxclients": strconv.Itoa(cl.worker.server.live().MaxClients), "proto-max-bulk-len": strconv.Itoa(cl.worker.server.live().Limits.MaxBulk),
	}
	var found []string
	for name := range settings {
		for _, pattern := range cmd.Args[2:] {
			if matched, err := path.Match(strings.ToLower(string(pattern)), name); err == nil && matched {
				found = append(found, name)
				break
			}
		}
	}
	sort.Strings(found)
	dst = resp.AppendMap(dst, cl.proto, len(found))
	for _, name := range found {
		dst = resp.AppendBulk(resp.AppendBulk(dst, name), settings[name])
	}
	return dst
}
