package membership

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func key(fill byte, size int) []byte { return bytes.Repeat([]byte{fill}, size) }

func TestSetKeys(t *testing.T) {
	a, b, c := key('a', 16), key('b', 24), key('c', 32)
	for name, step := range map[string]struct {
		began, set [][]byte
		want       string // part of the error; "" for none
	}{
		"the same":                {[][]byte{a}, [][]byte{a}, ""},
		"another, second":         {[][]byte{a}, [][]byte{a, b}, ""},
		"another, first":          {[][]byte{a, b}, [][]byte{b, a}, ""},
		"without the old one":     {[][]byte{b, a}, [][]byte{b}, ""},
		"all steps at once":       {[][]byte{a}, [][]byte{b, c}, ""},
		"one from the middle":     {[][]byte{a, b, c}, [][]byte{a, c}, ""},
		"none":                    {[][]byte{a}, nil, "at least one key is needed"},
		"wrong sizes":             {[][]byte{a}, [][]byte{a, key('x', 5), nil}, "key 2 has 5 bytes; it must have 16, 24 or 32\ngossip: key 3 has 0 bytes"},
		"twice the same":          {[][]byte{a}, [][]byte{a, b, a}, "key 3 is the same as key 1"},
		"began in plain text":     {nil, [][]byte{a}, "began without encryption keys"},
		"began with a wrong one":  {[][]byte{key('x', 5)}, [][]byte{a}, "or with wrong ones"},
		"plain text stays so too": {nil, nil, "began without encryption keys"},
	} {
		g := New(Config{Name: "a", BindAddr: "127.0.0.1", Keys: step.began}, Callbacks{}, nil, nil)
		err := g.SetKeys(step.set)
		if step.want == "" {
			if err != nil || !reflect.DeepEqual(g.keyring.GetKeys(), step.set) || g.countKeys() != len(step.set) {
				t.Errorf("%s: %v, keys %q", name, err, g.keyring.GetKeys())
			}
			if n := testutil.ToFloat64(g.met.keyChanges); (n == 1) == reflect.DeepEqual(step.began, step.set) {
				t.Errorf("%s: %v changes counted", name, n)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), step.want) || strings.Contains(err.Error(), "xxxxx") {
			t.Errorf("%s: %v", name, err)
		}
		if g.keyring != nil && !reflect.DeepEqual(g.keyring.GetKeys(), step.began) {
			t.Errorf("%s: refused, and changed to %q", name, g.keyring.GetKeys())
		}
	}

	mine := [][]byte{slices.Clone(a), slices.Clone(b)}
	g := New(Config{Name: "a", BindAddr: "127.0.0.1", Keys: [][]byte{a}}, Callbacks{}, nil, nil)
	if err := g.SetKeys(mine); err != nil {
		t.Fatal(err)
	}
	mine[0][0], mine[1] = 'z', nil // the caller's
	if !reflect.DeepEqual(g.keyring.GetKeys(), [][]byte{a, b}) {
		t.Error("the keys are shared with the caller")
	}
}

// While keys change, those who encrypt see only keys that are first before or after, and the list of those who decrypt is whole: with the
// race detector this fails when a list that was given out is changed.
func TestKeysChangeUnderReaders(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	all := [][]byte{key('a', 16), key('b', 16), key('c', 16), key('d', 16)}
	ring, err := memberlist.NewKeyring(all, all[0])
	if err != nil {
		t.Fatal(err)
	}
	from := slices.Clone(all)
	for range 200 {
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		to := slices.Clone(all[:1+r.IntN(len(all))])
		done := make(chan struct{})
		var wg sync.WaitGroup
		var wrong []byte
		wg.Go(func() {
			for {
				if k := ring.GetPrimaryKey(); !bytes.Equal(k, from[0]) && !bytes.Equal(k, to[0]) {
					wrong = k
				}
				seen := map[string]bool{}
				for _, k := range ring.GetKeys() {
					if seen[string(k)] {
						wrong = k
					}
					seen[string(k)] = true
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
		if err := changeKeys(ring, to); err != nil {
			t.Fatal(err)
		}
		close(done)
		wg.Wait()
		have := ring.GetKeys()
		if wrong != nil || !bytes.Equal(have[0], to[0]) || len(have) != len(to) {
			t.Fatalf("from %q to %q: ended with %q, saw %q", from, to, have, wrong)
		}
		from = slices.Clone(have)
	}
}

// The procedure of the package comment: nobody is lost, and everything is heard, at every step.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	k1, k2 := key('1', 16), key('2', 32)
	nodes := startCluster(t, 3, keys(string(k1)))
	changes := make([]int, len(nodes))
	epoch := uint64(0)
	everyone := func(step string) {
		t.Helper()
		for _, from := range nodes {
			epoch++
			h := Hint{Epoch: epoch, Digest: step}
			from.SetHint(h)
			eventually(t, time.Minute, fmt.Sprintf("%s: %s is heard by all", step, from.name), func() bool {
				for _, n := range nodes {
					if m, _ := n.member(from.name); m.Hint != h {
						return false
					}
				}
				return true
			})
		}
		for i, n := range nodes {
			n.mu.Lock()
			now := n.changes
			n.mu.Unlock()
			if now != changes[i] || len(n.alive()) != len(nodes) {
				t.Fatalf("%s: %s saw members change; alive: %v", step, n.name, n.alive())
			}
		}
	}
	eventually(t, time.Minute, "settled", func() bool {
		still := true
		for i, n := range nodes {
			n.mu.Lock()
			still = still && n.changes == changes[i] && n.changes > 0
			changes[i] = n.changes
			n.mu.Unlock()
		}
		time.Sleep(50 * time.Millisecond)
		return still
	})
	everyone("old key")
	for _, step := range []struct {
		name string
		keys [][]byte
	}{{"added", [][]byte{k1, k2}}, {"first", [][]byte{k2, k1}}, {"alone", [][]byte{k2}}} {
		for _, n := range nodes {
			if err := n.SetKeys(step.keys); err != nil {
				t.Fatal(err)
			}
			everyone(fmt.Sprintf("%s at %s", step.name, n.name))
		}
	}
	// The old key is worth nothing now, the new one is.
	old := start(t, "old", keys(string(k1)), seeds(nodes[0].Addr()))
	late := start(t, "late", keys(string(k2)), seeds(nodes[0].Addr()))
	eventually(t, time.Minute, "one with the new key joins", func() bool { return late.sees("a1", Alive) && nodes[0].sees("late", Alive) })
	if got := old.alive(); len(got) != 1 {
		t.Errorf("with the old key one sees %v", got)
	}
}
