package membership

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Hint names a topology without carrying it. Hints are ordered by epoch, then digest; the zero Hint stands for none.
type Hint struct {
	Epoch uint64
	// Digest identifies the content: the same for everybody with the same topology. At most 64 bytes count.
	Digest string
}

// Compare orders hints: negative when h is lower than o, 0 when they are equal, positive when h is higher.
func (h Hint) Compare(o Hint) int {
	return cmp.Or(cmp.Compare(h.Epoch, o.Epoch), strings.Compare(h.Digest, o.Digest))
}

func (h Hint) String() string { return fmt.Sprintf("%d/%s", h.Epoch, h.Digest) }

// State is what gossip believes of a sidecar.
type State uint8

// The states. memberlist tells nobody whom it merely suspects: a suspected sidecar is Alive here until it is cleared or Dead.
const (
	Alive State = iota // it answers, or did until moments ago
	Left               // it said goodbye
	Dead               // it stopped answering
)

func (s State) String() string {
	switch s {
	case Alive:
		return "alive"
	case Left:
		return "left"
	case Dead:
		return "dead"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Member is one sidecar as gossip knows it. Members that left or died stay listed for a few minutes.
type Member struct {
	Name string
	Addr string // host:port that it gossips on
	Meta Meta
	Hint Hint // zero when none has been heard from its present process
	// Votes are the names of the cache servers that it cannot use, by its latest word, sorted; they count only while it is Alive. Nil when
	// its present process has said nothing of them, as one of an older version never does; empty when it can use all.
	Votes []string
	// State and Since: what it is and when that was noticed here.
	State State
	Since time.Time
	Self  bool
}
