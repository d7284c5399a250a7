package ring

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// figure is what placement must reach with so many servers of equal weight (P2; docs/ARCHITECTURE.md has the table), to the last digit
// given. Movement is in units of the least that any balanced scheme could move; collateral is what moves between two servers that stay.
type figure struct {
	servers        int
	worstLoad      float64 // max/mean, never above
	meanLoad       float64 // max/mean, mean over fleets
	meanMoved      float64
	meanCollateral float64
	heirIsNext     float64 // share of a dead server's vnodes that go to their heir
}

var figures = []figure{
	{servers: 3, worstLoad: 1.0500, meanLoad: 1.0050, meanMoved: 1.01, meanCollateral: 0, heirIsNext: 1},
	{servers: 10, worstLoad: 1.0501, meanLoad: 1.0150, meanMoved: 1.01, meanCollateral: 0, heirIsNext: 1},
	{servers: 50, worstLoad: 1.0506, meanLoad: 1.0430, meanMoved: 1.02, meanCollateral: 0.003, heirIsNext: 0.999},
	{servers: 100, worstLoad: 1.0513, meanLoad: 1.0513, meanMoved: 1.02, meanCollateral: 0.015, heirIsNext: 0.995},
}

const lastDigit = 0.00005 // half a unit of the figures' fourth decimal

// maxOverMean returns the load of the fullest server for its weight over the mean load.
func maxOverMean(p *Placement, nodes []Node) float64 {
	worst := 0.0
	for i, n := range p.Counts() { // nodes are sorted by name
		worst = max(worst, float64(n)*float64(totalWeight(nodes))/float64(nodes[i].Weight)/Vnodes)
	}
	return worst
}

// change is a join, a leave or a new weight of one server, and what it moved.
type change struct {
	moved, collateral float64 // in units of the least possible
	lost, inherited   int     // vnodes of a server that left, and those of them that went to the heir
}

// compare finds what moved from one placement to another when only the server called name changed.
func compare(t *testing.T, before, after *Placement, name string, least float64) change {
	t.Helper()
	all := before.Names()
	if len(after.Names()) > len(all) {
		all = after.Names()
	}
	old := mustReindex(t, before.Table(), before.Names(), all)
	now := mustReindex(t, after.Table(), after.Names(), all)
	changed := uint16(slices.Index(all, name))
	var c change
	moved, collateral := 0, 0
	for v := range Vnodes {
		if old[v] == now[v] {
			continue
		}
		moved++
		if old[v] != changed && now[v] != changed {
			collateral++
		}
		if !slices.Contains(after.Names(), name) && old[v] == changed {
			c.lost++
			if heir := before.Heirs(uint16(v), 1)[0]; heir == now[v] {
				c.inherited++
			}
		}
	}
	c.moved, c.collateral = float64(moved)/least, float64(collateral)/least
	return c
}

// typical returns the index of the server whose load is nearest to its fair share. Whoever leaves has to give away what it held, so with
// a random server the figures of movement would mostly show the spread of the loads, which is the business of the figures of balance.
func typical(p *Placement, nodes []Node) int {
	at, least := 0, math.Inf(1)
	for i, n := range p.Counts() {
		fair := Vnodes * float64(nodes[i].Weight) / float64(totalWeight(nodes))
		if off := math.Abs(float64(n)-fair) / fair; off < least {
			at, least = i, off
		}
	}
	return at
}

// changes tries a join, a leave and a doubled weight on one fleet.
func changes(t *testing.T, set string, servers int, most uint32) map[string]change {
	larger := weighted(set, servers+1, most)
	withNewcomer := mustPlace(t, larger, DefaultParams())
	i := typical(withNewcomer, larger)
	newcomer := larger[i]
	nodes := slices.Delete(slices.Clone(larger), i, i+1)
	before := mustPlace(t, nodes, DefaultParams())
	total := float64(totalWeight(nodes))
	out := make(map[string]change)
	w := float64(newcomer.Weight)
	out["join"] = compare(t, before, withNewcomer, newcomer.Name, Vnodes*w/(total+w))

	i = typical(before, nodes)
	w = float64(nodes[i].Weight)
	smaller := mustPlace(t, slices.Delete(slices.Clone(nodes), i, i+1), DefaultParams())
	out["leave"] = compare(t, before, smaller, nodes[i].Name, Vnodes*w/total)

	heavier := slices.Clone(nodes)
	heavier[i].Weight *= 2
	reweighted := mustPlace(t, heavier, DefaultParams())
	out["reweight"] = compare(t, before, reweighted, nodes[i].Name, Vnodes*(2*w/(total+w)-w/total))
	return out
}

