package shard

import (
	"errors"
	"fmt"
)

// MoveState is where one part of a move, a set of vnodes or one shard key that go together from one shard to another, stands on one of the two. It is the state
// of each of those vnodes, or of the key, there.
type MoveState string

// The states. Of the source: owned, frozen, closed, moved, gone; of the destination: incoming, owned or cancelled, gone.
const (
	MoveNone      MoveState = ""          // the shard has not heard of it
	MoveOwned     MoveState = "owned"     // reads and writes
	MoveIncoming  MoveState = "incoming"  // rows arrive; nobody else may read or write them
	MoveFrozen    MoveState = "frozen"    // reads only
	MoveClosed    MoveState = "closed"    // neither; about to be handed over
	MoveMoved     MoveState = "moved"     // the other shard owns them
	MoveCancelled MoveState = "cancelled" // they will not come
	MoveGone      MoveState = "gone"      // it has ended here, and left nothing behind
)

// MoveRow is what a shard keeps of a part. It changes only by After, in a transaction that holds it locked.
type MoveRow struct {
	State MoveState
	// Token is that of the driver that may act; it only rises.
	Token uint64
	// Capture, of the source: changes of the vnodes' rows are noted.
	Capture bool
	// Copied, of the destination: every row has been copied once.
	Copied bool
}

// MoveStep is one step of the driver of a move. Those that change a shard do so in one transaction there.
type MoveStep uint8

// The steps, in the order of a move that goes well; then those of one that is called off.
const (
	MoveWait    MoveStep = iota // look again in a moment
	MoveClaimTo                 // destination: only this driver may act from now on
	MoveClaimFrom
	MoveExpect  // destination: incoming
	MoveEnlist  // source: the part is known; nothing changes yet
	MoveCapture // source: every change is noted from now on, none before it is under way
	MoveCopy    // copy all rows
	MoveCopied  // destination: they are
	MoveCatchUp // apply what was noted until little is left
	MoveCompare // compare all rows, while writes go on
	MoveHold    // both: the view stays as it is until the cut-over is over
	MoveFreeze  // source: no writes, and none is under way
	MoveSettle  // apply the last of what was noted, and compare what has changed since MoveCompare
	MoveClose   // source: no reads either
	MoveCommit  // destination: owned. The commit point
	MoveGive    // source: moved
	MovePublish // the shard map says so
	MoveRelease // views may change again: first the source's, and when nobody can be using the former map, the destination's
	MoveClean   // source: the rows are deleted, gone
	MoveForget  // destination: gone; the vnodes are its own like any other

	MoveThaw    // source: owned again; the cut-over is tried later
	MoveCancel  // destination: cancelled
	MoveRestore // source: gone; the vnodes are its own like any other. No write whose change is noted is under way
	MoveWipe    // destination: the rows are deleted, gone
	MoveDone    // nothing is left to do
	MoveStuck   // the two shards contradict each other: an operator must look

	moveSteps // how many there are
)

var moveStepNames = [moveSteps]string{
	"wait", "claim destination", "claim source", "expect", "enlist", "capture", "copy", "copied", "catch up", "compare", "hold", "freeze", "settle", "close",
	"commit", "give", "publish", "release", "clean", "forget", "thaw", "cancel", "restore", "wipe", "done", "stuck",
}

func (s MoveStep) String() string {
	if s < moveSteps {
		return moveStepNames[s]
	}
	return fmt.Sprintf("step(%d)", uint8(s))
}

// MoveSight is what a driver sees of a part, and what it knows by itself. A driver that takes over knows nothing.
type MoveSight struct {
	From, To MoveRow // source and destination, looked at by this driver
	Token    uint64  // this driver's
	Cancel   bool    // the move is to be called off, if it still can be
	// Behind: much of what was noted has not been applied.
	Behind bool
	// Compared: this driver has compared all rows since they were copied, and remembers what changed after that.
	Compared bool
	// Ready: both shards are at the same view, in phase Done, of the present topology, and it is not too soon for another attempt.
	Ready bool
	Held  bool // this driver has made both shards keep their view
	// Settled: this driver has frozen the source, then found nothing noted that is not applied, and compared what had changed.
	Settled bool
	// Late: the source has taken no writes for as long as is allowed.
	Late bool
	// Published: the shard map gives the vnodes to the destination.
	Published bool
	// Released: nobody can be using the former map, and both views may change.
	Released bool
	// Aged: the time is over for which the source keeps the rows.
	Aged bool
}

// NextMoveStep decides what the driver of a part does next. Pure.
//
// The destination's row is the only record of the commit: before it is owned the move can be called off, by that same row, and after it the move only
// goes forward. Whoever takes over claims the destination first, so that nobody else can commit, then the source; a cut-over that it finds begun it undoes,
// since it cannot know whether the source's last changes have been applied and compared.
func NextMoveStep(s MoveSight) MoveStep {
	switch {
	case s.To.State == MoveGone && s.From.State == MoveGone:
		return MoveDone
	case s.To.Token > s.Token || s.From.Token > s.Token:
		return MoveWait // another driver has taken over
	case s.To.Token < s.Token:
		return MoveClaimTo
	case s.From.Token < s.Token:
		return MoveClaimFrom
	case s.To.State == MoveOwned:
		return forward(s)
	case s.To.State == MoveGone:
		return MoveStuck
	case s.Cancel || s.To.State == MoveCancelled:
		return backward(s)
	case s.To.State == MoveNone:
		return MoveExpect
	}
	switch s.From.State {
	case MoveNone:
		return MoveEnlist
	case MoveOwned:
		return approach(s)
	case MoveFrozen:
		switch {
		case !s.Compared || !s.Held || s.Late:
			return MoveThaw
		case !s.Settled:
			return MoveSettle
		}
		return MoveClose
	case MoveClosed:
		if !s.Settled {
			return MoveThaw
		}
		return MoveCommit
	}
	return MoveStuck
}

