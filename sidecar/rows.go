package sidecar

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	// degraded: changes that others make on the shard may be heard of late, so its rows are cached for a moment only. nil: never
	degraded func(shard string) bool
	serve    bool // use the cache although the shard could not be asked for longer than viewTTL
	heat     *shardHeat
	outbox   *outbox // nil: a write whose cached copies cannot be put out of reach is refused
	cutOvers *cutOvers
}

const (
	// tries is how often an operation is sent again because the ring changed under it. A change is news once; more often only in a storm of
	// changes, when the caller had better be told.
	tries = 4
	// refusedAgain is how often what a shard refuses, because it does not own the vnode, is tried again though the map has not changed.
	refusedAgain = 100 * time.Millisecond
	// guardRounds is how often a write that took very long asks what its shard's view has become.
	guardRounds = 3
)

// place is where a row is, by the last word of its shard.
type place struct {
	shard   string
	view    shard.View         // the shard's; zero: never heard
	by      *topology.Topology // that of the view's epoch, which governs the shard's rows; nil: it is not known here
	current *topology.Topology // the present one
	copies  topology.Copies    // zero without by
	ref     cache.Ref          // where to read; without a server while the cache must not be used for the row
	carry   cache.Carry
}

// locate works out where a row is: on the shard to, if that is not empty, instead of where the map has it. The error is shard.ErrNotOwner when nobody owns it.
func (r *rows) locate(k *keyspace.Key, to string) (place, error) {
	t := r.topology.Current()
	i := t.ShardOf(k.ShardKey, k.ShardVnode)
	if to != "" {
		i = ring.None // not known here
		if at := t.ShardIndex(to); at >= 0 {
			i = uint16(at)
		}
	}
	if i == ring.None {
		return place{}, shard.ErrNotOwner
	}
	p := place{shard: t.Shards[i].Name, current: t}
	confirmation := r.fleet.Confirmation(p.shard)
	now := time.Now()
	view, standing := confirmation.Trust(now, r.viewTTL, k.CacheVnode)
	p.view = view
	if p.by = r.topology.At(view.Epoch); p.by != nil {
		p.copies = p.by.Copies(view, k.CacheVnode, k.ShardVnode)
	}
	if p.copies.Read.IsNone() || standing >= shard.Unheard || standing == shard.Expired && !r.serve {
		// The name says which row it is even when no server may hold it: reads of one ref are answered together.
		p.ref.Name = string(cache.AppendName(nil, t.Generation(k.CacheVnode), t.Flush(k.ShardVnode), k.Text))
		return p, nil
	}
	p.ref = refOf(p.by, p.copies.Read, k)
	if !p.copies.Carry.IsNone() && standing == shard.Current {
		if same, asked := confirmation.View(); same.Same(view) {
			p.carry = cache.Carry{Ref: refOf(p.by, p.copies.Carry, k), Shard: p.shard, Epoch: view.Epoch, Until: asked.Add(r.viewTTL)}
		}
	}
	return p, nil
}

// refOf names the entry of a row in one of its places.
func refOf(t *topology.Topology, c topology.Copy, k *keyspace.Key) cache.Ref {
	server := &t.Caches[c.Server]
	return cache.Ref{
		Server: server.Name, RunID: server.RunID,
		Name: string(cache.AppendName(nil, c.Generation, t.Flush(k.ShardVnode), k.Text)),
	}
}

// cleaned lists the entries of a row that its writers put out of reach.
func cleaned(t *topology.Topology, copies *topology.Copies, k *keyspace.Key) []cache.Ref {
	refs := make([]cache.Ref, copies.Cleans)
	for i := range refs {
		refs[i] = refOf(t, copies.Clean[i], k)
	}
	return refs
}

