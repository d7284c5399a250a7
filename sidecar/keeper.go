package sidecar

import (
	"context"
	"log/slog"
	"time"

	"ringside/shard"
	"ringside/shard/origin"
	"ringside/sidecar/topology"
)

// keeper brings one shard to the topology that this sidecar acts by. Every sidecar runs one for every shard; the shard lets only one of
// them make each step, and a step that was made is nobody's to make again.
type keeper struct {
	name     string
	topology *topology.Holder
	fleet    *origin.Fleet
	feed     *feed
	hold     time.Duration
	log      *slog.Logger
}

// holdFor is how long a shard stays in phase Preparing: from then on nobody can be using the cache by the view before it, because
// views hold for viewTTL from the time of asking. The same again covers what was begun at the last moment.
func holdFor(viewTTL time.Duration) time.Duration { return 2 * viewTTL }

// step is what a keeper does next.
type step uint8

const (
	stepNone    step = iota
	stepInstall      // the shard was never heard: it may not be set up
	stepBegin        // raise it to the topology's epoch, in phase Preparing
	stepEnd          // its phase has been held: Done
	stepFollow       // the shard is ahead
)

// nextStep decides from what the shard last said and how long it has been seen saying so. Pure.
func nextStep(view shard.View, seen time.Duration, epoch uint64, hold time.Duration) step {
	switch {
	case view == shard.View{}:
		return stepInstall
	case view.Phase != shard.Done && seen >= hold:
		return stepEnd
	case view.Phase != shard.Done:
		return stepNone
	case view.Epoch < epoch:
		return stepBegin
	case view.Epoch > epoch:
		return stepFollow
	}
	return stepNone
}

const (
	keeperPause = 250 * time.Millisecond // between looks without a reason
	keeperRetry = time.Second            // after a failure
)

// run keeps the shard until ctx ends.
func (k *keeper) run(ctx context.Context) {
	var last shard.View
	since := time.Now()
	for ctx.Err() == nil {
		changed := k.feed.changed()
		view, _ := k.fleet.Confirmation(k.name).View()
		if !view.Same(last) {
			last, since = view, time.Now()
		}
		pause := keeperPause
		if err := k.act(ctx, view, nextStep(view, time.Since(since), k.topology.Current().Epoch, k.hold)); err != nil {
			k.log.Debug("shard not kept", "shard", k.name, "error", err)
			pause = keeperRetry
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (k *keeper) act(ctx context.Context, view shard.View, s step) error {
	ctx, cancel := context.WithTimeout(ctx, 2*feedTimeout)
	defer cancel()
	t := k.topology.Current()
	var err error
	switch s {
	case stepInstall:
		err = install(ctx, k.fleet, t, k.name)
	case stepBegin:
		_, err = k.fleet.Advance(ctx, k.name, shard.View{Epoch: t.Epoch, Phase: shard.Preparing}, t.Encode())
	case stepEnd:
		_, err = k.fleet.Advance(ctx, k.name, shard.View{Epoch: view.Epoch, Phase: shard.Done}, nil)
	case stepFollow:
		k.feed.wake()
	}
	return err
}

// install sets a shard up if it is not.
func install(ctx context.Context, fleet *origin.Fleet, t *topology.Topology, name string) error {
	return fleet.Install(ctx, name, shard.View{Epoch: t.Epoch, Phase: shard.Done}, t.Encode(), t.Owned(name))
}
