package mover

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"ringside/ring"
	"ringside/shard"
	"ringside/shard/catalog"
)

// Request is what an operator asks to be moved: what the weights ask for, some vnodes to one shard, or a shard key.
type Request struct {
	To     string    // empty: what the weights ask for
	Vnodes []uint16  // with To, without Key
	Load   []float64 // without To and Key: balance this load of the vnodes, instead of their number
	Fixed  []float64 // with Load: what each shard has besides, in the order of Ring.Shards
	Key    string    // this shard key: to To, by an override; without To its override ends
}

const (
	// partVnodes and partRows bound one part: what is copied, compared and cut over together.
	partVnodes = 16_384
	partRows   = 250_000
)

// estimate is about how much one vnode of a shard holds.
type estimate struct{ rows, bytes float64 }

// flows works out what is to be moved: by source and destination. Least is moved that reaches the weights, exactly (ring.PlanShards). Pure.
func flows(r Ring, want Request) ([]catalog.NewPart, error) {
	if want.Key != "" {
		part, err := keyFlow(r, want)
		return []catalog.NewPart{part}, err
	}
	target := slices.Clone(r.Owners)
	if want.To == "" {
		nodes := make([]ring.Node, len(r.Shards))
		for i, name := range r.Shards {
			nodes[i] = ring.Node{Name: name, Weight: r.Weights[i]}
		}
		var err error
		if want.Load != nil {
			target, err = ring.PlanShardsByLoad(r.Owners, nodes, want.Load, want.Fixed)
		} else {
			target, err = ring.PlanShards(r.Owners, nodes, ring.ShardSalt)
		}
		if err != nil {
			return nil, err
		}
	} else {
		to := slices.Index(r.Shards, want.To)
		switch {
		case to < 0:
			return nil, fmt.Errorf("there is no shard %s", want.To)
		case len(want.Vnodes) == 0:
			return nil, errors.New("no vnodes are named")
		}
		for _, v := range want.Vnodes {
			target[v] = uint16(to)
		}
	}
	type ends struct{ from, to uint16 }
	moved := map[ends][]uint16{}
	for v, from := range r.Owners {
		if from == ring.None {
			return nil, fmt.Errorf("vnode %d is owned by no shard", v)
		}
		if to := target[v]; to != from {
			moved[ends{from, to}] = append(moved[ends{from, to}], uint16(v))
		}
	}
	var out []catalog.NewPart
	for e, vnodes := range moved {
		out = append(out, catalog.NewPart{From: r.Shards[e.from], To: r.Shards[e.to], Vnodes: vnodes})
	}
	slices.SortFunc(out, func(a, b catalog.NewPart) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	return out, nil
}

// keyFlow is flows for a shard key.
func keyFlow(r Ring, want Request) (catalog.NewPart, error) {
	vnode := ring.NewHasher().Vnode([]byte(want.Key))
	at, apart := r.Overrides[want.Key]
	home := r.owner(vnode)
	p := catalog.NewPart{From: at, To: want.To, Vnodes: []uint16{vnode}, Key: want.Key}
	if !apart {
		p.From = home
	}
	switch {
	case p.From == "":
		return p, fmt.Errorf("vnode %d is owned by no shard", vnode)
	case want.To == "" && !apart:
		return p, fmt.Errorf("shard key %s has no override: it is on shard %s, by its vnode %d", shard.QuoteKey(want.Key), home, vnode)
	case want.To == "":
		p.To, p.Clear = home, true
	case !slices.Contains(r.Shards, want.To):
		return p, fmt.Errorf("there is no shard %s", want.To)
	case apart && at == want.To:
		return p, fmt.Errorf("shard key %s is on shard %s already, by an override", shard.QuoteKey(want.Key), at)
	}
	return p, nil
}

// cut divides flows into parts of a bearable size, by what a vnode of each shard holds. Parts of different flows alternate, so that no shard fills up before another one
// empties. Pure.
func cut(flows []catalog.NewPart, holds map[string]estimate) []catalog.NewPart {
	queues := make([][]catalog.NewPart, len(flows))
	longest := 0
	for i, f := range flows {
		if f.Key != "" {
			queues[i], longest = []catalog.NewPart{f}, max(longest, 1)
			continue
		}
		e := holds[f.From]
		size := partVnodes
		if e.rows > 0 {
			size = min(max(int(partRows/e.rows), 1), partVnodes)
		}
		parts := (len(f.Vnodes) + size - 1) / size
		for chunk := range slices.Chunk(f.Vnodes, (len(f.Vnodes)+parts-1)/parts) { // of about one size
			n := float64(len(chunk))
			queues[i] = append(queues[i], catalog.NewPart{From: f.From, To: f.To, Vnodes: chunk, Rows: int64(e.rows * n), Bytes: int64(e.bytes * n)})
		}
		longest = max(longest, len(queues[i]))
	}
	var out []catalog.NewPart
	for n := range longest {
		for _, q := range queues {
			if n < len(q) {
				out = append(out, q[n])
			}
		}
	}
	return out
}