// Read implements proxy.Rows.
func (r *rows) Read(ctx context.Context, keys []keyspace.Key, got func(at []int, rows []proxy.Row)) {
	out := make([]proxy.Row, len(keys))
	open := make([]int, len(keys))
	for i := range keys {
		open[i] = i
	}
	var detours map[int]*detour  // of those that were not where the map has them
	var patience context.Context // bounds all the waits together
	for {
		t := r.topology.Current()
		open = r.readOnce(ctx, keys, open, detours, out, got)
		if len(open) == 0 {
			return
		}
		if detours == nil {
			detours = map[int]*detour{}
		}
		if r.follow(ctx, open, detours, out) {
			continue
		}
		if patience != nil && patience.Err() != nil {
			got(open, out)
			return
		}
		if patience == nil {
			var cancel context.CancelFunc
			patience, cancel = context.WithTimeout(ctx, r.feed.patience)
			defer cancel()
		}
		r.feed.suspect()
		r.feed.awaitMap(patience, t, refusedAgain)
	}
}

// Refresh implements proxy.Rows. A shard that has requests waiting is left alone: what is cached still serves.
func (r *rows) Refresh(k keyspace.Key) {
	p, err := r.locate(&k, "")
	if err != nil || p.ref.Server == "" || r.fleet.Busy(p.shard) {
		return
	}
	ttl, negTTL := lifetimes(k.Keyspace, r.degraded != nil && r.degraded(p.shard))
	r.cache.Refresh(cache.Item{Ref: p.ref, TTL: ttl, NegTTL: negTTL}, func(ctx context.Context, idx []int) ([]cache.Loaded, error) {
		return r.load(ctx, r.fleet.LoadSpare, []keyspace.Key{k}, []place{p}, idx), nil
	})
}

// readOnce reads the rows of the given indexes, and returns those that a newer topology may find elsewhere, which got has not been told.
func (r *rows) readOnce(ctx context.Context, keys []keyspace.Key, open []int, detours map[int]*detour, out []proxy.Row, got func(at []int, rows []proxy.Row)) (moved []int) {
	var items []cache.Item
	var places []place
	var index, refused []int
	for _, i := range open {
		to := ""
		if d := detours[i]; d != nil {
			to = d.to
		}
		p, err := r.locate(&keys[i], to)
		if err != nil {
			out[i] = proxy.Row{Err: err}
			moved = append(moved, i)
			continue
		}
		if err := r.fleet.RefusesLoads(p.shard, keys[i].Keyspace); err != nil && !r.cache.Reads(p.ref) {
			out[i] = proxy.Row{Err: err}
			refused = append(refused, i)
			continue
		}
		ttl, negTTL := lifetimes(keys[i].Keyspace, r.degraded != nil && r.degraded(p.shard))
		items = append(items, cache.Item{Ref: p.ref, TTL: ttl, NegTTL: negTTL, Carry: p.carry})
		places = append(places, p)
		index = append(index, i)
	}
	if len(refused) > 0 { // before anything is asked of the cache for them
		got(refused, out)
	}
	if len(items) == 0 {
		return moved
	}
	// The load may outlive this call (another caller may have joined it), so it works on copies.
	wanted := make([]keyspace.Key, len(index))
	for n, i := range index {
		wanted[n] = keys[i].Clone()
	}
	there := make([]int, 0, len(index))
	r.cache.ReadEach(ctx, items, func(ctx context.Context, idx []int) ([]cache.Loaded, error) {
		return r.load(ctx, r.fleet.Load, wanted, places, idx), nil
	}, func(at []int, results []cache.Result) {
		there = there[:0]
		for _, n := range at {
			i := index[n]
			out[i] = proxy.Row{Found: results[n].Found, Body: results[n].Body, Err: answer(results[n].Err)}
			if isStale(results[n].Err) {
				moved = append(moved, i)
			} else {
				there = append(there, i)
			}
		}
		if len(there) > 0 {
			got(there, out)
		}
	})
	return moved
}

// lifetimes decides how long a row, or its absence, is cached.
func lifetimes(ks *keyspace.Keyspace, degraded bool) (ttl, negTTL time.Duration) {
	if degraded {
		return min(ks.TTL, degradedTTL), min(ks.NegativeTTL, degradedTTL)
	}
	return ks.TTL, ks.NegativeTTL
}

// loader is one of the ways of a fleet to load rows: Load, or LoadSpare.
type loader func(ctx context.Context, shard string, ks *keyspace.Keyspace, keys []keyspace.Key) ([]origin.Row, shard.View, error)

