package sidecar

import (
	"context"
	"errors"
	"sync"
	"time"

	"ringside/cache"
	"ringside/ring"
	"ringside/shard"
	"ringside/shard/keyspace"
	"ringside/shard/origin"
	"ringside/sidecar/proxy"
	"ringside/sidecar/topology"
)

// rows reads and writes rows: it knows where they are now, and tries again when the ring has changed meanwhile.
type rows struct {
	topology *topology.Holder
	cache    *cache.Cache
	fleet    *origin.Fleet
	feed     *feed
	viewTTL  time.Duration
	serve    bool // use the cache although the shard could not be asked for longer than viewTTL
}

// tries is how often an operation is begun anew because the ring changed under it. A change is news once; more often
// only in a storm of changes, when the caller had better be told.
const tries = 4

// place is where a row is, by one topology.
type place struct {
	t          *topology.Topology
	shard      string
	view       shard.View // the shard's, by its last word
	generation uint64
	ref        cache.Ref // without a server while the cache must not be used for the row
}

// locate works out where a row is. The error is shard.ErrNotOwner when nobody owns it.
func (r *rows) locate(k *keyspace.Key) (place, error) {
	t := r.topology.Current()
	i := t.ShardOf(k.ShardKey, k.ShardVnode)
	if i == ring.None {
		return place{}, shard.ErrNotOwner
	}
	p := place{t: t, shard: t.Shards[i].Name, generation: t.Generation(k.CacheVnode)}
	confirmation := r.fleet.Confirmation(p.shard)
	p.view, _ = confirmation.View()
	// The name says which row it is even when no server may hold it: reads of one ref are answered together.
	p.ref.Name = string(cache.AppendName(nil, p.generation, t.Flush(k.ShardVnode), k.Text))
	if p.generation == 0 {
		return p, nil // no server's entries count for this row
	}
	standing := confirmation.Standing(t.Epoch, p.generation, time.Now(), r.viewTTL)
	if standing == shard.Current || standing == shard.Expired && r.serve {
		p.ref = r.entry(p, k)
	}
	return p, nil
}

func (r *rows) entry(p place, k *keyspace.Key) cache.Ref {
	server := &p.t.Caches[p.t.CacheOf(k.CacheVnode)]
	return cache.Ref{
		Server: server.Name, RunID: server.RunID,
		Name: string(cache.AppendName(nil, p.generation, p.t.Flush(k.ShardVnode), k.Text)),
	}
}

// Read implements proxy.Rows.
func (r *rows) Read(ctx context.Context, keys []keyspace.Key) []proxy.Row {
	out := make([]proxy.Row, len(keys))
	open := make([]int, len(keys))
	for i := range keys {
		open[i] = i
	}
	for try := 0; ; try++ {
		changed := r.feed.changed()
		open = r.readOnce(ctx, keys, open, out)
		if len(open) == 0 || try == tries-1 || !r.feed.await(ctx, changed) {
			return out
		}
	}
}

// readOnce reads the rows of the given indexes and returns those that a newer topology may find elsewhere.
func (r *rows) readOnce(ctx context.Context, keys []keyspace.Key, open []int, out []proxy.Row) (moved []int) {
	var items []cache.Item
	var places []place
	var index []int
	for _, i := range open {
		p, err := r.locate(&keys[i])
		if err != nil {
			out[i] = proxy.Row{Err: err}
			moved = append(moved, i)
			continue
		}
		ks := keys[i].Keyspace
		items = append(items, cache.Item{Ref: p.ref, TTL: ks.TTL, NegTTL: ks.NegativeTTL})
		places = append(places, p)
		index = append(index, i)
	}
	// The load may outlive this call (another caller may have joined it), so it works on copies.
	wanted := make([]keyspace.Key, len(index))
	for n, i := range index {
		wanted[n] = keys[i].Clone()
	}
	results := r.cache.ReadMany(ctx, items, func(ctx context.Context, idx []int) ([]cache.Loaded, error) {
		return r.load(ctx, wanted, places, idx), nil
	})
	for n, i := range index {
		out[i] = proxy.Row{Found: results[n].Found, Body: results[n].Body, Err: answer(results[n].Err)}
		if isStale(results[n].Err) {
			moved = append(moved, i)
		}
	}
	return moved
}

