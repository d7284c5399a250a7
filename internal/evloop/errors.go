package evloop

import "errors"

var (
	// ErrLoopStopped is what OnClose reports for the connections that were open when the loop ended, and what everything that
	// opens something on such a loop returns.
	ErrLoopStopped = errors.New("evloop: the loop has stopped")
	// ErrFlushTimeout is what OnClose reports when the peer of CloseAfterFlush took nothing for the whole linger time.
	ErrFlushTimeout = errors.New("evloop: the peer did not take its last output in time")
	// ErrTaken is what Adopt returns for an Accepted that has been adopted or closed before.
	ErrTaken = errors.New("evloop: this accepted connection has been adopted or closed already")
)
