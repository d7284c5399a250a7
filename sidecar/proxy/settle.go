package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ringside/resp"
	"ringside/ring"
	"ringside/sidecar/topology"
)

// Plain carries plain keys from one cache server to another, one at a time and on demand. It is an interface because floor 2 must not know the
// drivers of hand-overs, which carry the rest.
type Plain interface {
	// Carry returns once the former owner has the key no more: to has it now, or nobody. It blocks, obeys ctx, and is called from many
	// goroutines, also for one key at the same time.
	Carry(ctx context.Context, h topology.Handover, to string, key []byte) error
}

// A key whose vnode was handed is settled when its former owner does not have it, and nobody who has read it there before can put it on the new
// owner any more. The former owner only loses keys by then, so what is settled stays so, and a command on settled keys is like any other. A key
// that is not settled is asked for on the former owner before the first command on it goes on. If it is there it is carried over; if not, the
// lease under which somebody may have carried it is removed.

// unsettled is a key, in a client's input, that has to be settled first.
type unsettled struct {
	from *handover
	key  []byte
}

// settling is one key of which is being found out whether its former owner has it. It is the task of that question.
type settling struct {
	from    *handover
	key     []byte
	waiting []waiting
}

// The steps of settling, as call.part.
const (
	stepThere int32 = iota
	stepLease
)

type waiting struct {
	client *client
	hold   *hold
}

// settler bounds how much a worker settles at a time.
type settler struct {
	asking, carrying int
	toAsk, toCarry   []*settling
}

const (
	// settleFor is how long a command waits for its keys before it is refused. What was begun goes on.
	settleFor = 3 * time.Second
	// carryFor bounds the carrying of one key.
	carryFor = 5 * time.Second
	// maxAsking and maxCarrying are how many keys a worker asks for, and has carried, at a time.
	maxAsking   = 1024
	maxCarrying = 32
	// What is settled is remembered for each hand-over up to these. Beyond them it is forgotten, and asked for again.
	maxSettled      = 1 << 18
	maxSettledBytes = 16 << 20
)

var errNoCarrier = errors.New("keys cannot be carried over")

func (h *handover) isSettled(key []byte) bool {
	_, ok := h.settled[string(key)]
	return ok
}

// remember keeps that a key is settled.
func (h *handover) remember(key []byte) {
	if len(h.settled) >= maxSettled || h.bytes+len(key) > maxSettledBytes {
		clear(h.settled)
		h.bytes = 0
	}
	if _, known := h.settled[string(key)]; !known {
		h.settled[string(key)] = struct{}{}
		h.bytes += len(key)
	}
}

// settle begins to settle the keys in g.unsettled; the hold waits for those that are still missing then.
func (g *gate) settle(cl *client, h *hold) {
	h.failed, h.settled = false, false
	h.asked = h.asked[:0]
	for _, from := range g.handovers {
		if from.step == topology.Handed {
			h.asked = append(h.asked, from)
		}
	}
	h.missing = 1 // nothing is woken in here
	for _, one := range g.unsettled {
		s := one.from.settling[string(one.key)]
		if s == nil {
			s = &settling{from: one.from, key: append([]byte(nil), one.key...)}
			one.from.settling[string(s.key)] = s
			g.worker.settler.toAsk = append(g.worker.settler.toAsk, s)
		}
		s.waiting = append(s.waiting, waiting{cl, h})
		h.missing++
	}
	g.work()
	h.missing--
}

// work begins what may be begun.
func (g *gate) work() {
	q := &g.worker.settler
	for q.asking < maxAsking && len(q.toAsk) > 0 {
		s := q.toAsk[0]
		q.toAsk = q.toAsk[1:]
		u, err := g.ask(s)
		if err != nil {
			g.settled(s, err)
			continue
		}
		q.asking++
		u.sendCommand(errand(s), stepThere, []byte("EXISTS"), s.key)
	}
	for q.carrying < maxCarrying && len(q.toCarry) > 0 {
		s := q.toCarry[0]
		q.toCarry = q.toCarry[1:]
		q.carrying++
		g.carry(s)
	}
}

