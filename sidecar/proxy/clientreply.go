package proxy

import (
	"bytes"

	"ringside/resp"
)

// skipState is how far CLIENT REPLY SKIP has come. The client is held until the one command without a reply has been answered.
type skipState uint8

const (
	skipNone  skipState = iota
	skipArmed           // the next command is the one
	skipBegun           // it is under way
)

// clientReply is CLIENT REPLY ON|OFF|SKIP. It waits until nothing is owed: the replies to earlier commands must still come, or still not.
// Silence costs requests nothing: it is the connection that throws the replies away.
func (w *worker) clientReply(cl *client, c *command, cmd resp.Command) bool {
	if cl.owed > 0 {
		return false
	}
	mode := cmd.Args[2]
	switch {
	case bytes.EqualFold(mode, []byte("on")):
		cl.silent = false
		cl.conn.Mute(false)
		return answer(ok)(w, cl, c, cmd)
	case bytes.EqualFold(mode, []byte("off")):
		cl.silent = true
		cl.conn.Mute(true)
	case bytes.EqualFold(mode, []byte("skip")):
		switch {
		case cl.skip == skipBegun: // it is the skipped command itself
			cl.skip = skipArmed
		case !cl.silent && cl.skip == skipNone:
			cl.skip = skipArmed
			cl.conn.Mute(true)
			cl.hold()
		}
	default:
		cl.refuse(w, errSyntax)
		return true
	}
	w.stats.commands[c.index]++
	return true
}

// parsed says how parsing goes on.
type parsed uint8

const (
	parseOn parsed = iota
	parseWait
	parseStop
)

// mayBeginSkipped reports whether the command that CLIENT REPLY SKIP is about can begin.
func (cl *client) mayBeginSkipped() bool {
	return cl.skip == skipArmed && cl.owed == 0 && cl.holds == 1 && !cl.conn.Full()
}

// parseHeld is what parse does for a client that is full: begin the command that CLIENT REPLY SKIP is about, if it is that.
func (cl *client) parseHeld(in []byte) (consumed int, then parsed) {
	if !cl.mayBeginSkipped() {
		return 0, parseStop
	}
	cmd, n, err := cl.parser.Next(in)
	switch {
	case err != nil:
		cl.endSkip()
		cl.protocolError(err)
		return 0, parseOn
	case n == 0:
		cl.conn.Want(cl.parser.Want())
		return 0, parseWait
	case len(cmd.Args) == 0:
		return n, parseOn
	}
	cl.skip = skipBegun // before it begins: it may be answered at once
	if !cl.worker.dispatch(cl, cmd) {
		cl.skip = skipArmed
		cl.ordering = true
		return 0, parseStop
	}
	if cl.skip == skipBegun && cl.owed == 0 {
		cl.endSkip()
	}
	return n, parseOn
}

// endSkip ends what CLIENT REPLY SKIP began.
func (cl *client) endSkip() {
	cl.skip = skipNone
	cl.conn.Mute(cl.silent)
	cl.release()
}
