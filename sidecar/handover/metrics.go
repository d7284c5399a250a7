package handover

import "github.com/prometheus/client_golang/prometheus"

// metrics are the counters of a Carrier.
type metrics struct {
	carried, bytes, asked, waits prometheus.Counter
	dropped, swept, rounds       prometheus.Counter
	killed, failures             prometheus.Counter
	step                         *prometheus.GaugeVec // from
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "ringside_handover_" + name, Help: help})
		reg.MustRegister(c)
		return c
	}
	m := &metrics{
		carried:  counter("carried_keys_total", "Plain keys that this sidecar put on their new owner."),
		bytes:    counter("carried_bytes_total", "Bytes of the values of carried keys, as DUMP makes them."),
		asked:    counter("asked_keys_total", "Plain keys that a command needed before the driver had come to them."),
		waits:    counter("lease_waits_total", "Times that a key was left for later because another carrier had its lease."),
		dropped:  counter("dropped_keys_total", "Plain keys that were too big to be carried, or of a format that the new owner does not know; they are gone."),
		swept:    counter("swept_keys_total", "Keys removed from a server that has no business with them any more."),
		rounds:   counter("rounds_total", "Times that all keys of a former owner were gone through."),
		killed:   counter("killed_connections_total", "Connections ended because their sidecar held up a hand-over."),
		failures: counter("failures_total", "Times that driving a hand-over failed and was begun again."),
		step: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "ringside_handover_step",
			Help: "How far the hand-over of plain keys from a server has come: 0 open, 1 held, 2 handed, 3 carried."}, []string{"from"}),
	}
	reg.MustRegister(m.step)
	return m
}
