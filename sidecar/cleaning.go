package sidecar

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ringside/cache"
	"ringside/internal/failpoint"
	"ringside/shard"
	"ringside/shard/keyspace"
	"ringside/sidecar/topology"
)

// cleanRounds is how often the view of a shard may change under one batch before it is given back to be tried again.
const cleanRounds = 4

// deleteCopies deletes the entries of rows of one shard, which are changed there and visible, wherever they count. What makes it sound is what makes a
// writer's cleaning sound, but that no fence holds the shard's view: it is looked at again afterwards, and what it has added is cleaned too. An
// entry can only have come to a further place if the phase after that view has been held for longer than viewTTL (carriesAfter). So a view that was
// asked for less than viewTTL ago, at the end, has missed no such place.
//
// It returns, by key, whether the row's copies are gone for good: not while the ring changes in a way that leaves one which nobody can reach and
// somebody may still be reading (topology.Copies.Frozen). With an error, which says what could not be done, some are not.
func (r *rows) deleteCopies(ctx context.Context, name string, keys []keyspace.Key) (gone []bool, err error) {
	gone = make([]bool, len(keys))
	done := make([][]cache.Ref, len(keys))
	var failed cache.CleanError
	for range cleanRounds {
		view, t, asked, err := r.view(ctx, name)
		if err != nil {
			return make([]bool, len(keys)), err
		}
		var more [][]cache.Ref
		for i := range keys {
			copies := t.Copies(view, keys[i].CacheVnode, keys[i].ShardVnode)
			gone[i] = !copies.Frozen
			if refs := without(cleaned(t, &copies, &keys[i]), done[i]); len(refs) > 0 {
				more = append(more, refs)
				done[i] = append(done[i], refs...)
			}
		}
		failpoint.At(failpoint.Forgetting)
		if err := r.cache.CleanMany(ctx, more); err != nil {
			clean, ok := errors.AsType[*cache.CleanError](err)
			if !ok {
				return make([]bool, len(keys)), err
			}
			failed.Refs, failed.Err = append(failed.Refs, clean.Refs...), clean.Err
		}
		if now, _ := r.fleet.Confirmation(name).View(); !stood(view, now, time.Since(asked), r.viewTTL) {
			continue
		}
		if failed.Err == nil {
			return gone, nil
		}
		for i := range keys {
			gone[i] = gone[i] && !slices.ContainsFunc(failed.Refs, func(ref cache.Ref) bool { return slices.Contains(done[i], ref) })
		}
		return gone, &failed
	}
	return make([]bool, len(keys)), fmt.Errorf("the view of shard %s has changed %d times under the deletion of cached rows, or it took too long each time", name, cleanRounds)
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
func (r *rows) view(ctx context.Context, name string) (shard.View, *topology.Topology, time.Time, error) {
	view, asked := r.fleet.Confirmation(name).View()
	if t := r.topology.At(view.Epoch); t != nil && time.Since(asked) <= r.viewTTL/2 {
		return view, t, asked, nil
	}
	asked = time.Now()
	view, t, err := r.feed.ask(ctx, name)
	return view, t, asked, err
}
