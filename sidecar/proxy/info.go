package proxy

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"strings"
	"time"

	"ringside/resp"
)

// info is INFO [section...]. It sums over all loops, so it is answered from a goroutine.
func (w *worker) info(cl *client, c *command, cmd resp.Command) bool {
	var wanted []string
	for _, a := range cmd.Args[1:] {
		wanted = append(wanted, string(bytes.ToLower(a)))
	}
	s := w.server
	r := w.newRequest(cl, c.index, kindAway)
	w.away(r, func() func() {
		text := s.infoText(wanted)
		return func() {
			w.turn()
			w.finish(r, resp.AppendVerbatim(nil, cl.proto, [3]byte{'t', 'x', 't'}, text))
		}
	})
	return true
}

// infoText renders the sections wanted; none, "all", "default" and "everything" mean all of them.
func (s *Server) infoText(wanted []string) string {
	want := func(section string) bool {
		if len(wanted) == 0 {
			return true
		}
		for _, x := range wanted {
			if x == section || x == "all" || x == "default" || x == "everything" {
				return true
			}
		}
		return false
	}
	sum := s.gather()
	var total uint64
	for _, n := range sum.commands {
		total += n
	}
	up := int64(time.Since(s.started).Seconds())
	var out strings.Builder
	section := func(name string, lines ...string) {
		if !want(strings.ToLower(name)) {
			return
		}
		if out.Len() > 0 {
			out.WriteString("\r\n")
		}
		fmt.Fprintf(&out, "# %s\r\n", name)
		for _, l := range lines {
			out.WriteString(l + "\r\n")
		}
	}
	line := func(name string, value any) string { return fmt.Sprintf("%s:%v", name, value) }
	section("Server", line("redis_version", redisVersion), line("redis_mode", "standalone"), line("os", runtime.GOOS), line("arch_bits", 64),
		line("process_id", os.Getpid()), line("run_id", s.runID), line("tcp_port", s.port()), line("uptime_in_seconds", up), line("uptime_in_days", up/86400))
	section("Clients", line("connected_clients", sum.clients), line("maxclients", s.live().MaxClients), line("blocked_clients", sum.blocked))
	section("Memory", line("used_memory", memoryInUse()))
	section("Persistence", line("loading", 0))
	section("Stats", line("total_commands_processed", total), line("keyspace_hits", sum.hits), line("keyspace_misses", sum.misses),
		line("rejected_connections", s.refusedClients.Load()))
	section("Replication", line("role", "master"), line("connected_slaves", 0))
	section("Cluster", line("cluster_enabled", 0))
	section("Keyspace")
	ringside := []string{line("version", s.cfg.Version), line("name", s.cfg.Name), line("sidecars", s.deps.Cluster.Sidecars())}
	if t := s.deps.Topology.Current(); t != nil {
		ringside = append(ringside, line("epoch", t.Epoch), line("digest", t.Digest()), line("cache_servers", len(t.Caches)), line("shards", len(t.Shards)))
	}
	ringside = append(ringside, line("row_hits", sum.hits), line("row_misses", sum.misses), line("row_operations", s.rowOps.Load()),
		line("upstreams", sum.upstreams), line("upstream_waiting_requests", sum.inFlight))
	section("Ringside", ringside...)
	return out.String()
}

func memoryInUse() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
