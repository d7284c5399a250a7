package proxy

import (
	"slices"
	"time"

	"ringside/internal/evloop"
	"ringside/ring"
	"ringside/sidecar/topology"
)

// A cache server that has lost vnodes still holds their plain keys, and it decides itself, by its marker, who serves them: see topology.Step.
//
//	open    the former owner, as before
//	held    nobody: commands wait until the marker says more
//	handed  the new owner, once it is settled that the former one does not have the key: see settle.go
//
// Whoever drives the hand-over takes the next step when no connection to the former owner hinders it by its name (topology.Caller): all
// that is sent by what counted before is sent by connections whose name says so, and a name is changed only behind what was sent. So a
// worker may take the marker that it has read last for true, however old that is.

// gate keeps plain keys where they belong while servers hand them over. A worker has one only while that is so: otherwise a request
// pays for a look whether there is one.
type gate struct {
	worker    *worker
	handovers []*handover // as in the topology
	waiting   map[*client]*hold
	timer     *evloop.Timer
	keys      [][]byte // of the command being admitted
	unsettled []unsettled
}

// handover is one hand-over as one worker sees it.
type handover struct {
	topology.Handover
	server  uint16 // index of From in the topology
	step    topology.Step
	polled  int64 // worker.now when the marker was asked for
	settled map[string]struct{}
	bytes   int // of the keys in settled
	// settling are the keys of which it is being found out.
	settling map[string]*settling
}

const (
	// The marker is asked for this often until all is handed, then as often as lookRarely says.
	lookOften  = 25 * time.Millisecond
	lookRarely = time.Second
	// holdFor is how long a command waits for a hand-over to go on before it is refused.
	holdFor = 500 * time.Millisecond
	// loseFor is how long keys whose server was lost are refused: by then nobody uses that server any more.
	loseFor = time.Second
)

// lost is what a worker knows of servers that were lost with their keys.
type lost struct {
	epoch uint64 // topology.FormerEpoch of the change that lost them
	until int64  // worker.now
}

// openGate gives the worker the gate that its topology calls for, and none when it calls for none. What waits at the old gate has to be woken
// once all else knows of the topology.
func (w *worker) openGate() {
	t, old := w.route.topology, w.gate
	if old != nil {
		old.timer.Stop()
	}
	if f := t.FormerEpoch(); f != w.lost.epoch {
		w.lost = lost{epoch: f}
		if f != 0 && losesKeys(t) {
			w.lost.until = w.now + int64(loseFor)
		}
	}
	if len(t.Handovers) == 0 && w.lost.until <= w.now {
		w.gate = nil
		return
	}
	g := &gate{worker: w, waiting: map[*client]*hold{}}
	for _, h := range t.Handovers {
		// The step stays. What was settled is not so any more: it may have another new owner.
		mine := &handover{Handover: h, server: uint16(t.CacheIndex(h.From)), settled: map[string]struct{}{}, settling: map[string]*settling{}}
		if old != nil {
			if i := slices.IndexFunc(old.handovers, func(o *handover) bool { return o.Handover == h }); i >= 0 {
				mine.step = old.handovers[i].step
			}
		}
		g.handovers = append(g.handovers, mine)
	}
	w.gate = g
	if old != nil {
		// What waits is looked at anew, with what it has waited already.
		for cl, h := range old.waiting {
			g.waiting[cl] = &hold{since: h.since, call: h.call, opening: h.opening}
		}
	}
	g.timer = w.loop.AfterFunc(0, g.tick)
}

func losesKeys(t *topology.Topology) bool {
	for v := range ring.Vnodes {
		if t.Lost(uint16(v)) {
			return true
		}
	}
	return false
}

// wakeAll has everything that waits looked at again.
func (g *gate) wakeAll() {
	for cl, h := range g.waiting {
		h.wake(cl)
	}
}

// owners returns the owner of each vnode's plain keys, by which the worker routes them.
func (g *gate) owners(t *topology.Topology) []uint16 {
	if g == nil || len(g.handovers) == 0 {
		return t.CacheTable()
	}
	owners := slices.Clone(t.CacheTable())
	for v := range owners {
		if n := t.HandoverOf(uint16(v)); n >= 0 && g.handovers[n].step != topology.Handed {
			owners[v] = g.handovers[n].server
		}
	}
	return owners
}

