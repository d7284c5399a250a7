package membership

import (
	"net"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// goodbyes is how many peers are told of our leaving directly.
	goodbyes = 8
	// goodbyePause is how long it is listened who else leaves at this time: memberlist's goodbye would be wasted on them.
	goodbyePause = 100 * time.Millisecond
	// In rounds that far apart this many peers each are sent a ping that carries memberlist's goodbye, until it has been sent often enough,
	// for so many rounds at most.
	goodbyeEvery  = 50 * time.Millisecond
	goodbyeFan    = 3
	goodbyeRounds = 10
)

// sayGoodbye tells the others that we leave: by our own record, which is heard at once and tells leaving from dying, and by memberlist's
// message, after which nobody probes us and the name is free. Loops have ended.
//
// memberlist's Leave would wait until its message has been sent often enough, but in vain, for all of the timeout, when the peers
// leave at the same time or when its queue has lost the message. Our record is queued after it and sent as often, in the same packets, where
// memberlist's messages come first; so when the record has left the queue, both have been said. Pings carry what is queued like any packet
// of memberlist's, but they can be sent now, and to those who stay.
func (g *Gossip) sayGoodbye(ml *memberlist.Memberlist) {
	begun := time.Now()
	g.mu.Lock()
	g.leaveTimes = transmissions(g.tab.count(Alive)) // also when most of them leave as well
	g.tab.say(g.tab.own().Hint, true)
	g.rebuildState()
	g.mu.Unlock()
	g.tell(ml)
	if !g.nobodyStays() {
		time.Sleep(min(goodbyePause, g.cfg.LeaveTimeout))
	}
	defer g.tell(ml)              // those who were told at first may all have gone
	_ = ml.Leave(time.Nanosecond) // queues its message; the error says that it did not wait
	g.mu.Lock()
	g.queue.add(g.cfg.Name) // anew: what was sent before does not count
	g.mu.Unlock()
	for round := 0; !g.goodbyeSaid(); round++ {
		if time.Since(begun) >= g.cfg.LeaveTimeout {
			g.log.Warn("the goodbye may not have been heard; peers will notice in a few seconds", "timeout", g.cfg.LeaveTimeout)
			return
		}
		if round < goodbyeRounds {
			g.carry(ml)
		}
		time.Sleep(goodbyeEvery)
	}
	g.log.Debug("goodbye said", "took", time.Since(begun))
}

// tell sends our record directly to some of those who are alive.
func (g *Gossip) tell(ml *memberlist.Memberlist) {
	g.mu.Lock()
	g.fresh = map[string]bool{g.cfg.Name: true} // what others said must not keep it out of the packet
	p := g.eager(goodbyes)
	g.mu.Unlock()
	g.sendPacket(ml, p)
}

// carry pings some of those who are alive. Nobody waits for the answers, or for the time after which memberlist gives up on them.
func (g *Gossip) carry(ml *memberlist.Memberlist) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, to := range g.someAlive(goodbyeFan, "") {
		go func() {
			_, _ = ml.Ping(to.node.Name, &net.UDPAddr{IP: to.node.Addr, Port: int(to.node.Port)})
		}()
	}
}

// goodbyeSaid reports whether our last record has been gossiped as often as any, or nobody is left to hear it.
func (g *Gossip) goodbyeSaid() bool {
	if g.nobodyStays() {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	_, queued := g.queue.sent[g.cfg.Name]
	return !queued
}

func (g *Gossip) nobodyStays() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.tab.peers()) == 0
}
