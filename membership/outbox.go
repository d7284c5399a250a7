package membership

import (
	"sync"

	"github.com/hashicorp/memberlist"
)

// maxSends is how many peers are sent to at once. A peer that does not answer holds one of them for the stream timeout.
const maxSends = 8

// job is what is to be sent to a peer over a stream: flags, since what goes is made when it goes, and then is the latest.
type job struct{ topology, request bool }

// outbox holds at most one waiting job per peer, and at most one send per peer under way. Gossip.mu guards it, except the cache.
type outbox struct {
	jobs   map[string]job
	active map[string]bool

	cache deflateCache
}

// next takes a waiting job whose peer is not being sent to.
func (o *outbox) next() (string, job, bool) {
	if len(o.active) >= maxSends {
		return "", job{}, false
	}
	for name, j := range o.jobs { // random order is fair
		if !o.active[name] {
			delete(o.jobs, name)
			o.active[name] = true
			return name, j, true
		}
	}
	return "", job{}, false
}

// enqueue adds a job for a member that is alive and starts what can be started. Called with mu held, also from delegates.
func (g *Gossip) enqueue(peer string, j job) {
	m := g.tab.members[peer]
	if g.stopped || m == nil || m.state != Alive || m.ip == nil || peer == g.cfg.Name {
		return
	}
	waiting := g.out.jobs[peer]
	g.out.jobs[peer] = job{topology: waiting.topology || j.topology, request: waiting.request || j.request}
	g.dispatch()
}

// dispatch starts as many sends as may run. Called with mu held.
func (g *Gossip) dispatch() {
	ml := g.ml.Load()
	if g.stopped || ml == nil {
		return
	}
	for {
		peer, j, ok := g.out.next()
		if !ok {
			return
		}
		m := g.tab.members[peer]
		if m == nil || m.state != Alive {
			delete(g.out.active, peer)
			continue
		}
		to, own := m.target(), g.tab.own()
		g.sends.Go(func() {
			g.send(ml, to, own, j)
			g.mu.Lock()
			defer g.mu.Unlock()
			delete(g.out.active, peer)
			g.dispatch()
		})
	}
}

// send does a job. A nil error of memberlist's means "given to the kernel", so nothing is concluded from it: the peer's hint tells
// whether the topology arrived, and OnTopology whether the question did.
func (g *Gossip) send(ml *memberlist.Memberlist, to target, own record, j job) {
	if j.request {
		g.sendReliable(ml, to, kindRequest, encodeRequest(own))
	}
	if !j.topology || g.cb.Topology == nil {
		return
	}
	body := g.cb.Topology()
	if body == nil {
		return
	}
	deflated, err := g.out.cache.deflate(body)
	if err != nil {
		g.tooLong(err)
		return
	}
	msg, err := encodeTopology(own, deflated)
	if err != nil {
		g.tooLong(err)
		return
	}
	g.sendReliable(ml, to, kindTopology, msg)
}

func (g *Gossip) sendReliable(ml *memberlist.Memberlist, to target, kind byte, msg []byte) {
	if err := ml.SendReliable(&to.node, msg); err != nil {
		g.met.sendFailed.Inc()
		g.log.Debug("cannot send to a peer", "peer", to.node.Name, "what", kindName(kind), "err", err)
		return
	}
	g.met.sent.WithLabelValues(kindName(kind)).Inc()
}

func (g *Gossip) tooLong(err error) {
	g.met.dropped.WithLabelValues("too_long").Inc()
	g.log.Error("the topology cannot be sent to peers", "err", err)
}

// deflateCache keeps the last topology deflated, since a new one goes to many peers within a moment.
type deflateCache struct {
	mu       sync.Mutex
	body     []byte // kept only to be recognised: the same slice is the same topology
	deflated []byte
}

func (c *deflateCache) deflate(body []byte) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(body) > 0 && len(body) == len(c.body) && &body[0] == &c.body[0] {
		return c.deflated, nil
	}
	deflated, err := deflate(body)
	if err == nil {
		c.body, c.deflated = body, deflated
	}
	return deflated, err
}
