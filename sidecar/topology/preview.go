package topology

import (
	"fmt"
	"slices"
	"strings"

	"ringside/ring"
)

// Fleet is one of the two.
type Fleet string

// The fleets.
const (
	CacheFleet Fleet = "cache"
	ShardFleet Fleet = "shard"
)

// ProposalVerb is what a Proposal would do.
type ProposalVerb string

// The verbs of proposals.
const (
	ProposeAdd   ProposalVerb = "add"   // a server that is not there, or that is joining
	ProposeDrain ProposalVerb = "drain" // a shard is drained by the weight 0
	ProposeWeigh ProposalVerb = "weigh"
)

// Proposal is a change that somebody thinks about.
type Proposal struct {
	Fleet  Fleet
	Verb   ProposalVerb
	Name   string
	Weight *uint32 // of ProposeAdd: nil is what a joining server has, else 1. ProposeWeigh needs it
}

// Outlook is what a proposal would come to.
type Outlook struct {
	Servers []Prospect // as they would be, and those that would be gone, sorted by name
	Moved   int        // vnodes whose owner would be another
	// Collateral are those of them that go from one server to another although the proposal is about neither.
	Collateral int
	Moving     [ring.Vnodes / 8]byte // bit v%8 of byte v/8: vnode v would move
	Wait       string                // why the change would be refused at this moment, though not for good; empty: it would not
}

// Prospect is what an Outlook holds for one server.
type Prospect struct {
	Name                      string
	WeightBefore, WeightAfter uint32 // by which it would be given vnodes: 0 while it is not active
	VnodesBefore, VnodesAfter int
	Gained, Lost              int // vnodes; after = before + gained - lost
	Proposed, Existed         bool
}

// Preview works out what a proposal would move, as the change itself would. The error is a *Refusal where the change makes no sense. It is pure, and about as
// dear as the placement: see ring.Place.
func (t *Topology) Preview(p Proposal) (*Outlook, error) {
	if p.Verb == ProposeWeigh && p.Weight == nil {
		return nil, refuse("which weight is meant?")
	}
	switch p.Fleet {
	case CacheFleet:
		return t.previewCaches(p)
	case ShardFleet:
		return t.previewShards(p)
	}
	return nil, refuse("fleet is %q: it must be cache or shard", p.Fleet)
}

func (t *Topology) previewCaches(p Proposal) (*Outlook, error) {
	caches := slices.Clone(t.Caches)
	i := t.CacheIndex(p.Name)
	if i < 0 && p.Verb != ProposeAdd {
		return nil, unknownCache(p.Name)
	}
	switch p.Verb {
	case ProposeAdd:
		switch {
		case i < 0:
			caches, i = append(caches, Cache{Name: p.Name, Weight: 1}), len(caches)
		case caches[i].State != Joining:
			return nil, refuse("there is a cache server %s already (%s)", p.Name, caches[i].State)
		}
		caches[i].State = Active
	case ProposeDrain:
		switch caches[i].State {
		case Joining:
			return nil, refuse("cache server %s is still joining and owns nothing", p.Name)
		case Active:
			if err := t.othersServe(p.Name); err != nil {
				return nil, err
			}
		}
		caches[i].State = Draining
	case ProposeWeigh:
		if caches[i].State == Draining && caches[i].RunID != "" {
			caches[i].State = Active
		}
		if *p.Weight == 0 && caches[i].State == Active {
			if err := t.othersServe(p.Name); err != nil {
				return nil, err
			}
		}
	default:
		return nil, refuse("%q is no change of a cache server", p.Verb)
	}
	if p.Weight != nil {
		caches[i].Weight = *p.Weight
	}
	nodes := nodesOf(caches)
	placement, err := ring.Place(nodes, ring.CacheSalt, t.Params)
	if err != nil {
		return nil, fmt.Errorf("preview: %w", err)
	}
	before, err := ring.Reindex(t.cacheOf, t.placement.Names(), placement.Names())
	if err != nil {
		return nil, fmt.Errorf("preview: %w", err)
	}
	o := newOutlook(p.Name, nodesOf(t.Caches), nodes, before, placement.Table())
	if err := t.settledFirst(); err != nil {
		o.Wait = err.Error()
	}
	return o, nil
}

func (t *Topology) previewShards(p Proposal) (*Outlook, error) {
	now := make([]ring.Node, len(t.Shards))
	names := make([]string, len(t.Shards))
	for i, s := range t.Shards {
		now[i], names[i] = ring.Node{Name: s.Name, Weight: s.Weight}, s.Name
	}
	nodes := slices.Clone(now)
	i := t.ShardIndex(p.Name)
	switch {
	case len(now) == 0:
		return nil, refuse("this cluster has no shards: it was begun without")
	case i < 0 && p.Verb != ProposeAdd:
		return nil, &Refusal{Unknown: true, Reason: fmt.Sprintf("there is no shard %s", p.Name)}
	}
	switch p.Verb {
	case ProposeAdd:
		if i >= 0 {
			return nil, refuse("there is a shard %s already", p.Name)
		}
		nodes, i = append(nodes, ring.Node{Name: p.Name, Weight: 1}), len(nodes)
		if p.Weight != nil {
			nodes[i].Weight = *p.Weight
		}
	case ProposeDrain:
		nodes[i].Weight = 0
	case ProposeWeigh:
		nodes[i].Weight = *p.Weight
	default:
		return nil, refuse("%q is no change of a shard", p.Verb)
	}
	if !slices.ContainsFunc(nodes, func(n ring.Node) bool { return n.Weight > 0 }) {
		return nil, refuse("shard %s is the last one with a weight: nobody could own its rows", p.Name)
	}
	slices.SortFunc(nodes, func(a, b ring.Node) int { return strings.Compare(a.Name, b.Name) })
	after := make([]string, len(nodes))
	for i, n := range nodes {
		after[i] = n.Name
	}
	before, err := ring.Reindex(t.shardOf, names, after)
	if err != nil {
		return nil, fmt.Errorf("preview: %w", err)
	}
	table, err := ring.PlanShards(before, nodes, ring.ShardSalt)
	if err != nil {
		return nil, fmt.Errorf("preview: %w", err)
	}
	return newOutlook(p.Name, now, nodes, before, table), nil
}

// newOutlook compares two tables of indexes into the nodes of after, sorted by name.
func newOutlook(name string, now, after []ring.Node, before, table []uint16) *Outlook {
	after = slices.Clone(after)
	slices.SortFunc(after, func(a, b ring.Node) int { return strings.Compare(a.Name, b.Name) })
	o := &Outlook{Servers: make([]Prospect, len(after))}
	had, has := ring.Counts(before, len(after)), ring.Counts(table, len(after))
	for i, n := range after {
		o.Servers[i] = Prospect{Name: n.Name, WeightAfter: n.Weight, VnodesBefore: had[i], VnodesAfter: has[i], Proposed: n.Name == name}
		if at := slices.IndexFunc(now, func(was ring.Node) bool { return was.Name == n.Name }); at >= 0 {
			o.Servers[i].WeightBefore, o.Servers[i].Existed = now[at].Weight, true
		}
	}
	for v, from := range before {
		to := table[v]
		if from == to {
			continue
		}
		o.Moved++
		o.Moving[v/8] |= 1 << (v % 8)
		concerned := false
		if from != ring.None {
			o.Servers[from].Lost++
			concerned = o.Servers[from].Proposed
		}
		if to != ring.None {
			o.Servers[to].Gained++
			concerned = concerned || o.Servers[to].Proposed
		}
		if !concerned {
			o.Collateral++
		}
	}
	return o
}
