package proxy

import (
	"bytes"
	"strconv"
	"time"

	"ringside/internal/evloop"
	"ringside/resp"
)

// pause is what CLIENT PAUSE has asked of one worker. It is about the clients of this sidecar; other sidecars go on.
type pause struct {
	until time.Time
	all   bool // every command waits, not only those that write
	timer *evloop.Timer
}

// pausedCommands returns the command table of a pause of writes: what may write waits.
func pausedCommands() *commands {
	t := newCommands()
	for _, c := range t.list {
		switch {
		case c.info.Flags.Has(resp.FlagWrite), c.info.Flags.Has(resp.FlagMayReplicate), c.info.Name == "exec",
			c.scripts && !c.info.Flags.Has(resp.FlagReadonly):
			c.run = func(*worker, *client, *command, resp.Command) bool { return false }
		}
	}
	return t
}

// clientPause is CLIENT PAUSE timeout [WRITE|ALL]. A pause under way is never made shorter or milder. Clients that are paused are not
// read, so CLIENT UNPAUSE can only end a pause of writes, as in Redis.
func (w *worker) clientPause(cl *client, c *command, cmd resp.Command) bool {
	ms, err := strconv.ParseInt(string(cmd.Args[2]), 10, 64)
	all := true
	switch {
	case err != nil, ms > int64(maxPause/time.Millisecond):
		cl.refuse(w, resp.Refusal("ERR timeout is not an integer or out of range"))
		return true
	case ms < 0:
		cl.refuse(w, resp.Refusal("ERR timeout is negative"))
		return true
	case len(cmd.Args) > 4:
		cl.refuse(w, errSyntax)
		return true
	case len(cmd.Args) == 4 && bytes.EqualFold(cmd.Args[3], []byte("write")):
		all = false
	case len(cmd.Args) == 4 && !bytes.EqualFold(cmd.Args[3], []byte("all")):
		cl.refuse(w, resp.Refusal("ERR CLIENT PAUSE mode must be WRITE or ALL"))
		return true
	}
	until := w.loop.Now().Add(time.Duration(ms) * time.Millisecond)
	w.onAllLoops(cl, c, func(w *worker) { w.beginPause(until, all) })
	return true
}

const maxPause = 365 * 24 * time.Hour

func (w *worker) clientUnpause(cl *client, c *command, _ resp.Command) bool {
	w.onAllLoops(cl, c, (*worker).endPause)
	return true
}

// onAllLoops runs do on every loop and then answers OK.
func (w *worker) onAllLoops(cl *client, c *command, do func(w *worker)) {
	r := w.newRequest(cl, c.index, kindAway)
	w.away(r, func() func() {
		collect(w.server, func(w *worker) struct{} { do(w); return struct{}{} })
		return func() {
			w.turn()
			w.finish(r, resp.AppendSimple(nil, "OK"))
		}
	})
}

// beginPause pauses this worker's clients, or lets a pause last longer.
func (w *worker) beginPause(until time.Time, all bool) {
	p := &w.pause
	if p.timer != nil {
		p.timer.Stop()
	}
	if p.until.Before(until) {
		p.until = until
	}
	w.commands = w.server.pausedCommands()
	if all && !p.all {
		p.all = true
		for _, cl := range w.clients {
			cl.hold()
		}
	}
	p.timer = w.loop.AfterFunc(p.until.Sub(w.loop.Now()), w.endPause)
}

func (w *worker) endPause() {
	w.turn()
	p := w.pause
	if p.timer == nil {
		return
	}
	p.timer.Stop()
	w.pause = pause{}
	w.commands = w.server.commands
	for _, cl := range w.clients {
		cl.ordering = false // what waits for an earlier command will wait again
		if p.all {
			cl.release()
		} else {
			cl.goOn()
		}
	}
}
