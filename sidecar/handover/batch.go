package handover

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"ringside/cache"
	"ringside/sidecar/topology"
)

// route is from where to where keys are carried.
type route struct {
	h  topology.Handover
	to string
}

// item is one key that is being carried.
type item struct {
	progress
	key     string
	value   string // what DUMP made of it
	at      int64  // end of its life in ms since 1970, by the new owner's clock; 0: none
	stored  bool   // it is on the new owner
	refusal string // what the new owner said
}

// run is one try to carry some keys of one route.
type run struct {
	c        *Carrier
	from, to *redis.Client
	route
	epoch uint64 // of the topology by which it is done
	token string
	lease time.Duration
	now   int64 // by the new owner's clock, read before whatever is asked next of the former one
}

var errStopped = errors.New("stopped by the test")

// carry carries items by a topology that hands them over like that. All of them have an end when it returns nil. Otherwise a server could not be asked (*cache.ServerError):
// some may be carried, and all of them can be begun again.
func (c *Carrier) carry(ctx context.Context, t *topology.Topology, r route, lease time.Duration, items []*item) error {
	if o, _ := furthest(items); o == opEnd {
		return nil
	}
	from, err := c.client(t, r.h.From, r.h.RunID)
	if err != nil {
		return err
	}
	to, err := c.client(t, r.to, "")
	if err != nil {
		return err
	}
	one := &run{c: c, from: from, to: to, route: r, epoch: t.Epoch, token: rand.Text(), lease: lease}
	for {
		op, some := furthest(items)
		if op == opEnd {
			break
		}
		if c.hook != nil && !c.hook(op) {
			return errStopped
		}
		if err := one.step(ctx, op, some); err != nil {
			one.giveUp(ctx, items)
			return err
		}
	}
	for _, it := range items {
		c.count(r, it)
	}
	return nil
}

// furthest returns the items that are furthest, because that frees the values that are held in memory.
func furthest(items []*item) (op, []*item) {
	best := opEnd
	for _, it := range items {
		if it.next != opEnd && (best == opEnd || it.next > best) {
			best = it.next
		}
	}
	var some []*item
	for _, it := range items {
		if best != opEnd && it.next == best {
			some = append(some, it)
		}
	}
	return best, some
}

func (r *run) step(ctx context.Context, o op, items []*item) error {
	ctx, cancel := context.WithTimeout(ctx, r.c.cfg.StepTimeout)
	defer cancel()
	server := r.to
	name := r.route.to
	if o == opDump || o == opRemove {
		server, name = r.from, r.h.From
	}
	var err error
	switch o {
	case opLease:
		err = r.takeLeases(ctx, server, items)
	case opDump:
		err = r.dump(ctx, server, items)
	case opRestore:
		err = r.restore(ctx, server, items)
	case opRemove:
		err = r.remove(ctx, server, items)
	case opRelease:
		if err = server.Unlink(ctx, leases(items)...).Err(); err == nil {
			all(items, answerDone)
		}
	}
	return serverError(name, err)
}

// giveUp removes the leases of what could not be carried, if that is possible, so that others need not wait for their end.
func (r *run) giveUp(ctx context.Context, items []*item) {
	var held []*item
	for _, it := range items {
		if it.next != opLease && it.next != opEnd {
			held = append(held, it)
		}
	}
	if len(held) > 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.c.cfg.StepTimeout/10)
		defer cancel()
		if err := r.to.Unlink(ctx, leases(held)...).Err(); err != nil {
			r.c.log.Debug("leases of keys are left to their end", "server", r.route.to, "error", err)
		}
	}
}

func (r *run) takeLeases(ctx context.Context, to *redis.Client, items []*item) error {
	reply, err := r.c.scripts.lease.Run(ctx, to, leases(items), r.token, r.lease.Milliseconds()).Slice()
	if err == nil {
		reply, err = r.timed(reply, items)
	}
	if err != nil {
		return err
	}
	for i, it := range items {
		if reply[i] == int64(1) {
			it.progress = it.hear(answerDone)
		} else {
			it.progress = it.hear(answerTaken)
		}
	}
	return nil
}

// timed takes the new owner's time off a reply.
func (r *run) timed(reply []any, items []*item) ([]any, error) {
	if len(reply) != len(items)+1 {
		return nil, fmt.Errorf("%d elements in the answer, %d expected", len(reply), len(items)+1)
	}
	now, ok := reply[0].(int64)
	if !ok {
		return nil, errors.New("no time in the answer")
	}
	r.now = now
	return reply[1:], nil
}

