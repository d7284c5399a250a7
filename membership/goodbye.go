package membership

import (
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// goodbyes is how many peers are told of our leaving directly.
	goodbyes = 8
	// goodbyeLook is how often it is looked whether they have been told.
	goodbyeLook = 5 * time.Millisecond
)

// sayGoodbye tells the others that we leave: by our own record, which is heard at once and tells leaving from dying, and by memberlist's
// message, after which nobody probes us and the name is free. Loops have ended.
//
// memberlist's Leave would wait until its message has been sent often enough, but in vain, for all of the timeout, when the peers
// leave at the same time or when its queue has lost the message. Our record is queued after it and sent as often, in the same packets, where
// memberlist's messages come first; so when the record has left the queue, both have been said.
func (g *Gossip) sayGoodbye(ml *memberlist.Memberlist) {
	begun := time.Now()
	g.mu.Lock()
	if g.tab.say(g.tab.own().Hint, true) {
		g.pass(g.cfg.Name)
	}
	g.rebuildState()
	p := g.eager(goodbyes)
	g.mu.Unlock()
	g.sendPacket(ml, p)
	_ = ml.Leave(time.Nanosecond) // queues its message; the error says that it did not wait
	g.mu.Lock()
	g.queue.add(g.cfg.Name) // anew: what was sent before does not count
	g.mu.Unlock()
	for !g.goodbyeSaid() {
		if time.Since(begun) >= g.cfg.LeaveTimeout {
			g.log.Warn("the goodbye may not have been heard; peers will notice in a few seconds", "timeout", g.cfg.LeaveTimeout)
			return
		}
		time.Sleep(goodbyeLook)
	}
	g.log.Debug("goodbye said", "took", time.Since(begun))
}

// goodbyeSaid reports whether our last record has been gossiped as often as any, or nobody is left to hear it.
func (g *Gossip) goodbyeSaid() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, queued := g.queue.sent[g.cfg.Name]
	return !queued || len(g.tab.peers()) == 0
}
