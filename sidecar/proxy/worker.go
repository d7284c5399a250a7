package proxy

import (
	"bytes"

	"ringside/internal/evloop"
	"ringside/resp"
	"ringside/ring"
	"ringside/shard"
	"ringside/shard/keyspace"
	"ringside/sidecar/topology"
)

// worker is everything that belongs to one event loop.
type worker struct {
	server *Server
	loop   *evloop.Loop
	// commands is the server's table, or that of a pause.
	commands  *commands
	pause     pause
	slowlog   slowlog
	slowLines slowLines
	hot       sampler
	hasher    *ring.Hasher
	now       int64 // nanoseconds since the server was made, by the loop's clock; set by turn

	route     route
	upstreams map[upstreamKey]*upstream
	clients   map[int64]*client
	stats     stats

	free         freeRequests // without details
	freeDetailed freeRequests
	scratch      []byte       // a reply in the making
	name         []byte       // an entry's name in the making
	prefix       prefix       // what name begins with
	key          keyspace.Key // of the command being dispatched
	positions    []int        // of keys in it
	groups       groups       // of its keys by server
	spare        spareParts

	gate       *gate // while plain keys are handed over; nil: none are
	lost       lost
	settler    settler
	missing    missing
	callingOff map[*client]bool // commands that wait for data and are to be begun anew
	opening    map[*client]*opening

	hub        *hub   // what clients listen to
	collecting bool   // replies made at once are elements of an EXEC's
	collected  []byte // that one, in the making
}

// route is what a worker needs of the topology, worked out once per topology.
type route struct {
	topology *topology.Topology
	// placement has the indexes of the cache servers that own the vnodes; ring.None before there is a topology.
	placement vnodeTable[uint16]
	// copies are where the rows of a vnode are cached by a shard whose change is done, flushes the f of their entries' names.
	copies  vnodeTable[topology.Copy]
	flushes vnodeTable[uint64]
	// upstreams by index of the cache server: for protocol 2 and 3.
	upstreams [][2]*upstream
	// confirmations by index of the shard.
	confirmations []*shard.Confirmation
	// earlier are routes by topologies before it, for the rows of shards that are still at those.
	earlier []earlierRoute
	// scan is how SCAN goes through the servers; nil until somebody scans.
	scan *scanPlan
	// owners are the indexes of the cache servers that own anything, or still hold plain keys of others.
	owners []uint16
}

type upstreamKey struct {
	name, addr string
	proto      int
}

func newWorker(s *Server, loop *evloop.Loop) *worker {
	w := &worker{
		server: s, loop: loop, hot: newSampler(), commands: s.commands, hasher: ring.NewHasher(),
		upstreams: map[upstreamKey]*upstream{}, clients: map[int64]*client{}, callingOff: map[*client]bool{}, opening: map[*client]*opening{}, stats: newStats(len(s.commands.list)),
	}
	w.route.placement = packVnodes(func(uint16) uint16 { return ring.None })
	w.stats.slowFrom = s.live().SlowFrom
	w.hub = newHub(w)
	w.watchIdle()
	return w
}

// turn begins a turn's work: it takes the time and, when there is a new one, the topology.
func (w *worker) turn() {
	w.now = int64(w.loop.Now().Sub(w.server.started))
	if t := w.server.deps.Topology.Current(); t != w.route.topology {
		w.adopt(t)
	}
}

// adopt makes t the topology that this worker acts by. Connections to servers that stay are kept.
func (w *worker) adopt(t *topology.Topology) {
	w.unsettle()
	used := map[upstreamKey]bool{}
	r := route{
		topology: t, flushes: packVnodes(t.Flush),
		copies:    packVnodes(func(v uint16) topology.Copy { return t.ReadCopy(shard.View{Epoch: t.Epoch, Phase: shard.Done}, v, 0) }),
		upstreams: make([][2]*upstream, len(t.Caches)), confirmations: make([]*shard.Confirmation, len(t.Shards)),
	}
	for i := range t.Caches {
		for p := range r.upstreams[i] {
			key := upstreamKey{t.Caches[i].Name, t.Caches[i].Addr, p + 2}
			used[key] = true
			u := w.upstreams[key]
			if u == nil {
				u = w.newUpstream(key)
				w.upstreams[key] = u
			}
			r.upstreams[i][p] = u
		}
	}
	for i := range t.Shards {
		r.confirmations[i] = w.server.deps.Shards.Confirmation(t.Shards[i].Name)
	}
	for key, u := range w.upstreams {
		if !used[key] {
			delete(w.upstreams, key)
			u.retire()
		}
	}
	w.route = r
	before := w.gate
	w.openGate()
	w.routePlain()
	w.reviewAll()
	w.hub.ringChanged()
	w.hub.nameFeeds()
	w.keysMoved()
	w.reopen()
	if before != nil {
		// What waited at the gate before, at this one or no more.
		for cl, h := range before.waiting {
			h.wake(cl)
		}
	}
}

// newUpstream returns a connection to a cache server that is opened when it is first used.
func (w *worker) newUpstream(key upstreamKey) *upstream {
	return &upstream{worker: w, name: key.name, addr: key.addr, proto: key.proto}
}

// ownerOf returns the index of the cache server that owns a vnode.
func (w *worker) ownerOf(vnode uint16) (uint16, error) {
	i := w.route.placement.at(vnode)
	if i == ring.None {
		return 0, w.noOwner()
	}
	return i, nil
}

// noOwner says why nobody owns a vnode.
func (w *worker) noOwner() error {
	if w.route.topology == nil {
		return errNoTopology
	}
	return errNoCacheServer
}

// owner returns the cache server that owns a vnode and the worker's connection to it in the client's protocol.
func (w *worker) owner(vnode uint16, proto int) (uint16, *upstream, error) {
	i := w.route.placement.at(vnode)
	if i == ring.None {
		return 0, nil, w.noOwner()
	}
	u := w.route.upstreams[i][proto-2]
	return i, u, u.room()
}

// local begins a request that is answered at once.
func (w *worker) local(cl *client) *request { return w.newRequest(cl, w.stats.other, kindAway) }

// replied takes an upstream's reply to one of its calls.
func (w *worker) replied(u *upstream, c call, frame []byte) {
	r := c.request
	switch r.kind {
	case kindRow:
		w.rowReplied(u, r, c.part, frame)
	case kindJoin:
		w.joinReplied(r, frame)
	case kindTask:
		r.task.replied(w, u, c.part, frame)
	default:
		if frame[0] == '-' {
			w.stats.passedErrors++
			if bytes.HasPrefix(frame, []byte("-NOSCRIPT")) {
				u.taught = taught{} // somebody has flushed its scripts
			}
		}
		w.finish(r, frame)
	}
}

// refused takes the failure of a call: the reply will never come.
func (w *worker) refused(c call, err error) {
	r := c.request
	switch r.kind {
	case kindRow:
		if c.part == stepEntry { // the other steps come before it, and it completes the request
			w.rowMissed(r) // the shard can still answer
		}
	case kindJoin:
		w.joinRefused(r, c.part, err)
	case kindTask:
		r.task.refused(w, c.part, err)
	default:
		w.fail(r, err)
	}
}

// pass sends a command on as it is.
func (w *worker) pass(cl *client, c *command, cmd resp.Command, u *upstream) {
	r := w.newRequest(cl, c.index, kindPass)
	if cmd.Raw != nil {
		u.send(cmd.Raw, r, 0)
		return
	}
	u.sendCommand(r, 0, cmd.Args...)
}
