package handover

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"ringside/sidecar/topology"
)

// raised returns m with at least this epoch.
func raised(m topology.Marker, epoch uint64) topology.Marker {
	m.Epoch = max(m.Epoch, epoch)
	return m
}

// forward returns m with at least this epoch, in which the hand-over of since has come to at least this step. Hand-overs that are over are left
// out: live are those that the topology of that epoch still has. Whoever acts by a topology that has others is kept out by the epoch.
func forward(m topology.Marker, epoch, since uint64, step topology.Step, live []uint64) topology.Marker {
	next := topology.Marker{Epoch: max(m.Epoch, epoch), Steps: map[uint64]topology.Step{since: max(m.Steps[since], step)}}
	for _, other := range live {
		if s, ok := m.Steps[other]; ok && other != since {
			next.Steps[other] = s
		}
	}
	for other, s := range m.Steps {
		if other > epoch { // of a topology that we have not heard of yet
			next.Steps[other] = s
		}
	}
	return next
}

// readMarker returns a server's marker.
func readMarker(ctx context.Context, client redis.Cmdable) (m topology.Marker, text string, err error) {
	text, err = client.Get(ctx, topology.MarkerName).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return m, "", err
	}
	m, err = topology.ParseMarker(text)
	return m, text, err
}

// markerTries bounds how often a marker is changed again because somebody else has changed it meanwhile.
const markerTries = 50

var errMarkerBusy = errors.New("the marker is changed by others all the time")

// changeMarker makes a server's marker what f says of it, in one atomic step, and returns it. f may be called several times.
func (c *Carrier) changeMarker(ctx context.Context, client redis.Cmdable, server string, f func(topology.Marker) topology.Marker) (topology.Marker, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StepTimeout)
	defer cancel()
	for range markerTries {
		m, text, err := readMarker(ctx, client)
		if err != nil {
			return m, serverError(server, err)
		}
		next := f(m)
		if next.String() == text {
			return next, nil
		}
		done, err := c.scripts.marker.Run(ctx, client, []string{topology.MarkerName}, text, next.String()).Int64()
		if err != nil {
			return m, serverError(server, err)
		}
		if done == 1 {
			return next, nil
		}
	}
	return topology.Marker{}, serverError(server, errMarkerBusy)
}

// raise sees to it that a server's marker has at least this epoch.
func (c *Carrier) raise(ctx context.Context, client redis.Cmdable, server string, epoch uint64) error {
	_, err := c.changeMarker(ctx, client, server, func(m topology.Marker) topology.Marker { return raised(m, epoch) })
	return err
}
