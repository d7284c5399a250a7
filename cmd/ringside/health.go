package main

import (
	"bytes"
	"context"
	"fmt"
)

type healthCmd struct {
	Ready bool       `help:"Ask whether it is ready to serve (/readyz), not only whether it runs (/healthz)."`
	Admin adminFlags `embed:""`
}

func (c *healthCmd) Run(ctx context.Context, env *environment) error {
	client, err := c.Admin.client(env)
	if err != nil {
		return err
	}
	path := "/healthz"
	if c.Ready {
		path = "/readyz"
	}
	body, err := client.fetch(ctx, path, nil)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.stdout, "%s\n", bytes.TrimSpace(body))
	return err
}
