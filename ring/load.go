package ring

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// loadTolerance is by which part of its fair load a shard may be above or below it before anything is moved: loads are measured, and change by themselves.
const loadTolerance = 0.02

// PlanShardsByLoad is PlanShards by what each vnode costs its shard, such as requests a second, instead of by their number: each shard's target is its
// share of the load by weight. It moves as few vnodes as it can: the heaviest first that fits between the shard that is furthest above its target and the one
// furthest below. A vnode that is heavier than what is to be moved stays: it would only take the heat elsewhere. A shard of weight 0 lets go of everything.
//
// load has one finite number of 0 or more for each vnode, and some above 0; fixed what each shard has besides that cannot be moved, in the order of nodes by name, or nil.
// It fails as PlanShards does besides.
func PlanShardsByLoad(current []uint16, nodes []Node, load, fixed []float64) ([]uint16, error) {
	nodes, err := sorted(nodes)
	if err != nil {
		return nil, fmt.Errorf("shard plan: %w", err)
	}
	total := totalWeight(nodes)
	if total == 0 {
		return nil, errors.New("shard plan: no shard has a weight above 0, so nobody could own the rows")
	}
	if err := checkTable(current, len(nodes)); err != nil {
		return nil, fmt.Errorf("shard plan: %w", err)
	}
	if len(load) != Vnodes {
		return nil, fmt.Errorf("shard plan: loads of %d vnodes instead of %d", len(load), Vnodes)
	}
	if fixed != nil && len(fixed) != len(nodes) {
		return nil, fmt.Errorf("shard plan: fixed loads of %d shards instead of %d", len(fixed), len(nodes))
	}
	var sum float64
	for v, l := range load {
		if !(l >= 0) || math.IsInf(l, 0) {
			return nil, fmt.Errorf("shard plan: the load of vnode %d is %v", v, l)
		}
		sum += l
	}
	if sum == 0 {
		return nil, errors.New("shard plan: no load was seen")
	}
	p := loadPlan{table: slices.Clone(current), load: load, held: make([][]uint16, len(nodes)), have: make([]float64, len(nodes)), want: make([]float64, len(nodes))}
	for i := range fixed {
		p.have[i] = fixed[i]
		sum += fixed[i]
	}
	var homeless []uint16
	for v, owner := range current {
		if owner == None || nodes[owner].Weight == 0 {
			homeless = append(homeless, uint16(v))
			continue
		}
		p.held[owner] = append(p.held[owner], uint16(v))
		p.have[owner] += load[v]
	}
	for i, n := range nodes {
		p.want[i] = sum * float64(n.Weight) / float64(total)
		slices.SortFunc(p.held[i], p.heavier)
	}
	slices.SortFunc(homeless, p.heavier)
	for _, v := range homeless {
		to := -1
		for i, n := range nodes { // the one that is least full for its weight; of equally full ones that with the fewest vnodes
			if n.Weight > 0 && (to < 0 || p.emptier(i, to, nodes, load[v] == 0)) {
				to = i
			}
		}
		p.give(v, to)
	}
	for range 4 * Vnodes { // it ends long before
		if !p.step() {
			break
		}
	}
	return p.table, nil
}

// loadPlan is a plan in the making.
type loadPlan struct {
	table      []uint16
	load       []float64
	held       [][]uint16 // by node, heaviest first
	have, want []float64  // by node
}

func (p *loadPlan) heavier(a, b uint16) int {
	return cmp.Or(cmp.Compare(p.load[b], p.load[a]), cmp.Compare(a, b))
}

// emptier reports whether a is to be given a vnode rather than b; idle: one without load.
func (p *loadPlan) emptier(a, b int, nodes []Node, idle bool) bool {
	byLoad := cmp.Compare(p.have[a]/p.want[a], p.have[b]/p.want[b])
	byCount := cmp.Compare(len(p.held[a])*int(nodes[b].Weight), len(p.held[b])*int(nodes[a].Weight))
	if idle {
		return cmp.Or(byCount, byLoad) < 0
	}
	return cmp.Or(byLoad, byCount) < 0
}

func (p *loadPlan) give(v uint16, to int) {
	p.table[v] = uint16(to)
	p.have[to] += p.load[v]
	at, _ := slices.BinarySearchFunc(p.held[to], v, p.heavier)
	p.held[to] = slices.Insert(p.held[to], at, v)
}

// step moves one vnode; false: nothing is left to do, or nothing helps.
func (p *loadPlan) step() bool {
	from, to := -1, -1
	for i := range p.have {
		if over := p.have[i] - p.want[i]; from < 0 || over > p.have[from]-p.want[from] {
			from = i
		}
		if p.want[i] > 0 && (to < 0 || p.want[i]-p.have[i] > p.want[to]-p.have[to]) {
			to = i
		}
	}
	over, under := p.have[from]-p.want[from], p.want[to]-p.have[to]
	if from == to || over <= loadTolerance*p.want[from] {
		return false
	}
	fits := min(over, under)
	list := p.held[from]
	at, _ := slices.BinarySearchFunc(list, fits, func(v uint16, fits float64) int { return cmp.Compare(fits, p.load[v]) })
	// From here on they fit. If none does, the one before is the lightest, which still helps if both ends are nearer to their targets afterwards.
	if at == len(list) || p.load[list[at]] <= 0 {
		if at--; at < 0 || p.load[list[at]] >= over || p.load[list[at]] >= 2*under {
			return false
		}
	}
	v := list[at]
	p.held[from] = slices.Delete(list, at, at+1)
	p.have[from] -= p.load[v]
	p.give(v, to)
	return true
}
