package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"ringside/sidecar/config"
)

// cli lists the subcommands.
type cli struct {
	Serve       serveCmd       `cmd:"" help:"Run a sidecar."`
	Demo        demoCmd        `cmd:"" help:"Run a whole cluster on this machine, with real servers, to try things out."`
	CheckConfig checkConfigCmd `cmd:"" help:"Check a configuration file and print what it comes to, secrets masked."`
	Ring        ringCmd        `cmd:"" help:"Show the ring: servers, shards and what each owns."`
	Lookup      lookupCmd      `cmd:"" help:"Say where a key lives."`
	Cache       cacheCmd       `cmd:"" help:"Add, drain, weigh and remove cache servers while everything runs."`
	Shard       shardCmd       `cmd:"" help:"Add, weigh and remove shards, and attach tables."`
	Move        moveCmd        `cmd:"" help:"Move vnodes between shards while everything runs."`
	Override    overrideCmd    `cmd:"" help:"Place single shard keys, such as a large tenant, on a shard of their own choice."`
	Verify      verifyCmd      `cmd:"" help:"Compare what is cached with the shards."`
	Nodes       nodesCmd       `cmd:"" help:"List the sidecars, cache servers and shards of the cluster."`
	Top         topCmd         `cmd:"" help:"Show live what sidecars do: requests, hit ratio, latency, queues, hot keys, per shard and cache server."`
	Simulate    simulateCmd    `cmd:"" help:"Show on paper what changes of the fleet move, next to other schemes."`
	Loadtest    loadtestCmd    `cmd:"" help:"Load a cluster, check every value that is read, and report latency, hits and errors second by second."`
	Health      healthCmd      `cmd:"" help:"Ask a sidecar whether it is well, for probes: exit 0 or 1."`
	Completion  completionCmd  `cmd:"" help:"Print a script by which a shell completes commands and flags."`
	Version     versionCmd     `cmd:"" help:"Print the version."`
}

// environment is what a subcommand may use of the world around the program.
type environment struct {
	getenv         func(string) string
	stdout, stderr io.Writer
}

// The exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal, which asks for an orderly end, the second one ends the program at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run is the program without its process. It returns the exit code.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	printed := &noted{Writer: stdout}
	env := &environment{getenv: getenv, stdout: printed, stderr: stderr}
	command, err := parseArgs(args, env)
	var helped helpPrinted
	switch {
	case errors.As(err, &helped):
		return int(helped)
	case err != nil:
		fmt.Fprintf(stderr, "ringside: %v\nringside: try %s --help\n", err, asFarAs(err))
		return exitUsage
	}
	if err := command.Run(ctx, env); err != nil {
		if command.wantsJSON() && !printed.any {
			_ = json.NewEncoder(stdout).Encode(map[string]string{"error": err.Error()}) // as the sidecars say it; stderr has it too
		}
		report(stderr, err)
		if _, wrongly := errors.AsType[misuse](err); wrongly {
			return exitUsage
		}
		return exitFailed
	}
	return exitDone
}

// misuse is an error of what a subcommand was given, found before anything was asked or done.
type misuse struct{ error }

func misusef(format string, args ...any) error { return misuse{fmt.Errorf(format, args...)} }

// noted is a writer that knows whether anything was written.
type noted struct {
	io.Writer
	any bool
}

func (n *noted) Write(p []byte) (int, error) {
	n.any = true
	return n.Writer.Write(p)
}

// command is a parsed command line.
type command struct{ kong *kong.Context }

// Run runs the subcommand that was named.
func (c command) Run(ctx context.Context, env *environment) error {
	c.kong.BindTo(ctx, (*context.Context)(nil))
	return c.kong.Run(env)
}

// wantsJSON reports whether the subcommand was given --json.
func (c command) wantsJSON() bool {
	for _, f := range c.kong.Flags() {
		if f.Name == "json" {
			given, _ := c.kong.FlagValue(f).(bool)
			return given
		}
	}
	return false
}

// helpPrinted is the exit code after --help.
type helpPrinted int

func (helpPrinted) Error() string { return "help was printed" }

func parseArgs(args []string, env *environment) (_ command, err error) {
	parser, err := kong.New(&cli{},
		kong.Name("ringside"),
		kong.Description("A sidecar that speaks Redis in front of Redis caches and PostgreSQL shards on one ring. Exit codes: 0 done, 1 failed, 2 called wrongly. "+
			"Most commands ask one sidecar: --admin HOST:PORT (default: 127.0.0.1:6381); what changes something needs RINGSIDE_TOKEN."),
		kong.Writers(env.stdout, env.stderr),
		// After printing the help kong wants to exit the process. It must not go on parsing, so the only way out is a panic.
		kong.Exit(func(code int) { panic(helpPrinted(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.PostBuild(addExamples),
	)
	if err != nil {
		panic("the subcommands are declared wrongly: " + err.Error())
	}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case helpPrinted:
			err = r
		default:
			panic(r)
		}
	}()
	parsed, err := parser.Parse(negativeLast(args))
	return command{parsed}, err
}

// asFarAs is the command whose help explains an error of the command line.
func asFarAs(err error) string {
	parse, ok := errors.AsType[*kong.ParseError](err)
	if !ok || parse.Context == nil {
		return "ringside"
	}
	if node := parse.Context.Selected(); node != nil {
		return "ringside " + pathOf(node)
	}
	path := "ringside"
	for _, p := range parse.Context.Path {
		if p.Command != nil {
			path = "ringside " + pathOf(p.Command)
		}
	}
	return path
}

// negativeLast makes a negative weight an argument, where it would be taken for a flag: so it is refused for what it is.
func negativeLast(args []string) []string {
	if len(args) < 4 || args[0] != "cache" && args[0] != "shard" || args[1] != "weight" || slices.Contains(args, "--") {
		return args
	}
	for i := 3; i < len(args); i++ {
		// After a flag it is more likely the value of that.
		if _, err := strconv.ParseInt(args[i], 10, 64); err == nil && args[i][0] == '-' && !strings.HasPrefix(args[i-1], "-") {
			return slices.Concat(args[:i], args[i+1:], []string{"--", args[i]})
		}
	}
	return args
}

// report prints why a command failed. Faults of a configuration file begin with file:line:col, as editors expect.
func report(stderr io.Writer, err error) {
	if faults, ok := errors.AsType[config.Errors](err); ok {
		fmt.Fprintln(stderr, faults)
		return
	}
	fmt.Fprintf(stderr, "ringside: %v\n", err)
}
