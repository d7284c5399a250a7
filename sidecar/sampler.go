package sidecar

import (
	"context"
	"math/rand/v2"
	"time"
)

// sampler verifies a few cached rows a second, for as long as the sidecar runs: it goes through one cache server after the other.
type sampler struct {
	verifier *verifier
	rate     int // entries a second; 0: it does nothing

	server string // the one that it is at
	cursor uint64
}

const sampleEvery = time.Second

// run samples until ctx ends.
func (s *sampler) run(ctx context.Context) error {
	if s.rate == 0 {
		return nil
	}
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if len(s.verifier.keyspaces.Keyspaces()) == 0 {
			continue // none yet: a reload may bring some
		}
		specimens := s.next(ctx)
		for len(specimens) > 0 {
			n := min(len(specimens), verifyBatch)
			s.verifier.compare(ctx, specimens[:n])
			specimens = specimens[n:]
		}
	}
}

// next takes at most rate of the next names of entries, at random.
func (s *sampler) next(ctx context.Context) []*specimen {
	t := s.verifier.rows.topology.Current()
	at := t.CacheIndex(s.server)
	if at < 0 || t.Caches[at].RunID == "" {
		s.cursor = 0
		if at = following(len(t.Caches), at, func(i int) bool { return t.Caches[i].RunID != "" }); at < 0 {
			return nil
		}
	}
	c := &t.Caches[at]
	s.server = c.Name
	ctx, cancel := context.WithTimeout(ctx, feedTimeout)
	defer cancel()
	names, next, err := s.verifier.servers.Scan(ctx, c.Name, c.RunID, s.cursor)
	if s.cursor = next; err != nil || next == 0 {
		// One that cannot be asked is left for now.
		s.cursor = 0
		if i := following(len(t.Caches), at, func(i int) bool { return t.Caches[i].RunID != "" }); i >= 0 {
			s.server = t.Caches[i].Name
		}
	}
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	specimens := make([]*specimen, min(len(names), s.rate))
	for i := range specimens {
		specimens[i] = &specimen{server: c.Name, runID: c.RunID, name: names[i]}
	}
	return specimens
}

// following returns the first index after at, round in a circle of n, for which usable holds; -1: there is none.
func following(n, at int, usable func(i int) bool) int {
	for k := 1; k <= n; k++ {
		if i := (at + k + n) % n; usable(i) {
			return i
		}
	}
	return -1
}
