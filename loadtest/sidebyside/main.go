package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// options are the flags.
type options struct {
	Rounds   int      `default:"5" help:"Rounds of each measure; in each, every proxy has one turn."`
	Scale    float64  `default:"1" help:"Length of a turn: 1 is about a second."`
	Only     []string `help:"Measure only these: ${measures}."`
	JSON     bool     `name:"json" help:"Print one JSON object instead of the table."`
	Check    bool     `help:"Exit with status 1 when a figure is missed."`
	Ringside string   `help:"The ringside program to measure. Default: built from this source." type:"path"`
	Before   string   `help:"Another ringside program, measured in the same rounds in place of twemproxy: what a change has brought." type:"path"`
	MbufSize int      `default:"16384" help:"Size of twemproxy's buffers, in bytes; 16384 is its own default."`
	BasePort int      `default:"18000" help:"First of the ports of the cluster that row hits are measured on."`
	Verbose  bool     `short:"v" help:"Show each figure as soon as it is there."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program without its process. It returns the exit code: 0 also for missed figures, unless --check is given; 1 when something
// could not be measured.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o options
	parser, err := kong.New(&o, kong.Name("sidebyside"), kong.Description("Measures ringside beside twemproxy."), kong.Writers(stdout, stderr),
		kong.Vars{"measures": strings.Join(names(), ", ")})
	if err != nil {
		panic("the flags are declared wrongly: " + err.Error())
	}
	if _, err := parser.Parse(args); err != nil {
		fmt.Fprintf(stderr, "sidebyside: %v\n", err)
		return 2
	}
	if err := o.validate(); err != nil {
		fmt.Fprintf(stderr, "sidebyside: %v\n", err)
		return 2
	}
	r, err := measureAll(ctx, o, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "sidebyside: %v\n", err)
		return 1
	}
	if o.JSON {
		err = r.writeJSON(stdout)
	} else {
		err = r.writeText(stdout)
	}
	if err != nil {
		fmt.Fprintf(stderr, "sidebyside: %v\n", err)
		return 1
	}
	for _, failure := range r.Failures {
		fmt.Fprintf(stderr, "sidebyside: %s\n", failure)
	}
	if len(r.Failures) > 0 || o.Check && r.missed() > 0 {
		return 1
	}
	return 0
}

func (o options) validate() error {
	if o.Rounds < 1 || o.Rounds > 1000 {
		return fmt.Errorf("--rounds is %d; allowed are 1 to 1000", o.Rounds)
	}
	if math.IsNaN(o.Scale) || o.Scale < 0.01 || o.Scale > 100 {
		return fmt.Errorf("--scale is %v; allowed are 0.01 to 100", o.Scale)
	}
	for _, name := range o.Only {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("--only %s: there is no such measure; allowed are %s", name, strings.Join(names(), ", "))
		}
	}
	return nil
}

// measure is one part of the table.
type measure struct {
	name string
	run  func(ctx context.Context, r *rig) ([]figure, error)
}

func measures() []measure {
	all := []measure{}
	for _, m := range requestMeasures() {
		all = append(all, measure{m.name, m.run})
	}
	return append(all, measure{"rows", rowHits}, measure{"tls", overTLS}, measure{"mget", mget}, measure{"large", largeValues}, measure{"idle", idleClients},
		measure{"allocations", allocations})
}

func names() []string {
	var list []string
	for _, m := range measures() {
		list = append(list, m.name)
	}
	return list
}

// measureAll starts the servers, measures, and stops them.
func measureAll(ctx context.Context, o options, log io.Writer) (_ *report, err error) {
	r, err := newRig(ctx, o, log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	out := &report{Machine: describeMachine(), Rounds: o.Rounds, Rival: r.rival.name, LoadBefore: loadAverage()}
	for _, m := range measures() {
		if len(o.Only) > 0 && !slices.Contains(o.Only, m.name) {
			continue
		}
		r.say("measuring %s", m.name)
		figures, err := m.run(ctx, r)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil { // the others are worth their time all the same
			out.Failures = append(out.Failures, fmt.Sprintf("%s: %v", m.name, err))
		}
		for i := range figures {
			figures[i].Measure = m.name
			r.say("  %s", figures[i])
		}
		out.Figures = append(out.Figures, figures...)
	}
	out.LoadAfter = loadAverage()
	return out, nil
}
