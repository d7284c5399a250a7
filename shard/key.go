package shard

import (
	"strconv"
	"unicode/utf8"
)

// shownKey is how many bytes of a shard key messages show at most.
const shownKey = 80

// CutKey returns a shard key as far as messages show it.
func CutKey(key string) string {
	if len(key) <= shownKey {
		return key
	}
	end := shownKey
	for end > shownKey-utf8.UTFMax && !utf8.RuneStart(key[end]) {
		end--
	}
	return key[:end]
}

// QuoteKey returns a shard key in quotes for a message: a long one is cut.
func QuoteKey(key string) string {
	if cut := CutKey(key); cut != key {
		return strconv.Quote(cut) + "…"
	}
	return strconv.Quote(key)
}

// MoveByVnode is the state of a shard key's own row on a shard that has the key by its vnode, while the key is moved away: its vnode's again if that is called off.
const MoveByVnode MoveState = "vnode"

// KeyClaim is what a shard says of one shard key, and of its vnode, when a part is about to begin there. The shard that owns a vnode has a row of its own for each key
// of it that an override places, on whatever shard, and for no other.
type KeyClaim struct {
	Vnode  MoveState // of the vnode; MoveNone: the shard has nothing to do with it
	Key    MoveState // of the key's own row; MoveNone: there is none
	Moving bool      // the vnode, or the key, is in a move there
}

// Owns reports whether the shard owns the key: by its own row, or else by its vnode.
func (c KeyClaim) Owns() bool {
	if c.Key != MoveNone {
		return c.Key == MoveOwned
	}
	return c.Vnode == MoveOwned
}

// ForKey says why a part of one shard key may not begin on the shard, as destination (step MoveExpect) or source (MoveEnlist); empty: it may. clear: the
// override ends by it. home: the shard is both, and nothing is copied. Pure.
func (c KeyClaim) ForKey(step MoveStep, clear, home bool) string {
	switch {
	case c.Moving:
		return "the key, or its vnode, is in another move there"
	case step == MoveExpect && c.Owns():
		return "it owns the key already"
	case step == MoveExpect && clear && c.Vnode != MoveOwned:
		return "it does not own the key's vnode"
	case step == MoveEnlist && !c.Owns():
		return "it does not own the key"
	case home && (c.Vnode != MoveOwned || (c.Key != MoveNone) != clear):
		return "it does not own the key's vnode, or the key has another override than it should"
	}
	return ""
}

// KeyWith is the state that the key's own row is given when its part begins on the shard; it counts once the part is gone. Pure.
func (c KeyClaim) KeyWith(step MoveStep, home bool) MoveState {
	switch {
	case step == MoveExpect:
		return MoveIncoming
	case c.Key != MoveNone:
		return c.Key
	case home:
		return MoveOwned
	}
	return MoveByVnode
}

// KeyWithout is the state of the key's own row after the step by which its part is gone from a shard; MoveNone: it has none any more. Pure.
func KeyWithout(step MoveStep, row MoveState, clear bool) MoveState {
	switch {
	case step == MoveForget && clear, step == MoveRestore && row == MoveByVnode:
		return MoveNone
	case step == MoveForget, step == MoveRestore:
		return MoveOwned
	}
	return MoveMoved // MoveClean, MoveWipe
}

// ForVnode says why a vnode of which the key is may not begin to move to the shard, or from it; empty: it may. apart: the source has a row for the key, and so
// the key does not go with its vnode; the destination must agree once it expects the vnode. Pure.
func (c KeyClaim) ForVnode(step MoveStep, apart bool) string {
	switch {
	case c.Moving:
		return "the vnode, or a key of it, is in another move there"
	case step == MoveExpect && c.Vnode == MoveOwned:
		return "it owns the vnode already"
	case step == MoveExpect && !apart && c.Key != MoveNone && c.Key != MoveMoved:
		return "it has an override that the other shard does not know of"
	case step == MoveEnlist && c.Vnode != MoveOwned:
		return "it does not own the vnode"
	case step == MoveEnlist && apart != (c.Key != MoveNone):
		return "a key of it was moved by an override since"
	}
	return ""
}

// KeyBeside is the state of the key's own row on a shard that begins to expect its vnode. Pure.
func (c KeyClaim) KeyBeside(apart bool) MoveState {
	switch {
	case !apart:
		return MoveNone
	case c.Key == MoveNone:
		return MoveMoved
	}
	return c.Key
}
