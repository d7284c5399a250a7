package proxy

import (
	"slices"

	"ringside/resp"
	"ringside/sidecar/topology"
)

// everywhere is a request that sends one command to several servers and makes one reply of theirs. It is an error if any of them could
// not be asked.
type everywhere struct {
	r       *request
	frames  [][]byte
	waiting int
	err     error
	done    func(w *worker, r *request, frames [][]byte)
}

// everywhere begins such a request. done must complete it; it is not called when a server could not be asked.
func (w *worker) everywhere(cl *client, c *command, servers []*upstream, args [][]byte, done func(w *worker, r *request, frames [][]byte)) {
	e := &everywhere{r: w.begin(cl, c, nil), done: done}
	e.send(w, servers, args)
}

// send sends the command and makes e the task of its request.
func (e *everywhere) send(w *worker, servers []*upstream, args [][]byte) {
	e.r.task = e
	e.frames = make([][]byte, len(servers))
	e.waiting = 1
	for i, u := range servers {
		if err := u.room(); err != nil {
			e.fail(err)
			continue
		}
		e.waiting++
		u.sendCommand(e.r, int32(i), args...)
	}
	e.came(w)
}

func (e *everywhere) fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

func (e *everywhere) replied(w *worker, _ *upstream, part int32, frame []byte) {
	if frame[0] == '-' {
		w.stats.passedErrors++
	}
	e.frames[part] = append([]byte(nil), frame...)
	e.came(w)
}

func (e *everywhere) refused(w *worker, _ int32, err error) {
	e.fail(err)
	e.came(w)
}

func (e *everywhere) came(w *worker) {
	if e.waiting--; e.waiting > 0 {
		return
	}
	if e.err != nil {
		w.fail(e.r, e.err)
		return
	}
	e.done(w, e.r, e.frames)
}

// owners returns the connections to all servers that own something, or still hold plain keys of others.
func (w *worker) owners(proto int) ([]*upstream, error) {
	t := w.route.topology
	if t == nil {
		return nil, errNoTopology
	}
	var all []*upstream
	for _, i := range w.route.owners {
		all = append(all, w.route.upstreams[i][proto-2])
	}
	if all == nil {
		return nil, errNoCacheServer
	}
	return all, nil
}

// reachable returns the connections to all servers that are in use, or have been until lately: what is to be gone must be gone there too when
// they come to own something again. One that is down, or joins, is emptied before it owns anything.
func (w *worker) reachable(proto int) ([]*upstream, error) {
	t := w.route.topology
	if t == nil {
		return nil, errNoTopology
	}
	var all []*upstream
	for i := range t.Caches {
		if t.Caches[i].RunID != "" && t.Caches[i].State != topology.Down || slices.Contains(w.route.owners, uint16(i)) {
			all = append(all, w.route.upstreams[i][proto-2])
		}
	}
	if all == nil {
		return nil, errNoCacheServer
	}
	return all, nil
}

// anyOne passes a command on to one server, where all must give the same answer.
func (w *worker) anyOne(cl *client, c *command, cmd resp.Command) bool {
	all, err := w.owners(cl.proto)
	for _, u := range all {
		if err = u.room(); err == nil {
			w.teachFunctions(u)
			w.pass(cl, c, cmd, u)
			return true
		}
	}
	cl.refuse(w, err)
	return true
}

// firstError returns the first error among the replies, or the first reply when there is none.
func firstError(frames [][]byte) []byte {
	for _, f := range frames {
		if resp.IsError(f) {
			return f
		}
	}
	return frames[0]
}

// anySuccess returns the first reply that is no error, or the first one when there is none.
func anySuccess(frames [][]byte) []byte {
	for _, f := range frames {
		if !resp.IsError(f) {
			return f
		}
	}
	return frames[0]
}
