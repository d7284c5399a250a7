package handover

// op is what a carrier does next with one key: one atomic command or script on one server.
type op uint8

const (
	opLease   op = iota // new owner: a lease of ours, if nobody has one
	opDump              // former owner: the value and its life
	opRestore           // new owner: put the value there, if our lease is still there and the key is not
	opRemove            // former owner: remove the key
	opRelease           // new owner: remove the lease, whoever has it
	opEnd
)

var opNames = [...]string{opLease: "lease", opDump: "dump", opRestore: "restore", opRemove: "remove", opRelease: "release", opEnd: "end"}

func (o op) String() string { return opNames[o] }

// answer is what a server said to an op.
type answer uint8

const (
	answerDone    answer = iota
	answerTaken          // lease: another carrier has one
	answerAbsent         // dump: nothing is there
	answerUnfit          // dump, restore: too big, or of a format that the new owner does not know
	answerLater          // dump: the batch was full
	answerThere          // restore: the key is there already
	answerLost           // restore: our lease is gone
	answerRefused        // restore: the new owner cannot take it now
	answerStale          // the server's marker does not allow it
)

// end is how a carrier's work on a key ended.
type end uint8

const (
	endSettled end = iota // the former owner does not have the key, and no carrier can put it on the new one any more
	endDropped            // likewise, and it was not carried
	endAgain              // another carrier has, or had, the lease
	endStale              // the marker does not allow it: the topology has changed, or is about to
	endRefused            // the new owner cannot take it
	endMoved              // it is not handed over like that
)

// progress is how far a carrier is with one key. The zero value is the beginning; next is opEnd at the end.
type progress struct {
	next op
	end  end
}

// hear returns what follows from the answer to p.next. It is all that decides about a carried key (see Why it is safe, in doc.go).
func (p progress) hear(a answer) progress {
	switch p.next {
	case opLease:
		if a == answerTaken {
			return progress{opEnd, endAgain}
		}
		return progress{opDump, p.end}
	case opDump:
		switch a {
		case answerDone:
			return progress{opRestore, p.end}
		case answerAbsent:
			return progress{opRelease, endSettled}
		case answerUnfit:
			return progress{opRemove, endDropped}
		case answerStale:
			return progress{opRelease, endStale}
		}
		return p // later
	case opRestore:
		switch a {
		case answerDone, answerThere:
			return progress{opRemove, endSettled}
		case answerUnfit:
			return progress{opRemove, endDropped}
		case answerRefused:
			return progress{opRelease, endRefused}
		case answerStale:
			return progress{opRelease, endStale}
		}
		return progress{opEnd, endAgain} // lost
	case opRemove:
		if a == answerStale {
			return progress{opRelease, endStale}
		}
		return progress{opRelease, p.end}
	}
	return progress{opEnd, p.end}
}
