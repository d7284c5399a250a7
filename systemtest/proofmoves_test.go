package systemtest

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"ringside/ring"
)

const (
	// moveMost is how many vnodes move at a time at most.
	moveMost = 4096
	// moveWithin is how long a move is waited for before another one is begun. That it is not done by then, or is cancelled, is no failure.
	moveWithin = 20 * time.Second
)

// moveRows moves rows between the shards: those of some vnodes, or of one of the shard keys that are read and written.
func (s *schedule) moveRows(rnd *rand.Rand) (string, error) {
	admin := s.p.c.Sidecars[rnd.IntN(len(s.p.c.Sidecars))]
	to := s.p.c.Shards[rnd.IntN(len(s.p.c.Shards))].Name
	// Few keys, so that overrides are not only set but cleared, and go with rows that are written.
	key := strconv.Itoa(s.p.rows[rnd.IntN(8)].id)
	first := rnd.IntN(ring.Vnodes - moveMost)
	vnodes := fmt.Sprintf("%d-%d", first, first+rnd.IntN(moveMost))
	what, args := "vnodes are moved: "+vnodes+" to "+to, []string{"move", "start", "--vnodes", vnodes, "--to", to}
	switch rnd.IntN(6) {
	case 0, 1:
		what, args = "a shard key is moved: "+key+" to "+to, []string{"override", "set", key, to}
	case 2, 3:
		what, args = "an override ends: "+key, []string{"override", "clear", key}
	}
	err := s.command(admin, args)
	for end := time.Now().Add(moveWithin); err == nil && time.Now().Before(end) && s.moving(); {
		if !s.pause(time.Second / 2) {
			break
		}
	}
	return what, err
}

// moving reports whether a move is under way, or nobody can say.
func (s *schedule) moving() bool {
	for _, a := range s.p.c.Sidecars {
		if under, err := moving(a); err == nil {
			return under
		}
	}
	return true
}
