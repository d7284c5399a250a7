package sidecar

import (
	"context"
	"log/slog"
	"time"

	"ringside/internal/failpoint"
	"ringside/membership"
	"ringside/shard"
	"ringside/shard/origin"
	"ringside/sidecar/topology"
)

// keeper brings one shard to the topology that this sidecar acts by. Every sidecar runs one for every shard; the shard lets only one of
// them make each step, and a step that was made is nobody's to make again.
type keeper struct {
	name     string
	topology *topology.Holder
	fleet    *origin.Fleet
	feed     *feed
	carrier  *carrier
	allHave  func(epoch uint64) bool // whether all living sidecars have a topology of that epoch, or a later one
	hold     time.Duration
	log      *slog.Logger
}

func (s *Sidecar) newKeeper(name string) *keeper {
	log := s.log.With("shard", name)
	return &keeper{
		name: name, topology: s.topology, fleet: s.fleet, feed: s.feed, allHave: s.members.allHave, hold: holdFor(s.cfg.ViewTTL), log: log,
		carrier: &carrier{
			shard: name, confirmation: s.fleet.Confirmation(name), cache: s.cache, servers: s.servers, keyspaces: s.cfg.Set(),
			viewTTL: s.cfg.ViewTTL, token: s.cfg.Name, log: log,
		},
	}
}

// allHave reports whether all living sidecars have a topology of that epoch, or a later one, as far as gossip tells.
func (m *members) allHave(epoch uint64) bool {
	for _, member := range m.gossip.Members() {
		if member.State == membership.Alive && !member.Self && member.Hint.Epoch < epoch {
			return false
		}
	}
	return true
}

// holdFor is how long a shard stays in a phase: from then on nobody can be using the cache by the view before it, because
// views hold for viewTTL from the time of asking. The same again covers what was begun at the last moment.
func holdFor(viewTTL time.Duration) time.Duration { return 2 * viewTTL }

// carriesAfter is how long a shard is in phase Preparing before entries are taken over: longer than viewTTL. A writer that began by the view before,
// and cleans the former copy only, has then been acknowledged, or looks at the shard's view again before it is (rowWrite.guard).
func carriesAfter(hold time.Duration) time.Duration { return hold * 5 / 8 }

// step is what a keeper does next.
type step uint8

const (
	stepNone    step = iota
	stepInstall      // the shard was never heard: it may not be set up
	stepLearn        // the topology that governs it is not known here
	stepAdvance      // raise its view
	stepCarry        // take over what the former owners of its rows hold, in phase Active close those then
)

// sight is what a keeper sees.
type sight struct {
	view    shard.View
	seen    time.Duration      // how long the shard has been seen saying so
	carried bool               // what the former owners of its rows hold has been taken over; in phase Active: and they have been closed
	by      *topology.Topology // of the view's epoch; nil: not known here
	now     *topology.Topology // the one to act by
	heard   bool               // all sidecars have now
	known   time.Duration      // how long it has been known here
}

// move is what follows from a sight.
type move struct {
	step step
	view shard.View         // stepAdvance: raise the shard to this
	t    *topology.Topology // stepAdvance: and give it this one; nil: it has it
	look time.Duration      // look again then at the latest; 0: as usual
}

// nextStep decides. Pure.
//
// A shard in phase Done is brought to a later topology when all sidecars have it, or have had time enough to get it, since those that have not could not use the cache for
// its rows: straight to Done if its rows stay where they are, else to Preparing. That is held, and
// if former copies are handed over it lasts until they have been taken over, which begins when it has been held for long enough (carriesAfter); then
// Active, which is held too and lasts until the rest has been taken over and the former owners are closed; then Done. A change that is under
// way goes to its end first, unless a server that it needs has been lost meanwhile: then the shard begins the later topology at once, and its
// rows that are changing hands are out of use until everybody has heard.
func nextStep(s sight, hold time.Duration) move {
	view := s.view
	handsOver := view.Phase == shard.Active || view.Phase == shard.Preparing && s.by != nil && s.by.HandsOver(view.From)
	switch {
	case view == shard.View{}:
		return move{step: stepInstall}
	case s.by == nil:
		return move{step: stepLearn}
	case view.Phase == shard.Done:
		return begin(s, hold)
	case view.Epoch < s.now.Epoch && loses(s.by, s.now):
		return move{step: stepAdvance, view: shard.View{Epoch: s.now.Epoch, Phase: shard.Preparing}, t: s.now}
	case view.Phase == shard.Preparing && handsOver && s.seen < carriesAfter(hold):
		return move{look: carriesAfter(hold) - s.seen}
	case handsOver && !s.carried:
		return move{step: stepCarry}
	case s.seen < hold:
		return move{look: hold - s.seen}
	case view.Phase == shard.Preparing && handsOver:
		return move{step: stepAdvance, view: shard.View{Epoch: view.Epoch, Phase: shard.Active}}
	}
	return move{step: stepAdvance, view: shard.View{Epoch: view.Epoch, Phase: shard.Done}}
}

