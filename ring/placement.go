package ring

import (
	"fmt"
	"math/bits"
)

// Placement says which cache server owns each vnode. It is immutable and safe for concurrent use.
type Placement struct {
	names   []string
	table   []uint16
	counts  []int
	bidders *bidders
}

// Place computes the placement of a fleet. The nodes may come in any order: the result depends only on the set of (name, weight),
// the salt and p. It fails on an empty or repeated name, on more than MaxNodes nodes and on parameters that this version cannot do.
//
// Without a node of weight above 0 nobody owns anything, which is not an error: a fleet may be down.
//
// It takes about 10 ms for 10 nodes and is linear in their number: call it when the set changes, not on the way of a request.
func Place(nodes []Node, salt string, p Params) (*Placement, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	nodes, err := sorted(nodes)
	if err != nil {
		return nil, fmt.Errorf("placement: %w", err)
	}
	b := newBidders(nodes, salt)
	total := totalWeight(nodes)
	capacity := make([]int, len(b.list))
	for i, n := range b.list {
		capacity[i] = loadCap(n.weight, total, p.CapPPM)
	}
	table := emptyTable()
	b.assign(table, capacity)
	return &Placement{
		names:   names(nodes),
		table:   table,
		counts:  Counts(table, len(nodes)),
		bidders: b,
	}, nil
}

// loadCap returns ceil(Vnodes * weight/total * (1 + ppm/10^6)).
func loadCap(weight, total uint64, ppm int) int {
	high, low := bits.Mul64(weight<<Bits, uint64(million+ppm))
	quotient, remainder := bits.Div64(high, low, million)
	if remainder > 0 {
		quotient++
	}
	// Rounding up twice, by 10^6 and then by total, is rounding up once by their product.
	return int(min((quotient+total-1)/total, Vnodes))
}

func emptyTable() []uint16 {
	table := make([]uint16, Vnodes)
	for i := range table {
		table[i] = None
	}
	return table
}

// Owner returns the index in Names of the server that owns the vnode, or None.
func (p *Placement) Owner(vnode uint16) uint16 { return p.table[vnode] }

// Table returns the owner of every vnode: Vnodes indexes into Names. It is shared: read it, never write to it.
func (p *Placement) Table() []uint16 { return p.table }

// Names returns the servers, those of weight 0 too, sorted by name. It is shared: read it, never write to it.
func (p *Placement) Names() []string { return p.names }

// Counts returns how many vnodes each server of Names owns. It is shared: read it, never write to it.
func (p *Placement) Counts() []int { return p.counts }
