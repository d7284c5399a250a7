// Package membership finds the other sidecars and keeps them told: who is alive, which topology each of them has, which cache servers
// each of them cannot use, and the topology itself for those that lack it.
//
// It wraps hashicorp/memberlist, which nothing else in ringside may import, and promises:
//
//	P1 (its part)  Everybody ends with the same topology: a sidecar with an older or another one than its peer is sent the
//	               peer's, or asks for it, until their hints agree. Which of two counts is not decided here (the catalog or the
//	               order of hints does, in the composition).
//	P6 (its part)  Everything is bounded: one record per sidecar in the broadcast queue, one waiting send per peer, one waiting
//	               callback per peer and kind, messages and state by size, members that are gone by age and number.
//
// Bytes, not maps, are gossiped. Each sidecar has one small record (name, boot id, sequence number, hint, votes); the latest one of each
// sidecar is passed on eagerly to a few random peers, then a bounded number of times in memberlist's packets, and lies in every
// push/pull. The whole topology goes only over a stream, only to a peer whose hint shows that it lacks it.
//
// How a record travels, and what comes of it:
//
//	SetHint, SetVotes
//	   └──────> own record, seq+1 ──> 3 random peers at once, then gossip packets, then every push/pull
//	                                        │
//	   peer: newer than what it knows? ── no: dropped
//	          │ yes
//	          ├──> passed on likewise        ├──> OnHint, OnVotes
//	          └──> compared with its own hint: higher: Request that peer's topology (one question at a time)
//	                                           lower, or same epoch and other digest: send ours (after a grace, few at a time)
//
// Invariants
//
//	I1  No method of memberlist is called with mu held, nor from a delegate. Delegates run under memberlist's locks: they take mu
//	    for a moment, change maps, wake a goroutine and return. Lock order: memberlist's locks, then mu.
//	I2  Callbacks run on one goroutine of ours, hold no lock, and see the latest state; a slow one delays only later callbacks.
//	    (Topology alone may be called by several goroutines at once, each of which serves one peer.)
//	I3  What is said of a member is copied by value inside the event delegate. memberlist's *Node are never kept: their fields
//	    change under memberlist's own lock.
//	I4  Records are merged by (boot id alive now, then sequence number; votes by the one they were said with): idempotent, any
//	    order, any number of copies. A record of a boot id that is not the one alive is kept aside but never passed on, so that two lives of one name cannot chase
//	    each other through the cluster for ever.
//	I5  A sidecar that finds its name taken by a live one leaves (Run returns an error); the one that was there stays.
//
// A rolling upgrade from the version without votes needs nothing: that version skips the votes in a record, and what it passes on lacks them,
// which takes nothing from those who have heard them. Its sidecars count as not having voted (Member.Votes is nil).
//
// Encryption keys are changed while everybody runs, one step at a time, each on every sidecar (SetKeys, or a restart) before the next
// begins: the new key is added last, then moved to the front, then the old one is dropped. A sidecar that lacks the key that another
// one encrypts with is deaf to it, so the gauge ringside_gossip_keys must be 2 everywhere before the second step.
//
// What it does not do: a member here is a sidecar that gossip believes alive, which is late by seconds (6 to 36 with the defaults
// when one dies silently). Nothing that must be exact may be built on it.
//
// Imports nothing of ringside. It must not import ring: a list of members is not a placement.
package membership
