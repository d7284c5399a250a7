package sidecar

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
)

// registerIdentity says in the metrics what runs here and by which topology it acts. epoch is 0 before there is one.
func registerIdentity(reg prometheus.Registerer, version string, epoch func() uint64) {
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "ringside_build_info", Help: "1, with the version of the program."}, []string{"version", "goversion"})
	build.WithLabelValues(version, runtime.Version()).Set(1)
	reg.MustRegister(build, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "ringside_topology_epoch",
		Help: "Epoch of the topology by which this sidecar acts."}, func() float64 { return float64(epoch()) }))
}

// epoch is that of the topology in use, 0: none yet.
func (s *Sidecar) epoch() uint64 {
	if t := s.topology.Current(); t != nil {
		return t.Epoch
	}
	return 0
}
