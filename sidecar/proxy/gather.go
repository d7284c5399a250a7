package proxy

import (
	"errors"

	"ringside/resp"
)

// The parts of an MGET's reply are taken apart while they come. Gathered first, a part of many values would be copied into ever larger
// buffers, then into the join, and be looked through twice: to find its end, and to find those of its values.

// gathered is what one server has said to its part of an MGET.
type gathered struct {
	left   int    // values still to come
	values []byte // as they came, with their framing
	ends   []int  // by value: where it ends in values
}

const (
	// longestPart is how long one part may become, as long as any reply.
	longestPart = resp.DefaultMaxReply
	// mostReserved bounds what is reserved for values that have not come.
	mostReserved = 4 << 20
	// keepParts is how many parts' buffers a worker keeps, keepPart how large one may be. A fresh one costs more than what is written to it:
	// it is cleared, and its pages come one by one.
	keepParts = 4
	keepPart  = 512 << 10
)

var errLongPart = errors.New("the values of one MGET are longer together than a reply may be")

// spareParts are the buffers of parts that are not in use.
type spareParts []gathered

func (s *spareParts) take(p *gathered) {
	if n := len(*s) - 1; n >= 0 {
		p.values, p.ends = (*s)[n].values, (*s)[n].ends
		(*s)[n] = gathered{}
		*s = (*s)[:n]
	}
}

func (s *spareParts) put(parts []gathered) {
	for i := range parts {
		p := &parts[i]
		if size := cap(p.values) + 8*cap(p.ends); size > 0 && size <= keepPart && len(*s) < keepParts {
			*s = append(*s, gathered{values: p.values[:0], ends: p.ends[:0]})
		}
		*p = gathered{}
	}
}

// beginGather begins to take the reply whose first bytes are head apart, and returns the length of its header. 0: it is not a part of an
// MGET's reply, or not what was asked for, or its header is not there as a whole.
func (u *upstream) beginGather(head []byte) int {
	if u.calls.len() == 0 {
		return 0
	}
	c := u.calls.front()
	if c.request == nil || c.request.kind != kindJoin || c.request.join.kind != joinValues {
		return 0
	}
	count, n := resp.ArrayHeader(head)
	if n == 0 || count != c.request.join.parts[c.part].left {
		return 0
	}
	u.gathering = true
	u.worker.spare.take(&c.request.join.parts[c.part])
	u.scanner = resp.Scanner{} // it may have seen a piece of the header
	return n
}

// gather takes the values that have come whole and returns how much of in they are. The call stays in the queue until all are there.
func (u *upstream) gather(in []byte) (int, error) {
	c := *u.calls.front()
	p := &c.request.join.parts[c.part]
	before := len(p.values)
	taken := 0
	if cap(p.ends) < len(p.ends)+p.left {
		p.ends = append(make([]int, 0, len(p.ends)+p.left), p.ends...)
	}
	u.scanner.MaxReply = max(1, longestPart-before) // of the values still to come no single one may be longer than is left
	for p.left > 0 {
		n, err := u.scanner.Next(in[taken:])
		if err != nil {
			return taken, err
		}
		if n == 0 {
			break
		}
		taken += n
		if before+taken > longestPart {
			return taken, errLongPart
		}
		p.ends = append(p.ends, before+taken)
		p.left--
	}
	if before == 0 && taken > 0 && p.left > 0 {
		// Values asked for together are mostly of about the same size.
		all := taken + p.left*(taken/len(p.ends)+1)
		if all = max(taken, min(all+all/16, mostReserved)); cap(p.values) < all {
			p.values = make([]byte, 0, all)
		}
	}
	p.values = append(p.values, in[:taken]...)
	if p.left > 0 {
		return taken, nil
	}
	u.gathering, u.scanner.MaxReply = false, 0
	u.calls.pop()
	u.worker.joinGathered(u, c.request, c.part)
	return taken, nil
}

// joinGathered is told that one part is there as a whole.
func (w *worker) joinGathered(u *upstream, r *request, part int32) {
	j := r.join
	j.waiting--
	w.judge(j, u, part)
	if j.waiting == 0 {
		w.joined(r)
	}
}

// walk goes through the values of a join in the order of its keys.
type walk struct {
	join *join
	key  int
	at   []int // by part: its next value
}

func newWalk(j *join) walk { return walk{join: j, at: make([]int, len(j.parts))} }

// next returns what came for the next key, with its framing; nil if its server was not or could not be asked, which only rows survive.
func (k *walk) next() []byte {
	part := k.join.part[k.key]
	k.key++
	if part == rowKey {
		return nil
	}
	p, i := &k.join.parts[part], k.at[part]
	if i == len(p.ends) {
		return nil
	}
	k.at[part]++
	start := 0
	if i > 0 {
		start = p.ends[i-1]
	}
	return p.values[start:p.ends[i]:p.ends[i]]
}