// load reads rows from their shards, all shards at the same time and the rows of one table on one shard in one statement.
func (r *rows) load(ctx context.Context, keys []keyspace.Key, places []place, idx []int) []cache.Loaded {
	type batch struct {
		shard string
		ks    *keyspace.Keyspace
	}
	batches := map[batch][]int{} // positions in idx
	for n, i := range idx {
		b := batch{places[i].shard, keys[i].Keyspace}
		batches[b] = append(batches[b], n)
	}
	out := make([]cache.Loaded, len(idx))
	var wg sync.WaitGroup
	for b, members := range batches {
		wg.Go(func() {
			wanted := make([]keyspace.Key, len(members))
			for m, n := range members {
				wanted[m] = keys[idx[n]]
			}
			found, view, err := r.fleet.Load(ctx, b.shard, b.ks, wanted)
			for m, n := range members {
				p := &places[idx[n]]
				if err != nil {
					out[n] = cache.Loaded{Err: err}
					continue
				}
				row := found[m]
				out[n] = cache.Loaded{
					Found: row.Found, Body: row.Body, Err: row.Err,
					MayFill: view.Epoch == p.t.Epoch && !view.Changing(p.generation),
				}
			}
			if err == nil && view.Epoch != r.topology.Current().Epoch {
				r.feed.wake()
			}
		})
	}
	wg.Wait()
	return out
}

// Write implements proxy.Rows.
func (r *rows) Write(ctx context.Context, op keyspace.Op) (keyspace.Outcome, error) {
	var out keyspace.Outcome
	for try := 0; ; try++ {
		changed := r.feed.changed()
		err := r.writeOnce(ctx, op, &out)
		if !isStale(err) || try == tries-1 {
			return out, answer(err)
		}
		r.feed.wake()
		if !r.feed.await(ctx, changed) {
			return out, answer(err)
		}
	}
}

// writeOnce writes by the present topology and the view that the row's shard last confirmed. A stale view is refused by the shard.
func (r *rows) writeOnce(ctx context.Context, op keyspace.Op, out *keyspace.Outcome) error {
	p, err := r.locate(&op.Key)
	if err != nil {
		return err
	}
	switch {
	case p.view == shard.View{}:
		// Never heard: the shard's fence will say what its view is, or the pool that the shard is down.
		p.view = shard.View{Epoch: p.t.Epoch, Phase: shard.Done}
	case p.view.Epoch != p.t.Epoch, p.view.Changing(p.generation):
		// An older incarnation of the row's cache server may still be read by others, and cannot be cleaned. It is out of use
		// when the phase ends; until then the write could not be acknowledged.
		return &shard.StaleViewError{Shard: p.shard, View: p.view}
	}
	if err := r.fleet.Down(p.shard); err != nil {
		return err // before the cached copy is put out of reach: readers may have nothing else
	}
	var refs []cache.Ref
	if p.generation != 0 {
		refs = []cache.Ref{r.entry(p, &op.Key)}
	}
	err = r.cache.Write(ctx, refs, func(ctx context.Context, poisoned func() error) error {
		var err error
		*out, err = r.fleet.Write(ctx, p.shard, p.view, op, poisoned)
		return err
	})
	if _, refused := errors.AsType[*cache.ServerError](err); refused && p.t != r.topology.Current() {
		return &shard.StaleViewError{Shard: p.shard, View: p.view} // the server has changed under the write, not failed
	}
	return err
}

// isStale reports whether a newer topology or view may give another answer.
func isStale(err error) bool {
	_, stale := errors.AsType[*shard.StaleViewError](err)
	return stale || errors.Is(err, shard.ErrNotOwner)
}

// answer gives the errors of this floor the types that the proxy's table knows.
func answer(err error) error {
	if err == nil {
		return nil
	}
	if clean, ok := errors.AsType[*cache.CleanError](err); ok {
		server := ""
		if len(clean.Refs) > 0 {
			server = clean.Refs[0].Server
		}
		return &proxy.WrittenError{Err: &proxy.CacheDownError{Server: server, Err: clean, Sent: true}}
	}
	if server, ok := errors.AsType[*cache.ServerError](err); ok {
		return &proxy.CacheDownError{Server: server.Server, Err: server.Err}
	}
	if errors.Is(err, shard.ErrOutcomeUnknown) {
		return &proxy.WrittenError{Err: err}
	}
	return err
}
