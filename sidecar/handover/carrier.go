package handover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"ringside/cache"
	"ringside/ring"
	"ringside/sidecar/topology"
)

// ErrMoved says that the topology does not hand the key over like that, any more or yet: ask again by the present one.
var ErrMoved = errors.New("the key is not handed over between these cache servers now")

// errStale says that a server's marker does not let us act: its topology is newer than ours, or it is not marked yet.
var errStale = errors.New("the cache server follows another topology")

// Carrier carries plain keys from their former owners to the new ones: the keys that commands need now (Carry), and all others (Run). Safe for
// concurrent use.
type Carrier struct {
	deps    Deps
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	scripts scripts
	links   *links
	hook    func(o op) bool // of tests: called before each step; false: the carrier dies

	mu      sync.Mutex // guards the following
	queues  map[route]*queue
	drivers map[topology.Handover]*driver
	closed  bool

	ctx    context.Context // of the work that is done for callers of Carry
	cancel context.CancelFunc
	work   sync.WaitGroup
}

// New returns a Carrier. It does no I/O. Close ends it.
func New(deps Deps, cfg Config, reg prometheus.Registerer, log *slog.Logger) (*Carrier, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Carrier{
		deps: deps, cfg: cfg, log: log, metrics: newMetrics(reg), scripts: newScripts(),
		queues: map[route]*queue{}, drivers: map[topology.Handover]*driver{},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.links = &links{clients: map[link]*redis.Client{}, open: func(l link) (*redis.Client, error) {
		return deps.Servers.Checked(l.name, l.runID, 2*cfg.Parallel+2, cfg.StepTimeout)
	}}
	return c, nil
}

// Close ends all calls of Carry and closes the connections. Run must have ended.
func (c *Carrier) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.work.Wait()
	c.links.close()
}

// queue are the keys of one route that somebody waits for. They are carried in batches: whoever comes while one is under way waits for the next.
type queue struct {
	byKey   map[string]*wait // those whose outcome is not known yet
	next    []*wait          // those that are in no batch
	workers int
}

// wait is one key that is waited for, by one or more callers.
type wait struct {
	key   string
	until time.Time
	tries int
	done  chan struct{} // closed when err is set
	err   error
}

// Carry returns nil when key is on its new owner, or nowhere, and neither a carrier nor anybody else can put it there any more: from then on
// it is used there alone, and this stays so for as long as the hand-over exists. h and to must be what the caller's topology says of the key, and
// the caller must have seen that h's step is Handed. It takes at most Config.CarryTimeout.
//
// Errors: *cache.ServerError when one of the two servers could not be asked, or cannot take the key; cache.ErrBusy when there is too much to carry;
// ErrMoved; ctx's own. Nothing is lost then, and the key can be carried again.
func (c *Carrier) Carry(ctx context.Context, h topology.Handover, to string, key []byte) error {
	w, err := c.enqueue(route{h, to}, string(key))
	if err != nil {
		return err
	}
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Carrier) enqueue(r route, key string) (*wait, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, context.Canceled
	}
	q := c.queues[r]
	if q == nil {
		q = &queue{byKey: map[string]*wait{}}
		c.queues[r] = q
	}
	if w := q.byKey[key]; w != nil {
		return w, nil
	}
	if len(q.byKey) >= c.cfg.Waiting {
		return nil, cache.ErrBusy
	}
	c.metrics.asked.Inc()
	w := &wait{key: key, until: time.Now().Add(c.cfg.CarryTimeout), done: make(chan struct{})}
	q.byKey[key] = w
	q.next = append(q.next, w)
	if q.workers < c.cfg.Parallel {
		q.workers++
		c.work.Go(func() { c.serve(r, q) })
	}
	return w, nil
}

// tryPause is between two tries to carry a key that another carrier has the lease of, or that a marker does not allow yet.
const tryPause = 10 * time.Millisecond

// serve carries what is in the queue until nothing is.
func (c *Carrier) serve(r route, q *queue) {
	for {
		batch := c.take(r, q)
		if batch == nil {
			return
		}
		if c.attempt(r, q, batch) {
			sleep(c.ctx, tryPause)
		}
	}
}

// take returns the next batch, or nil when the worker is not needed any more.
func (c *Carrier) take(r route, q *queue) []*wait {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(q.next), c.cfg.Batch)
	if n == 0 {
		if q.workers--; len(q.byKey) == 0 && c.queues[r] == q {
			delete(c.queues, r)
		}
		return nil
	}
	batch := q.next[:n:n]
	q.next = q.next[n:]
	return batch
}

// attempt carries a batch and tells those who wait for it. It reports whether some of it goes back into the queue.
func (c *Carrier) attempt(r route, q *queue, batch []*wait) (again bool) {
	items := make([]*item, len(batch))
	tries := 0
	for i, w := range batch {
		items[i] = &item{key: w.key}
		tries = max(tries, w.tries)
	}
	t := c.deps.Current()
	markMoved(t, r, items)
	err := c.carry(c.ctx, t, r, longer(c.cfg.LeaseTTL, tries), items)
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for i, w := range batch {
		w.tries++
		why := err
		if err == nil {
			if why = verdict(r, items[i]); retried(why) && c.ctx.Err() == nil && now.Before(w.until) {
				q.next = append(q.next, w)
				again = true
				continue
			}
		}
		w.err = why
		delete(q.byKey, w.key)
		close(w.done)
	}
	return again
}

// longer is the life of a lease after so many tries that may have failed because it was too short, for a large value and a slow network.
func longer(lease time.Duration, tries int) time.Duration { return lease << min(max(tries-1, 0)/4, 3) }

// markMoved ends the items that t does not hand over like that.
func markMoved(t *topology.Topology, r route, items []*item) {
	hasher := ring.NewHasher()
	for _, it := range items {
		if to, ok := target(t, r.h, hasher.Vnode(ring.CacheKey([]byte(it.key)))); !ok || to != r.to {
			it.progress = progress{opEnd, endMoved}
		}
	}
}

// target returns the name of the server that the plain keys of a vnode are carried to in the hand-over h. false: they are not.
func target(t *topology.Topology, h topology.Handover, vnode uint16) (string, bool) {
	if t == nil {
		return "", false
	}
	i, owner := t.HandoverOf(vnode), t.CacheOf(vnode)
	if i < 0 || t.Handovers[i] != h || owner == ring.None {
		return "", false
	}
	return t.Caches[owner].Name, true
}

// verdict is what a caller of Carry is told.
func verdict(r route, it *item) error {
	switch it.end {
	case endAgain:
		return fmt.Errorf("%w: others have been carrying the key for too long", cache.ErrBusy)
	case endStale:
		return errStale
	case endMoved:
		return ErrMoved
	case endRefused:
		return &cache.ServerError{Server: r.to, Err: errors.New(it.refusal)}
	}
	return nil
}

func retried(err error) bool { return errors.Is(err, cache.ErrBusy) || errors.Is(err, errStale) }

// client returns the connections to a server's incarnation; empty: the one that the topology names.
func (c *Carrier) client(t *topology.Topology, name, runID string) (*redis.Client, error) {
	i := t.CacheIndex(name)
	if i < 0 {
		return nil, ErrMoved
	}
	l := linkTo(&t.Caches[i])
	if runID != "" {
		l.runID = runID
	}
	if l.runID == "" {
		return nil, serverError(name, &cache.IncarnationError{Server: name})
	}
	client, err := c.links.get(l)
	return client, serverError(name, err)
}

// sleep waits; false: ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
