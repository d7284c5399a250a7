package history

import (
	"fmt"
	"time"
)

// Absent is the value of a register that is not there.
const Absent = ""

// State is what a register was made by one write, in the order of the writes' commits.
type State struct {
	Value string // what reads of it return; Absent: the write deleted it
	Mark  string // what tells its write from others; of several states with one mark any may be meant. Empty: nobody asks for it
}

// Register is what a row went through: its first state, and one for each write that took effect.
type Register struct {
	Name   string
	States []State
}

// Outcome is what the client of an operation was told.
type Outcome uint8

// The outcomes. A read that was not answered says nothing and is no operation.
const (
	Acknowledged Outcome = iota + 1
	Unknown              // of a write: it may have taken effect, and may take effect later
	Refused              // of a write: the client was told that it did not take effect
)

// Op is one operation of a client. Times are of one monotonic clock: Begin is before it was sent, End after it was answered.
type Op struct {
	Begin, End time.Duration
	Write      bool
	Outcome    Outcome
	Value      string // of a read: what it returned
	Mark       string // of a write: that of the state which it made; empty: it cannot be told which that is
	By         int16  // through which sidecar; for messages only
	// Until is, of a write of unknown outcome, the time after which it no longer takes effect, and is seen if it has; 0: no such time is known.
	Until time.Duration
	Weak  bool // it must not be older than others, and nothing is concluded from it: of a read of what others change without the protocol
}

// Kind is what is wrong with an operation.
type Kind uint8

// The kinds.
const (
	Stale    Kind = iota + 1 // a read returned an older value than that of a write acknowledged before it began
	Back                     // a read returned an older value than a read that had ended before it began
	Future                   // a value was read, or a write overtaken, before the write that made it began
	Invented                 // a read returned what was never written
	Lost                     // an acknowledged write never took effect
	Denied                   // a refused write took effect
)

func (k Kind) String() string {
	switch k {
	case Stale:
		return "stale"
	case Back:
		return "back"
	case Future:
		return "from the future"
	case Invented:
		return "invented"
	case Lost:
		return "lost"
	case Denied:
		return "refused and written"
	}
	return "fine"
}

// Violation is an operation that cannot be explained.
type Violation struct {
	Register string
	Kind     Kind
	Op       Op
	Version  int // of Op; -1: it has none
	Floor    int // the version that it should at least have had
	Because  Op  // the operation that shows it; zero for Invented, Lost and Denied
}

func (v Violation) String() string {
	s := fmt.Sprintf("%s: %v: %v", v.Register, v.Kind, v.Op)
	if v.Version >= 0 {
		s += fmt.Sprintf(" (version %d)", v.Version)
	}
	if v.Because != (Op{}) {
		s += fmt.Sprintf("; version %d was known by %v", v.Floor, v.Because)
	}
	return s
}

func (o Op) String() string {
	what := fmt.Sprintf("read of %q", o.Value)
	if o.Write {
		what = fmt.Sprintf("write %q", o.Mark)
	}
	return fmt.Sprintf("%s through %d from %v to %v", what, o.By, o.Begin.Round(time.Microsecond), o.End.Round(time.Microsecond))
}
