package membership

import "github.com/prometheus/client_golang/prometheus"

// metrics are updated anywhere; labels come from closed sets.
type metrics struct {
	sent, received         *prometheus.CounterVec // by type
	dropped                *prometheus.CounterVec // by reason
	bytesSent, bytesRecv   *prometheus.CounterVec // by transport
	rejoins, rejoinsFailed prometheus.Counter
	resolveFailed          prometheus.Counter
	conflicts              prometheus.Counter
	sendFailed             prometheus.Counter
	votesCut, votesHeard   prometheus.Counter
	keyChanges             prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, g *Gossip) *metrics {
	vec := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ringside_gossip_" + name, Help: help}, []string{label})
	}
	one := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "ringside_gossip_" + name, Help: help})
	}
	m := &metrics{
		sent:          vec("messages_sent_total", "Messages of ringside's own sent to other sidecars.", "type"),
		received:      vec("messages_received_total", "Messages of ringside's own received from other sidecars.", "type"),
		dropped:       vec("dropped_total", "Messages and records not used, by reason.", "reason"),
		bytesSent:     vec("sent_bytes_total", "Bytes of gossip sent, memberlist's included.", "transport"),
		bytesRecv:     vec("received_bytes_total", "Bytes of gossip received, memberlist's included.", "transport"),
		rejoins:       one("rejoin_attempts_total", "Addresses dialled to join or re-join the cluster."),
		rejoinsFailed: one("rejoin_failures_total", "Addresses that did not answer when dialled to join."),
		resolveFailed: one("resolve_failures_total", "Seed names that could not be resolved."),
		conflicts:     one("name_conflicts_total", "Times that two addresses were seen claiming one name."),
		sendFailed:    one("send_failures_total", "Topologies and requests that could not be sent."),
		votesCut:      one("votes_cut_total", "Names left out of this sidecar's votes because they were too many or too long."),
		keyChanges:    one("key_changes_total", "Times that the encryption keys were changed while running."),
		votesHeard:    one("vote_changes_total", "Changes of other sidecars' votes heard."),
	}
	if reg == nil {
		return m
	}
	for s := Alive; s <= Dead; s++ {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ringside_gossip_members", Help: "Sidecars known, this one included, by state.",
			ConstLabels: prometheus.Labels{"state": s.String()},
		}, func() float64 { return float64(g.countMembers(s)) }))
	}
	gauge := func(name, help string, value func() int) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ringside_gossip_" + name, Help: help},
			func() float64 { return float64(value()) }))
	}
	gauge("health_score", "How far this process is behind the gossip protocol; 0 is well.", g.HealthScore)
	gauge("queued_records", "Sidecars whose latest record is still to be gossiped.", g.countQueued)
	gauge("keys", "Encryption keys that are accepted; 0: gossip is in plain text.", g.countKeys)
	gauge("votes", "Cache servers that this sidecar votes against.", g.countVotes)
	reg.MustRegister(
		m.sent, m.received, m.dropped, m.bytesSent, m.bytesRecv,
		m.rejoins, m.rejoinsFailed, m.resolveFailed, m.conflicts, m.sendFailed,
		m.votesCut, m.votesHeard, m.keyChanges,
	)
	return m
}

func kindName(kind byte) string {
	switch kind {
	case kindHints:
		return "hints"
	case kindTopology:
		return "topology"
	case kindRequest:
		return "request"
	}
	return "other"
}