// begin decides for a shard that no change is under way on.
func begin(s sight, hold time.Duration) move {
	from := s.view.Epoch
	if from >= s.now.Epoch {
		return move{}
	}
	changes := s.now.ChangesRows(from)
	if !s.heard && (s.known < graceFor && changes || s.known < unchangedGrace(hold)) {
		return move{look: gracePause}
	}
	if !changes {
		return move{step: stepAdvance, view: shard.View{Epoch: s.now.Epoch, Phase: shard.Done}, t: s.now}
	}
	return move{step: stepAdvance, view: shard.View{Epoch: s.now.Epoch, Phase: shard.Preparing}, t: s.now}
}

// loses reports whether a later topology does without an incarnation of a cache server that t uses.
func loses(t, later *topology.Topology) bool {
	for i := range t.Caches {
		if c := &t.Caches[i]; c.RunID != "" {
			if at := later.CacheIndex(c.Name); at < 0 || later.Caches[at].RunID != c.RunID {
				return true
			}
		}
	}
	return false
}

const (
	keeperPause = 250 * time.Millisecond // between looks without a reason
	keeperRetry = time.Second            // after a failure
	// graceFor is how long a keeper waits for the other sidecars to get a topology before it begins with it on its shard. They could not use
	// the cache for rows of the shard until they have it.
	graceFor   = time.Second
	gracePause = 20 * time.Millisecond
)

// unchangedGrace is graceFor where rows stay where they are, which after a move of vnodes is not put off for long: until the source has come to the new map, those
// that have not heard of it do not see what the destination withholds (hold is 2 x view_ttl, for which a write that is remembered waits).
func unchangedGrace(hold time.Duration) time.Duration { return min(graceFor, hold/8) }

// run keeps the shard until ctx ends.
func (k *keeper) run(ctx context.Context) {
	var last shard.View
	var newest uint64
	since, known := time.Now(), time.Now()
	for ctx.Err() == nil {
		changed := k.feed.changed()
		view, _ := k.fleet.Confirmation(k.name).View()
		t := k.topology.Current()
		if !view.Same(last) {
			last, since = view, time.Now()
		}
		if t.Epoch != newest {
			newest, known = t.Epoch, time.Now()
		}
		m := nextStep(sight{
			view: view, seen: time.Since(since), carried: k.carrier.isDone(view), by: k.topology.At(view.Epoch),
			now: t, heard: view.Epoch >= t.Epoch || k.allHave(t.Epoch), known: time.Since(known),
		}, k.hold)
		pause := keeperPause
		if m.look > 0 {
			pause = min(pause, m.look)
		}
		again, err := k.act(ctx, view, time.Since(since), m)
		switch {
		case err != nil:
			k.log.Debug("shard not kept", "error", err)
			pause = keeperRetry
		case again:
			continue
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// act makes a move. again: there is more to do at once.
func (k *keeper) act(ctx context.Context, view shard.View, seen time.Duration, m move) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*feedTimeout)
	defer cancel()
	switch m.step {
	case stepInstall:
		err = install(ctx, k.fleet, k.topology.Current(), k.name)
	case stepLearn:
		k.feed.wake()
	case stepCarry:
		return k.carrier.goOn(ctx, k.topology.At(view.Epoch), view, seen, k.hold)
	case stepAdvance:
		var body []byte
		if m.t != nil {
			body = m.t.Encode()
		}
		failpoint.At(failpoint.Advancing)
		var now shard.View
		if now, err = k.fleet.Advance(ctx, k.name, m.view, body); err == nil && !now.Less(m.view) { // else a cut-over holds it
			failpoint.At(failpoint.Advanced)
			k.log.Info("shard advanced", "view", m.view)
		}
	}
	return false, err
}

// install sets a shard up if it is not.
func install(ctx context.Context, fleet *origin.Fleet, t *topology.Topology, name string) error {
	return fleet.Install(ctx, name, shard.View{Epoch: t.Epoch, Phase: shard.Done}, t.Encode(), t.Owned(name))
}
