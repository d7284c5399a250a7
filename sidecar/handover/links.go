package handover

import (
	"sync"

	"github.com/redis/go-redis/v9"

	"ringside/sidecar/topology"
)

// link names the connections to one incarnation of a cache server.
type link struct{ name, addr, runID string }

// links are the connections that keys are carried by. They are apart from those of rows, which bulk work would keep waiting, and exist only while
// something is carried.
type links struct {
	open func(l link) (*redis.Client, error)

	mu      sync.Mutex // guards the following
	clients map[link]*redis.Client
	closed  bool
}

func (l *links) get(to link) (*redis.Client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, redis.ErrClosed
	}
	if c := l.clients[to]; c != nil {
		return c, nil
	}
	c, err := l.open(to)
	if err == nil {
		l.clients[to] = c
	}
	return c, err
}

// keep closes the connections that are not wanted. What is under way on them fails.
func (l *links) keep(wanted map[link]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for to, c := range l.clients {
		if !wanted[to] {
			delete(l.clients, to)
			_ = c.Close() // only says that it was closed before
		}
	}
}

func (l *links) close() {
	l.keep(nil)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// wantedLinks are those that the hand-overs of a topology need: to their sources and to whoever owns something.
func wantedLinks(t *topology.Topology) map[link]bool {
	wanted := map[link]bool{}
	if len(t.Handovers) == 0 && !t.Changing() {
		return wanted
	}
	for i := range t.Caches {
		if s := &t.Caches[i]; s.RunID != "" {
			wanted[linkTo(s)] = true
		}
	}
	return wanted
}

func linkTo(s *topology.Cache) link { return link{name: s.Name, addr: s.Addr, runID: s.RunID} }
