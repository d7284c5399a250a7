package cache

import "github.com/prometheus/client_golang/prometheus"

// metrics are the counters of a Cache. None has a label from the data.
type metrics struct {
	hits, misses, coalesced, rereads    prometheus.Counter
	fills, fillsRefused, released       prometheus.Counter
	poisonSeen, crowded, malformed      prometheus.Counter
	leaseWaits, leaseWaitsOver          prometheus.Counter
	woken, wakesLost, polled            prometheus.Counter
	waiting                             prometheus.Gauge
	refreshes, refreshesRefused         prometheus.Counter
	refreshesFailed                     prometheus.Counter
	carried, carryMisses, carryRefused  prometheus.Counter
	loads, loadErrors                   prometheus.Counter
	writes, writesFailed, writesUnknown prometheus.Counter
	writesRemembered                    prometheus.Counter
	cleanFailures, liftFailures         prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "ringside_cache_" + name, Help: help})
		reg.MustRegister(c)
		return c
	}
	waiting := prometheus.NewGauge(prometheus.GaugeOpts{Name: "ringside_cache_lease_waiting", Help: "Reads that wait for another sidecar's fill now."})
	reg.MustRegister(waiting)
	return &metrics{
		waiting:          waiting,
		hits:             counter("hits_total", "Reads off the event loop that found a value or an absence."),
		misses:           counter("misses_total", "Reads that found nothing and got the lease."),
		coalesced:        counter("coalesced_total", "Reads that joined another read of the same row in this sidecar."),
		rereads:          counter("rereads_total", "Coalesced reads that came too late for the value and had it read again."),
		fills:            counter("fills_total", "Entries filled."),
		fillsRefused:     counter("fills_refused_total", "Fills refused because the lease was gone: a write or an eviction came between."),
		released:         counter("leases_released_total", "Leases given back without a fill."),
		poisonSeen:       counter("poison_seen_total", "Reads that found poison and loaded without filling."),
		crowded:          counter("poison_crowded_total", "Writes of rows that so many others were writing that their poison had to be merged."),
		malformed:        counter("malformed_entries_total", "Entries found that were not written by this format; they are deleted."),
		leaseWaits:       counter("lease_waits_total", "Reads that waited for another sidecar's fill."),
		leaseWaitsOver:   counter("lease_waits_timed_out_total", "Reads whose wait for another sidecar's fill was in vain."),
		woken:            counter("wakes_total", "Waits for another sidecar's fill that ended with the cache server's word that it was over."),
		wakesLost:        counter("wakes_lost_total", "Waits whose time ran out though the fill had been made: the word of it was lost."),
		polled:           counter("lease_polls_total", "Waits in which the cache server could not be listened to and had to be asked again and again."),
		refreshes:        counter("refreshes_total", "Entries refreshed before they expired."),
		refreshesRefused: counter("refreshes_refused_total", "Refreshes that put nothing because a write or an eviction came between."),
		refreshesFailed:  counter("refreshes_failed_total", "Refreshes whose row could not be loaded, or not be put; the old value stays."),
		carried:          counter("carried_total", "Entries taken over from the server that held them before a change of the ring."),
		carryMisses:      counter("carry_misses_total", "Entries that were to be taken over and were not there, or not to be had."),
		carryRefused:     counter("carry_refused_total", "Entries that the former server did not give away because it is closed for the change."),
		loads:            counter("loads_total", "Rows asked of the shards by reads."),
		loadErrors:       counter("load_errors_total", "Rows that could not be loaded."),
		writes:           counter("writes_total", "Writes committed and cleaned."),
		writesFailed:     counter("writes_failed_total", "Writes that wrote nothing."),
		writesUnknown:    counter("writes_unknown_total", "Writes whose outcome is unknown, or that were committed and not cleaned in time."),
		writesRemembered: counter("writes_remembered_total", "Writes committed although a cached copy could not be put out of reach: the shard remembers it."),
		cleanFailures:    counter("clean_failures_total", "Entries that could not be cleaned in time after a commit."),
		liftFailures:     counter("lift_failures_total", "Poison of failed writes that could not be lifted and has to expire."),
	}
}

// serverMetrics are the counters by cache server. The series of a server go with it.
type serverMetrics struct {
	degraded *prometheus.CounterVec // server, reason
	refused  *prometheus.CounterVec // server
}

func newServerMetrics(reg prometheus.Registerer) *serverMetrics {
	m := &serverMetrics{
		degraded: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ringside_cache_degraded_reads_total",
			Help: "Reads that did without a cache server because it could not be used."}, []string{"server", "reason"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ringside_cache_incarnation_refused_total",
			Help: "Connections refused because the process behind a server's address was not the one named."}, []string{"server"}),
	}
	reg.MustRegister(m.degraded, m.refused)
	return m
}

// expect begins the series of a server at 0, so that the first time something happens is seen as an increase.
func (m *serverMetrics) expect(server string) {
	m.refused.WithLabelValues(server)
	for _, why := range []string{"unreachable", "timeout", "suspended"} { // the usual ones
		m.degraded.WithLabelValues(server, why)
	}
}

func (m *serverMetrics) forget(server string) {
	m.degraded.DeletePartialMatch(prometheus.Labels{"server": server})
	m.refused.DeleteLabelValues(server)
}
