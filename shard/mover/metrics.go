package mover

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	rows, bytes, throttled prometheus.Counter
	attempts               *prometheus.CounterVec
	blocked                prometheus.Histogram
	driving                prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		rows:      prometheus.NewCounter(prometheus.CounterOpts{Name: "ringside_move_rows_total", Help: "Rows that this sidecar has copied between shards."}),
		bytes:     prometheus.NewCounter(prometheus.CounterOpts{Name: "ringside_move_bytes_total", Help: "Bytes of rows that this sidecar has copied between shards."}),
		throttled: prometheus.NewCounter(prometheus.CounterOpts{Name: "ringside_move_throttled_total", Help: "Pauses of copying because a standby lagged or requests waited for connections."}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ringside_move_cutovers_total", Help: "Attempts at a cut-over, by how they ended."},
			[]string{"outcome"}),
		blocked: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "ringside_move_blocked_seconds", Help: "For how long a cut-over that was committed took no writes.",
			Buckets:                     []float64{.01, .025, .05, .1, .15, .2, .25, .5, 1, 2.5},
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
		}),
		driving: prometheus.NewGauge(prometheus.GaugeOpts{Name: "ringside_move_driving", Help: "Whether this sidecar drives the moves: 1 or 0."}),
	}
	for _, outcome := range []string{"committed", "put off"} {
		m.attempts.WithLabelValues(outcome) // from 0, so that the first one is seen as an increase
	}
	reg.MustRegister(m.rows, m.bytes, m.throttled, m.attempts, m.blocked, m.driving)
	return m
}
