package membership

import (
	"log"
	"log/slog"
	"net/netip"
	"time"

	"github.com/hashicorp/memberlist"
)

// memberlistConfig is memberlist's LAN preset with the changes that we rely on.
func (g *Gossip) memberlistConfig(tr *transport, addr netip.AddrPort, logger *log.Logger) *memberlist.Config {
	conf := memberlist.DefaultLANConfig()
	conf.Name = g.cfg.Name
	conf.Label = clusterLabel(g.cfg.Cluster)
	conf.Logger = logger
	conf.Delegate, conf.Events, conf.Conflict, conf.Merge = delegate{g}, delegate{g}, delegate{g}, delegate{g}

	conf.Transport = tr
	if g.network != nil {
		conf.Transport = g.network(tr)
	}
	// Both always: with an address alone the port would stay at memberlist's default, whatever we listen on.
	conf.AdvertiseAddr, conf.AdvertisePort = addr.Addr().String(), int(addr.Port())
	conf.BindAddr, conf.BindPort = g.cfg.BindAddr, tr.port()
	conf.TCPTimeout = g.cfg.StreamTimeout

	// A process that is short of processor time accuses others and defends itself in storms; these make it slower to do so.
	conf.ProbeInterval, conf.ProbeTimeout = 2*time.Second, time.Second
	conf.SuspicionMult, conf.AwarenessMaxMultiplier = 6, 8
	// Repairs what gossip missed. Small: a record per sidecar.
	conf.PushPullInterval = 10 * time.Second
	// The default, 0, never lets a dead sidecar's name go to a new address before the cluster has forgotten it, which takes minutes.
	conf.DeadNodeReclaimTime = 5 * time.Second
	// Costs time and hides that a message is too long.
	conf.EnableCompression = false

	conf.Keyring = g.keyring
	if g.tune != nil {
		g.tune(conf)
	}
	return conf
}

// clusterLabel is never empty, so that other programs built on memberlist are not heard either.
func clusterLabel(cluster string) string { return "ringside/" + cluster }

func newMemberlistLogger(to *slog.Logger) *log.Logger {
	return log.New(newLogWriter(to), "", 0)
}