// NextHomeStep decides what the driver of a part does next that lets a shard key's override begin or end to name the shard that has it already: nothing is copied,
// and the key is the shard's all the time. Pure.
func NextHomeStep(row MoveRow, token uint64, cancel, published bool) MoveStep {
	switch {
	case row.State == MoveGone:
		return MoveDone
	case row.Token > token:
		return MoveWait
	case row.Token < token:
		return MoveClaimFrom
	case row.State == MoveNone && cancel:
		return MoveRestore
	case row.State == MoveNone:
		return MoveEnlist // nobody else moves the key, or its vnode, from now on
	case row.State == MoveOwned && !published:
		return MovePublish
	case row.State == MoveOwned:
		return MoveRestore
	}
	return MoveStuck
}

// approach goes towards the cut-over, while the source serves.
func approach(s MoveSight) MoveStep {
	switch {
	case !s.From.Capture:
		return MoveCapture
	case !s.To.Copied:
		return MoveCopy
	case s.Behind:
		return MoveCatchUp
	case !s.Compared:
		return MoveCompare
	case !s.Ready:
		return MoveWait
	case !s.Held:
		return MoveHold
	}
	return MoveFreeze
}

// forward finishes what is committed.
func forward(s MoveSight) MoveStep {
	switch s.From.State {
	case MoveClosed:
		return MoveGive
	case MoveMoved:
		switch {
		case !s.Published:
			return MovePublish
		case !s.Released:
			return MoveRelease
		case !s.Aged:
			return MoveWait
		}
		return MoveClean
	case MoveGone:
		return MoveForget
	}
	return MoveStuck
}

// backward undoes what is not committed.
func backward(s MoveSight) MoveStep {
	switch {
	case s.To.State != MoveCancelled:
		return MoveCancel
	case s.From.State != MoveGone:
		return MoveRestore
	}
	return MoveWipe
}

// Refusals of After.
var (
	// ErrMoveTaken: another driver has taken over.
	ErrMoveTaken = errors.New("another driver has taken over the move")
	// ErrMoveState: the shard is not in a state that allows the step. Look again.
	ErrMoveState = errors.New("the state of the move has changed")
)

// After returns a shard's row after a step of the driver with that token, or refuses. It is what makes a step of a driver that was thought dead
// harmless, however late it comes. Steps that leave the row as it is need its leave too. Pure.
func (r MoveRow) After(step MoveStep, token uint64) (MoveRow, error) {
	if step == MoveClaimTo || step == MoveClaimFrom {
		if token <= r.Token {
			return r, ErrMoveTaken
		}
		r.Token = token
		return r, nil
	}
	if r.Token != token {
		return r, ErrMoveTaken
	}
	to, ok := r.State, false
	switch step {
	case MoveExpect:
		to, ok = MoveIncoming, r.State == MoveNone
	case MoveCopy, MoveSettle, MoveCatchUp, MoveCompare:
		ok = r.State == MoveIncoming
	case MoveHold:
		ok = r.State == MoveIncoming || r.State == MoveOwned && r.Capture
	case MoveRelease:
		ok = r.State == MoveOwned || r.State == MoveMoved
	case MoveCopied:
		ok = r.State == MoveIncoming
		r.Copied = r.Copied || ok
	case MoveCommit:
		to, ok = MoveOwned, r.State == MoveIncoming && r.Copied
	case MoveForget:
		to, ok = MoveGone, r.State == MoveOwned
	case MoveCancel:
		to, ok = MoveCancelled, r.State == MoveNone || r.State == MoveIncoming || r.State == MoveCancelled
	case MoveWipe:
		to, ok = MoveGone, r.State == MoveCancelled

	case MoveEnlist:
		to, ok = MoveOwned, r.State == MoveNone
	case MoveCapture:
		ok = r.State == MoveOwned
		r.Capture = r.Capture || ok
	case MoveFreeze:
		to, ok = MoveFrozen, r.State == MoveOwned && r.Capture
	case MoveThaw:
		to, ok = MoveOwned, r.State == MoveFrozen || r.State == MoveClosed
	case MoveClose:
		to, ok = MoveClosed, r.State == MoveFrozen
	case MoveGive:
		to, ok = MoveMoved, r.State == MoveClosed
	case MoveClean:
		to, ok = MoveGone, r.State == MoveMoved
	case MoveRestore:
		to, ok = MoveGone, r.State == MoveNone || r.State == MoveOwned || r.State == MoveFrozen || r.State == MoveClosed
	}
	if !ok {
		return r, fmt.Errorf("%w: it is %q, which does not allow %q", ErrMoveState, r.State, step)
	}
	r.State = to
	if to == MoveGone {
		r.Capture = false
	}
	return r, nil
}

// Applied is the leave to strike changes of the source's log that the driver with that token has applied.
func (r MoveRow) Applied(token uint64) error {
	if r.Token != token {
		return ErrMoveTaken
	}
	return nil
}
