package systemtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"ringside/internal/failpoint"
	"ringside/internal/localcluster"
)

// Failures from within: sidecars that die or wait at a named point, lose the way to a server, or gossip.

// Where the points are reached only while the ring changes.
var pointsOfAChange = map[failpoint.Point]bool{
	failpoint.TakingOver: true, failpoint.Handed: true, failpoint.TakenOver: true, failpoint.Advancing: true, failpoint.Advanced: true,
	failpoint.Claimed: true, failpoint.Closing: true, failpoint.Closed: true,
}

// Where the points are reached only by writes whose cache server is out of reach, and only with bounded.
var pointsOfABoundedWrite = map[failpoint.Point]bool{failpoint.Remembering: true, failpoint.Remembered: true, failpoint.Settling: true, failpoint.Settled: true}

// How long a sidecar is given to come by a point; one of a change of the ring may be at its end.
const (
	pointPatience  = 4 * time.Second
	changePatience = 12 * time.Second
)

func (s *schedule) any(rnd *rand.Rand) *localcluster.Sidecar {
	return s.p.c.Sidecars[rnd.IntN(len(s.p.c.Sidecars))]
}

// dieAtPoint lets a sidecar die at one of the points, in turn, and starts it again.
func (s *schedule) dieAtPoint(rnd *rand.Rand) (string, error) {
	all := s.points
	if len(all) == 0 {
		all = failpoint.Points()
		if !s.p.weak { // strict
			all = slices.DeleteFunc(all, func(p failpoint.Point) bool { return pointsOfABoundedWrite[p] })
		}
	}
	s.mu.Lock()
	p := all[s.turn%len(all)]
	s.turn++
	s.mu.Unlock()
	return s.dieAt(s.any(rnd), p, failpoint.Order{After: rnd.IntN(4)}, rnd)
}

func (s *schedule) dieAt(a *localcluster.Sidecar, p failpoint.Point, o failpoint.Order, rnd *rand.Rand) (string, error) {
	busy := s.p.rig.alone(a.Name)
	defer busy.Unlock()
	what := fmt.Sprintf("a sidecar dies at %q: ", p)
	patience := pointPatience
	if pointsOfAChange[p] {
		patience = changePatience
		// There may be none now; if there is one, this is refused.
		_ = s.command(s.any(rnd), []string{"cache", "weight", s.p.c.Caches[rnd.IntN(len(s.p.c.Caches))].Name, fmt.Sprint(1 + rnd.IntN(3))})
	}
	if pointsOfABoundedWrite[p] { // by this sidecar, or by one of the others, for which this one then sees to it
		from := a
		if p == failpoint.Settling || p == failpoint.Settled {
			from = s.any(rnd)
		}
		for _, c := range s.p.c.Caches[:2] {
			l := s.p.rig.link(from.Name, c.Name)
			l.refuse()
			defer l.heal()
		}
	}
	if err := s.p.rig.order(a.Name, func(all *failpoint.Orders) { all.At[p] = o }); err != nil {
		return what, err
	}
	died := false
	select {
	case <-a.Done():
		died = true
	case <-time.After(patience):
	case <-s.stop:
	}
	if err := s.p.rig.order(a.Name, func(all *failpoint.Orders) { delete(all.At, p) }); err != nil {
		return what, err
	}
	if !died { // it may have died in the last moment
		time.Sleep(50 * time.Millisecond)
		select {
		case <-a.Done():
		default:
			return fmt.Sprintf("no sidecar came by %q: ", p), nil
		}
	}
	s.pause(time.Duration(rnd.Int64N(int64(time.Second))))
	return what + a.Name, s.startSidecar(a)
}

// waitAtPoint lets all who come by a point of a sidecar wait there.
func (s *schedule) waitAtPoint(rnd *rand.Rand) (string, error) {
	all := failpoint.Points()
	p := all[rnd.IntN(len(all))]
	d := between(rnd, 10*time.Millisecond, 500*time.Millisecond)
	if rnd.IntN(4) == 0 {
		d = between(rnd, time.Second, 6*time.Second)
	}
	return s.waitAt(s.any(rnd), p, d, between(rnd, time.Second, 3*time.Second))
}

func (s *schedule) waitAt(a *localcluster.Sidecar, p failpoint.Point, d, during time.Duration) (string, error) {
	what := fmt.Sprintf("a sidecar waits at %q: %s for %v", p, a.Name, d)
	order := failpoint.Order{Sleep: max(int(d.Milliseconds()), 1)}
	if err := s.p.rig.order(a.Name, func(all *failpoint.Orders) { all.At[p] = order }); err != nil {
		return what, err
	}
	s.pause(during)
	return what, s.p.rig.order(a.Name, func(all *failpoint.Orders) { delete(all.At, p) })
}

// hurtPath lets the way from a sidecar to a cache server fail, hurtShardPath that to a shard; there is always only one of each.
func (s *schedule) hurtPath(rnd *rand.Rand) (string, error) {
	names := []string{"c4"}
	for _, c := range s.p.c.Caches {
		names = append(names, c.Name)
	}
	return s.hurtLink(rnd, names, 5*time.Second)
}

func (s *schedule) hurtShardPath(rnd *rand.Rand) (string, error) {
	var names []string
	for _, sh := range s.p.c.Shards {
		names = append(names, sh.Name)
	}
	return s.hurtLink(rnd, names, 3*time.Second)
}

func (s *schedule) hurtLink(rnd *rand.Rand, servers []string, longest time.Duration) (string, error) {
	a, server := s.any(rnd), servers[rnd.IntN(len(servers))]
	l := s.p.rig.link(a.Name, server)
	d := between(rnd, 100*time.Millisecond, longest)
	how := ""
	switch rnd.IntN(6) {
	case 0, 1:
		how = "cut"
		l.refuse()
	case 2:
		how = "silent"
		l.shut(toServer, toClient)
	case 3:
		how = "silent to the server"
		l.shut(toServer)
	case 4:
		how = "silent from the server"
		l.shut(toClient)
	case 5:
		how = "slow"
		l.slow(between(rnd, 5*time.Millisecond, 200*time.Millisecond))
	}
	s.pause(d)
	if rnd.IntN(2) == 0 { // else what was held up arrives late
		l.refuse()
	}
	l.heal()
	return fmt.Sprintf("a path is %s: %s to %s for %v", how, a.Name, server, d), nil
}

// hurtGossip cuts a sidecar off from the others.
func (s *schedule) hurtGossip(rnd *rand.Rand) (string, error) {
	a := s.any(rnd)
	d := between(rnd, time.Second, 12*time.Second)
	what := fmt.Sprintf("gossip is cut: %s for %v", a.Name, d)
	if err := s.p.rig.order(a.Name, func(o *failpoint.Orders) { o.NoPeers = true }); err != nil {
		return what, err
	}
	s.pause(d)
	return what, s.p.rig.order(a.Name, func(o *failpoint.Orders) { o.NoPeers = false })
}
