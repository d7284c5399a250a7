package membership

import (
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"
)

// delegate is what memberlist calls. It is a type of its own so that these methods are not part of Gossip's interface. Invariant I1 holds for each:
// memberlist's locks may be held, so it takes mu for a moment and calls nothing.
type delegate struct{ g *Gossip }

var (
	_ memberlist.Delegate         = delegate{}
	_ memberlist.EventDelegate    = delegate{}
	_ memberlist.ConflictDelegate = delegate{}
	_ memberlist.MergeDelegate    = delegate{}
)

// NodeMeta implements memberlist.Delegate. The meta never changes while the process lives, so memberlist's UpdateNode, which blocks until
// a broadcast of the unsafe kind has ended, is not needed.
func (d delegate) NodeMeta(limit int) []byte {
	if len(d.g.meta) > limit {
		return nil // cannot be: maxMeta is half the limit
	}
	return d.g.meta
}

// NotifyMsg implements memberlist.Delegate. The slice is memberlist's again afterwards, calls come concurrently and in any order.
func (d delegate) NotifyMsg(b []byte) {
	g := d.g
	m, err := decodeMessage(b)
	if err != nil {
		g.dropped(err)
		return
	}
	g.met.received.WithLabelValues(kindName(m.kind)).Inc()
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range m.records {
		g.hear(r, now)
	}
	switch m.kind {
	case kindTopology:
		p := parcel{from: m.records[0].Name, hint: m.records[0].Hint, body: slices.Clone(m.body)}
		if g.box.put(p) {
			g.met.dropped.WithLabelValues("mailbox_full").Inc()
		}
		g.wake(g.deliverNow)
	case kindRequest:
		g.answer(m.records[0].Name, now)
	}
}

// GetBroadcasts implements memberlist.Delegate.
func (d delegate) GetBroadcasts(overhead, limit int) [][]byte {
	g := d.g
	g.mu.Lock()
	defer g.mu.Unlock()
	msg := g.queue.take(min(limit-overhead, maxPacket), max(g.leaveTimes, transmissions(g.tab.count(Alive))), g.tab.latest)
	if msg == nil {
		return nil
	}
	g.met.sent.WithLabelValues(kindName(kindHints)).Inc()
	return [][]byte{msg}
}

// LocalState implements memberlist.Delegate: everybody's latest record, built beforehand by the spread loop.
func (d delegate) LocalState(bool) []byte { return *d.g.state.Load() }

// MergeRemoteState implements memberlist.Delegate.
func (d delegate) MergeRemoteState(b []byte, _ bool) {
	m, err := decodeMessage(b)
	if err == nil && m.kind != kindHints {
		err = errKind
	}
	if err != nil {
		d.g.dropped(err)
		return
	}
	d.g.met.received.WithLabelValues("state").Inc()
	now := time.Now()
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	for _, r := range m.records {
		d.g.hear(r, now)
	}
}

// NotifyJoin implements memberlist.EventDelegate. It is called for ourselves too, inside memberlist.Create.
func (d delegate) NotifyJoin(n *memberlist.Node) { d.seen(n) }

// NotifyUpdate implements memberlist.EventDelegate.
func (d delegate) NotifyUpdate(n *memberlist.Node) { d.seen(n) }

func (d delegate) seen(n *memberlist.Node) {
	s := sighting{name: n.Name, ip: slices.Clone(n.Addr), port: n.Port, pmax: n.PMax, meta: decodeMeta(n.Meta)}
	g := d.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return
	}
	now := time.Now()
	h := g.tab.seen(s, now)
	if g.askedEarly[s.name] {
		delete(g.askedEarly, s.name)
		g.answer(s.name, now)
	}
	g.learnt(s.name, h)
}

// NotifyLeave implements memberlist.EventDelegate: the member left or died. The node's State does not tell which (memberlist keeps
// another copy); the member's last record does.
func (d delegate) NotifyLeave(n *memberlist.Node) {
	g := d.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return
	}
	if g.tab.gone(n.Name, time.Now()) {
		g.changed()
	}
}

// NotifyConflict implements memberlist.ConflictDelegate: another address claims the name of a member that is not known to be gone.
func (d delegate) NotifyConflict(existing, other *memberlist.Node) {
	g := d.g
	g.met.conflicts.Inc()
	if existing.Name != g.cfg.Name {
		return // memberlist has logged it; the one whose name it is acts
	}
	addr, ok := netip.AddrFromSlice(other.Addr)
	if !ok {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped || other.Port == g.port && g.ip.Equal(other.Addr) {
		return
	}
	g.rival = &rival{addr: netip.AddrPortFrom(addr.Unmap(), other.Port), meta: decodeMeta(other.Meta)}
	g.wake(g.guardNow)
}

// NotifyMerge implements memberlist.MergeDelegate: the members that a peer listed in a join. It refuses nothing. The entry under our name
// shows whether that peer takes it for ours; while it does not, a former life of ours is not forgotten yet, and we join again soon.
func (d delegate) NotifyMerge(peers []*memberlist.Node) error {
	g := d.g
	for _, n := range peers {
		if n.Name != g.cfg.Name {
			continue
		}
		g.mu.Lock()
		g.disputed = n.State != memberlist.StateLeft && (n.Port != g.port || !net.IP.Equal(n.Addr, g.ip))
		g.mu.Unlock()
		return nil
	}
	g.mu.Lock()
	g.disputed = false
	g.mu.Unlock()
	return nil
}
