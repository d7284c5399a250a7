package main

import (
	"context"
	"fmt"
	"log/slog"

	"ringside/cache"
	"ringside/sidecar"
	"ringside/sidecar/config"
)

type serveCmd struct {
	Config string `short:"c" required:"" help:"Configuration file." type:"path"`
}

// Run serves until the process is asked to end.
func (c *serveCmd) Run(ctx context.Context, env *environment) error {
	cfg, err := config.Load(c.Config, env.getenv)
	if err != nil {
		return err
	}
	log, err := newLog(cfg.Log, env)
	if err != nil {
		return err
	}
	cache.LogRedis(log)
	s, err := sidecar.New(cfg, buildVersion().Version, log)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

func newLog(c config.Log, env *environment) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		return nil, fmt.Errorf("log.level: %w", err)
	}
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(env.stderr, options)), nil
	}
	return slog.New(slog.NewTextHandler(env.stderr, options)), nil
}
