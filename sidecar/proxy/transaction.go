package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"ringside/resp"
	"ringside/ring"
)

// A transaction is queued here and sent as one piece, MULTI ... EXEC, when EXEC comes. So it needs no connection of its own: on a shared
// one it lies between the requests of others as one command does, and a client that leaves before EXEC leaves nothing behind. With WATCH
// it is sent on the connection that watches, which is the client's own. The price: an error that only the server can know (no memory
// left) shows at EXEC, not in place of +QUEUED; the transaction is called off then just the same.
//
// All keys are in one vnode. Commands that are answered here are run when the server has answered, if it has run the transaction.
type transaction struct {
	raw    []byte // MULTI and the commands for the server; nothing while there are none
	sent   int    // how many those are
	locals []localCommand
	n      int // all commands
	vnode  uint16
	placed bool // vnode is known
	// scripts: one of the commands runs a script, which the server may have to be taught.
	scripts bool
	// aborted: a command was refused, so EXEC will be.
	aborted bool

	// Once EXEC has come.
	request      *request
	alone        bool // by the client's own connection
	multiRefused bool
	refusal      string // the server's, of a command
}

// localCommand is a command of a transaction that is answered here.
type localCommand struct {
	at   int // its place among all
	c    *command
	args [][]byte
}

// watch is what WATCH has bound the next transaction to.
type watch struct {
	place place
	lost  error // why the connection that watched is gone; nil: it is there
	moved bool  // another server has the keys, or had them meanwhile
}

// fits says why a command at p cannot go by the connection that watches, the only one of its own that a client may have.
func (x *watch) fits(p place) error {
	switch {
	case x.place.vnode != p.vnode:
		return errCrossSlot
	case x.moved: // EXEC will fail: it is all the same what is watched besides
		return nil
	case x.place != p:
		return errRingChanged
	}
	return nil
}

const (
	errNested       = resp.Refusal("ERR MULTI calls can not be nested")
	errNoMulti      = resp.Refusal("ERR EXEC without MULTI")
	errNoDiscard    = resp.Refusal("ERR DISCARD without MULTI")
	errWatchInMulti = resp.Refusal("ERR WATCH inside MULTI is not allowed")
	errNotInMulti   = resp.Refusal("ERR Command not allowed inside a transaction")
	errExecAbort    = resp.Refusal("EXECABORT Transaction discarded because of previous errors.")
	errCrossSlot    = resp.Refusal("CROSSSLOT Keys in request don't hash to the same slot")
)

// abort makes EXEC fail. What was queued is of no use any more.
func (tx *transaction) abort() { *tx = transaction{aborted: true} }

// reject refuses a command that cannot even be begun, which calls off the transaction that it was to be part of.
func (w *worker) reject(cl *client, info *resp.CommandInfo, err resp.Refusal) {
	if cl.inMulti() {
		cl.session.tx.abort()
	}
	if info != nil && info.Name == "exec" {
		w.drop(cl)
		err = "EXECABORT Transaction discarded because of: " + err[len("ERR "):]
	}
	cl.refuse(w, err)
}

// multi is MULTI.
func (w *worker) multi(cl *client, c *command, cmd resp.Command) bool {
	if cl.inMulti() {
		cl.refuse(w, errNested)
		return true
	}
	cl.needSession().tx = &transaction{}
	return answer(ok)(w, cl, c, cmd)
}

// discard is DISCARD.
func (w *worker) discard(cl *client, c *command, cmd resp.Command) bool {
	if !cl.inMulti() {
		cl.refuse(w, errNoDiscard)
		return true
	}
	w.drop(cl)
	return answer(ok)(w, cl, c, cmd)
}

// drop forgets the transaction and what is watched.
func (w *worker) drop(cl *client) {
	s := cl.session
	if s == nil {
		return
	}
	s.tx = nil
	w.unwatchOwn(s)
}

// unwatchOwn forgets what is watched. The connection stays for the next use.
func (w *worker) unwatchOwn(s *session) {
	if s.watch == nil {
		return
	}
	s.watch = nil
	if s.own != nil {
		s.own.sendCommand(nil, stepNone, []byte("UNWATCH"))
		s.restOwn(w)
	}
}

// unwatch is UNWATCH. Nothing has to be waited for: the connection that watches is also the one by which EXEC would come.
func unwatch(cl *client, _ resp.Command, dst []byte) []byte {
	if cl.session != nil {
		cl.worker.unwatchOwn(cl.session)
	}
	return resp.AppendSimple(dst, "OK")
}

// watchKeys is WATCH. It waits until nothing is owed, and all that follows waits for it: the reads after it, which go by a shared
// connection, must see what is watched or something newer.
func (w *worker) watchKeys(cl *client, c *command, cmd resp.Command) bool {
	if cl.inMulti() {
		cl.refuse(w, errWatchInMulti)
		return true
	}
	if cl.owed > 0 {
		return false
	}
	vnode, err := w.placeKeys(c, cmd, (*worker).rowInTransaction)
	s := cl.needSession()
	var p place
	var server uint16
	if err == nil && s.watch != nil && s.watch.lost != nil && !s.watch.moved {
		err = &CacheDownError{Server: s.watch.place.name, Err: fmt.Errorf("the connection that watched earlier keys is lost: %w", s.watch.lost)}
	}
	if err == nil {
		p, server, err = w.placeOf(vnode)
	}
	if err == nil && s.watch != nil {
		if err = s.watch.fits(p); err == nil && s.watch.moved {
			return answer(ok)(w, cl, c, cmd)
		}
	}
	var u *upstream
	if err == nil {
		u, err = w.ownOf(cl, server)
	}
	if err != nil {
		cl.refuse(w, err)
		return true
	}
	if !u.ready {
		return w.await(cl, c, u)
	}
	opens := s.watch == nil
	if opens {
		s.watch = &watch{place: p}
	}
	w.sendOwn(cl, c, cmd, u, &ownCall{opens: opens})
	return true
}

