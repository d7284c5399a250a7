package cache

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetricsAreWellNamedAndGoWithTheirServer(t *testing.T) {
	reg := prometheus.NewRegistry()
	newMetrics(reg)
	m := newServerMetrics(reg)
	for _, server := range []string{"c1", "c2"} {
		m.degraded.WithLabelValues(server, "timeout").Inc()
		m.refused.WithLabelValues(server).Inc()
	}
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	m.forget("c1")
	if n := testutil.CollectAndCount(m.degraded) + testutil.CollectAndCount(m.refused); n != 2 {
		t.Errorf("%d series are left, want those of c2", n)
	}
}
