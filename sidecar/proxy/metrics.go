package proxy

import (
	"github.com/prometheus/client_golang/prometheus"
)

// collector shows the workers' counts to Prometheus when it asks.
type collector struct {
	server *Server

	limits *limitMetrics

	commands, errors, requests                                                                *prometheus.Desc
	hits, misses, unconfirmed                                                                 *prometheus.Desc
	passedErrors, protocolErrors, badPasswords, cut                                           *prometheus.Desc
	connects, timeouts, clients, upstreams, waiting, ops, held, carried                       *prometheus.Desc
	slow, sweeps, refused, privates, privatesRefused, blocked, subscriptions, feeds, messages *prometheus.Desc
}

func newCollector(s *Server) *collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("ringside_"+name, help, labels, nil)
	}
	return &collector{
		server:          s,
		limits:          newLimitMetrics(),
		commands:        desc("commands_total", "Requests answered, by command.", "command"),
		errors:          desc("error_replies_total", "Error replies made by this sidecar, by their first word.", "code"),
		requests:        desc("request_duration_seconds", "Time from a request to its reply."),
		hits:            desc("row_hits_total", "Rows answered from the cache."),
		misses:          desc("row_misses_total", "Rows that the cache could not answer."),
		unconfirmed:     desc("row_reads_unconfirmed_total", "Rows looked up in the cache although their shard could not be asked for longer than view_ttl."),
		passedErrors:    desc("upstream_error_replies_total", "Error replies of cache servers that were passed on."),
		protocolErrors:  desc("client_protocol_errors_total", "Connections ended because the client broke the protocol."),
		badPasswords:    desc("client_auth_failures_total", "Wrong passwords."),
		cut:             desc("client_output_limit_total", "Connections ended because the client did not read its replies."),
		refused:         desc("clients_refused_total", "Connections refused because max_clients was reached."),
		privates:        desc("private_upstreams", "Connections to cache servers that belong to one client, for WATCH and blocking commands, now."),
		subscriptions:   desc("subscriptions", "Channels and patterns that clients are subscribed to now, counted for each client."),
		feeds:           desc("subscription_upstreams", "Connections of the event loops to cache servers by which messages come now."),
		messages:        desc("messages_total", "Published messages given to subscribers."),
		blocked:         desc("blocked_clients", "Clients that wait for data by a blocking command now."),
		privatesRefused: desc("private_upstreams_refused_total", "Requests refused because too many clients had connections of their own."),
		slow:            desc("slow_requests_total", "Requests that SLOWLOG has recorded."),
		sweeps:          desc("sweeps", "Commands under way that go through all keys of the cache servers."),
		connects:        desc("upstream_connects_total", "Connections made to cache servers by the event loops."),
		timeouts:        desc("upstream_timeouts_total", "Connections to cache servers closed because a reply did not come in time."),
		held:            desc("handover_waits_total", "Commands that waited because their plain keys were being handed over to another cache server."),
		carried:         desc("plain_keys_carried_on_demand_total", "Plain keys carried over from their former cache server because a command asked for them."),
		clients:         desc("clients", "Client connections now."),
		upstreams:       desc("upstreams", "Connections of the event loops to cache servers now."),
		waiting:         desc("upstream_waiting_requests", "Requests that wait for a cache server now."),
		ops:             desc("row_operations", "Misses and writes of rows under way now."),
	}
}

// Describe implements prometheus.Collector. It must not collect: the loops do not run yet.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.commands, c.errors, c.requests, c.hits, c.misses, c.unconfirmed, c.passedErrors, c.protocolErrors, c.badPasswords, c.cut,
		c.privates, c.privatesRefused, c.blocked, c.subscriptions, c.feeds, c.messages, c.refused, c.slow, c.sweeps, c.connects, c.timeouts, c.clients, c.upstreams, c.waiting, c.ops, c.held, c.carried,
	} {
		out <- d
	}
	c.limits.describe(out)
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	s := c.server.gather()
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, n int64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n))
	}
	for i, n := range s.commands {
		switch {
		case i == s.other:
			counter(c.commands, n, "other")
		case n > 0: // hundreds of commands are never used
			counter(c.commands, n, c.server.commands.list[i].info.Name)
		}
	}
	for _, code := range []code{codeErr, codeTryAgain, codeOverloaded, codeCacheDown, codeShardDown, codeBadKey, codeBadRow} {
		counter(c.errors, s.errors[code], string(code))
		delete(s.errors, code)
	}
	var rest uint64
	for _, n := range s.errors {
		rest += n
	}
	counter(c.errors, rest, "other")
	buckets := map[float64]uint64{}
	var count uint64
	for i, n := range s.latency {
		count += n
		if i < len(latencyBounds) {
			buckets[latencyBounds[i].Seconds()] = count
		}
	}
	out <- prometheus.MustNewConstHistogram(c.requests, count, s.took.Seconds(), buckets)
	counter(c.hits, s.hits)
	counter(c.misses, s.misses)
	counter(c.unconfirmed, s.unconfirmed)
	counter(c.passedErrors, s.passedErrors)
	counter(c.protocolErrors, s.protocolErrors)
	counter(c.badPasswords, s.badPasswords)
	counter(c.cut, s.cutOutput)
	counter(c.refused, c.server.refusedClients.Load())
	gauge(c.subscriptions, int64(s.subscriptions))
	gauge(c.feeds, int64(s.feeds))
	counter(c.messages, s.messages)
	gauge(c.blocked, int64(s.blocked))
	gauge(c.privates, c.server.privates.Load())
	counter(c.privatesRefused, s.privatesRefused)
	counter(c.slow, uint64(c.server.lastSlow.Load()))
	gauge(c.sweeps, c.server.sweeps.Load())
	counter(c.connects, s.upstreamConnects)
	counter(c.timeouts, s.upstreamTimeouts)
	counter(c.held, s.held)
	counter(c.carried, s.carried)
	gauge(c.clients, int64(s.clients))
	gauge(c.upstreams, int64(s.upstreams))
	gauge(c.waiting, int64(s.inFlight))
	gauge(c.ops, c.server.rowOps.Load())
	c.limits.collect(out, &s.atLimit)
}
