package membership

// record is the latest that one process has said about itself: the thing that is gossiped.
type record struct {
	Name string
	Boot string // of the process that wrote it
	// Seq rises with every change within one Boot, from 1. 0: no record.
	Seq     uint64
	Leaving bool // the process's last record: it has said goodbye
	Hint    Hint
}

// supersedes reports whether r, heard from a process with the same boot id, is newer than what is known.
func (r record) supersedes(known record) bool {
	return known.Seq == 0 || r.Boot == known.Boot && r.Seq > known.Seq
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
