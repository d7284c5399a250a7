package heat

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"
)

// clock weighs samples so that those of one half-life ago count half as much: later ones count more instead (forward decay), so nothing has to be visited.
type clock struct {
	halfLife    time.Duration
	born, since time.Time // since: samples of then count 1
}

// maxScale is how many half-lives may pass before all weights are made smaller again.
const maxScale = 60

// at returns what a sample counts now. A scale other than 1 is first to be applied to all weights.
func (c *clock) at(now time.Time) (weight, scale float64) {
	if c.born.IsZero() {
		c.born, c.since = now, now
	}
	age := max(0, float64(now.Sub(c.since))/float64(c.halfLife))
	if age > maxScale {
		c.since = now
		return 1, math.Exp2(-age)
	}
	return math.Exp2(age), 1
}

// perSecond is by what a weight is multiplied to be a rate.
func (c *clock) perSecond(now time.Time) float64 {
	if c.born.IsZero() {
		return 0
	}
	lived := max(float64(now.Sub(c.born)), float64(time.Second)) / float64(c.halfLife)
	mass := c.halfLife.Seconds() / math.Ln2 * (1 - math.Exp2(-lived)) // of one sample a second
	return math.Exp2(-max(0, float64(now.Sub(c.since))/float64(c.halfLife))) / mass
}

// Keys remembers the keys used most (the space-saving algorithm of Metwally, Agrawal and El Abbadi, 2005): every key whose share is above 1/size is among
// them, and a rate is too high by that of the one that a key has replaced at most.
type Keys struct {
	size int

	mu    sync.Mutex // guards the following
	clock clock
	list  []hot
	at    map[string]int
}

type hot struct {
	key          string
	weight, over float64
}

// Hot is one key.
type Hot struct {
	Key string
	// Rate is how often a second it was used lately; AtLeast is less by what may belong to keys that are not remembered any more.
	Rate, AtLeast float64
}

// NewKeys remembers size keys.
func NewKeys(size int, halfLife time.Duration) *Keys {
	return &Keys{size: size, clock: clock{halfLife: halfLife}, at: make(map[string]int, size)}
}

// Add counts a key that stands for so many uses. A key that is not remembered yet is copied.
func (k *Keys) Add(key []byte, uses float64, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	weight, scale := k.clock.at(now)
	if scale != 1 {
		for i := range k.list {
			k.list[i].weight *= scale
			k.list[i].over *= scale
		}
	}
	weight *= uses
	if i, ok := k.at[string(key)]; ok {
		k.list[i].weight += weight
		return
	}
	if len(k.list) < k.size {
		k.at[string(key)] = len(k.list)
		k.list = append(k.list, hot{key: string(key), weight: weight})
		return
	}
	least := 0
	for i := range k.list {
		if k.list[i].weight < k.list[least].weight {
			least = i
		}
	}
	e := &k.list[least]
	delete(k.at, e.key)
	*e = hot{key: string(key), weight: e.weight + weight, over: e.weight}
	k.at[e.key] = least
}

// Top returns the n keys used most, the first of them first.
func (k *Keys) Top(n int, now time.Time) []Hot {
	k.mu.Lock()
	defer k.mu.Unlock()
	rate := k.clock.perSecond(now)
	out := make([]Hot, len(k.list))
	for i, e := range k.list {
		out[i] = Hot{e.key, e.weight * rate, (e.weight - e.over) * rate}
	}
	slices.SortFunc(out, func(a, b Hot) int { return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Key, b.Key)) })
	return out[:min(n, len(out))]
}

// Merge joins what several counters remember of different parts of the same traffic.
func Merge(n int, parts ...[]Hot) []Hot {
	at := map[string]int{}
	var out []Hot
	for _, part := range parts {
		for _, h := range part {
			i, ok := at[h.Key]
			if !ok {
				i = len(out)
				at[h.Key] = i
				out = append(out, Hot{Key: h.Key})
			}
			out[i].Rate, out[i].AtLeast = out[i].Rate+h.Rate, out[i].AtLeast+h.AtLeast
		}
	}
	slices.SortFunc(out, func(a, b Hot) int { return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Key, b.Key)) })
	return out[:min(n, len(out))]
}

// Table counts for each of a fixed number of things.
type Table struct {
	mu      sync.Mutex // guards the following
	clock   clock
	weights []float64
}

// NewTable counts for things 0 to n-1.
func NewTable(n int, halfLife time.Duration) *Table {
	return &Table{clock: clock{halfLife: halfLife}, weights: make([]float64, n)}
}

// Add counts so many uses of thing i.
func (t *Table) Add(i int, uses float64, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	weight, scale := t.clock.at(now)
	if scale != 1 {
		for i := range t.weights {
			t.weights[i] *= scale
		}
	}
	t.weights[i] += weight * uses
}

// Rates returns how often a second each was used lately.
func (t *Table) Rates(now time.Time) []float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	rate := t.clock.perSecond(now)
	out := make([]float64, len(t.weights))
	for i, w := range t.weights {
		out[i] = w * rate
	}
	return out
}
