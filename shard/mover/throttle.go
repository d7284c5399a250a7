package mover

import (
	"context"
	"fmt"
	"time"
)

// breathe waits while copying would harm: a standby lags, or requests wait for connections. It is no error however long it takes.
func (p *part) breathe(ctx context.Context) error {
	if !p.frozen.IsZero() {
		return nil
	}
	for {
		why, err := p.burden(ctx)
		if err != nil || why == "" {
			return err
		}
		p.holdUp(why)
		p.met.throttled.Inc()
		if p.cancel.Load() {
			return nil
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// burden says what speaks against going on just now; empty: nothing.
func (p *part) burden(ctx context.Context) (string, error) {
	for _, s := range []*side{p.from, p.to} {
		if wait := p.deps.Queue(s.shard); wait > p.cfg.QueueLimit {
			return fmt.Sprintf("requests wait %v for a connection to shard %s", wait.Round(time.Millisecond), s.shard), nil
		}
		if time.Since(s.measured) < time.Second {
			continue
		}
		if err := s.open(ctx); err != nil {
			return "", err
		}
		var lag int64
		err := s.conn.QueryRow(ctx, `select coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), r.replay_lsn)), 0)::bigint from pg_stat_replication r `+physical).Scan(&lag)
		if err != nil {
			return "", err
		}
		if lag > p.cfg.LagLimit {
			return fmt.Sprintf("a standby of shard %s lags by %d MiB", s.shard, lag>>20), nil
		}
		s.measured = time.Now()
	}
	return "", nil
}
