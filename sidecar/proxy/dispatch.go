package proxy

import (
	"bytes"
	"fmt"
	"strings"

	"ringside/cache"
	"ringside/resp"
	"ringside/ring"
)

// command is what the proxy does with one command or subcommand.
type command struct {
	info  *resp.CommandInfo
	index int // of its counters: info.Index
	run   handler
	// open: allowed before the client has given the password.
	open bool
	// row answers it for a key that is a row; nil: it makes no sense on a row.
	row rowHandler
	// sorts: it may read keys that it makes from patterns.
	sorts bool
	// scripts: it runs a script or function.
	scripts bool
	// databases: it may name another database.
	databases bool
	// immediate: it is not queued inside MULTI. atOnce: it is answered here also as part of a transaction.
	immediate, atOnce bool
	// listening: a client that is subscribed may use it in RESP2.
	listening bool
}

// handler begins a request. It returns false, having done nothing, when the command must wait for earlier ones of this connection: it is
// tried again when one of their writes has ended, and when all have.
type handler func(w *worker, cl *client, c *command, cmd resp.Command) bool

// commands is the command table with what this server does for each, by index.
type commands struct{ list [resp.CommandCount]*command }

func newCommands() *commands {
	t := &commands{}
	all := resp.Commands()
	for i := range all {
		t.add(&all[i])
	}
	return t
}

func (t *commands) add(info *resp.CommandInfo) {
	c := &command{info: info, index: info.Index}
	t.list[c.index] = c
	c.run, c.open = localHandler(info.Name)
	c.row = rowHandlerOf(info.Name)
	switch info.Name {
	case "eval", "eval_ro", "evalsha", "evalsha_ro", "fcall", "fcall_ro":
		c.scripts = true
	}
	c.databases = info.Name == "move" || info.Name == "copy"
	c.sorts = info.Name == "sort" || info.Name == "sort_ro"
	c.immediate, c.atOnce = isImmediate(info.Name), answersAtOnce(info.Name)
	if c.run == nil {
		c.run = sessionHandler(info.Name)
	}
	c.listening = isForListeners(info.Name)
	if c.run == nil {
		c.run = pubsubHandler(info.Name)
	}
	if c.run == nil {
		c.run = fleetHandler(info.Name)
	}
	if c.run == nil {
		c.run = ownHandler(info.Name)
	}
	if c.run == nil {
		c.run = keyHandler(info)
	}
	for i := range info.Subcommands {
		t.add(&info.Subcommands[i])
	}
}

// keyHandler returns the handler of a command that is about keys, or one that refuses.
func keyHandler(info *resp.CommandInfo) handler {
	if info.Flags.Has(resp.FlagBlocking) && info.Name != "xread" && info.Name != "xreadgroup" {
		return (*worker).block
	}
	switch info.Name {
	case "mget":
		return (*worker).mget
	case "mset":
		return (*worker).mset
	case "del", "unlink", "exists", "touch":
		return (*worker).countKeys
	case "migrate", "move", "pfdebug":
		return (*worker).refuse
	}
	switch info.Class {
	case resp.ClassSingle:
		return (*worker).single
	case resp.ClassMulti:
		return (*worker).together
	}
	return (*worker).refuse
}

// dispatch begins the request that cmd asks for; false: not now, see handler.
func (w *worker) dispatch(cl *client, cmd resp.Command) bool {
	info := resp.Lookup(cmd.Args[0])
	if info == nil {
		return w.unknown(cl, cmd)
	}
	if info.Subcommands != nil && len(cmd.Args) > 1 {
		sub := info.Sub(cmd.Args[1])
		if sub == nil {
			w.reject(cl, nil, resp.UnknownSubcommand(cmd.Args))
			return true
		}
		info = sub
	}
	if !info.ArityOK(len(cmd.Args)) {
		w.reject(cl, info, resp.WrongArity(info.Name))
		return true
	}
	c := w.commands.list[info.Index]
	if !cl.authed && !c.open {
		cl.refuse(w, resp.Refusal("NOAUTH Authentication required."))
		return true
	}
	if len(w.opening) > 0 {
		if err := w.missed(cl); err != nil {
			w.turnAway(cl, c, err)
			return true
		}
	}
	if w.gate != nil {
		switch ok, err := w.gate.admit(cl, c, cmd); {
		case err != nil:
			delete(w.opening, cl)
			w.turnAway(cl, c, err)
			return true
		case !ok:
			return false
		}
	}
	var begun bool
	if cl.session != nil {
		begun = w.inSession(cl, c, cmd)
	} else {
		begun = c.run(w, cl, c, cmd)
	}
	if begun && len(w.opening) > 0 {
		delete(w.opening, cl)
	}
	return begun
}

func (w *worker) unknown(cl *client, cmd resp.Command) bool {
	switch {
	case bytes.EqualFold(cmd.Args[0], []byte("ring")):
		if !cl.authed {
			cl.refuse(w, resp.Refusal("NOAUTH Authentication required."))
			return true
		}
		if cl.inMulti() || cl.onlyListens() {
			w.reject(cl, nil, resp.Refusal("ERR RING is not offered by ringside inside MULTI, nor to a client that is subscribed"))
			return true
		}
		w.ring(cl, cmd)
	case resp.IsHTTP(cmd.Args[0]):
		w.server.log.Warn("a web page may be trying to talk to this port through a browser: connection closed", "client", cl.conn.RemoteAddr())
		cl.noReply = true
		cl.conn.Close(errHTTP)
	default:
		w.reject(cl, nil, resp.UnknownCommand(cmd.Args))
	}
	return true
}

