package sidecar

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"ringside/shard/catalog"
	"ringside/sidecar/topology"
)

// catalogLink speaks to the catalog in topologies. The catalog may be down when the sidecar starts: it is opened when it can be.
type catalogLink struct {
	dsn string
	log *slog.Logger

	mu     sync.Mutex
	open   *catalog.Catalog                // nil: not opened yet
	opened atomic.Pointer[catalog.Catalog] // open, for who cannot wait for that
}

func (l *catalogLink) get(ctx context.Context) (*catalog.Catalog, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open != nil {
		return l.open, nil
	}
	c, err := catalog.Open(ctx, l.dsn, l.log)
	if err != nil {
		return nil, err
	}
	l.open = c
	l.opened.Store(c)
	return c, nil
}

// door implements origin.Door: the catalog keeps it. While the catalog cannot be asked, or is not open yet, the door is not guarded.
func (l *catalogLink) door(ctx context.Context, name string, width int) (leave func(), ok bool) {
	c := l.opened.Load()
	if c == nil {
		return nil, true
	}
	leave, err := c.Enter(ctx, name, width)
	return leave, err == nil || ctx.Err() == nil
}

func (l *catalogLink) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open != nil {
		l.opened.Store(nil)
		l.open.Close()
		l.open = nil
	}
}

// load returns the catalog's topology, nil when it has none yet. known, which may be nil, is one of a little earlier.
func (l *catalogLink) load(ctx context.Context, known *topology.Topology) (*topology.Topology, error) {
	ctx, cancel := context.WithTimeout(ctx, feedTimeout)
	defer cancel()
	c, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	record, found, err := c.Load(ctx)
	if err != nil || !found {
		return nil, err
	}
	return decodeRecord(record, known)
}

// decodeRecord returns known if that is what the record holds.
func decodeRecord(r catalog.Record, known *topology.Topology) (*topology.Topology, error) {
	if known != nil && known.Epoch == r.Epoch && known.Digest().String() == r.Digest {
		return known, nil
	}
	t, err := topology.Decode(r.Body, known)
	if err != nil {
		return nil, fmt.Errorf("the catalog's topology (epoch %d): %w", r.Epoch, err)
	}
	if t.Epoch != r.Epoch || t.Digest().String() != r.Digest {
		return nil, fmt.Errorf("the catalog's topology is %d/%s, its record says %d/%s", t.Epoch, t.Digest(), r.Epoch, r.Digest)
	}
	return t, nil
}

func recordOf(t *topology.Topology) catalog.Record {
	return catalog.Record{Epoch: t.Epoch, Digest: t.Digest().String(), Body: t.Encode()}
}

// create offers t as the cluster's first topology and returns the one that was first.
func (l *catalogLink) create(ctx context.Context, t *topology.Topology) (*topology.Topology, error) {
	first := recordOf(t)
	ctx, cancel := context.WithTimeout(ctx, feedTimeout)
	defer cancel()
	c, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	record, _, err := c.Create(ctx, first)
	if err != nil {
		return nil, err
	}
	return decodeRecord(record, t)
}

// swap replaces from by to. The error is catalog.ErrConflict when somebody else was quicker. What is to be stored is made before the time begins to count,
// and the catalog has all of its own time: a change that comes too late because the machine is busy would be tried again, and be too late again.
func (l *catalogLink) swap(ctx context.Context, driver uint64, from, to *topology.Topology) error {
	next := recordOf(to)
	opening, cancel := context.WithTimeout(ctx, feedTimeout)
	defer cancel()
	c, err := l.get(opening)
	if err != nil {
		return err
	}
	return c.CompareAndSwapAs(ctx, driver, from.Epoch, next)
}
