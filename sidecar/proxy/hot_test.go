package proxy

import (
	"fmt"
	"testing"
)

// One key among many is found, and its share is right; what is not sampled costs nothing, and what is does not allocate for a key that is known.
func TestHotKeysAreSampled(t *testing.T) {
	w := &worker{hot: newSampler()}
	keys := make([][]byte, 5000)
	for i := range keys {
		keys[i] = fmt.Append(nil, "key:", i)
	}
	const n = 400_000
	for i := range n {
		if i%4 == 0 { // a pattern that a fixed interval would see always, or never
			w.sample([]byte("hot"))
		} else {
			w.sample(keys[i%len(keys)])
		}
	}
	s := &Server{workers: []*worker{w}}
	top := s.HotKeys(3)
	if len(top) != 3 || top[0].Key != "hot" {
		t.Fatalf("%+v", top)
	}
	// All of it was within a moment, so the rates are as if of one second.
	if got := top[0].AtLeast / n; got < 0.2 || got > 0.3 {
		t.Errorf("its share is %.3f, want 0.25", got)
	}
	hot := []byte("hot")
	if allocations := testing.AllocsPerRun(1000, func() { w.sample(hot) }); allocations != 0 {
		t.Errorf("%v allocations", allocations)
	}
}

func BenchmarkSample(b *testing.B) {
	w := &worker{hot: newSampler()}
	key := []byte("user:42")
	for b.Loop() {
		w.sample(key)
	}
}
