package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringside/cache"
	"ringside/internal/failpoint"
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

const (
	// invalidateRounds is how often the view of a shard may change under one batch before it is given back to be tried again.
	invalidateRounds = 4
	// degradedTTL is how long rows of a shard are cached whose changes may be heard of late.
	degradedTTL = time.Second
)

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
		errs = append(errs, v.clean(ctx, name, keys))
	}
	return errors.Join(errs...)
}

// clean deletes the entries of rows of one shard, which are changed there and visible, wherever they count. What makes it sound is what makes a
// writer's cleaning sound, but that no fence holds the shard's view: it is looked at again afterwards, and what it has added is cleaned too. An
// entry can only have come to a further place if the phase after that view has been held for longer than viewTTL (carriesAfter). So a view that was
// asked for less than viewTTL ago, at the end, has missed no such place.
func (v *invalidation) clean(ctx context.Context, name string, keys []keyspace.Key) error {
	done := make([][]cache.Ref, len(keys))
	for range invalidateRounds {
		view, t, asked, err := v.view(ctx, name)
		if err != nil {
			return err
		}
		var more [][]cache.Ref
		for i := range keys {
			copies := t.Copies(view, keys[i].CacheVnode, keys[i].ShardVnode)
			if refs := without(cleaned(t, &copies, &keys[i]), done[i]); len(refs) > 0 {
				more = append(more, refs)
				done[i] = append(done[i], refs...)
			}
		}
		failpoint.At(failpoint.Forgetting)
		if err := v.rows.cache.CleanMany(ctx, more); err != nil {
			return err
		}
		if now, _ := v.rows.fleet.Confirmation(name).View(); stood(view, now, time.Since(asked), v.rows.viewTTL) {
			return nil
		}
	}
	return fmt.Errorf("the view of shard %s has changed %d times under the deletion of cached rows, or it took too long each time", name, invalidateRounds)
}

// stood decides whether a view can have been followed by no other one that adds places where rows are cached. now is the last one heard of, age
// how long ago view was asked for.
func stood(view, now shard.View, age, viewTTL time.Duration) bool {
	return now.Same(view) && age <= viewTTL
}

// without returns those refs that are not among done, in their order.
func without(refs, done []cache.Ref) []cache.Ref {
	return slices.DeleteFunc(refs, func(r cache.Ref) bool { return slices.Contains(done, r) })
}

// view returns the view of a shard, the topology that it is of, and when it was asked for: half of its time is still to come.
func (v *invalidation) view(ctx context.Context, name string) (shard.View, *topology.Topology, time.Time, error) {
	view, asked := v.rows.fleet.Confirmation(name).View()
	if t := v.rows.topology.At(view.Epoch); t != nil && time.Since(asked) <= v.rows.viewTTL/2 {
		return view, t, asked, nil
	}
	asked = time.Now()
	view, t, err := v.rows.feed.ask(ctx, name)
	return view, t, asked, err
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
	owned := t.Owned(name)
	for _, vnode := range owned {
		if f := t.Flush(vnode); f < view.Epoch || f == view.Epoch && view.Phase != shard.Preparing {
			return false
		}
	}
	return len(owned) > 0
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