func (r *run) dump(ctx context.Context, from *redis.Client, items []*item) error {
	reply, err := r.c.scripts.dump.Run(ctx, from, withMarker(keys(items)), r.h.Since, r.epoch, r.c.cfg.MaxValue, r.c.cfg.BatchBytes).Result()
	if err != nil || stale(reply, items) {
		return err
	}
	list, ok := reply.([]any)
	if !ok || len(list) != len(items) {
		return fmt.Errorf("strange answer of %T", reply)
	}
	for i, it := range items {
		switch one := list[i].(type) {
		case []any:
			life, ok1 := one[0].(int64)
			value, ok2 := one[1].(string)
			if !ok1 || !ok2 {
				return errors.New("strange element in the answer")
			}
			if int64(len(value)) > r.c.cfg.MaxValue {
				it.progress = it.hear(answerUnfit)
				continue
			}
			// The new owner's time was read before the former one said how much life is left: so it ends a moment too early there rather than
			// too late, and what has expired is never put back.
			if it.value = value; life >= 0 {
				it.at = r.now + life
			}
			it.progress = it.hear(answerDone)
		case int64:
			it.progress = it.hear([...]answer{answerAbsent, answerUnfit, answerLater}[one])
		default:
			return errors.New("strange element in the answer")
		}
	}
	return nil
}

func (r *run) restore(ctx context.Context, to *redis.Client, items []*item) error {
	names := make([]string, 1, 1+2*len(items))
	names[0] = topology.MarkerName
	args := append(make([]any, 0, 3+2*len(items)), r.token, r.h.Since, r.epoch)
	for _, it := range items {
		names = append(names, it.key, topology.CarryPrefix+it.key)
		args = append(args, it.at, it.value)
	}
	reply, err := r.c.scripts.restore.Run(ctx, to, names, args...).Result()
	if err != nil || stale(reply, items) {
		return err
	}
	list, _ := reply.([]any)
	if list, err = r.timed(list, items); err != nil {
		return err
	}
	for i, it := range items {
		a := answerRefused
		switch one := list[i].(type) {
		case int64:
			a = [...]answer{answerLost, answerDone, answerThere}[one]
		case string:
			it.refusal = one
			// Its own words for a value that it cannot read; all else (memory, disk, a replica) may pass.
			if strings.Contains(one, "Bad data format") || strings.Contains(one, "DUMP payload") {
				a = answerUnfit
			}
		}
		it.progress = it.hear(a)
		it.stored = a == answerDone || a == answerThere
		if a == answerDone {
			r.c.metrics.carried.Inc()
			r.c.metrics.bytes.Add(float64(len(it.value)))
		}
		it.value = ""
	}
	return nil
}

func (r *run) remove(ctx context.Context, from *redis.Client, items []*item) error {
	reply, err := r.c.scripts.remove.Run(ctx, from, withMarker(keys(items)), r.h.Since, r.epoch).Result()
	if err != nil || stale(reply, items) {
		return err
	}
	all(items, answerDone)
	return nil
}

// count says what became of a key.
func (c *Carrier) count(r route, it *item) {
	switch it.end {
	case endAgain:
		c.metrics.waits.Inc()
	case endDropped:
		c.metrics.dropped.Inc()
		c.log.Warn("a key is too big to be carried, or its new owner does not know its format: it is dropped",
			"key", it.key, "from", r.h.From, "to", r.to, "limit", c.cfg.MaxValue, "answer", it.refusal)
	}
}

// stale reports whether the marker did not allow a step, and tells the items.
func stale(reply any, items []*item) bool {
	n, ok := reply.(int64)
	if ok = ok && (n == newerMarker || n == staleMarker); ok {
		all(items, answerStale)
	}
	return ok
}

func all(items []*item, a answer) {
	for _, it := range items {
		it.progress = it.hear(a)
	}
}

func keys(items []*item) []string {
	out := make([]string, len(items))
	for i, it := range items {
		out[i] = it.key
	}
	return out
}

func leases(items []*item) []string {
	out := make([]string, len(items))
	for i, it := range items {
		out[i] = topology.CarryPrefix + it.key
	}
	return out
}

func withMarker(keys []string) []string { return append([]string{topology.MarkerName}, keys...) }

// serverError is nil for nil, and names the server that could not be asked.
func serverError(name string, err error) error {
	var known *cache.ServerError
	switch {
	case err == nil, errors.As(err, &known):
		return err
	case errors.Is(err, redis.ErrClosed):
		return ErrMoved // the topology has no use for these connections any more
	case errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted):
		err = cache.ErrBusy
	}
	return &cache.ServerError{Server: name, Err: err}
}
