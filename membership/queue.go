package membership

import (
	"cmp"
	"math"
	"slices"
)

// queue holds whose latest record is still to be gossiped, and how often it has been. It replaces memberlist's own queue, which loses
// one of two messages of equal length when it runs empty between them, as records of fixed size do all the time. Here a newer
// record of a sidecar replaces its older one, nothing else is ever displaced, and the bytes are made when they are asked for.
// Its owner guards it.
type queue struct {
	sent map[string]int // by name: in how many packets so far
}

// add queues a sidecar's present record as if it had never been sent.
func (q *queue) add(name string) { q.sent[name] = 0 }

func (q *queue) drop(name string) { delete(q.sent, name) }

// take returns a message of at most limit bytes with the records sent least so far, nil when there is none to send, and counts
// them as sent once more. A record leaves the queue after `times` packets.
func (q *queue) take(limit, times int, lookup func(name string) (record, bool)) []byte {
	if len(q.sent) == 0 {
		return nil
	}
	var records []record
	for name := range q.sent {
		r, ok := lookup(name)
		if !ok {
			delete(q.sent, name)
			continue
		}
		records = append(records, r)
	}
	// Ties stay in the map's random order, so that not everybody sends the same records first.
	slices.SortStableFunc(records, func(a, b record) int { return cmp.Compare(q.sent[a.Name], q.sent[b.Name]) })
	msg, taken := encodeHints(records, limit)
	for _, r := range taken {
		q.sent[r.Name]++
		if q.sent[r.Name] >= times {
			delete(q.sent, r.Name)
		}
	}
	return msg
}

// transmissions is how many packets carry a record in a cluster of n sidecars: memberlist's own formula, with its default factor.
func transmissions(n int) int {
	return 4 * max(1, int(math.Ceil(math.Log10(float64(n+1)))))
}