// ask returns the connection by which to ask for a key.
func (g *gate) ask(s *settling) (*upstream, error) {
	if !slices.Contains(g.handovers, s.from) {
		return nil, errRingChanged
	}
	return g.source(s.from)
}

// replied implements task.
func (s *settling) replied(w *worker, u *upstream, step int32, frame []byte) {
	n, ok := resp.IntOf(frame)
	switch {
	case frame[0] == '-':
		s.asked(w, &CacheDownError{Server: u.name, Err: errors.New(string(resp.ErrorText(frame)))})
	case !ok:
		s.asked(w, errStrangeReply)
	case step == stepLease || w.gate == nil:
		s.asked(w, nil)
	case n == 0:
		w.gate.endLease(s)
	default:
		w.settler.asking--
		w.settler.toCarry = append(w.settler.toCarry, s)
		w.gate.work()
	}
}

// refused implements task.
func (s *settling) refused(w *worker, _ int32, err error) { s.asked(w, err) }

// asked ends the questions about a key.
func (s *settling) asked(w *worker, err error) {
	w.settler.asking--
	if g := w.gate; g != nil { // else all has been handed over, and what waited has gone on
		g.settled(s, err)
		g.work()
	}
}

// newOwner returns the index of the server that a key is handed to.
func (g *gate) newOwner(s *settling) (uint16, error) {
	w := g.worker
	if !slices.Contains(g.handovers, s.from) {
		return 0, errRingChanged
	}
	i := w.route.topology.CacheOf(w.hasher.Vnode(ring.CacheKey(s.key)))
	if i == ring.None {
		return 0, errNoCacheServer
	}
	return i, nil
}

// endLease removes the lease of a key that is not on its former owner.
func (g *gate) endLease(s *settling) {
	i, err := g.newOwner(s)
	var u *upstream
	if err == nil {
		u = g.worker.route.upstreams[i][0]
		err = u.room()
	}
	if err != nil {
		s.asked(g.worker, err)
		return
	}
	u.sendCommand(errand(s), stepLease, []byte("UNLINK"), append([]byte(topology.CarryPrefix), s.key...))
}

// carry has a key brought to its new owner.
func (g *gate) carry(s *settling) {
	w := g.worker
	i, err := g.newOwner(s)
	if err != nil {
		w.settler.carrying--
		g.settled(s, err)
		return
	}
	to := w.route.topology.Caches[i].Name
	plain, from := w.server.deps.Plain, s.from.Handover
	w.server.goroutines.Add(1)
	go func() {
		defer w.server.goroutines.Done()
		err := errNoCarrier
		if plain != nil {
			ctx, cancel := context.WithTimeout(w.server.ctx, carryFor)
			err = plain.Carry(ctx, from, to, s.key)
			cancel()
		}
		w.loop.Submit(func() {
			w.turn()
			w.settler.carrying--
			g := w.gate
			if g == nil {
				return
			}
			if err != nil {
				err = &CacheDownError{Server: from.From, Err: fmt.Errorf("a key cannot be carried over to %s: %w", to, err)}
			} else {
				w.stats.carried++
			}
			g.settled(s, err)
			g.work()
		})
	}()
}

// settled ends the settling of a key, and lets go on what has waited for nothing else.
func (g *gate) settled(s *settling, err error) {
	delete(s.from.settling, string(s.key))
	again := errors.Is(err, errRingChanged) // the question was not asked
	if err == nil {
		s.from.remember(s.key)
	}
	for _, one := range s.waiting {
		h := one.hold
		h.missing--
		if again {
			h.failed = true
		} else if err != nil {
			h.err = err
		}
		if h.missing > 0 || g.waiting[one.client] != h {
			continue
		}
		h.settled = !h.failed
		h.wake(one.client)
	}
}
