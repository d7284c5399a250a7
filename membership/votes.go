package membership

import (
	"encoding/binary"
	"slices"
)

// Limits of a sidecar's votes. They lie in its record, which must fit one packet whole, so that everybody hears the same of it.
const (
	maxVotes    = 64
	maxVoteName = 255
	// maxVoteBytes is what the names may take as they travel. 64 names that differ in a number, such as cache-017.prod, take less than 400.
	maxVoteBytes = 700
)

// normalVotes sorts names, leaves out repeated ones and cuts what may not travel: names that are empty or too long, and what is beyond the
// limits in number and bytes, from the end of the order, so that sidecars with the same votes keep the same ones. The result is never nil.
func normalVotes(names []string) (votes []string, cut int) {
	sorted := slices.Compact(slices.Sorted(slices.Values(names)))
	votes = make([]string, 0, len(sorted))
	for _, name := range sorted {
		if name != "" && len(name) <= maxVoteName {
			votes = append(votes, name)
		}
	}
	cut = len(sorted) - len(votes)
	size, last := 0, ""
	for i, name := range votes {
		size += len(appendVote(nil, last, name))
		if i == maxVotes || size > maxVoteBytes {
			return slices.Clone(votes[:i]), cut + len(votes) - i
		}
		last = name
	}
	return votes, cut
}

// appendVotes writes a record's votes:
//
//	uvarint sequence number of the record that they were first said in; 0, and then nothing else, when none were ever said
//	uvarint number of names
//	each name, as what it does not share with the one before it: 1 byte length of the common beginning, 1 byte length of the common
//	end, length (1 byte) and bytes of what is between
func appendVotes(b []byte, r record) []byte {
	b = binary.AppendUvarint(b, r.VotesSeq)
	if r.VotesSeq == 0 {
		return b
	}
	b = binary.AppendUvarint(b, uint64(len(r.Votes)))
	last := ""
	for _, name := range r.Votes {
		b = appendVote(b, last, name)
		last = name
	}
	return b
}

func appendVote(b []byte, last, name string) []byte {
	n := min(len(last), len(name))
	head := 0
	for head < n && last[head] == name[head] {
		head++
	}
	tail := 0
	for tail < n-head && last[len(last)-1-tail] == name[len(name)-1-tail] {
		tail++
	}
	return appendString(append(b, byte(head), byte(tail)), name[head:len(name)-tail])
}

// votes takes a record's votes off the front. A record of a version that knew none ends before them.
func (r *reader) votes(seq uint64) (votes []string, votesSeq uint64) {
	if r.bad || len(r.b) == 0 {
		return nil, 0
	}
	votesSeq = r.uvarint()
	if votesSeq == 0 {
		return nil, 0
	}
	count := r.uvarint()
	if votesSeq > seq || count > maxVotes {
		r.bad = true
		return nil, 0
	}
	votes = make([]string, 0, count)
	before := len(r.b)
	last := ""
	for range count {
		head, tail := int(r.byte()), int(r.byte())
		middle := r.take(int(r.byte()))
		if r.bad || head+tail > len(last) {
			r.bad = true
			return nil, 0
		}
		name := last[:head] + string(middle) + last[len(last)-tail:]
		// In order, so that each list has one encoding and no name counts twice.
		if name <= last || len(name) > maxVoteName {
			r.bad = true
			return nil, 0
		}
		votes, last = append(votes, name), name
	}
	if before-len(r.b) > maxVoteBytes {
		r.bad = true // it could not be passed on
	}
	return votes, votesSeq
}

// SetVotes says which cache servers this sidecar cannot use now; the names replace those given before and are told to the others as a
// hint is. At most 64 names of at most 255 bytes, and 700 bytes of what the sorted names do not share with their neighbours, travel; what
// is beyond is cut and counted. The slice stays the caller's. It never blocks, and costs a comparison when nothing changed. Votes
// given before Run are told when it begins.
func (g *Gossip) SetVotes(names []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	own := g.tab.own()
	if g.stopped || own.VotesSeq != 0 && slices.Equal(names, own.Votes) {
		return
	}
	votes, cut := normalVotes(names)
	if !g.tab.vote(votes) {
		return
	}
	g.met.votesCut.Add(float64(cut))
	g.box.votes = true
	g.wake(g.deliverNow)
	g.pass(g.cfg.Name)
}

func (g *Gossip) countVotes() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.tab.own().Votes)
}
