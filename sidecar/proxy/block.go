package proxy

import (
	"bytes"
	"math"
	"strconv"
	"time"

	"ringside/resp"
)

// block begins a command that may wait for data, by the client's own connection: on a shared one everybody behind it would wait too. It
// waits until nothing is owed, and all that the client sends later waits for it, as in Redis. It is called off when the client leaves, its
// connection with it, so that nothing is taken for nobody; when the ring gives its keys to another server, where it is begun anew (calloff.go);
// and when its server is lost.
func (w *worker) block(cl *client, c *command, cmd resp.Command) bool {
	if cl.owed > 0 {
		return false
	}
	vnode, err := w.placeKeys(c, cmd, (*worker).senseless)
	var p place
	var server uint16
	if err == nil {
		p, server, err = w.placeOf(vnode)
	}
	s := cl.needSession()
	if err == nil && s.watch != nil && s.watch.lost == nil {
		err = s.watch.fits(p)
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
	t := &ownCall{blocking: c.info, vnode: vnode}
	for _, arg := range cmd.Args {
		t.args = append(t.args, bytes.Clone(arg))
	}
	s.blocked, s.place, s.call = true, p, t
	if u.grace = patience(c.info.Name, cmd.Args); u.grace > 0 {
		t.deadline = w.now + int64(u.grace)
	}
	w.sendOwn(cl, c, cmd, u, t)
	return true
}

// patience returns how long a command may wait by its own words; negative: without end. What is no time the server will refuse.
func patience(name string, args [][]byte) time.Duration {
	at, unit := patienceAt(name, args)
	t, err := strconv.ParseFloat(string(args[at]), 64)
	switch {
	case err != nil || math.IsNaN(t) || t < 0:
		return 0
	case t == 0 || t > float64(math.MaxInt64/unit)/2:
		return -1
	}
	return time.Duration(t * float64(unit))
}

// patienceAt returns which argument says how long a command may wait, and in what unit.
func patienceAt(name string, args [][]byte) (at int, unit time.Duration) {
	switch name {
	case "blmpop", "bzmpop":
		return 1, time.Second
	case "xread", "xreadgroup":
		for at = 1; at < len(args)-1 && !bytes.EqualFold(args[at], []byte("block")); at++ {
		}
		return min(at+1, len(args)-1), time.Millisecond
	}
	return len(args) - 1, time.Second
}