// load reads rows from their shards, all shards at the same time and the rows of one table on one shard in one statement.
func (r *rows) load(ctx context.Context, from loader, keys []keyspace.Key, places []place, idx []int) []cache.Loaded {
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
				r.heat.used(&wanted[m])
			}
			found, view, err := from(ctx, b.shard, b.ks, wanted)
			for m, n := range members {
				if err != nil {
					out[n] = cache.Loaded{Err: err}
					continue
				}
				row := found[m]
				out[n] = cache.Loaded{
					Found: row.Found, Body: row.Body, Err: row.Err,
					MayFill: r.mayFill(places[idx[n]].ref, &wanted[m], view),
				}
			}
			if err == nil && r.topology.At(view.Epoch) == nil {
				r.feed.wake()
			}
		})
	}
	wg.Wait()
	return out
}

// mayFill reports whether an entry may be filled with what was loaded when the shard was at that view: its writers clean it then, whatever
// view the reader began by.
func (r *rows) mayFill(ref cache.Ref, k *keyspace.Key, view shard.View) bool {
	t := r.topology.At(view.Epoch)
	if t == nil || ref.Server == "" {
		return false
	}
	copies := t.Copies(view, k.CacheVnode, k.ShardVnode)
	return slices.Contains(cleaned(t, &copies, k), ref)
}

// Write implements proxy.Rows.
func (r *rows) Write(ctx context.Context, op keyspace.Op) (keyspace.Outcome, error) {
	w := &rowWrite{rows: r, op: op}
	var patience context.Context // bounds all the waits together
	for sent := 1; ; {
		changed, t := r.feed.changed(), r.topology.Current()
		err := w.once(ctx)
		if await, again := w.next(err, time.Now()); again && ctx.Err() == nil {
			r.beforeDetour(ctx, &w.detour, await)
			continue
		}
		if !isStale(err) || sent == tries {
			return w.out, answer(err)
		}
		elsewhere := errors.Is(err, shard.ErrNotOwner)
		if w.asked && !elsewhere {
			sent++
		}
		if patience == nil {
			var cancel context.CancelFunc
			patience, cancel = context.WithTimeout(ctx, 2*r.feed.patience)
			defer cancel()
		}
		if elsewhere { // the vnode is changing its shard, or has: the map will say so
			if patience.Err() != nil {
				return w.out, answer(err)
			}
			r.feed.suspect()
			r.feed.awaitMap(patience, t, refusedAgain)
			continue
		}
		r.feed.wake()
		// What a refusal says of the shard's view is a change, so after one it is not waited for.
		if !r.feed.await(patience, changed) {
			return w.out, answer(err)
		}
	}
}

// Refuses implements proxy.Rows.
func (r *rows) Refuses(k *keyspace.Key) error {
	t := r.topology.Current()
	i := t.ShardOf(k.ShardKey, k.ShardVnode)
	if i == ring.None {
		return nil
	}
	return r.fleet.Refuses(t.Shards[i].Name)
}

// rowWrite is one write of a row, in one try after another.
type rowWrite struct {
	*rows
	detour
	op    keyspace.Op
	out   keyspace.Outcome
	asked bool      // the shard was asked in the last try
	sent  time.Time // when the last try went on to its commit
}

