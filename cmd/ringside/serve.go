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
	log, level, err := newLog(cfg.Log, env)
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
	go c.reload(ctx, s, env, log, level, hangups, ended)
	return s.Run(ctx)
}

// reload reads the file again whenever the process is told to (SIGHUP), and takes over what can be changed without a restart.
func (c *serveCmd) reload(ctx context.Context, s *sidecar.Sidecar, env *environment, log *slog.Logger, level *slog.LevelVar, hangups <-chan os.Signal, ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case <-hangups:
		}
		cfg, changed, err := s.Reload(ctx, func() (*config.Config, error) { return config.Load(c.Config, env.getenv) })
		if err != nil {
			log.Error("the configuration was read again and not taken over", "error", err)
			continue
		}
		if err := setLevel(level, cfg.Log); err != nil {
			log.Error("the level of the log stays as it was", "error", err)
		}
		log.Info("the configuration was read again", "changed", changed)
	}
}

// newLog returns a logger, and by what its level can be changed.
func newLog(c config.Log, env *environment) (*slog.Logger, *slog.LevelVar, error) {
	level := &slog.LevelVar{}
	if err := setLevel(level, c); err != nil {
		return nil, nil, err
	}
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(env.stderr, options)), level, nil
	}
	return slog.New(slog.NewTextHandler(env.stderr, options)), level, nil
}

func setLevel(level *slog.LevelVar, c config.Log) error {
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		return fmt.Errorf("log.level: %w", err)
	}
	return nil
}
