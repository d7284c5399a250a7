package membership

// record is the latest that one process has said about itself: the thing that is gossiped.
type record struct {
	Name string
	Boot string // of the process that wrote it
	// Seq rises with every change within one Boot, from 1. 0: no record.
	Seq     uint64
	Leaving bool // the process's last record: it has said goodbye
	Hint    Hint
	// Votes are sorted, and never changed in place. VotesSeq is the Seq in which they were first said, 0 when none have been: a sidecar
	// of a version without votes passes on records without them, so they have an age of their own.
	Votes    []string
	VotesSeq uint64
}

// merge adds to what is known of a process what r, of the same process, says that is newer, and reports whether there was any. The votes
// are merged by their own age (invariant I4). With nothing known r is all.
func (known record) merge(r record) (merged record, news bool) {
	switch {
	case known.Seq == 0:
		return r, true
	case r.Boot != known.Boot:
		return known, false
	}
	merged = known
	if r.Seq > known.Seq {
		merged, news = r, true
		merged.Votes, merged.VotesSeq = known.Votes, known.VotesSeq
	}
	if r.VotesSeq > known.VotesSeq {
		merged.Votes, merged.VotesSeq, news = r.Votes, r.VotesSeq, true
	}
	return merged, news
}

// relation is how a peer's topology stands to ours.
type relation uint8

const (
	unheard relation = iota // the peer has not said what it has
	same
	lower   // the peer's epoch is older
	differs // same epoch, other content: one of the two is wrong, and both must hear of it
	higher  // the peer's epoch is newer
)

func relate(own Hint, peer record) relation {
	switch {
	case peer.Seq == 0:
		return unheard
	case peer.Hint == own:
		return same
	case peer.Hint.Epoch < own.Epoch:
		return lower
	case peer.Hint.Epoch > own.Epoch:
		return higher
	}
	return differs
}
