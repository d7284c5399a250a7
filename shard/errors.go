package shard

import (
	"errors"
	"fmt"
)

// Sentinels that packages of floor 1 return and the proxy's error table names. Use errors.Is.
var (
	// ErrNotOwner: the shard does not own the row's vnode. The caller's map is old: refresh it and try again.
	ErrNotOwner = errors.New("shard does not own the vnode")
	// ErrFrozen: the vnode is about to be cut over and takes no writes for a moment. Try again.
	ErrFrozen = errors.New("vnode is frozen for a cut-over")
	// ErrOverloaded: the queue for the shard's connections is full, or waiting in it took too long. Nothing was sent.
	ErrOverloaded = errors.New("too many requests wait for the shard")
	// ErrLocked: a transaction of somebody else kept a row or table locked for too long, or both waited for each other. Nothing was written. Try again.
	ErrLocked = errors.New("locked by another transaction")
	// ErrOutcomeUnknown: the connection was lost or timed out during COMMIT; the write may or may not be on the shard.
	ErrOutcomeUnknown = errors.New("outcome of the write is unknown")
)

// ElsewhereError says that a shard takes no write of a vnode or a shard key, or does not answer for it, because another shard has it, or is about to. Nothing
// was written, and nothing is known of the row. It wraps ErrFrozen or ErrNotOwner.
type ElsewhereError struct {
	Shard   string // the one that refused
	To      string // where it went, or goes, by the word of Shard; empty: it does not say
	CutOver bool   // it is being cut over just now: in a moment To takes it, or Shard again
	Err     error
}

func (e *ElsewhereError) Error() string { return fmt.Sprintf("shard %s: %v", e.Shard, e.Err) }
func (e *ElsewhereError) Unwrap() error { return e.Err }

// StaleViewError says that the shard's view is not the one the caller acted by. Nothing was written.
type StaleViewError struct {
	Shard string
	View  View // the shard's view; zero when the shard did not say
}

func (e *StaleViewError) Error() string {
	return fmt.Sprintf("shard %s is at view %s", e.Shard, e.View)
}

// DownError says that the shard could not be reached or could not answer. Nothing was written unless the error also wraps
// ErrOutcomeUnknown.
type DownError struct {
	Shard string
	Err   error
}

func (e *DownError) Error() string { return fmt.Sprintf("shard %s: %v", e.Shard, e.Err) }
func (e *DownError) Unwrap() error { return e.Err }

// BadRowError says that a value given for a row cannot be stored: the JSON is broken, a column is unknown, a value does not fit its
// column or a constraint refuses it. Column is empty when the fault is not in one column. Nothing was written.
type BadRowError struct {
	Column string
	Reason string
}

func (e *BadRowError) Error() string {
	if e.Column == "" {
		return e.Reason
	}
	return fmt.Sprintf("column %q: %s", e.Column, e.Reason)
}
