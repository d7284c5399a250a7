package membership

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
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
			state = g.attempt(ctx, ml, state, alive, dead)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// attempt joins once and returns what that makes of the state.
func (g *Gossip) attempt(ctx context.Context, ml *memberlist.Memberlist, state joining, alive map[netip.AddrPort]bool, dead []netip.AddrPort) joining {
	var candidates []netip.AddrPort
	limit := maxSeeds
	all := state.disputed
	if state.following() && !all {
		state.follows++
		all, limit = true, followTargets
	} else {
		candidates = append(g.resolveSeeds(ctx), dead...)
	}
	if all {
		candidates = append(candidates, slices.Collect(maps.Keys(alive))...)
	}
	g.mu.Lock()
	ip, _ := netip.AddrFromSlice(g.ip)
	self := netip.AddrPortFrom(ip.Unmap(), g.port)
	chosen := pickSeeds(candidates, self, alive, all, limit, g.rnd)
	state.jitter = g.rnd.Float64()*0.4 - 0.2
	g.mu.Unlock()

	reached := g.dial(ml, chosen)
	g.greet(ml, chosen)
	switch {
	case len(chosen) == 0 || ctx.Err() != nil:
	case state.alone && reached > 0:
		g.log.Info("joined", "answered", reached, "dialled", len(chosen))
	case state.alone:
		g.log.Warn("alone: none of the sidecars dialled answered; trying again", "dialled", len(chosen))
	default:
		g.log.Debug("joined again", "answered", reached, "dialled", len(chosen))
	}
	state.last = time.Now()
	state.failures++
	if reached > 0 || !state.alone {
		state.failures = 0
	}
	state.reached = state.reached || reached > 0
	return state
}

// dial exchanges everything with each of the addresses, in parallel, and returns how many answered.
func (g *Gossip) dial(ml *memberlist.Memberlist, chosen []netip.AddrPort) int {
	var reached atomic.Int32
	var wg sync.WaitGroup
	for _, addr := range chosen {
		wg.Go(func() {
			g.met.rejoins.Inc()
			if _, err := ml.Join([]string{addr.String()}); err != nil {
				g.met.rejoinsFailed.Inc()
				g.log.Debug("cannot join", "addr", addr.String(), "err", err)
				return
			}
			reached.Add(1)
		})
	}
	wg.Wait()
	return int(reached.Load())
}

// greet sends our record to those who were dialled. What was said while they were may not have been in the state that was exchanged, and they are
// the ones who know us for certain: others do not pass on what they hear of somebody whom memberlist has not shown them yet.
func (g *Gossip) greet(ml *memberlist.Memberlist, dialled []netip.AddrPort) {
	g.mu.Lock()
	msg, _ := encodeHints([]record{g.tab.own()}, maxPacket)
	p := packet{msg: msg}
	for _, m := range g.tab.peers() {
		if ip, ok := netip.AddrFromSlice(m.ip); ok && slices.Contains(dialled, netip.AddrPortFrom(ip.Unmap(), m.port)) {
			p.to = append(p.to, m.target())
		}
	}
	g.mu.Unlock()
	g.sendPacket(ml, p)
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
