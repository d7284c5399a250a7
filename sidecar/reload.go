package sidecar

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringside/shard/keyspace"
	"ringside/shard/origin"
	"ringside/sidecar/config"
)

// reloadWithin bounds the look at the tables of new keyspaces.
const reloadWithin = 10 * time.Second

// reloadMetrics tell how the last reload ended: whoever asked for it, by a signal, gets no answer. The start counts as one that went well.
type reloadMetrics struct {
	successful, successAt prometheus.Gauge
}

func newReloadMetrics(reg prometheus.Registerer) *reloadMetrics {
	m := &reloadMetrics{
		successful: prometheus.NewGauge(prometheus.GaugeOpts{Name: "ringside_config_last_reload_successful",
			Help: "1 if the configuration was taken over when it was read last, 0 if it was refused or taken over in part."}),
		successAt: prometheus.NewGauge(prometheus.GaugeOpts{Name: "ringside_config_last_reload_success_timestamp_seconds",
			Help: "When the configuration was last read and taken over, in seconds since 1970."}),
	}
	reg.MustRegister(m.successful, m.successAt)
	m.note(nil)
	return m
}

func (m *reloadMetrics) note(err error) {
	if err != nil {
		m.successful.Set(0)
		return
	}
	m.successful.Set(1)
	m.successAt.SetToCurrentTime()
}

// Reload reads a configuration, takes over what can be changed while the sidecar runs, and returns the configuration and the paths of what was changed: see
// config.Config.Changed. No connection is closed. All of it or nothing is taken over; the error, which may be that of read, names what stands in the way, and where. The metrics
// tell how it ended. Any goroutine; one call at a time.
func (s *Sidecar) Reload(ctx context.Context, read func() (*config.Config, error)) (*config.Config, []string, error) {
	next, err := read()
	var changed []string
	if err == nil {
		changed, err = s.takeOver(ctx, next)
	}
	s.reloads.note(err)
	return next, changed, err
}

func (s *Sidecar) takeOver(ctx context.Context, next *config.Config) ([]string, error) {
	changed, err := s.loaded.Changed(next)
	if err != nil || len(changed) == 0 {
		return nil, err
	}
	known := s.cfg.Set()
	var added []*keyspace.Keyspace
	for _, ks := range next.Set().Keyspaces() {
		if known.ByName(ks.Name) == nil {
			added = append(added, ks)
		}
	}
	if err := s.checkTables(ctx, next, added); err != nil {
		return nil, err
	}
	if _, err := gossipKeys(next.Gossip.Keys); err != nil {
		return nil, next.At("gossip.keys", err)
	}
	if err := s.proxy.SetLimits(s.proxyConfig(next, s.version)); err != nil {
		return nil, next.At("limits", err)
	}
	// From here on nothing fails but what was looked at above.
	s.prober.setPatience(next.Limits.CacheDownAfter)
	if len(added) > 0 {
		// First whoever follows the changes of others: until they know the new ones, rows of the shards are cached for a moment only.
		s.foreign.setKeyspaces(next.Set().Keyspaces())
	}
	known.Replace(next.Set())
	if t := s.topology.Current(); t != nil && len(added) > 0 {
		if err := s.foreign.apply(t, s.dsn); err != nil {
			s.log.Error("following changes on the shards", "error", err)
		}
	}
	before := s.loaded
	s.loaded = next
	if !slices.Equal(before.Gossip.Keys, next.Gossip.Keys) {
		if err := s.SetGossipKeys(next.Gossip.Keys); err != nil {
			return changed, fmt.Errorf("everything else was taken over: %w", err)
		}
	}
	return changed, nil
}

// checkTables looks whether keyspaces fit their tables on every shard that answers, as at the start.
func (s *Sidecar) checkTables(ctx context.Context, cfg *config.Config, keyspaces []*keyspace.Keyspace) error {
	t := s.topology.Current()
	if len(keyspaces) == 0 {
		return nil
	}
	if t == nil {
		return errors.New("the sidecar is still starting: try again when it is ready")
	}
	ctx, cancel := context.WithTimeout(ctx, reloadWithin)
	defer cancel()
	for _, ks := range keyspaces {
		for _, sh := range t.Shards {
			err := s.fleet.CheckTable(ctx, sh.Name, ks)
			if table, ok := errors.AsType[*origin.TableError](err); ok {
				return cfg.At(keyspacePath(cfg, ks.Name), table)
			} else if err != nil {
				s.log.Warn("a table cannot be checked", "shard", sh.Name, "table", ks.Table, "error", err)
			}
		}
	}
	return nil
}

// keyspacePath is where a configuration speaks of the table of a keyspace.
func keyspacePath(cfg *config.Config, name string) string {
	for i := range cfg.Keyspaces {
		if cfg.Keyspaces[i].Name == name {
			return fmt.Sprintf("keyspaces[%d].table", i)
		}
	}
	return "keyspaces"
}