// once writes by the view that the row's shard last confirmed. A stale view is refused by the shard.
func (w *rowWrite) once(ctx context.Context) error {
	w.asked = false
	k := &w.op.Key
	p, err := w.locate(k, w.to)
	if err != nil {
		return err
	}
	// First of all, and before the cached copies are put out of reach: readers may have nothing else. Nor does a shard that is down change its view,
	// so there is nothing to wait for.
	if err := w.fleet.Down(p.shard); err != nil {
		return err
	}
	// Likewise: many are refused when there is more to do than the shard can. The wait may have been long, so what is known of the row is looked up again.
	pass, err := w.fleet.Admit(ctx, p.shard)
	if err != nil {
		return err
	}
	defer pass.Leave()
	name := p.shard
	if p, err = w.locate(k, w.to); err != nil {
		return err
	}
	if p.shard != name {
		return &shard.StaleViewError{Shard: name, View: p.view}
	}
	if p.view == (shard.View{}) {
		// Never heard: the shard's fence will say what its view is, or the pool that the shard is down.
		p.view, p.by = shard.View{Epoch: p.current.Epoch, Phase: shard.Done}, p.current
		p.copies = p.by.Copies(p.view, k.CacheVnode, k.ShardVnode)
	}
	if p.by == nil || p.copies.Frozen {
		return &shard.StaleViewError{Shard: p.shard, View: p.view}
	}
	refs := cleaned(p.by, &p.copies, k)
	w.asked = true
	w.heat.used(k)
	err = w.cache.Write(ctx, refs, func(ctx context.Context, poisoned func() error) error {
		var err, unpoisoned error
		w.out, err = pass.Write(ctx, p.view, w.op, func() (remember bool, err error) {
			err = poisoned()
			w.sent = time.Now()
			if w.outbox != nil && w.to == "" && refusedByServer(err) && !w.hasMoved(&p) {
				unpoisoned = err
				return true, nil
			}
			return false, err
		})
		return remembered(err, unpoisoned)
	})
	if w.outbox != nil && w.outbox.takes(ctx, p.shard, k, err) {
		return nil
	}
	if err == nil {
		return w.guard(ctx, p.shard, refs)
	}
	if w.outbox != nil && w.to != "" && refusedByServer(err) {
		// What is remembered on a shard is withheld only by those who have the row there by the map.
		return fmt.Errorf("%w by the map that is known here: %w", shard.ErrNotOwner, err)
	}
	if refusedByServer(err) && w.hasMoved(&p) {
		return &shard.StaleViewError{Shard: p.shard, View: p.view} // the server has changed under the write, not failed
	}
	return err
}

// refusedByServer reports whether nothing was written because of a cache server. A write that could not be cleaned because of one is committed: it is never
// tried again.
func refusedByServer(err error) bool {
	_, committed := errors.AsType[*cache.CleanError](err)
	_, refused := errors.AsType[*cache.ServerError](err)
	return refused && !committed
}

// hasMoved reports whether what a write acted by has been overtaken: the shard's view is another one, or the present topology does not have a
// server any more, or not that incarnation, by which the shard's rows are still governed. Then a later try finds another place.
func (r *rows) hasMoved(p *place) bool {
	view, _ := r.fleet.Confirmation(p.shard).View()
	if now := r.topology.Current(); now != p.current || !view.Same(p.view) && view != (shard.View{}) {
		return true
	}
	for _, c := range p.copies.Clean[:p.copies.Cleans] {
		was := &p.by.Caches[c.Server]
		if i := p.current.CacheIndex(was.Name); i < 0 || p.current.Caches[i].RunID != was.RunID {
			return true
		}
	}
	return false
}

// guard ends a write that is committed and cleaned everywhere that its view named. Entries are taken over or filled in further places only when the
// phase after that view has been held for longer than viewTTL (carriesAfter): if so much time may have passed since the commit, the shard is asked
// for its view anew, and what that adds is cleaned too, before the write is acknowledged.
func (w *rowWrite) guard(ctx context.Context, name string, done []cache.Ref) error {
	asOf := w.sent
	ctx = context.WithoutCancel(ctx) // it is committed
	for range guardRounds {
		if time.Since(asOf) <= w.viewTTL {
			return nil
		}
		asOf = time.Now()
		view, t, err := w.feed.ask(ctx, name)
		if err != nil {
			return &shard.DownError{Shard: name, Err: fmt.Errorf("%w: it took so long that its cached copies may be in other places by now, and the shard does not say: %w",
				shard.ErrOutcomeUnknown, err)}
		}
		copies := t.Copies(view, w.op.Key.CacheVnode, w.op.Key.ShardVnode)
		var more []cache.Ref
		for _, ref := range cleaned(t, &copies, &w.op.Key) {
			if !slices.Contains(done, ref) {
				more = append(more, ref)
			}
		}
		if len(more) == 0 {
			continue
		}
		if err := w.cache.Clean(ctx, more); err != nil {
			return err
		}
		done = append(done, more...)
	}
	if time.Since(asOf) <= w.viewTTL {
		return nil
	}
	return fmt.Errorf("%w: its cached copies may be in other places by now", shard.ErrOutcomeUnknown)
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
