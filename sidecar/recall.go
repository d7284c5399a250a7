package sidecar

import (
	"context"
	"fmt"

	"ringside/shard"
	"ringside/sidecar/topology"
)

// recall fetches the earlier topologies by which shards that have not come to the present one yet are governed, and that are not kept here: this
// sidecar may have been started meanwhile. A shard's own copy is the one of its view. It reports whether some are still missing.
func (f *feed) recall(ctx context.Context) (missing bool) {
	t := f.topology.Current()
	if f.catalog == nil {
		return false
	}
	for i := range t.Shards {
		name := t.Shards[i].Name
		view, _ := f.fleet.Confirmation(name).View()
		if view.Epoch == 0 || view.Epoch >= t.Epoch || f.topology.At(view.Epoch) != nil {
			continue
		}
		if _, _, err := f.ask(ctx, name); err != nil {
			f.log.Warn("the topology that governs a shard cannot be had from it", "shard", name, "epoch", view.Epoch, "error", err)
			missing = true
			continue
		}
		f.announce()
	}
	return missing
}

// ask asks a shard for its view, and returns the topology of that epoch with it, which is kept from then on if it is not the present one.
func (f *feed) ask(ctx context.Context, name string) (shard.View, *topology.Topology, error) {
	ctx, cancel := context.WithTimeout(ctx, feedTimeout)
	defer cancel()
	view, body, err := f.fleet.Topology(ctx, name)
	if err != nil {
		return view, nil, err
	}
	t := f.topology.At(view.Epoch)
	if t != nil {
		return view, t, nil
	}
	if t, err = topology.Decode(body, f.topology.Current()); err != nil {
		return view, nil, err
	}
	if t.Epoch != view.Epoch {
		return view, nil, fmt.Errorf("shard %s is at epoch %d and its copy of the topology is of %d", name, view.Epoch, t.Epoch)
	}
	if t.Epoch < f.topology.Current().Epoch {
		f.topology.Remember(t)
	} else {
		f.wake()
	}
	return view, t, nil
}
