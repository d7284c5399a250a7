package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"time"

	"ringside/ring"
	"ringside/ring/simulate"
)

type simulateCmd struct {
	Servers int      `default:"10" help:"Cache servers before the change."`
	Weights []uint32 `help:"Their weights, in turn; used again from the first when there are fewer than servers." placeholder:"W,..."`
	Keys    int      `default:"100000" help:"Keys to place."`
	JSON    bool     `name:"json" help:"Print the result as JSON."`
}

// Help is shown by ringside simulate --help.
func (c *simulateCmd) Help() string {
	return `Shows on paper what a join, a leave and a doubled weight move, next to other schemes; nothing is contacted or changed.
MOVED and COLLATERAL are shares of all keys, COLLATERAL those that move between two servers that the change is not about;
BALANCE is the fullest server's load relative to its fair share.

Example: ringside simulate --servers 50 --weights 1,1,2`
}

// simulation is the output of --json.
type simulation struct {
	Servers  int               `json:"servers"`
	Weights  []uint32          `json:"weights"`
	Keys     int               `json:"keys"`
	Results  []simulate.Result `json:"results"`
	Exercise simulate.Exercise `json:"exercise"`
	Large    largePlacement    `json:"large"`
}

// largePlacement is what it takes to place a large fleet.
type largePlacement struct {
	Servers int     `json:"servers"`
	Seconds float64 `json:"seconds"`
	Bytes   uint64  `json:"bytes"` // allocated while placing, most of it let go afterwards
	Balance float64 `json:"balance"`
}

const (
	largeFleet    = 1000
	maxSimulated  = 10_000
	maxKeys       = 10_000_000
	maxSimWeights = 1000
)

// Run works it out.
func (c *simulateCmd) Run(env *environment) error {
	switch {
	case c.Servers < 1 || c.Servers > maxSimulated:
		return misusef("--servers is %d; allowed are 1 to %d", c.Servers, maxSimulated)
	case c.Keys < 1 || c.Keys > maxKeys:
		return misusef("--keys is %d; allowed are 1 to %d", c.Keys, maxKeys)
	}
	for _, w := range c.Weights {
		if w > maxSimWeights {
			return misusef("--weights has %d; allowed are 0 to %d", w, maxSimWeights)
		}
	}
	if len(c.Weights) > 0 && !slices.ContainsFunc(c.Weights, func(w uint32) bool { return w > 0 }) {
		return misusef("--weights has nothing but 0: some server must own something")
	}
	result := simulation{Servers: c.Servers, Weights: c.Weights, Keys: c.Keys, Exercise: simulate.RunExercise()}
	if result.Weights == nil {
		result.Weights = []uint32{1}
	}
	keys := simulate.Keys(c.Keys)
	for _, change := range simulate.Changes(simulate.Fleet(c.Servers, c.Weights)) {
		for _, scheme := range simulate.Schemes() {
			r, err := simulate.Compare(scheme, change, keys)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", change.Name, scheme.Name, err)
			}
			result.Results = append(result.Results, r)
		}
	}
	var err error
	if result.Large, err = placeLarge(); err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(env.stdout).Encode(result)
	}
	return result.print(env)
}

// placeLarge times the placement of a large fleet.
func placeLarge() (largePlacement, error) {
	fleet := simulate.Fleet(largeFleet, nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begun := time.Now()
	p, err := ring.Place(fleet, ring.CacheSalt, ring.DefaultParams())
	if err != nil {
		return largePlacement{}, err
	}
	took := time.Since(begun)
	runtime.ReadMemStats(&after)
	fullest := 0
	for _, n := range p.Counts() {
		fullest = max(fullest, n)
	}
	return largePlacement{
		Servers: largeFleet, Seconds: took.Seconds(), Bytes: after.TotalAlloc - before.TotalAlloc,
		Balance: float64(fullest) * largeFleet / ring.Vnodes,
	}, nil
}

func (s *simulation) print(env *environment) error {
	t := &table{heading: []string{"CHANGE", "SCHEME", "MOVED", "LEAST POSSIBLE", "COLLATERAL", "BALANCE"}}
	for _, r := range s.Results {
		t.add(r.Change, r.Scheme, percent(r.Moved), percent(r.Least), percent(r.Collateral), fmt.Sprintf("%.3f", r.Balance))
	}
	if _, err := fmt.Fprintf(env.stdout, "%d servers, %d keys\n\n", s.Servers, s.Keys); err != nil {
		return err
	}
	if err := t.writeTo(env.stdout); err != nil {
		return err
	}
	e, l := s.Exercise, s.Large
	share := func(n int) string { return percent(float64(n) / float64(e.IDs)) }
	_, err := fmt.Fprintf(env.stdout, `
The known exercise: %d ids by crc32, 2 servers become 3.
  modulo moves %d (%s); 16 buckets, of which 6 move: %d (%s); the least possible is %s.

%d cache servers are placed in %.0f ms (%.1f MiB allocated); the fullest has %.3f of its fair share.
`, e.IDs, e.Modulo, share(e.Modulo), e.Buckets, share(e.Buckets), percent(1.0/3), l.Servers, l.Seconds*1000, float64(l.Bytes)/(1<<20), l.Balance)
	return err
}
