package cache

import (
	"errors"
	"time"

	"ringside/shard"
)

// The decisions of the protocol, pure: no clock, no socket. What is decided on a server stands in scripts.go.

// action is what a reader does next.
type action uint8

const (
	actServe   action = iota + 1 // answer with the entry
	actFill                      // the lease is ours: load and fill
	actBypass                    // load, do not fill
	actWait                      // somebody else fills: ask again in a moment
	actDiscard                   // delete what is there, then ask again
)

// asked is what an ask met, and what the reader has been through.
type asked struct {
	failed     bool      // the server could not be asked, or refused
	missing    bool      // nothing was there: our lease is there now
	kind       EntryKind // else, of what was there
	waited     bool      // the time for waiting is used up
	discarded  bool      // a malformed entry was already discarded by this reader
	uncachable bool      // there is no server to ask
}

// onAsk decides what follows an ask. After a failed ask the lease may be there or come later: its token is never used (I3).
// A lease found is always somebody else's, because every ask has a token of its own.
func onAsk(a asked) action {
	switch {
	case a.failed || a.uncachable:
		return actBypass
	case a.missing:
		return actFill
	}
	switch a.kind {
	case KindValue, KindAbsent:
		return actServe
	case KindLease:
		if a.waited {
			return actBypass
		}
		return actWait
	case KindPoison:
		return actBypass
	}
	if a.discarded || a.waited {
		return actBypass // it comes back: somebody else writes there
	}
	return actDiscard
}

// ending is what a reader does with its lease after the load.
type ending uint8

const (
	endNothing ending = iota // there was no lease
	endFill                  // put the value
	endAbsent                // put the absence
	endCarry                 // put the entry that was taken over
	endRelease               // give the lease back
)

// onLoaded decides what becomes of the lease.
func onLoaded(leased bool, l Loaded, caches, cachesAbsence bool) ending {
	switch {
	case !leased:
		return endNothing
	case l.Err != nil || !l.MayFill:
		return endRelease
	case l.Found && caches:
		return endFill
	case !l.Found && cachesAbsence:
		return endAbsent
	}
	return endRelease
}

// carriedLife is how long an entry that was taken over lives in its new place: as long as it had left, and not longer than is configured now.
// left is negative if it had no end. 0: it is not taken over, because that kind is not cached, or it has ended.
func carriedLife(k EntryKind, left, ttl, negTTL time.Duration) time.Duration {
	var most time.Duration
	switch k {
	case KindValue:
		most = ttl
	case KindAbsent:
		most = negTTL
	}
	if left >= 0 {
		most = min(most, left)
	}
	if most < time.Millisecond {
		return 0
	}
	return most
}

// proves reports whether a lease that was still there at the end shows the value to be fresh as of that end, not only as of the
// load. It does if writers clean this very name, which the shard's view tells: a write acknowledged since the lease was set
// would have taken it away. For an error there is nothing to prove.
func proves(e ending, stillThere bool, l Loaded) bool {
	return e != endNothing && stillThere && l.MayFill && l.Err == nil
}

// serves reports whether what a flight found, fresh as of its step asOf, may be given to a caller that joined when the flight had
// begun joined steps (I5). A caller that joined before the step began came before all that the step may have missed.
func serves(joined, asOf uint64) bool { return joined < asOf }

// aftermath is what a writer does when its transaction has ended.
type aftermath uint8

const (
	afterClean aftermath = iota + 1 // it is committed: clean, then acknowledge
	afterLift                       // nothing was written: lift our poison, readers may fill again
	afterLeave                      // nobody knows: the poison stays until it expires
	afterTry                        // it is committed, and others see to what is left: clean where we have poisoned, and leave it at that
)

// onCommit decides what follows the transaction.
func onCommit(err error) aftermath {
	switch {
	case err == nil:
		return afterClean
	case errors.Is(err, shard.ErrOutcomeUnknown):
		return afterLeave
	case errors.Is(err, ErrRemembered):
		return afterTry
	}
	return afterLift
}
