package proxy

import (
	"errors"
	"time"

	"ringside/resp"
)

// task is what a request does that talks to cache servers in several steps. Its methods run on the loop, once for each call that was
// sent with its request: the request must be completed when the last of them has come, and not before, because calls refer to it.
type task interface {
	replied(w *worker, u *upstream, part int32, frame []byte)
	refused(w *worker, part int32, err error)
}

// fleetHandler returns the handler of a command that is about all cache servers, or nil.
func fleetHandler(name string) handler {
	switch name {
	case "scan":
		return whenOpen((*worker).owners, (*worker).scan)
	case "keys":
		return whenOpen((*worker).owners, (*worker).keys)
	case "dbsize":
		return whenOpen((*worker).owners, (*worker).dbSize)
	case "randomkey":
		return whenOpen((*worker).owners, (*worker).randomKey)
	case "flushdb", "flushall":
		return whenOpen((*worker).reachable, (*worker).flush)
	}
	return scriptHandler(name)
}

// begin begins the request of a task.
func (w *worker) begin(cl *client, c *command, t task) *request {
	r := w.newRequest(cl, c.index, kindTask)
	r.task = t
	return r
}

// slices are commands that go through all names of the servers. Each costs every server about a third of a microsecond per name, in
// pieces of under a millisecond, and this loop a tenth of that.
const (
	// sliceCount is the COUNT of their SCANs.
	sliceCount = "1000"
	// maxSweeps is how many may be under way in this sidecar.
	maxSweeps = 8
)

var (
	errManySweeps = resp.Refusal("OVERLOADED too many commands that go through all keys are under way in this sidecar")
	errGone       = errors.New("the server has left the topology")
)

// beginSweep counts a command that goes through all names; false, refused, when there are too many. Whoever gets true calls endSweep.
func (w *worker) beginSweep(cl *client) bool {
	if w.server.sweeps.Add(1) > maxSweeps {
		w.server.sweeps.Add(-1)
		cl.refuse(w, errManySweeps)
		return false
	}
	cl.hold()
	return true
}

// endSweep completes the request of a sweep.
func (w *worker) endSweep(r *request, reply []byte, err error) {
	w.server.sweeps.Add(-1)
	cl := r.client
	if err != nil {
		w.fail(r, err)
	} else {
		w.finish(r, reply)
	}
	if cl != nil {
		cl.release()
	}
}

func (w *worker) sweepDeadline() int64 { return w.now + int64(w.server.live().SweepTimeout) }

// tooLong is the error of a sweep that has not come to its end.
func tooLong(limit time.Duration, hint string) error {
	return resp.Refusal("ERR not done after " + limit.String() + hint)
}
