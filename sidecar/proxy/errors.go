package proxy

import (
	"context"
	"errors"
	"fmt"

	"ringside/cache"
	"ringside/resp"
	"ringside/shard"
	"ringside/shard/keyspace"
)

// CacheDownError says that a cache server could not be asked, or did not answer. Whether it ran the command is not known when Sent.
type CacheDownError struct {
	Server string
	Err    error
	Sent   bool
}

func (e *CacheDownError) Error() string { return fmt.Sprintf("cache server %s: %v", e.Server, e.Err) }
func (e *CacheDownError) Unwrap() error { return e.Err }

// WrittenError says that a row's write is on the shard, or may be, but could not be acknowledged.
type WrittenError struct{ Err error }

func (e *WrittenError) Error() string {
	return "the write may have been made but could not be acknowledged; read the row before you repeat it: " + e.Err.Error()
}
func (e *WrittenError) Unwrap() error { return e.Err }

var (
	errNoCacheServer  = errors.New("no cache server owns this key: none is active with a weight above 0")
	errManyRequests   = errors.New("too many requests wait for the cache server")
	errManyRowOps     = errors.New("too many misses and writes are under way in this sidecar")
	errReplyTimeout   = errors.New("no reply in time")
	errNoTopology     = errors.New("the sidecar has no topology yet")
	errConnectionLost = errors.New("connection lost")
	errManyPrivate    = errors.New("too many clients need a connection of their own to a cache server, for WATCH or a blocking command")
	errRingChanged    = errors.New("the ring has changed and another cache server owns the keys now")
	errClientLeft     = errors.New("client has left")
	errNotNeeded      = errors.New("not needed any more")
	errClosing        = errors.New("the sidecar is stopping")
)

// code is the first word of an error reply; it is also the label of the metric that counts it.
type code string

const (
	codeErr        code = "ERR"
	codeTryAgain   code = "TRYAGAIN"
	codeOverloaded code = "OVERLOADED"
	codeCacheDown  code = "CACHEDOWN"
	codeShardDown  code = "SHARDDOWN"
	codeBadKey     code = "BADKEY"
	codeBadRow     code = "BADROW"
)

// errorReply is the one table from Go errors to error replies.
func errorReply(err error) (code, string) {
	var (
		refusal   resp.Refusal
		badKey    *keyspace.BadKeyError
		badRow    *shard.BadRowError
		cacheDown *CacheDownError
		shardDown *shard.DownError
		stale     *shard.StaleViewError
		written   *WrittenError
		behind    *behindError
	)
	if errors.As(err, &written) {
		return writtenReply(written)
	}
	switch {
	case errors.As(err, &refusal):
		return codeOf(string(refusal)), string(refusal)
	case errors.As(err, &badKey):
		return say(codeBadKey, badKey)
	case errors.As(err, &badRow):
		return say(codeBadRow, badRow)
	case errors.Is(err, shard.ErrOverloaded), errors.Is(err, cache.ErrBusy), errors.Is(err, errManyRequests), errors.Is(err, errManyRowOps), errors.Is(err, errManyPrivate):
		return say(codeOverloaded, err)
	case errors.Is(err, errRingChanged):
		return say(codeTryAgain, err)
	case errors.As(err, &behind):
		return say(codeTryAgain, err)
	case errors.As(err, &cacheDown):
		return codeCacheDown, fmt.Sprintf("%s %s %v", codeCacheDown, cacheDown.Server, cacheDown.Err)
	case errors.As(err, &shardDown):
		return codeShardDown, fmt.Sprintf("%s %s %v", codeShardDown, shardDown.Shard, shardDown.Err)
	case errors.Is(err, shard.ErrFrozen), errors.Is(err, shard.ErrLocked):
		return say(codeTryAgain, err)
	case errors.As(err, &stale), errors.Is(err, shard.ErrNotOwner):
		return say(codeTryAgain, fmt.Errorf("the ring is changing: %w", err))
	case errors.Is(err, context.DeadlineExceeded):
		return say(codeOverloaded, errors.New("the request waited too long"))
	}
	return say(codeErr, err)
}

// writtenReply is the reply to a write that may have been made. Whatever its cause is, the warning stands in front of it, and the first word is none that says
// that nothing has run, and the command may be sent again.
func writtenReply(w *WrittenError) (code, string) {
	var cacheDown *CacheDownError
	var shardDown *shard.DownError
	switch {
	case errors.As(w.Err, &cacheDown):
		return codeCacheDown, fmt.Sprintf("%s %s %v", codeCacheDown, cacheDown.Server, &WrittenError{cacheDown.Err})
	case errors.As(w.Err, &shardDown):
		return codeShardDown, fmt.Sprintf("%s %s %v", codeShardDown, shardDown.Shard, &WrittenError{shardDown.Err})
	}
	return say(codeErr, w)
}

func say(c code, err error) (code, string) { return c, string(c) + " " + err.Error() }

func codeOf(text string) code {
	for i := range len(text) {
		if text[i] == ' ' {
			return code(text[:i])
		}
	}
	return code(text)
}

var errHTTP = errors.New("HTTP on a Redis port")
