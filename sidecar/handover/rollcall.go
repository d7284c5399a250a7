package handover

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"ringside/sidecar/topology"
)

// connection is one connection of a sidecar to a cache server, as CLIENT LIST shows it.
type connection struct {
	id     int64
	caller topology.Caller
}

// callers reads the answer to CLIENT LIST: a line for each connection, "id=7 addr=... name=... ...". What is not one of ours is left out.
func callers(list string) []connection {
	var out []connection
	for line := range strings.Lines(list) {
		var c connection
		found := false
		for field := range strings.FieldsSeq(line) {
			name, value, _ := strings.Cut(field, "=")
			switch name {
			case "id":
				c.id, _ = strconv.ParseInt(value, 10, 64) // 0 is nobody's
			case "name":
				c.caller, found = topology.ParseCaller(value)
			}
		}
		if found && c.id > 0 {
			out = append(out, c)
		}
	}
	return out
}

const (
	rollPauseMin = 5 * time.Millisecond
	rollPauseMax = 50 * time.Millisecond
)

// rollCall returns when no connection to the server hinders any more. Those that still do after patience are ended: their sidecar begins anew, and
// looks at the marker first.
func (c *Carrier) rollCall(ctx context.Context, client redis.Cmdable, server string, patience time.Duration, hinders func(topology.Caller) bool) error {
	begun := time.Now()
	seen := map[int64]bool{}
	for pause := rollPauseMin; ; pause = min(2*pause, rollPauseMax) {
		left, err := c.hindering(ctx, client, server, hinders)
		if err != nil || len(left) == 0 {
			return err
		}
		waited := time.Since(begun)
		if waited >= patience+c.cfg.StepTimeout {
			return serverError(server, errors.New("connections that hold up the hand-over come again and again"))
		}
		for _, one := range left {
			// One that has only just come is about to look at the marker.
			if waited < patience || !seen[one.id] {
				seen[one.id] = true
				continue
			}
			if err := c.kill(ctx, client, server, one); err != nil {
				return err
			}
		}
		if !sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

func (c *Carrier) hindering(ctx context.Context, client redis.Cmdable, server string, hinders func(topology.Caller) bool) ([]connection, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StepTimeout)
	defer cancel()
	list, err := client.ClientList(ctx).Result()
	if err != nil {
		return nil, serverError(server, err)
	}
	var out []connection
	for _, one := range callers(list) {
		if hinders(one.caller) {
			out = append(out, one)
		}
	}
	return out, nil
}

func (c *Carrier) kill(ctx context.Context, client redis.Cmdable, server string, one connection) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StepTimeout)
	defer cancel()
	n, err := client.ClientKillByFilter(ctx, "ID", strconv.FormatInt(one.id, 10)).Result()
	if n > 0 {
		c.metrics.killed.Inc()
		c.log.Warn("a sidecar held up a change of the ring: its connection is ended", "server", server, "sidecar", one.caller.Sidecar, "epoch", one.caller.Epoch)
	}
	return serverError(server, err)
}
