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
		wait, served := p.deps.Queue(s.shard)
		if wait > p.cfg.QueueLimit {
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
		s.counts(served, time.Now())
		if lag > p.cfg.LagLimit {
			return fmt.Sprintf("a standby of shard %s lags by %d MiB", s.shard, lag>>20), nil
		}
		s.measured = time.Now()
	}
	return "", nil
}

// usedFrom is how many requests of this sidecar a second make a shard one that is in use.
const usedFrom = 20

// counts takes note of how many requests of this sidecar the shard has served by now. What others send it is believed to be alike.
func (s *side) counts(served uint64, now time.Time) {
	if since := now.Sub(s.counted); !s.counted.IsZero() && since > 0 {
		s.alone = served < s.served || float64(served-s.served) <= usedFrom*since.Seconds() // its pool may be a new one
	}
	s.served, s.counted = served, now
}

// gently reports whether others use one of the shards, or may: then half of the time is theirs alone, in short turns.
func (p *part) gently() bool { return !p.from.alone || !p.to.alone }

// page is about how long one page is to take.
func (p *part) page() time.Duration {
	if p.gently() {
		return p.cfg.Page / 2
	}
	return p.cfg.Page
}

// rest lets others have the shards after work that took so long.
func (p *part) rest(ctx context.Context, took time.Duration) error {
	if !p.frozen.IsZero() {
		return nil
	}
	if !p.gently() {
		took /= 8
	}
	return sleep(ctx, took)
}
