package main

import (
	"fmt"

	"ringside/sidecar/config"
)

type checkConfigCmd struct {
	File string `arg:"" help:"The configuration file."`
}

func (c *checkConfigCmd) Run(env *environment) error {
	cfg, err := config.Load(c.File, env.getenv)
	if err != nil {
		return err
	}
	if text := cfg.Solitude(); text != "" {
		fmt.Fprintf(env.stderr, "ringside: warning: %s\n", text)
	}
	_, err = env.stdout.Write(cfg.Masked())
	return err
}