// tick looks for news, and for what has waited too long.
func (g *gate) tick() {
	w := g.worker
	w.turn()
	if w.gate != g {
		return // turn has opened another one
	}
	if len(g.handovers) == 0 && w.lost.until <= w.now {
		w.gate = nil
		g.wakeAll()
		return
	}
	for _, h := range g.handovers {
		every := lookOften
		if h.step == topology.Handed {
			every = lookRarely
		}
		if w.now-h.polled >= int64(every) {
			h.polled = w.now
			g.poll(h)
		}
	}
	for cl, h := range g.waiting {
		if h.late(w.now) {
			h.wake(cl)
		}
	}
	for cl := range w.callingOff {
		w.unblock(cl)
	}
	w.hub.nameFeeds()
	g.timer.Reset(lookOften)
}

// poll asks a former owner for its marker. One that cannot be reached is asked by every new connection.
func (g *gate) poll(h *handover) {
	u, err := g.source(h)
	if err == nil && u.ready && !u.polling {
		u.polling = true
		u.ask(stepMarker, "GET", topology.MarkerName)
	}
}

// source returns the worker's connection to a former owner: one that is ready, if there is any.
func (g *gate) source(h *handover) (*upstream, error) {
	both := &g.worker.route.upstreams[h.server]
	u := both[0]
	if !u.ready && both[1].ready {
		u = both[1]
	}
	return u, u.room()
}

// heard takes what a cache server's marker says. The process must be the one that the topology names.
func (w *worker) heard(server string, m topology.Marker) {
	if m.Epoch > w.epoch() {
		w.server.newerEpoch(m.Epoch)
	}
	if w.gate == nil {
		return
	}
	moved := false
	for _, h := range w.gate.handovers {
		if step := m.Steps[h.Since]; h.From == server && step > h.step {
			h.step = step
			moved = true
		}
	}
	if !moved {
		return
	}
	w.routePlain()
	w.renameAll(server)
	w.keysMoved()
	w.reopen()
	w.hub.ringChanged()
	w.gate.wakeAll()
}

// reached has what waits looked at again when a former owner can be asked now, or not any more.
func (w *worker) reached(server string) {
	if w.gate.handsOver(server) {
		w.gate.wakeAll()
	}
}

// routePlain works out anew which server each plain key is sent to, and who holds any.
func (w *worker) routePlain() {
	t := w.route.topology
	owners := w.gate.owners(t)
	w.route.placement = packVnodes(func(v uint16) uint16 { return owners[v] })
	w.route.owners = nil
	for i, n := range ring.Counts(t.CacheTable(), len(t.Caches)) {
		if n > 0 || w.gate.handsOver(t.Caches[i].Name) {
			w.route.owners = append(w.route.owners, uint16(i))
		}
	}
}

// reviewAll brings all connections in line with a new topology.
func (w *worker) reviewAll() {
	for _, u := range w.upstreams {
		u.review()
	}
	for _, cl := range w.clients {
		if s := cl.session; s != nil && s.own != nil {
			s.own.review()
		}
	}
}

// callerAt is what the worker's connections to a server say of themselves.
func (w *worker) callerAt(server string) topology.Caller {
	c := topology.Caller{Sidecar: w.server.cfg.Name, Epoch: w.epoch()}
	if w.gate != nil {
		for _, h := range w.gate.handovers {
			if h.From == server && h.step >= topology.Held {
				c.Held = append(c.Held, h.Since)
			}
		}
	}
	slices.Sort(c.Held)
	return c
}

// renameAll brings the names of all connections to a server up to date, those of single clients too.
func (w *worker) renameAll(server string) {
	for key, u := range w.upstreams {
		if key.name == server {
			u.rename()
		}
	}
	for _, cl := range w.clients {
		if s := cl.session; s != nil && s.own != nil && s.own.name == server {
			s.own.rename()
		}
	}
}

// handsOver reports whether a server has anything to hand over.
func (g *gate) handsOver(server string) bool {
	return g != nil && slices.ContainsFunc(g.handovers, func(h *handover) bool { return h.From == server })
}
