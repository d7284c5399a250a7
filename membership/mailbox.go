package membership

import (
	"maps"
	"slices"
)

// maxParcels is how many topologies wait for OnTopology, one per sender.
const maxParcels = 8

// parcel is a topology that has arrived, still deflated.
type parcel struct {
	from string
	hint Hint // its sender's, when it was sent
	body []byte
}

// mailbox is what the callbacks are still to be told: the latest of each thing, so a slow callback costs news, never memory.
// Its owner guards it.
type mailbox struct {
	hints   map[string]bool   // whose hint changed; the hint itself is read when it is delivered
	parcels map[string]parcel // by sender
	votes   bool              // somebody's votes changed
	change  bool
}

// put keeps the latest topology of each sender. When too many wait, the one with the lowest hint goes, which may be the new one;
// put reports whether one went.
func (b *mailbox) put(p parcel) (displaced bool) {
	b.parcels[p.from] = p
	if len(b.parcels) <= maxParcels {
		return false
	}
	least := p
	for _, name := range slices.Sorted(maps.Keys(b.parcels)) {
		if q := b.parcels[name]; q.hint.Compare(least.hint) < 0 {
			least = q
		}
	}
	delete(b.parcels, least.from)
	return true
}

// empty takes everything out.
func (b *mailbox) empty() mailbox {
	out := *b
	*b = newMailbox()
	return out
}

func newMailbox() mailbox {
	return mailbox{hints: map[string]bool{}, parcels: map[string]parcel{}}
}
