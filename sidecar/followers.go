package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringside/ring"
	"ringside/shard"
	"ringside/shard/catalog"
	"ringside/shard/cdc"
	"ringside/shard/keyspace"
	"ringside/sidecar/admin"
	"ringside/sidecar/topology"
)

// invalidation does what is to be done about rows that others have changed on their shards: psql, migrations, other services.
type invalidation struct {
	rows      *rows
	keyspaces *keyspace.Set
	log       *slog.Logger
	followers *cdc.Followers // nil: the configuration says off
}

// degradedTTL is how long rows of a shard are cached whose changes may be heard of late.
const degradedTTL = time.Second

// newInvalidation prepares to follow the shards, of which apply tells; off: it does not.
func newInvalidation(sidecar string, r *rows, keyspaces *keyspace.Set, off bool, reg prometheus.Registerer, log *slog.Logger) (*invalidation, error) {
	v := &invalidation{rows: r, keyspaces: keyspaces, log: log}
	if off {
		return v, nil
	}
	cfg := cdc.Config{Sidecar: sidecar, Keyspaces: keyspaces.Keyspaces()}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("following changes: %w", err)
	}
	v.followers = cdc.New(cfg, cdc.Deps{Invalidate: v.invalidate, Flush: v.flush}, reg, log)
	return v, nil
}

// apply makes the followed shards those of a topology.
func (v *invalidation) apply(t *topology.Topology, dsn func(topology.Shard) string) error {
	if v.followers == nil || len(v.keyspaces.Keyspaces()) == 0 {
		return nil
	}
	shards := make([]cdc.Shard, len(t.Shards))
	for i, sh := range t.Shards {
		shards[i] = cdc.Shard{Name: sh.Name, DSN: dsn(sh)}
	}
	return v.followers.Apply(shards)
}

// setKeyspaces has the changes of other tables followed too.
func (v *invalidation) setKeyspaces(all []*keyspace.Keyspace) {
	if v.followers != nil {
		v.followers.SetKeyspaces(all)
	}
}

// run follows until ctx ends.
func (v *invalidation) run(ctx context.Context) error {
	if v.followers == nil {
		return nil
	}
	return v.followers.Run(ctx)
}

// degraded reports whether changes of the shard's rows may be heard of late.
func (v *invalidation) degraded(shardName string) bool {
	return v.followers != nil && v.followers.Degraded(shardName)
}

// invalidate implements cdc.Deps. A cache server that cannot be reached is an error, and so the rows come again: until it can, or the shard has
// come to a topology that does without it.
func (v *invalidation) invalidate(ctx context.Context, changed []cdc.Key) error {
	t := v.rows.topology.Current()
	hasher := ring.NewHasher()
	byShard := map[string][]keyspace.Key{}
	for i := range changed {
		var k keyspace.Key
		if isRow, err := v.keyspaces.Match(hasher, changed[i].Text, &k); err != nil || !isRow {
			continue // no key names that row, so it is not cached
		}
		if s := t.ShardOf(k.ShardKey, k.ShardVnode); s != ring.None {
			byShard[t.Shards[s].Name] = append(byShard[t.Shards[s].Name], k)
		}
	}
	var errs []error
	for name, keys := range byShard {
		_, err := v.rows.deleteCopies(ctx, name, keys)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// flush implements cdc.Deps: it raises the flush generation of the shard's vnodes, of all keyspaces. Once that is committed, the keepers carry it
// out, whoever lives. A change that nobody can have filled an entry under yet serves for another flush too.
func (v *invalidation) flush(ctx context.Context, name, keyspaceName, why string) error {
	for range changeTries {
		view, _, err := v.rows.feed.ask(ctx, name)
		if err != nil {
			return err
		}
		t := v.rows.topology.Current()
		if covers(t, name, view) {
			v.log.Info("what is cached of a shard's rows is to be flushed once more, which the change under way does", "shard", name, "reason", why)
			return nil
		}
		next, err := topology.RaiseFlush(t, name)
		if err != nil {
			return err
		}
		switch err = v.rows.feed.commit(ctx, t, next); {
		case err == nil:
			v.log.Warn("what is cached of a shard's rows is flushed", "shard", name, "keyspace", keyspaceName, "reason", why, "epoch", next.Epoch)
			return nil
		case !errors.Is(err, catalog.ErrConflict):
			return err
		}
	}
	return errors.New("the ring is being changed by others again and again")
}

// covers decides whether t flushes the shard in a way that serves for changes made until now: the shard, whose view was asked for after them,
// has not come to a phase yet in which entries are filled under the names that t gives them.
func covers(t *topology.Topology, name string, view shard.View) bool {
	held := t.Holding(name)
	for _, vnode := range held {
		if f := t.Flush(vnode); f < view.Epoch || f == view.Epoch && view.Phase != shard.Preparing {
			return false
		}
	}
	return len(held) > 0
}

// shown is what /invalidation shows.
func (v *invalidation) shown() admin.Invalidation {
	if v.followers == nil {
		return admin.Invalidation{Mode: "off"}
	}
	out := admin.Invalidation{Mode: "wal"}
	for _, s := range v.followers.State() {
		f := admin.Following{
			Name: s.Shard, State: string(s.Role), Follower: s.Follower, Degraded: s.Degraded, Reason: s.Reason, Left: s.Left,
			Slot: s.Slot, WALStatus: s.WALStatus, RetainedBytes: s.RetainedBytes,
		}
		if s.Known {
			ms := s.Lag.Milliseconds()
			f.LagMS = &ms
		}
		if s.Slot != "" && s.SafeBytes >= 0 {
			f.SafeBytes = &s.SafeBytes
		}
		out.Shards = append(out.Shards, f)
	}
	return out
}
