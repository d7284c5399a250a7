package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"ringside/loadtest"
)

// steps are those of the scenario file, or of the exercise.
func (c *loadtestCmd) steps(cluster loaded, plan loadtest.Plan) ([]loadtest.Step, error) {
	switch {
	case c.Exercise && c.Scenario != "":
		return nil, errors.New("--exercise has its own event: leave --scenario out")
	case c.Exercise && len(cluster.demo.Spares) == 0:
		return nil, errors.New("--exercise needs --demo, whose spare cache server it adds")
	case c.Exercise:
		return []loadtest.Step{{At: plan.Duration / 3, Words: []string{"cache", "add", cluster.demo.Spares[0].Name}}}, nil
	case c.Scenario == "":
		return nil, nil
	}
	text, err := os.ReadFile(c.Scenario)
	if err != nil {
		return nil, fmt.Errorf("--scenario: %w", err)
	}
	steps, err := loadtest.ParseScenario(text)
	if err != nil {
		return nil, fmt.Errorf("--scenario: %s: %w", c.Scenario, err)
	}
	return steps, nil
}

// events makes events of the steps of a scenario. What cannot be meant is refused here, before anything is loaded.
func (l *loaded) events(steps []loadtest.Step, duration time.Duration) ([]loadtest.Event, error) {
	var events []loadtest.Event
	for _, s := range steps {
		do, err := l.action(s.Words)
		if err == nil && s.At >= duration {
			err = fmt.Errorf("it is due at %v, when the load of %v has ended", s.At, duration)
		}
		if err != nil {
			return nil, fmt.Errorf("event %q: %w", s.Name(), err)
		}
		events = append(events, loadtest.Event{At: s.At, Name: s.Name(), Do: do})
	}
	return events, nil
}

// signals are what is done to processes.
func signals() map[string]syscall.Signal {
	return map[string]syscall.Signal{"kill": syscall.SIGKILL, "pause": syscall.SIGSTOP, "resume": syscall.SIGCONT}
}

func (l *loaded) action(words []string) (func(context.Context) error, error) {
	if sig, ok := signals()[words[0]]; ok {
		return l.signal(words, sig)
	}
	if !slices.Contains([]string{"cache", "shard", "move", "override"}, words[0]) {
		return nil, errors.New("there is no such event: allowed are cache, shard, move, override, kill, pause and resume")
	}
	args := l.complete(words)
	if len(l.Admin) == 0 {
		return nil, errors.New("it needs the admin address of a sidecar: --admin")
	}
	if _, err := parseArgs(append(args, "--admin", l.Admin[0]), &environment{stdout: io.Discard, stderr: io.Discard}); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return l.command(ctx, args) }, nil
}

// complete adds the address of a server of the demo, and that a change is to be waited for.
func (l *loaded) complete(words []string) []string {
	args := slices.Clone(words)
	if len(args) == 3 && args[0] == "cache" && args[1] == "add" {
		for _, s := range slices.Concat(l.demo.Spares, l.demo.Caches) {
			if s.Name == args[2] {
				args = append(args, s.Addr)
			}
		}
	}
	waits := args[0] == "cache" || args[0] == "move" && len(args) > 1 && args[1] == "start"
	if waits && !slices.Contains(args, "--wait") {
		args = append(args, "--wait")
	}
	return args
}

// command runs a subcommand of this program on whichever sidecar is well.
func (l *loaded) command(ctx context.Context, args []string) error {
	var stdout, stderr strings.Builder
	env := &environment{
		getenv: func(name string) string {
			if name == "RINGSIDE_TOKEN" {
				return l.Token
			}
			return ""
		},
		stdout: &stdout, stderr: &stderr,
	}
	admin := l.Admin[0]
	for _, addr := range l.Admin {
		client, err := (adminFlags{Admin: addr, Timeout: 2 * time.Second}).client(env)
		if err != nil {
			return err
		}
		if _, err := client.fetch(ctx, "/healthz", nil); err == nil {
			admin = addr
			break
		}
	}
	command, err := parseArgs(append(args, "--admin", admin), env)
	if err != nil {
		return err
	}
	return command.Run(ctx, env)
}

// tidyLimit bounds how long it takes to give the demo back as it was.
const tidyLimit = 2 * time.Minute

// tidy takes the spare server away again, so that the exercise can be repeated.
func (l *loaded) tidy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tidyLimit)
	defer cancel()
	for _, verb := range []string{"drain", "remove"} {
		if err := l.command(ctx, []string{"cache", verb, l.demo.Spares[0].Name, "--wait"}); err != nil {
			return fmt.Errorf("taking %s away again: %w", l.demo.Spares[0].Name, err)
		}
	}
	return nil
}

// signal sends a signal to a process of the demo.
func (l *loaded) signal(words []string, sig syscall.Signal) (func(context.Context) error, error) {
	if len(words) != 2 {
		return nil, fmt.Errorf("%s wants the name of one process of the demo", words[0])
	}
	var names []string
	pid := 0
	look := func(name string, p int) {
		if names = append(names, name); name == words[1] {
			pid = p
		}
	}
	for _, s := range l.demo.Sidecars {
		look(s.Name, s.PID)
	}
	for _, s := range slices.Concat(l.demo.Caches, l.demo.Spares) {
		look(s.Name, s.PID)
	}
	for _, s := range l.demo.Shards {
		look(s.Name, s.PID)
	}
	switch {
	case len(names) == 0:
		return nil, errors.New("processes are known only with --demo")
	case pid <= 1:
		return nil, fmt.Errorf("the demo has no process %s: it has %s", words[1], strings.Join(names, ", "))
	}
	return func(context.Context) error { return loadtest.Signal(pid, sig) }, nil
}