// queue puts a command into the transaction.
func (w *worker) queue(cl *client, c *command, cmd resp.Command) bool {
	s := cl.session
	if err := w.enqueue(s, c, cmd); err != nil {
		s.tx.abort()
		cl.refuse(w, err)
		return true
	}
	if c.scripts {
		s.tx.scripts = true
	}
	w.finish(w.newRequest(cl, c.index, kindAway), queuedReply)
	return true
}

var queuedReply = []byte("+QUEUED\r\n")

func (w *worker) enqueue(s *session, c *command, cmd resp.Command) error {
	tx := s.tx
	switch {
	case c.info.Flags.Has(resp.FlagNoMulti):
		return errNotInMulti
	case c.atOnce:
		if tx.aborted {
			return nil
		}
		args := make([][]byte, len(cmd.Args))
		for i, a := range cmd.Args {
			args[i] = bytes.Clone(a)
		}
		tx.locals = append(tx.locals, localCommand{at: tx.n, c: c, args: args})
	default:
		vnode, err := w.vnodeInMulti(c, cmd)
		if err != nil || tx.aborted {
			return err
		}
		if tx.placed && vnode != tx.vnode || s.watch != nil && vnode != s.watch.place.vnode {
			return errCrossSlot
		}
		tx.vnode, tx.placed = vnode, true
		if tx.sent == 0 {
			tx.raw = resp.AppendCommandString(tx.raw, "MULTI")
		}
		if cmd.Raw != nil {
			tx.raw = append(tx.raw, cmd.Raw...)
		} else {
			tx.raw = resp.AppendCommand(tx.raw, cmd.Args...)
		}
		tx.sent++
	}
	tx.n++
	return w.boundTransaction(tx)
}

// commands returns the commands for the server.
func (tx *transaction) commands(limits *resp.Limits) ([]resp.Command, error) {
	parser := resp.Parser{Limits: limits}
	var all []resp.Command
	for raw := tx.raw; len(raw) > 0; {
		cmd, n, err := parser.Next(raw)
		if err != nil || n == 0 {
			return nil, errStrangeTransaction
		}
		raw = raw[n:]
		cmd.Args = slices.Clone(cmd.Args)
		all = append(all, cmd)
	}
	return all, nil
}

var errStrangeTransaction = errors.New("a queued command cannot be read again")

// teachAll makes sure that a server can run the scripts of a transaction that this sidecar knows.
func (w *worker) teachAll(u *upstream, tx *transaction) error {
	all, err := tx.commands(&w.server.live().Limits)
	for _, cmd := range all {
		if info, e := resp.Resolve(cmd.Args); e == nil {
			w.teach(u, w.commands.list[info.Index], cmd)
		}
	}
	return err
}

// boundTransaction refuses what is more than one client may have queued.
func (w *worker) boundTransaction(tx *transaction) error {
	size := len(tx.raw)
	for i := range tx.locals {
		size += commandSize(tx.locals[i].args)
	}
	cfg := &w.server.cfg
	if tx.n > cfg.QueuedCommands || size > cfg.QueuedBytes {
		return resp.Refusal(fmt.Sprintf("ERR the transaction is too large: at most %d commands and %d bytes may be queued", cfg.QueuedCommands, cfg.QueuedBytes))
	}
	return nil
}

// vnodeInMulti returns where a command of a transaction has to run.
func (w *worker) vnodeInMulti(c *command, cmd resp.Command) (uint16, error) {
	switch c.info.Name {
	case "publish", "spublish": // a channel lives where a key of that name would
		return w.hasher.Vnode(ring.CacheKey(cmd.Args[1])), nil
	}
	if c.info.Class == resp.ClassOther || c.info.Name == "migrate" {
		return 0, resp.Refusal(fmt.Sprintf("ERR %s is not offered by ringside inside MULTI", spoken(c.info.Name)))
	}
	vnode, err := w.placeKeys(c, cmd, (*worker).rowInTransaction)
	return vnode, err
}

// rowInTransaction says that the row in w.key cannot take part: it is on a shard, and its writes end before they are acknowledged.
func (w *worker) rowInTransaction(*command) error {
	k := &w.key
	return resp.Refusal(fmt.Sprintf("ERR %s cannot be used with MULTI or WATCH: it is a row of table %s", printable(k.Text), k.Keyspace.Table))
}

// answersAtOnce lists the commands that are answered here, without a wait, also as part of a transaction. Their handlers are made by answer.
func answersAtOnce(name string) bool {
	switch name {
	case "ping", "echo", "select", "readonly", "readwrite", "time", "role", "unwatch", "config|get",
		"command", "command|count", "command|info", "command|docs", "command|list", "command|getkeys", "command|getkeysandflags",
		"client|id", "client|getname", "client|setname", "client|info", "client|setinfo", "client|no-evict", "client|no-touch":
		return true
	}
	return false
}
