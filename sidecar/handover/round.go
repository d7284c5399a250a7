package handover

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"ringside/cache"
	"ringside/ring"
	"ringside/sidecar/topology"
)

// duty is what is to be done with a key that a former owner has.
type duty uint8

const (
	leave duty = iota // it belongs there, or somebody else sees to it
	carry             // to its new owner
	sweep             // it is of a vnode that the server has no business with: remove it
)

// dutyOf decides that for one key on h.From. Entries of rows are left: their names are of a generation that is never read again, and they
// expire. to is the new owner of what is carried.
func dutyOf(t *topology.Topology, h topology.Handover, hasher *ring.Hasher, key string) (d duty, to string) {
	if strings.HasPrefix(key, cache.Prefix) {
		return leave, ""
	}
	vnode := hasher.Vnode(ring.CacheKey([]byte(key)))
	if to, ok := target(t, h, vnode); ok {
		return carry, to
	}
	owner := t.CacheOf(vnode)
	if owner == ring.None || t.Caches[owner].Name == h.From {
		return leave, ""
	}
	if i := t.HandoverOf(vnode); i >= 0 && t.Handovers[i].From == h.From {
		return leave, ""
	}
	return sweep, ""
}

const (
	pageKeys = 1000 // COUNT of SCAN
	// scanShare is what a key that is only looked at costs of Config.Rate, so that a large server that gives up little is not kept busy by SCAN.
	scanShare = 0.1
)

// round goes through all keys of the source once, by t. found is how many it had something to do with. After a failure of one new owner it goes on
// with the keys of the others.
func (d *driver) round(ctx context.Context, from *redis.Client, t *topology.Topology, round int) (found int, err error) {
	p := &pages{d: d, t: t, from: from, round: round, failed: map[string]error{}}
	cursor, hasher := uint64(0), ring.NewHasher()
	for {
		step, cancel := context.WithTimeout(ctx, d.c.cfg.StepTimeout)
		names, next, err := from.Scan(step, cursor, "", pageKeys).Result()
		cancel()
		if err != nil {
			return found, serverError(d.h.From, err)
		}
		to := map[string][]*item{}
		var swept []string
		busy := 0
		for _, name := range names {
			switch duty, owner := dutyOf(t, d.h, hasher, name); duty {
			case carry:
				to[owner] = append(to[owner], &item{key: name})
				busy++
			case sweep:
				swept = append(swept, name)
				busy++
			}
		}
		d.set(func(p *Progress) { p.Scanned += int64(len(names)) })
		found += busy
		if !d.pace.wait(ctx, float64(busy)+scanShare*float64(len(names))) {
			return found, context.Cause(ctx)
		}
		p.work(ctx, to, swept)
		if ctx.Err() != nil {
			return found, context.Cause(ctx)
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	d.c.metrics.rounds.Inc()
	d.set(func(p *Progress) { p.Rounds++ })
	if err := p.failure(); err != nil || found == 0 {
		return found, err
	}
	d.set(func(p *Progress) { p.Err = nil })
	if p.left > 0 { // to others who hold the lease, or until a topology has come here too
		sleep(ctx, tryPause)
	}
	return found, nil
}

// pages is the work of one round.
type pages struct {
	d     *driver
	t     *topology.Topology
	from  *redis.Client
	round int

	mu     sync.Mutex       // guards the following
	failed map[string]error // by server: it is left alone for the rest of the round
	left   int              // keys that need another round
}

// work does what is to be done with a page of keys, and returns when it is done.
func (p *pages) work(ctx context.Context, to map[string][]*item, swept []string) {
	var jobs errgroup.Group
	jobs.SetLimit(p.d.c.cfg.Parallel)
	for owner, items := range to {
		for len(items) > 0 {
			n := min(len(items), p.d.c.cfg.Batch)
			some := items[:n]
			items = items[n:]
			jobs.Go(func() error {
				p.carry(ctx, owner, some)
				return nil
			})
		}
	}
	for len(swept) > 0 {
		n := min(len(swept), p.d.c.cfg.Batch)
		some := swept[:n]
		swept = swept[n:]
		jobs.Go(func() error {
			p.sweep(ctx, some)
			return nil
		})
	}
	_ = jobs.Wait() // failures are kept by server
}

func (p *pages) carry(ctx context.Context, to string, items []*item) {
	p.mu.Lock()
	failed := p.failed[to]
	p.mu.Unlock()
	if failed != nil {
		return
	}
	c := p.d.c
	r := route{p.d.h, to}
	err := c.carry(ctx, p.t, r, longer(c.cfg.LeaseTTL, p.round), items)
	if err != nil {
		p.fail(to, err)
		return
	}
	var carried, dropped int64
	left := 0
	for _, it := range items {
		switch it.end {
		case endSettled:
			if it.stored {
				carried++
			}
		case endDropped:
			dropped++
		case endRefused:
			p.fail(to, verdict(r, it))
		default:
			left++
		}
	}
	p.d.set(func(p *Progress) { p.Carried, p.TooBig = p.Carried+carried, p.TooBig+dropped })
	p.mu.Lock()
	p.left += left
	p.mu.Unlock()
}

func (p *pages) sweep(ctx context.Context, keys []string) {
	c := p.d.c
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StepTimeout)
	defer cancel()
	n, err := c.scripts.remove.Run(ctx, p.from, withMarker(keys), p.d.h.Since, p.t.Epoch).Int64()
	if err != nil {
		p.fail(p.d.h.From, serverError(p.d.h.From, err))
		return
	}
	if n < 0 { // the marker does not allow it: in the next round
		p.mu.Lock()
		p.left += len(keys)
		p.mu.Unlock()
		return
	}
	c.metrics.swept.Add(float64(n))
	p.d.set(func(p *Progress) { p.Swept += n })
}

func (p *pages) fail(server string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed[server] = err
}

func (p *pages) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, err := range p.failed {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