func TestFiguresOfBalance(t *testing.T) {
	t.Parallel()
	for _, f := range figures {
		sum := 0.0
		for s := range balanceSets {
			nodes := fleet(fmt.Sprintf("balance%02d", s), f.servers)
			load := maxOverMean(mustPlace(t, nodes, DefaultParams()), nodes)
			if load >= f.worstLoad+lastDigit {
				t.Errorf("%d servers, fleet %d: max/mean %.5f, never above %.4f", f.servers, s, load, f.worstLoad)
			}
			sum += load
		}
		mean := sum / balanceSets
		t.Logf("%d servers: max/mean %.4f", f.servers, mean)
		if mean >= f.meanLoad+lastDigit {
			t.Errorf("%d servers: max/mean is %.4f on average, want at most %.4f", f.servers, mean, f.meanLoad)
		}
	}
}

func TestFiguresOfMovement(t *testing.T) {
	t.Parallel()
	for _, f := range figures {
		sum := make(map[string]change)
		for s := range figureSets {
			for kind, c := range changes(t, fmt.Sprintf("move%02d", s), f.servers, 1) {
				total := sum[kind]
				total.moved += c.moved
				total.collateral += c.collateral
				total.lost += c.lost
				total.inherited += c.inherited
				sum[kind] = total
			}
		}
		for _, kind := range []string{"join", "leave", "reweight"} {
			moved, collateral := sum[kind].moved/figureSets, sum[kind].collateral/figureSets
			t.Logf("%d servers, %s: moved %.4f, collateral %.4f", f.servers, kind, moved, collateral)
			if moved > f.meanMoved {
				t.Errorf("%d servers, %s: moved %.4f, want at most %.2f", f.servers, kind, moved, f.meanMoved)
			}
			if collateral > f.meanCollateral {
				t.Errorf("%d servers, %s: collateral %.4f, want at most %.4f", f.servers, kind, collateral, f.meanCollateral)
			}
		}
		leave := sum["leave"]
		inherited := float64(leave.inherited) / float64(leave.lost)
		t.Logf("%d servers: the heir is next for %.5f", f.servers, inherited)
		if inherited < f.heirIsNext {
			t.Errorf("%d servers: the heir is next for %.5f, want at least %.3f", f.servers, inherited, f.heirIsNext)
		}
	}
}

// TestFiguresOfWeights: unequal weights 1 to 4 keep to each server's own cap and move hardly more. The least possible is a smaller number
// here where a light server changes, so the ratios are a little wider.
func TestFiguresOfWeights(t *testing.T) {
	t.Parallel()
	for _, f := range []struct {
		servers                   int
		meanMoved, meanCollateral float64
	}{
		{3, 1.01, 0}, {10, 1.01, 0}, {50, 1.03, 0.005}, {100, 1.05, 0.03},
	} {
		var moved, collateral float64
		for s := range weightSets {
			set := fmt.Sprintf("weights%02d", s)
			nodes := weighted(set, f.servers, 4)
			total := totalWeight(nodes)
			for i, n := range mustPlace(t, nodes, DefaultParams()).Counts() {
				if limit := loadCap(uint64(nodes[i].Weight), total, 50_000); n > limit {
					t.Errorf("%d servers, fleet %d: %s owns %d vnodes, its cap is %d", f.servers, s, nodes[i].Name, n, limit)
				}
			}
			for _, c := range changes(t, set, f.servers, 4) {
				moved += c.moved / (3 * weightSets)
				collateral += c.collateral / (3 * weightSets)
			}
		}
		t.Logf("%d servers: moved %.4f, collateral %.4f", f.servers, moved, collateral)
		if moved > f.meanMoved || collateral > f.meanCollateral {
			t.Errorf("%d servers: moved %.4f and collateral %.4f, want at most %.2f and %.3f",
				f.servers, moved, collateral, f.meanMoved, f.meanCollateral)
		}
	}
}

// TestFleetsAreIndependent (I6): when a cache server dies, its misses spread over all shards in proportion. The same names in both
// fleets are the hard case: only the salts tell them apart.
func TestFleetsAreIndependent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		caches, shards int
		most           uint32
	}{
		{1, 2, 1}, {2, 2, 1}, {3, 2, 1}, {3, 3, 1}, {10, 2, 1}, {10, 4, 4}, {10, 10, 1}, {40, 3, 3},
	} {
		cacheNodes, shardNodes := fleet("same", c.caches), weighted("same", c.shards, c.most)
		cache := mustPlace(t, cacheNodes, DefaultParams())
		shards := mustPlan(t, nil, shardNodes)
		perCache := make([][]int, c.caches)
		for i := range perCache {
			perCache[i] = make([]int, c.shards)
		}
		for v, shard := range shards {
			perCache[cache.Owner(uint16(v))][shard]++
		}
		held := Counts(shards, c.shards)
		for i, row := range perCache {
			for s, n := range row {
				share := float64(n) / float64(cache.Counts()[i]) / Share(held[s])
				if share > 1.15 || share < 0.85 {
					t.Errorf("%d caches, %d shards: of cache %d, shard %d has %.3f times its share", c.caches, c.shards, i, s, share)
				}
			}
		}
	}
}
