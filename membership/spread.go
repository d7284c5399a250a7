package membership

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// A changed record goes at once to this many random peers, each of whom does the same; memberlist's packets, five rounds a
	// second, reach those whom this misses.
	eagerFan = 3
	// eagerPause bounds how often that is done when many records change.
	eagerPause = 20 * time.Millisecond
	// planEvery is how often topologies are planned when nothing happens.
	planEvery  = 250 * time.Millisecond
	sweepEvery = 30 * time.Second
	// maxAskedEarly is how many peers that are not known yet may have an answer coming.
	maxAskedEarly = 256
)

// retention says how long it is remembered who is gone.
type retention struct{ gone, sweepEvery time.Duration }

// target is a peer to send to, copied out of the table.
type target struct{ node memberlist.Node }

func (m *member) target() target {
	return target{memberlist.Node{Name: m.name, Addr: slices.Clone(m.ip), Port: m.port, PMax: m.pmax}}
}

// packet is a message for several peers.
type packet struct {
	to  []target
	msg []byte
}

// spread passes fresh records on, keeps the push/pull state current and plans who gets which topology, until ctx ends.
func (g *Gossip) spread(ctx context.Context, ml *memberlist.Memberlist) error {
	tick := time.NewTicker(planEvery)
	defer tick.Stop()
	swept := time.Now()
	for {
		now := time.Now()
		g.mu.Lock()
		if now.Sub(swept) >= g.keep.sweepEvery {
			swept = now
			g.sweep(now)
		}
		p := g.eager(eagerFan)
		if g.dirty {
			g.rebuildState()
		}
		g.planSends(now)
		g.mu.Unlock()
		g.sendPacket(ml, p)

		select {
		case <-ctx.Done():
			return nil
		case <-time.After(eagerPause):
		}
		select {
		case <-ctx.Done():
			return nil
		case <-g.spreadNow:
		case <-tick.C:
		}
	}
}

// eager makes the packet that passes fresh records on. Those that do not fit stay fresh for the next one, so when everybody changes at the
// same time, that is passed on as fast as eagerPause lets it be. Called with mu held.
func (g *Gossip) eager(fan int) packet {
	if len(g.fresh) == 0 || len(g.tab.peers()) == 0 {
		return packet{} // with nobody to tell it stays fresh
	}
	var records []record
	for name := range g.fresh {
		if r, ok := g.tab.latest(name); ok {
			records = append(records, r)
		}
	}
	msg, taken := encodeHints(records, maxPacket)
	clear(g.fresh)
	if len(taken) < len(records) {
		for _, r := range records {
			g.fresh[r.Name] = true
		}
		for _, r := range taken {
			delete(g.fresh, r.Name)
		}
		g.wake(g.spreadNow)
	}
	but := "" // nobody needs to hear what he has said
	if len(records) == 1 {
		but = records[0].Name
	}
	return packet{to: g.someAlive(fan, but), msg: msg}
}

// someAlive picks peers that are alive at random, n at most. Called with mu held.
func (g *Gossip) someAlive(n int, but string) []target {
	peers := g.tab.peers()
	g.rnd.Shuffle(len(peers), func(i, j int) { peers[i], peers[j] = peers[j], peers[i] })
	var out []target
	for _, m := range peers {
		if len(out) < n && m.ip != nil && m.name != but {
			out = append(out, m.target())
		}
	}
	return out
}

func (g *Gossip) sendPacket(ml *memberlist.Memberlist, p packet) {
	if p.msg == nil {
		return
	}
	for i := range p.to {
		if err := ml.SendBestEffort(&p.to[i].node, p.msg); err != nil {
			g.met.sendFailed.Inc() // the queue and the push/pull state repeat it
			continue
		}
		g.met.sent.WithLabelValues(kindName(kindHints)).Inc()
	}
}

// rebuildState makes the push/pull state anew. Called with mu held, or before anybody else knows g.
func (g *Gossip) rebuildState() {
	g.dirty = false
	state, _ := encodeHints(g.tab.records(), maxState)
	g.state.Store(&state)
}

// planSends queues topologies and a request. Called with mu held.
func (g *Gossip) planSends(now time.Time) {
	if g.stopped {
		return
	}
	g.tab.compare(now)
	push, ask, next := planTopology(now, g.tab.own().Hint, g.tab.peers(), g.asking, g.pace, g.rnd)
	g.asking = next
	for _, name := range push {
		g.sendOurs(name, now)
	}
	if ask != "" {
		g.enqueue(ask, job{request: true})
	}
}

// answer queues our topology for a peer that asked. A newcomer may ask before memberlist has told us of it; it is answered when that
// happens. Called with mu held, also from delegates.
func (g *Gossip) answer(name string, now time.Time) {
	m := g.tab.members[name]
	if m == nil || m.state != Alive || name == g.cfg.Name {
		if g.stopped || len(g.askedEarly) >= maxAskedEarly {
			g.met.dropped.WithLabelValues("unknown_sender").Inc()
			return
		}
		g.askedEarly[name] = true
		return
	}
	if !mayAnswer(now, g.tab.own().Hint, m, g.pace) {
		g.met.dropped.WithLabelValues("asked_too_soon").Inc()
		return
	}
	g.sendOurs(name, now)
}

// sendOurs queues our topology for a member. Called with mu held.
func (g *Gossip) sendOurs(name string, now time.Time) {
	m := g.tab.members[name]
	m.sent, m.sentAt = g.tab.own().Hint, now
	g.enqueue(name, job{topology: true})
}

// sweep forgets what is old. Called with mu held.
func (g *Gossip) sweep(now time.Time) {
	clear(g.askedEarly)
	forgotten := g.tab.sweep(now, g.keep.gone)
	for _, name := range forgotten {
		g.queue.drop(name)
		delete(g.fresh, name)
		delete(g.box.hints, name)
	}
	if len(forgotten) > 0 {
		g.changed()
	}
}

// deliver runs the callbacks, one after another, until ctx ends (invariant I2).
func (g *Gossip) deliver(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-g.deliverNow:
		}
		g.mu.Lock()
		box := g.box.empty()
		var hints []record
		for name := range box.hints {
			if m := g.tab.members[name]; m != nil && m.rec.Seq != 0 {
				hints = append(hints, m.rec)
			}
		}
		g.mu.Unlock()

		if box.change && g.cb.OnChange != nil {
			g.cb.OnChange()
		}
		if box.votes && g.cb.OnVotes != nil {
			g.cb.OnVotes()
		}
		for _, r := range hints {
			if g.cb.OnHint != nil {
				g.cb.OnHint(r.Name, r.Hint)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(box.parcels)) {
			body, err := inflate(box.parcels[name].body)
			if err != nil {
				g.dropped(err)
				g.log.Warn("a peer sent a topology that cannot be read", "peer", name, "err", err)
				continue
			}
			if g.cb.OnTopology != nil {
				g.cb.OnTopology(name, body)
			}
		}
	}
}
