package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"ringside/cache"
	"ringside/sidecar"
	"ringside/sidecar/config"
)

type serveCmd struct {
	Config string `short:"c" required:"" help:"Configuration file." type:"path"`
}

// collectAt is by how many percent the heap may grow before it is collected, unless GOGC says otherwise. A sidecar keeps little, and at Go's
// own 100 each of its large replies would be followed by a collection, which costs as much as the reply; so it may use 16 MiB.
const collectAt = 400

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
	if env.getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	s, err := sidecar.New(cfg, buildVersion().Version, log)
	if err != nil {
		return err
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	ended := make(chan struct{})
	defer close(ended)
	go c.reload(s, env, log, hangups, ended)
	return s.Run(ctx)
}

// reload reads the gossip keys again whenever the process is told to (SIGHUP), so that they can be changed without a restart.
func (c *serveCmd) reload(s *sidecar.Sidecar, env *environment, log *slog.Logger, hangups <-chan os.Signal, ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case <-hangups:
		}
		cfg, err := config.Load(c.Config, env.getenv)
		if err == nil {
			err = s.SetGossipKeys(cfg.Gossip.Keys)
		}
		if err != nil {
			log.Error("the gossip keys stay as they were", "error", err)
			continue
		}
		log.Info("gossip.keys was read again; everything else in the configuration is read at start only", "keys", len(cfg.Gossip.Keys))
	}
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
