package proxy

import (
	"time"

	"ringside/internal/heat"
)

const (
	// sampledOneIn is of how many keys about one is counted. The rest costs a subtraction.
	sampledOneIn = 64
	// hotKeysKept is how many keys each loop remembers.
	hotKeysKept = 128
	// HotHalfLife is after which time a use counts half.
	HotHalfLife = time.Minute
)

// sampler counts some of the keys that clients name.
type sampler struct {
	skip   uint32
	random uint32
	keys   *heat.Keys
}

func newSampler() sampler {
	return sampler{skip: sampledOneIn, random: 2463534242, keys: heat.NewKeys(hotKeysKept, HotHalfLife)}
}

// sample is called with every key. It is made to be inlined.
func (w *worker) sample(key []byte) {
	if w.hot.skip--; w.hot.skip == 0 {
		w.hot.count(key)
	}
}

// count counts a key, and draws which one is next: at distances that no pattern of keys can hide between.
func (s *sampler) count(key []byte) {
	s.random ^= s.random << 13 // xorshift (Marsaglia, 2003)
	s.random ^= s.random >> 17
	s.random ^= s.random << 5
	s.skip = 1 + s.random%(2*sampledOneIn-1)
	s.keys.Add(key[:min(len(key), maxHotKey)], sampledOneIn, time.Now())
}

// maxHotKey bounds what is remembered of a key, in bytes.
const maxHotKey = 256

// HotKeys returns the n keys that clients of this sidecar have used most lately, of all that they name in commands, with their rates. Safe for concurrent use.
func (s *Server) HotKeys(n int) []heat.Hot {
	now := time.Now()
	parts := make([][]heat.Hot, len(s.workers))
	for i, w := range s.workers {
		parts[i] = w.hot.keys.Top(hotKeysKept, now)
	}
	return heat.Merge(n, parts...)
}
