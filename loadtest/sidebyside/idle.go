package main

import (
	"context"
	"os"
	"time"

	"ringside/loadtest/gauge"
	"ringside/resp"
)

const (
	idleCount = 10_000
	// idleSettle is how long they have been idle when it is measured.
	idleSettle = 3 * time.Second
)

// idleClients measures what a client costs that has asked once and then says nothing. Each proxy is a fresh one, so that no memory is
// left over from other measures.
func idleClients(ctx context.Context, r *rig) ([]gauge.Figure, error) {
	mine, err := r.startRingside(ctx, "ringside", r.ringside, r.addrs(), "")
	if err != nil {
		return nil, err
	}
	kib, err := idleMemory(ctx, mine)
	if err != nil {
		return nil, err
	}
	if err := mine.stop(); err != nil {
		return nil, err
	}
	theirs, err := r.startTwemproxy(ctx)
	if err != nil {
		return nil, err
	}
	rival, err := idleMemory(ctx, theirs)
	if err != nil {
		return nil, err
	}
	return []gauge.Figure{
		gauge.Judge("KiB resident per idle client", gauge.Limit{Most: 2}, []float64{kib}, "%.2f : %.2f KiB", kib, rival),
	}, theirs.stop()
}

// idleMemory returns by how many KiB the process grows per client.
func idleMemory(ctx context.Context, p *proxy) (float64, error) {
	before, err := gauge.ResidentKiB(p.proc.PID())
	if err != nil {
		return 0, err
	}
	for range idleCount {
		c, err := gauge.Dial(ctx, p.addr)
		if err != nil {
			return 0, err
		}
		defer c.Hangup()
		// Without ask's buffers, of which there would be ten thousand.
		if err := c.Send(resp.AppendCommandString(nil, "GET", "nothing")); err != nil {
			return 0, err
		}
		if err := c.Expect([]byte("$-1\r\n")); err != nil {
			return 0, err
		}
	}
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(idleSettle):
	}
	after, err := gauge.ResidentKiB(p.proc.PID())
	return float64(after-before) / idleCount, err
}

// openToAll lets PostgreSQL, which may run as another user, reach its folder below ours.
func openToAll(dir string) error { return os.Chmod(dir, 0o755) }
