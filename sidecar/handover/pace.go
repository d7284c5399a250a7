package handover

import (
	"context"
	"sync"
	"time"
)

// pace spreads work over time: at most rate units per second, after a burst of a tenth of that.
type pace struct {
	rate float64

	mu   sync.Mutex // guards the following
	next time.Time  // when the work so far would have been done at exactly the rate
}

// take accounts for n units at the time now and returns how long to wait before they are done.
func (p *pace) take(now time.Time, n float64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if earliest := now.Add(-time.Second / 10); p.next.Before(earliest) {
		p.next = earliest
	}
	p.next = p.next.Add(time.Duration(n / p.rate * float64(time.Second)))
	return max(p.next.Sub(now), 0)
}

// wait waits for n units; false: ctx has ended.
func (p *pace) wait(ctx context.Context, n float64) bool {
	if d := p.take(time.Now(), n); d > 0 {
		return sleep(ctx, d)
	}
	return ctx.Err() == nil
}
