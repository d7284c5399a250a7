package membership

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	askRival       = 300 * time.Millisecond // between two questions to a process that has our name
	guardPause     = time.Second            // after one that did not answer
	guardPauseLong = 30 * time.Second       // after it is clear that the other one has to go
)

// rival is another process that goes by our name, as memberlist last showed it.
type rival struct {
	addr netip.AddrPort
	meta Meta
}

// errNameUnsettled ends guardName when ctx ended while it was not clear yet whose the name is.
var errNameUnsettled = errors.New("gossip: stopped while the name was in dispute")

// guardName finds out whether a process that goes by our name is alive, and returns ErrNameTaken when it is and we are to go. One that does not
// answer is our own former life or somebody else's: the others will forget it, and until then we join again and again (see joining).
func (g *Gossip) guardName(ctx context.Context, ml *memberlist.Memberlist) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-g.guardNow:
		}
		g.mu.Lock()
		r, uptime := *g.rival, time.Since(g.began)
		g.mu.Unlock()
		v, err := g.watchRival(ctx, ml, r, uptime)
		if err != nil {
			return err
		}
		pause := guardPause
		switch v {
		case yield:
			return fmt.Errorf("gossip: %w: %q is at %s (version %q, redis %s); give this one another name",
				ErrNameTaken, g.cfg.Name, r.addr, r.meta.Version, r.meta.Redis)
		case stay:
			g.log.Error("another live sidecar has this one's name and must be given another one", "addr", r.addr.String(), "redis", r.meta.Redis)
			pause = guardPauseLong
		case watch:
			g.log.Warn("a process that had this sidecar's name does not answer; waiting for the others to forget it", "addr", r.addr.String())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// watchRival asks the other process by its name until it is clear who goes, or until it does not answer: then it returns watch.
func (g *Gossip) watchRival(ctx context.Context, ml *memberlist.Memberlist, r rival, uptime time.Duration) (verdict, error) {
	confirm := g.cfg.LeaveTimeout + time.Second
	c := claim{uptime: uptime, ours: g.cfg.Meta, theirs: r.meta}
	begun := time.Now()
	for {
		if _, err := ml.Ping(g.cfg.Name, net.UDPAddrFromAddrPort(r.addr)); err != nil {
			return watch, nil
		}
		c.answered = time.Since(begun)
		if v := c.judge(confirm); v != watch {
			return v, nil
		}
		select {
		case <-ctx.Done():
			return watch, errNameUnsettled
		case <-time.After(askRival):
		}
	}
}
