package loadtest

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"ringside/loadtest/gauge"
	"ringside/resp"
)

const (
	warmers   = 4   // connections that prepare the keys
	warmBatch = 200 // keys in one go
)

// readAll reads every row once, so that the cache holds it.
func readAll(ctx context.Context, addrs []string, password string, plan Plan) error {
	return prepare(ctx, addrs, password, plan, func(c *gauge.Conn, _ *values, names []string) error {
		reply, err := c.Ask(append([]string{"MGET"}, names...)...)
		if err != nil {
			return err
		}
		v, _, err := resp.Decode(reply)
		if err != nil {
			return err
		}
		for i, e := range v.Elems {
			if e.Null {
				return noRow(plan, names[i])
			}
		}
		return nil
	})
}

func noRow(plan Plan, name string) error {
	return fmt.Errorf("there is no %s: the load needs rows 1 to %d (fewer with --keys)", name, plan.Keys)
}

// fill writes a value of no version under every key.
func fill(ctx context.Context, addrs []string, password string, plan Plan) error {
	return prepare(ctx, addrs, password, plan, func(c *gauge.Conn, v *values, names []string) error {
		var raw []byte
		value := string(v.append(nil, 0, v.filling))
		for _, name := range names {
			raw = resp.AppendCommandString(raw, "SET", name, value)
		}
		if err := c.Send(raw); err != nil {
			return err
		}
		return c.Replies(len(names))
	})
}

// prepare does something with all keys, a batch at a time.
func prepare(ctx context.Context, addrs []string, password string, plan Plan, do func(*gauge.Conn, *values, []string) error) error {
	keys, err := ParseKeys(plan.Pattern, plan.Keys)
	if err != nil {
		return err
	}
	v := newValues(plan, keys)
	group, ctx := errgroup.WithContext(ctx)
	for w := range warmers {
		group.Go(func() error {
			c, err := gauge.Dial(ctx, addrs[w%len(addrs)])
			if err != nil {
				return err
			}
			defer c.Hangup()
			if password != "" {
				if _, err := c.Ask("AUTH", password); err != nil {
					return err
				}
			}
			for first := 1 + w*warmBatch; first <= keys.Count && ctx.Err() == nil; first += warmers * warmBatch {
				var names []string
				for id := first; id < first+warmBatch && id <= keys.Count; id++ {
					names = append(names, keys.Name(uint32(id)))
				}
				if err := do(c, v, names); err != nil {
					return err
				}
			}
			return ctx.Err()
		})
	}
	return group.Wait()
}