// refuse answers with an error that the proxy itself decides on.
func (cl *client) refuse(w *worker, err error) { w.fail(w.local(cl), err) }

// spoken writes a command's name as people do: CLIENT KILL.
func spoken(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "|", " ")) }

// single sends a command about one key to the server that owns it, or answers for the row that the key names.
func (w *worker) single(cl *client, c *command, cmd resp.Command) bool {
	if asksToBlock(c.info, cmd.Args) {
		return w.block(cl, c, cmd)
	}
	key := cmd.Args[c.info.First]
	w.sample(key)
	isRow, err := w.server.keyspaces.Match(w.hasher, key, &w.key)
	if err != nil {
		cl.refuse(w, err)
		return true
	}
	if isRow {
		return w.row(cl, c, cmd)
	}
	if err := checkPlain(key); err != nil {
		cl.refuse(w, err)
		return true
	}
	vnode := w.hasher.Vnode(ring.CacheKey(key))
	if c.sorts && w.sortsElsewhere(cmd.Args, vnode) {
		cl.refuse(w, errSortPattern)
		return true
	}
	_, u, err := w.owner(vnode, cl.proto)
	if err != nil {
		cl.refuse(w, err)
		return true
	}
	if !u.ready {
		return w.await(cl, c, u)
	}
	w.pass(cl, c, cmd, u)
	return true
}

// checkPlain refuses the names of our own entries: whoever could write them could make any row read as anything.
func checkPlain(key []byte) error {
	if isOurs(key) {
		return resp.Refusal("ERR keys that begin with " + cache.Prefix + " are ringside's own")
	}
	return nil
}

// isOurs reports whether the name of a key or a channel is one that sidecars use among themselves.
func isOurs(name []byte) bool {
	return len(name) >= len(cache.Prefix) && string(name[:len(cache.Prefix)]) == cache.Prefix
}

// together sends a command about several keys to the one server that owns them all. Keys of different vnodes are refused even if they
// lie on one server today: tomorrow they may not.
func (w *worker) together(cl *client, c *command, cmd resp.Command) bool {
	if asksToBlock(c.info, cmd.Args) {
		return w.block(cl, c, cmd)
	}
	vnode, err := w.placeKeys(c, cmd, (*worker).senseless)
	if err != nil {
		cl.refuse(w, err)
		return true
	}
	_, u, err := w.owner(vnode, cl.proto)
	if err != nil {
		cl.refuse(w, err)
		return true
	}
	if !u.ready {
		return w.await(cl, c, u)
	}
	w.pass(cl, c, cmd, u)
	return true
}

// placeKeys returns the one vnode of all keys of a command. onRow makes the error for a key that is a row, which is in w.key.
func (w *worker) placeKeys(c *command, cmd resp.Command, onRow func(*worker, *command) error) (uint16, error) {
	if c.databases {
		if err := checkDatabase(c, cmd.Args); err != nil {
			return 0, err
		}
	}
	positions, err := c.info.Keys(cmd.Args, w.positions[:0])
	w.positions = positions
	if err != nil {
		return 0, err
	}
	if len(positions) == 0 {
		return 0, resp.Refusal(fmt.Sprintf("ERR %s without a key is not offered by ringside: no key, no server", spoken(c.info.Name)))
	}
	var vnode uint16
	for i, p := range positions {
		key := cmd.Args[p]
		w.sample(key)
		isRow, err := w.server.keyspaces.Match(w.hasher, key, &w.key)
		if err == nil && isRow {
			err = onRow(w, c)
		}
		if err == nil {
			err = checkPlain(key)
		}
		v := w.hasher.Vnode(ring.CacheKey(key))
		if err == nil && i > 0 && v != vnode {
			err = errCrossSlot
		}
		if err != nil {
			return 0, err
		}
		vnode = v
	}
	if c.sorts && w.sortsElsewhere(cmd.Args, vnode) {
		return 0, errSortPattern
	}
	return vnode, nil
}

// asksToBlock reports whether XREAD or XREADGROUP is to wait.
func asksToBlock(info *resp.CommandInfo, args [][]byte) bool {
	if !info.Flags.Has(resp.FlagBlocking) {
		return false
	}
	for _, a := range args[1:] {
		if bytes.EqualFold(a, []byte("block")) {
			return true
		}
		if bytes.EqualFold(a, []byte("streams")) {
			return false
		}
	}
	return false
}

// senseless says that a command cannot be used on the row in w.key.
func (w *worker) senseless(c *command) error { return w.doesNotApply(spoken(c.info.Name), c.info.Name) }

// doesNotApply is senseless for what is called what; like is the command whose reason it shares.
func (w *worker) doesNotApply(what, like string) error {
	k := &w.key
	return resp.Refusal(fmt.Sprintf("ERR %s does not apply to %s: it is a row of table %s%s", what, printable(k.Text), k.Keyspace.Table, whySenseless(like)))
}

func whySenseless(name string) string {
	switch name {
	case "expire", "pexpire", "expireat", "pexpireat", "persist", "getex", "setex", "psetex":
		return "; the life of its cached copy is the keyspace's ttl, and the row itself does not expire"
	}
	return "; rows take GET, MGET, EXISTS, TOUCH, STRLEN, TYPE, TTL, PTTL, HGETALL, HGET, HMGET, HEXISTS, HKEYS, HVALS, HLEN, SET, HSET, HMSET, HINCRBY, DEL and UNLINK"
}

// printable is a key as it may stand in an error reply.
func printable(key []byte) string {
	const longest = 64
	if len(key) > longest {
		return fmt.Sprintf("%q...", key[:longest])
	}
	quoted := fmt.Sprintf("%q", key)
	return quoted[1 : len(quoted)-1]
}
