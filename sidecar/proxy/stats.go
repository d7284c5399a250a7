package proxy

import (
	"time"
)

// stats are the counts of one worker. They are plain numbers that only its loop touches; whoever wants them asks for a copy on the loop.
// Counting in shared atomics would cost more than the rest of a hit's work (see docs/PERFORMANCE.md).
type stats struct {
	commands []uint64 // by command.index; the last one: everything else
	other    int
	slowFrom time.Duration // Config.SlowFrom
	latency  [len(latencyBounds) + 1]uint64
	took     time.Duration // all requests together

	errors           map[code]uint64
	hits, misses     uint64 // of rows
	unconfirmed      uint64 // rows served although their shard could not be asked
	passedErrors     uint64 // error replies of cache servers
	protocolErrors   uint64
	badPasswords     uint64
	cutOutput        uint64
	messages         uint64 // given to subscribers
	privatesRefused  uint64 // connections of clients' own
	upstreamConnects uint64
	upstreamTimeouts uint64
	held             uint64 // commands that waited for a hand-over
	carried          uint64 // plain keys, for a command
	atLimit          limitCounts

	// Taken with the copy.
	clients, upstreams, inFlight int
	blocked                      int // clients that wait for data
	subscriptions, feeds         int // of clients; connections by which messages come
}

// latencyBounds are the upper bounds of the request histogram, from parsing a request to having its reply.
var latencyBounds = [...]time.Duration{
	50 * time.Microsecond, 100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second,
}

func newStats(commands int) stats {
	return stats{commands: make([]uint64, commands+1), other: commands, errors: map[code]uint64{}}
}

// observe counts an answered request.
func (s *stats) observe(r *request, now int64) {
	s.commands[r.metric]++
	took := time.Duration(now - r.start)
	s.took += took
	i := 0
	for i < len(latencyBounds) && took > latencyBounds[i] {
		i++
	}
	s.latency[i]++
	if took >= s.slowFrom {
		r.client.worker.noteSlow(r, took)
	}
}

func (s *stats) failed(c code) { s.errors[c]++ }

// copyStats returns a copy of the worker's counts. Only on its loop.
func (w *worker) copyStats() stats {
	s := w.stats
	s.commands = append([]uint64(nil), s.commands...)
	s.errors = map[code]uint64{}
	for c, n := range w.stats.errors {
		s.errors[c] = n
	}
	s.clients = len(w.clients)
	for _, cl := range w.clients {
		if cl.isBlocked() {
			s.blocked++
		} else if cl.stopped {
			s.atLimit.heldBack++
		}
		if cl.session != nil {
			s.subscriptions += cl.session.subs.count()
		}
	}
	s.feeds = len(w.hub.feeds)
	for _, u := range w.upstreams {
		if u.conn != nil {
			s.upstreams++
		}
		s.inFlight += u.owes()
	}
	return s
}

// add sums another worker's counts into s.
func (s *stats) add(o stats) {
	for i, n := range o.commands {
		s.commands[i] += n
	}
	for i, n := range o.latency {
		s.latency[i] += n
	}
	for c, n := range o.errors {
		s.errors[c] += n
	}
	s.took += o.took
	s.hits += o.hits
	s.misses += o.misses
	s.unconfirmed += o.unconfirmed
	s.passedErrors += o.passedErrors
	s.protocolErrors += o.protocolErrors
	s.badPasswords += o.badPasswords
	s.cutOutput += o.cutOutput
	s.messages += o.messages
	s.privatesRefused += o.privatesRefused
	s.upstreamConnects += o.upstreamConnects
	s.upstreamTimeouts += o.upstreamTimeouts
	s.held += o.held
	s.carried += o.carried
	s.atLimit.add(&o.atLimit)
	s.clients += o.clients
	s.blocked += o.blocked
	s.subscriptions += o.subscriptions
	s.feeds += o.feeds
	s.upstreams += o.upstreams
	s.inFlight += o.inFlight
}

// gather sums the counts of all workers. It waits for their loops for a second at most: a loop that is that late is left out.
// Not to be called on a loop.
func (s *Server) gather() stats {
	sum := newStats(len(s.commands.list))
	for _, one := range collect(s, (*worker).copyStats) {
		sum.add(one)
	}
	return sum
}
