package membership

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// lookEvery is how often it is decided whether to join; the decision itself is joining.due.
	lookEvery = 100 * time.Millisecond
	// resolveTimeout bounds the resolution of the seeds' names, which runs in parallel.
	resolveTimeout = 3 * time.Second
)

// rejoin joins the cluster and joins it again from time to time, until ctx ends. memberlist itself never talks again to a member that
// has been dead for half a minute, so without this two halves of a cluster stay apart for ever after a longer partition.
func (g *Gossip) rejoin(ctx context.Context, ml *memberlist.Memberlist) error {
	var state joining
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		g.mu.Lock()
		alive, dead := g.tab.addresses()
		state.alone, state.disputed = len(alive) == 0, g.disputed
		g.mu.Unlock()
		if state.due(time.Now(), g.cfg.RejoinInterval) {
			reached := g.join(ctx, ml, alive, dead, state.disputed)
			state.last = time.Now()
			state.jitter = g.jitter()
			state.failures++
			if reached > 0 || !state.alone {
				state.failures = 0
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (g *Gossip) jitter() float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.rnd.Float64()*0.4 - 0.2
}

// join dials a few of the seeds and of the members that died, in parallel, and exchanges everything with those that answer.
func (g *Gossip) join(ctx context.Context, ml *memberlist.Memberlist, alive map[netip.AddrPort]bool, dead []netip.AddrPort, all bool) (reached int) {
	candidates := append(g.resolveSeeds(ctx), dead...)
	if all {
		candidates = append(candidates, slices.Collect(maps.Keys(alive))...)
	}
	g.mu.Lock()
	ip, _ := netip.AddrFromSlice(g.ip)
	self := netip.AddrPortFrom(ip.Unmap(), g.port)
	chosen := pickSeeds(candidates, self, alive, all, g.rnd)
	g.mu.Unlock()

	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, addr := range chosen {
		wg.Go(func() {
			g.met.rejoins.Inc()
			_, err := ml.Join([]string{addr.String()})
			if err != nil {
				g.met.rejoinsFailed.Inc()
				g.log.Debug("cannot join", "addr", addr.String(), "err", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			reached++
		})
	}
	wg.Wait()
	switch {
	case len(chosen) == 0 || ctx.Err() != nil:
	case reached > 0:
		g.log.Info("joined", "answered", reached, "dialled", len(chosen))
	case len(alive) == 0:
		g.log.Warn("alone: none of the sidecars dialled answered; trying again", "dialled", len(chosen))
	}
	return reached
}

// resolveSeeds looks up all seeds afresh, in parallel. What cannot be resolved is left out: others may do.
func (g *Gossip) resolveSeeds(ctx context.Context) []netip.AddrPort {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	found := make([][]netip.AddrPort, len(g.cfg.Join))
	var wg sync.WaitGroup
	for i, seed := range g.cfg.Join {
		host, portText, err := net.SplitHostPort(seed)
		port, perr := strconv.ParseUint(portText, 10, 16)
		if err != nil || perr != nil {
			continue // refused by Validate
		}
		if ip, err := netip.ParseAddr(host); err == nil {
			found[i] = []netip.AddrPort{netip.AddrPortFrom(ip.Unmap(), uint16(port))}
			continue
		}
		wg.Go(func() {
			ips, err := g.lookup(ctx, host)
			if err != nil {
				g.met.resolveFailed.Inc()
				g.log.Debug("cannot resolve a seed", "host", host, "err", err)
				return
			}
			for _, ip := range ips {
				found[i] = append(found[i], netip.AddrPortFrom(ip.Unmap(), uint16(port)))
			}
		})
	}
	wg.Wait()
	return slices.Concat(found...)
}
