package cache

import (
	"errors"
	"fmt"
	"strings"
)

// ErrClosed is returned by a Cache after Close.
var ErrClosed = errors.New("cache is closed")

// ErrUnknownServer says that no configuration was applied for a server.
var ErrUnknownServer = errors.New("unknown cache server")

// ErrBusy says that all connections to a cache server were in use for too long: too much is under way here, and nothing is known of the server.
var ErrBusy = errors.New("too many requests wait for the cache server")

// ErrRemembered is what a commit callback returns that has committed although an entry could not be put out of reach before, because it has made
// sure, in the same transaction, that this will not be forgotten: see Write.
var ErrRemembered = errors.New("committed, and the cached copies that could not be put out of reach are remembered")

// errStrangeAnswer says that a script has not answered for each of its entries.
var errStrangeAnswer = errors.New("the cache server's answer is not one of that script")

// errLoadShort says that a load callback broke LoadFunc's rule.
var errLoadShort = errors.New("load returned fewer or more rows than it was asked for")

// errSuspended is what a read is told about a server that failed a moment ago and is not tried again yet.
var errSuspended = errors.New("not tried: it failed a moment ago")

// IncarnationError says that the process behind a cache server's address is not the one that the configuration names, so what it
// holds may be older than acknowledged writes. The connection was refused. Want is empty while no process was named yet.
type IncarnationError struct {
	Server    string
	Want, Got string // run_id
}

func (e *IncarnationError) Error() string {
	if e.Want == "" {
		return fmt.Sprintf("cache server %s: run_id %s is not confirmed yet", e.Server, e.Got)
	}
	return fmt.Sprintf("cache server %s: run_id is %s instead of %s: it was restarted or replaced", e.Server, e.Got, e.Want)
}

// ServerError says that an entry on a cache server could not be put out of reach before the commit. Nothing was written.
type ServerError struct {
	Server string
	Err    error
}

func (e *ServerError) Error() string {
	text, server := e.Err.Error(), "cache server "+e.Server+": "
	if strings.HasPrefix(text, server) {
		return text // it names the server already
	}
	return server + text
}
func (e *ServerError) Unwrap() error { return e.Err }

// CleanError says that a write IS committed, but copies of the row could not be cleaned in time. It must be reported as a write of
// unknown outcome: until the poison that was put there expires (Config.PoisonTTL) nobody fills those entries, but should the server
// have lost the poison, an older value may be there.
type CleanError struct {
	Refs []Ref // what may not be clean
	Err  error // the last failure, of a try that our own time did not cut short if there was one
}

func (e *CleanError) Error() string {
	var servers []string
	for _, r := range e.Refs {
		servers = append(servers, r.Server)
	}
	return fmt.Sprintf("written, but the cached copy on %s could not be cleaned: %v", strings.Join(servers, ", "), e.Err)
}
func (e *CleanError) Unwrap() error { return e.Err }
