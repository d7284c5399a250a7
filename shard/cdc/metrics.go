package cdc

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the time series of Followers. What State tells anyway is read when it is asked for.
type metrics struct {
	states func() []State
	vecs   map[string]*prometheus.CounterVec

	lag, active, degraded, off, retained, safe *prometheus.Desc
}

// counters are one shard's children.
type counters struct {
	inserts, updates, deletes, truncates    prometheus.Counter
	moved, unnamed                          prometheus.Counter
	invalidated, failed, flushed, takeovers prometheus.Counter
}

func (c *counters) row(op byte) {
	switch op {
	case 'I':
		c.inserts.Inc()
	case 'U':
		c.updates.Inc()
	default:
		c.deletes.Inc()
	}
}

func newMetrics(reg prometheus.Registerer, states func() []State) *metrics {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("ringside_cdc_"+name, help, []string{"shard"}, nil)
	}
	m := &metrics{
		states: states, vecs: map[string]*prometheus.CounterVec{},
		lag:      desc("lag_seconds", "How long ago all changes that were visible then had been handed out. Absent while nobody knows."),
		active:   desc("active", "1 while this sidecar follows the shard's changes."),
		degraded: desc("degraded", "1 while changes of the shard may be handed out too late, or not at all."),
		off:      desc("off", "1 while the shard's settings do not allow to follow its changes: the TTL is the bound."),
		retained: desc("slot_retained_bytes", "Bytes of write-ahead log that the replication slot keeps."),
		safe:     desc("slot_safe_bytes", "Bytes of log that may be written before the slot can be lost. Absent without a limit."),
	}
	reg.MustRegister(m)
	for name, v := range map[string]struct {
		help   string
		labels []string
	}{
		"changes_total":       {"Changes read from the log, by kind.", []string{"shard", "kind"}},
		"invalidations_total": {"Rows handed out for invalidation.", []string{"shard"}},
		"failures_total":      {"Calls to invalidate or flush that failed, and were made again.", []string{"shard"}},
		"flushes_total":       {"Flushes, after a TRUNCATE or because changes may have been missed.", []string{"shard"}},
		"takeovers_total":     {"How often this sidecar began to follow the shard.", []string{"shard"}},
	} {
		m.vecs[name] = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ringside_cdc_" + name, Help: v.help}, v.labels)
		reg.MustRegister(m.vecs[name])
	}
	return m
}

func (m *metrics) forShard(shard string) *counters {
	change := func(kind string) prometheus.Counter { return m.vecs["changes_total"].WithLabelValues(shard, kind) }
	count := func(name string) prometheus.Counter { return m.vecs[name].WithLabelValues(shard) }
	return &counters{
		inserts: change("insert"), updates: change("update"), deletes: change("delete"), truncates: change("truncate"),
		moved:       change("moved"),   // written by the mover, and ignored
		unnamed:     change("unnamed"), // of rows that no key names
		invalidated: count("invalidations_total"), failed: count("failures_total"), flushed: count("flushes_total"), takeovers: count("takeovers_total"),
	}
}

// forget drops the series of a shard that was removed.
func (m *metrics) forget(shard string) {
	for _, v := range m.vecs {
		v.DeletePartialMatch(prometheus.Labels{"shard": shard})
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.lag, m.active, m.degraded, m.off, m.retained, m.safe} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, s := range m.states() {
		gauge := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, s.Shard)
		}
		flag := func(d *prometheus.Desc, on bool) {
			v := 0.0
			if on {
				v = 1
			}
			gauge(d, v)
		}
		flag(m.active, s.Role == Active)
		flag(m.degraded, s.Degraded)
		flag(m.off, s.Role == Off)
		if s.Known {
			gauge(m.lag, s.Lag.Seconds())
		}
		if s.Slot != "" {
			gauge(m.retained, float64(s.RetainedBytes))
			if s.SafeBytes >= 0 {
				gauge(m.safe, float64(s.SafeBytes))
			}
		}
	}
}

// jitter spreads a pause by a fifth, so that sidecars do not ask all at once.
func jitter(d time.Duration, random func(time.Duration) time.Duration) time.Duration {
	return d - d/5 + random(2*d/5+1)
}
