package cache

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"ringside/internal/failpoint"
)

// Entries that are read often are refreshed before they expire, so that nobody has to wait for a load then. Any hit after the soft expiry may
// begin one, at random, the likelier the nearer the end is: rows that are read often are refreshed early and by few, others hardly ever. This is the
// "XFetch" of A. Vattani, F. Chierichetti, K. Lowenstein: Optimal Probabilistic Cache Stampede Prevention, PVLDB 8(8), 2015, with the rest of the
// entry's life in place of a multiple of the time that a load takes.
//
// Who begins claims the entry: a token takes the place of its soft expiry (script claim), by which others see that they need not. They
// go on using the value. The claim is a lease in all else (invariant I1): the row is loaded after it, and the new entry is put only in place of that
// very value with that token. A writer's poison or clean takes both away.

const (
	// eagerness: of hits at the soft expiry one in e^eagerness begins a refresh, of those at the end all.
	eagerness = 8
	// mostRefreshes is how many are under way in one process; more are left to later hits.
	mostRefreshes = 64

	softAt = 10 // where in an entry its soft expiry is
)

// Due reports whether a hit at the time now should have the entry refreshed. entry is a value or an absence. No allocation; for event loops.
func Due(entry []byte, now time.Time) bool {
	soft := int64(binary.BigEndian.Uint64(entry[softAt:]))
	if ms := now.UnixMilli(); soft >= 0 && soft <= ms {
		return due(ms, int64(binary.BigEndian.Uint64(entry[2:])), soft, rand.Float64())
	}
	return false
}

// due decides for an entry that was written and is past its soft expiry, all in ms. random is at least 0 and below 1. What it has left then is a quarter of
// the time before (Config.SoftTTL is 0.8): if it is less in truth, it is refreshed less often. An entry that should have ended long ago, and has not, was
// written by another clock: its times say nothing.
func due(now, written, soft int64, random float64) bool {
	fresh := float64(soft - written)
	left, over := fresh/4, float64(now-soft)
	return left > 0 && over < fresh && random < math.Exp(-eagerness*(1-over/left))
}

// claimed returns the header of an entry with a token in place of its soft expiry.
func claimed(header []byte, token uint64) []byte {
	out := append(make([]byte, 0, HeaderSize), header[:softAt]...)
	return binary.BigEndian.AppendUint64(out, token|claimBit)
}

// claimBit is never set in a time, and always in a token.
const claimBit = 1 << 63

// Refresh has the row of an item, whose entry is due, loaded anew in the background, unless that is being done already, here or elsewhere. It returns
// at once; any goroutine. load is as LoadFunc says, and is called with the index 0.
func (c *Cache) Refresh(item Item, load LoadFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.refreshing[item.Ref] || len(c.refreshing) >= mostRefreshes {
		return
	}
	c.refreshing[item.Ref] = true
	c.flying.Add(1)
	go func() {
		defer c.flying.Done()
		ctx, cancel := context.WithTimeout(c.base, c.cfg.ReadTimeout)
		defer cancel()
		c.refresh(ctx, item, load)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.refreshing, item.Ref)
	}()
}

func (c *Cache) refresh(ctx context.Context, item Item, load LoadFunc) {
	srv, err := c.servers.of(item.Ref)
	if err != nil {
		return
	}
	defer c.servers.release(srv)
	if !srv.gate.pass(time.Now()) {
		return
	}
	r := &refreshing{c: c, srv: srv, item: item}
	if !r.claim(ctx) {
		return
	}
	c.metrics.loads.Inc()
	loaded := c.callLoad(ctx, load, []int{0})[0]
	if loaded.Err != nil {
		c.metrics.loadErrors.Inc()
	}
	failpoint.At(failpoint.Loaded)
	if e := onLoaded(true, loaded, item.TTL > 0, item.NegTTL > 0); e != endRelease {
		failpoint.At(failpoint.Filling)
		r.renew(ctx, e, loaded)
		failpoint.At(failpoint.Filled)
		return
	}
	c.metrics.refreshesFailed.Inc()
	r.unclaim(ctx)
}

// refreshing is one refresh.
type refreshing struct {
	c      *Cache
	srv    *server
	item   Item
	header []byte // of the entry that was found, with our token
}

// do carries out one script.
func (r *refreshing) do(ctx context.Context, s *script, args ...any) *redis.Cmd {
	st := &step{srv: r.srv, script: s, name: r.item.Ref.Name, args: args}
	r.c.exec(ctx, []*step{st})
	cmd := st.cmd.(*redis.Cmd)
	if ctx.Err() == nil {
		r.srv.gate.report(fate(cmd.Err()), time.Now())
	}
	return cmd
}

// claim reports whether the entry is ours to refresh. It is not if it has been refreshed meanwhile, or somebody else does it.
func (r *refreshing) claim(ctx context.Context) bool {
	token := rand.Uint64() | claimBit
	now := binary.BigEndian.AppendUint64(nil, uint64(time.Now().UnixMilli()))
	header, err := r.do(ctx, r.c.scripts.claim, now, binary.BigEndian.AppendUint64(nil, token)).Text()
	if err != nil || len(header) != HeaderSize {
		return false
	}
	r.header = claimed([]byte(header), token)
	return true
}

// renew puts what was loaded in place of the value that was claimed.
func (r *refreshing) renew(ctx context.Context, e ending, l Loaded) {
	entry, life := r.c.entryOf(e, l, &r.item)
	n, err := r.do(ctx, r.c.scripts.renew, r.header, entry, life.Milliseconds()).Int64()
	switch {
	case err != nil:
		r.c.metrics.refreshesFailed.Inc()
	case n == 0:
		r.c.metrics.refreshesRefused.Inc()
	default:
		r.c.metrics.refreshes.Inc()
	}
}

// unclaim lets somebody else try, in a while.
func (r *refreshing) unclaim(ctx context.Context) {
	later := binary.BigEndian.AppendUint64(nil, uint64(time.Now().Add(r.c.cfg.LeaseTTL).UnixMilli()))
	r.do(ctx, r.c.scripts.unclaim, r.header, later)
}
