package origin

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the fleet's time series. What a pool counts anyway is read when it is asked for; only durations are recorded as they occur.
type metrics struct {
	pools   func() []PoolStats
	seconds *prometheus.HistogramVec
	batch   *prometheus.HistogramVec

	limit, inUse, idle, waiting, oldest, up, served, shed, spare, refused, locked, outbox, outboxOldest *prometheus.Desc
}

func newMetrics(reg prometheus.Registerer, pools func() []PoolStats) *metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("ringside_shard_"+name, help, append([]string{"shard"}, labels...), nil)
	}
	m := &metrics{
		pools: pools,
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:                        "ringside_shard_operation_seconds",
			Help:                        "Time from admission to the shard's answer, by operation.",
			Buckets:                     prometheus.ExponentialBuckets(0.0005, 2, 14),
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
		}, []string{"shard", "op"}),
		batch: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:                        "ringside_shard_load_keys",
			Help:                        "Rows asked for by one statement: loads that wait at the same time share one.",
			Buckets:                     prometheus.ExponentialBuckets(1, 2, 11),
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
		}, []string{"shard"}),
		limit:   desc("sessions_limit", "Sessions that this sidecar may hold."),
		inUse:   desc("sessions_in_use", "Sessions in use by requests."),
		idle:    desc("sessions_idle", "Sessions open and idle."),
		waiting: desc("queue_waiting", "Requests waiting for a session."),
		oldest:  desc("queue_oldest_seconds", "How long the first waiting request has waited."),
		up:      desc("up", "1 while the shard can be reached."),
		served:  desc("admitted_total", "Requests that got a session."),
		shed:    desc("shed_total", "Requests refused in the queue, by reason.", "reason"),
	}
	m.spare = desc("spare_total", "Work that nobody waits for, refreshes and comparisons, by whether it got a session.", "outcome")
	m.refused = desc("sessions_refused_total", "Sessions for which the budget of the whole cluster had no room.")
	m.locked = desc("locked_total", "Statements that ended because a lock of somebody else's transaction was not free in time.")
	m.outbox = desc("outbox_rows", "Rows whose cached copies are still to be deleted.")
	m.outboxOldest = desc("outbox_oldest_seconds", "How long the first of those rows has waited.")
	reg.MustRegister(m, m.seconds, m.batch)
	return m
}

func (m *metrics) timings(shard string) poolTimings {
	return poolTimings{
		load:  m.seconds.WithLabelValues(shard, "load"),
		write: m.seconds.WithLabelValues(shard, "write"),
		poll:  m.seconds.WithLabelValues(shard, "poll"),
		batch: m.batch.WithLabelValues(shard),
	}
}

// forget drops the series of a shard that was removed.
func (m *metrics) forget(shard string) {
	m.seconds.DeletePartialMatch(prometheus.Labels{"shard": shard})
	m.batch.DeletePartialMatch(prometheus.Labels{"shard": shard})
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.limit, m.inUse, m.idle, m.waiting, m.oldest, m.up, m.served, m.shed, m.spare, m.refused, m.locked, m.outbox, m.outboxOldest} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, p := range m.pools() {
		gauge := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, p.Name)
		}
		counter := func(d *prometheus.Desc, v uint64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), append([]string{p.Name}, labels...)...)
		}
		up := 1.0
		if !p.DownSince.IsZero() {
			up = 0
		}
		gauge(m.limit, float64(p.Limit))
		gauge(m.inUse, float64(p.InUse))
		gauge(m.idle, float64(p.Idle))
		gauge(m.waiting, float64(p.Waiting))
		gauge(m.oldest, p.OldestWait.Seconds())
		gauge(m.up, up)
		gauge(m.outbox, float64(p.Outbox))
		gauge(m.outboxOldest, p.OldestRow.Seconds())
		counter(m.served, p.Served)
		counter(m.shed, p.ShedFull, "full")
		counter(m.shed, p.ShedLate, "late")
		counter(m.spare, p.Spared, "admitted")
		counter(m.spare, p.SpareShed, "shed")
		counter(m.refused, p.Refused)
		counter(m.locked, p.Locked)
	}
}

// since observes the time that passed since start.
func since(o prometheus.Observer, start time.Time) { o.Observe(time.Since(start).Seconds()) }
