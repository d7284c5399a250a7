package proxy

import (
	"github.com/prometheus/client_golang/prometheus"

	"ringside/resp"
)

// limitCounts count, for one worker, what was refused or ended at a limit that has no count elsewhere.
type limitCounts struct {
	requests      [resp.UnauthenticatedLimit + 1]uint64 // by the limit that a request went beyond
	clientsIdle   uint64
	upstreamsIdle uint64
	upstreamFull  uint64 // requests refused because too many waited
	connects      uint64 // attempts that failed
	rowOps        uint64 // misses and writes refused
	heldBack      int    // clients whose input is left unread now
}

func (c *limitCounts) add(o *limitCounts) {
	for i, n := range o.requests {
		c.requests[i] += n
	}
	c.clientsIdle += o.clientsIdle
	c.upstreamsIdle += o.upstreamsIdle
	c.upstreamFull += o.upstreamFull
	c.connects += o.connects
	c.rowOps += o.rowOps
	c.heldBack += o.heldBack
}

// limitMetrics show limitCounts.
type limitMetrics struct {
	requests, clientsIdle, upstreamsIdle, upstreamFull, connects, rowOps, heldBack *prometheus.Desc
}

func newLimitMetrics() *limitMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("ringside_"+name, help, labels, nil)
	}
	return &limitMetrics{
		requests:      desc("client_request_limit_total", "Connections ended because a request was larger than this limit allows.", "limit"),
		clientsIdle:   desc("clients_idle_closed_total", "Client connections closed because nothing came by them for longer than client_idle."),
		upstreamsIdle: desc("upstreams_idle_closed_total", "Connections to cache servers closed because they were not used."),
		upstreamFull:  desc("upstream_requests_refused_total", "Requests refused because too many waited for the cache server."),
		connects:      desc("upstream_connect_failures_total", "Connections to cache servers that the event loops could not make."),
		rowOps:        desc("row_operations_refused_total", "Misses and writes of rows refused because too many were under way."),
		heldBack:      desc("clients_held_back", "Clients whose requests are left unread now, because they are owed too much or a command must come to its end first."),
	}
}

func (m *limitMetrics) describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.requests, m.clientsIdle, m.upstreamsIdle, m.upstreamFull, m.connects, m.rowOps, m.heldBack} {
		out <- d
	}
}

func (m *limitMetrics) collect(out chan<- prometheus.Metric, c *limitCounts) {
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	for _, l := range resp.AllLimits() {
		counter(m.requests, c.requests[l], l.String())
	}
	counter(m.clientsIdle, c.clientsIdle)
	counter(m.upstreamsIdle, c.upstreamsIdle)
	counter(m.upstreamFull, c.upstreamFull)
	counter(m.connects, c.connects)
	counter(m.rowOps, c.rowOps)
	out <- prometheus.MustNewConstMetric(m.heldBack, prometheus.GaugeValue, float64(c.heldBack))
}
