package cache

import (
	"sync"
	"time"
)

// gate keeps reads from trying a server that just failed: they would each wait for it before they load the row anyway. After a pause
// one read tries again; the pause doubles at each failure. Writes do not ask it, they cannot do without the server.
type gate struct {
	min, max time.Duration

	mu    sync.Mutex // guards the following
	pause time.Duration
	until time.Time
	trial bool // a read that was let through has not reported yet
}

// pass reports whether a read may try the server now. While it is failing, only one caller per pause may.
func (g *gate) pass(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pause == 0 {
		return true
	}
	if now.Before(g.until) {
		return false
	}
	g.until, g.trial = now.Add(g.pause), true
	return true
}

// outcome is how a try of a server ended.
type outcome uint8

const (
	answered outcome = iota
	failed
	unknown // it was not tried: all connections were in use
)

// report tells how a try ended.
func (g *gate) report(o outcome, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case o == unknown:
		return
	case o == answered:
		g.pause, g.trial = 0, false
		return
	case g.pause == 0:
		g.pause = g.min
	case g.trial:
		g.pause = min(2*g.pause, g.max)
	default:
		return // one of several that were under way when the first one failed
	}
	g.until, g.trial = now.Add(g.pause), false
}
