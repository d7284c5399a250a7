package cache

import (
	"context"
	"errors"
	"net"

	"github.com/redis/go-redis/v9"
)

// degraded counts a read that does without a cache server, and why.
func (c *Cache) degraded(server string, err error) {
	c.servers.metrics.degraded.WithLabelValues(server, reason(err)).Inc()
}

// refusals are the errors by which a server that answers refuses to be used, and their reasons. Those are a closed set.
var refusals = [...]struct{ prefix, reason string }{
	{"READONLY", "readonly"}, {"LOADING", "loading"}, {"MASTERDOWN", "masterdown"}, {"MISCONF", "disk"}, {"OOM", "memory"},
	{"NOAUTH", "auth"}, {"WRONGPASS", "auth"}, {"NOPERM", "auth"},
}

func reason(err error) string {
	var incarnation *IncarnationError
	var netErr net.Error
	switch {
	case errors.Is(err, errSuspended):
		return "suspended"
	case errors.Is(err, ErrUnknownServer), errors.Is(err, redis.ErrClosed):
		return "unknown"
	case errors.As(err, &incarnation):
		return "incarnation"
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return "busy"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return "timeout"
	}
	for _, r := range refusals {
		if redis.HasErrorPrefix(err, r.prefix) {
			return r.reason
		}
	}
	var redisErr redis.Error
	if errors.As(err, &redisErr) {
		return "refused"
	}
	return "unreachable"
}

// inOurWords is err in words that do not need the client library to be understood.
func inOurWords(err error) error {
	if reason(err) == "busy" {
		return ErrBusy
	}
	return err
}

// fate says what an error means for the reads that follow: those that would fail alike, and late rather than at once, do without the
// server for a while.
func fate(err error) outcome {
	if err == nil || errors.Is(err, redis.Nil) {
		return answered
	}
	switch reason(err) {
	case "timeout", "unreachable", "incarnation":
		return failed
	case "busy":
		return unknown
	}
	return answered
}
