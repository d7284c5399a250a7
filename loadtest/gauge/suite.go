package gauge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// Options are the flags that all programs have. Their own embed it.
type Options struct {
	Rounds   int      `default:"5" help:"Rounds of each measure; in each, everything that is compared has one turn."`
	Scale    float64  `default:"1" help:"Length of a turn: 1 is about a second."`
	Only     []string `help:"Measure only these: ${measures}."`
	JSON     bool     `name:"json" help:"Print one JSON object instead of the table."`
	Check    bool     `help:"Exit with status 1 when a figure is missed."`
	Ringside string   `help:"The ringside program to measure. Default: built from this source." type:"path"`
	Verbose  bool     `short:"v" help:"Show each figure as soon as it is there."`
}

// Validate says which flag is out of range. names are the measures that there are.
func (o *Options) Validate(names []string) error {
	if o.Rounds < 1 || o.Rounds > 1000 {
		return fmt.Errorf("--rounds is %d; allowed are 1 to 1000", o.Rounds)
	}
	if math.IsNaN(o.Scale) || o.Scale < 0.01 || o.Scale > 100 {
		return fmt.Errorf("--scale is %v; allowed are 0.01 to 100", o.Scale)
	}
	for _, name := range o.Only {
		if !slices.Contains(names, name) {
			return fmt.Errorf("--only %s: there is no such measure; allowed are %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}

// Scaled is how many of something a turn of the chosen length has.
func (o *Options) Scaled(n int) int { return max(int(float64(n)*o.Scale), 100) }

// Build returns the ringside program that is to be measured: the one given, or one that is built into dir.
func (o *Options) Build(ctx context.Context, dir string) (string, error) {
	if o.Ringside != "" {
		return o.Ringside, nil
	}
	program := filepath.Join(dir, "ringside")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "ringside/cmd/ringside").CombinedOutput(); err != nil {
		return "", fmt.Errorf("building ringside: %w\n%s", err, out)
	}
	return program, nil
}

// descriptors is what ten thousand clients and their proxy need, each for itself.
const descriptors = 12_000

// RaiseDescriptorLimit makes room for many clients, here and in the programs that are started, which inherit the limit.
func RaiseDescriptorLimit() error {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("the limit of descriptors: %w", err)
	}
	l.Cur = max(l.Cur, descriptors)
	l.Max = max(l.Max, l.Cur) // root may
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("raising the limit of descriptors to %d: %w", descriptors, err)
	}
	return nil
}

// Measure is one part of the table.
type Measure struct {
	Name string
	Run  func(ctx context.Context) ([]Figure, error)
}

// Suite is a program that measures.
type Suite struct {
	Name, About string
	Flags       any      // a pointer to the program's flags, which embed Options
	Options     *Options // those
	Names       []string // of the measures
	// Start starts what is measured, and returns the measures, in their order, what the ratios are of, and what ends it all again. log is told
	// what is done.
	Start func(ctx context.Context, log io.Writer) (measures []Measure, ratios string, stop func() error, err error)
}

// Main runs the program until it is done, or interrupted, and ends the process.
func (s Suite) Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(s.run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program without its process. It returns the exit code: 0 also for missed figures, unless --check is given; 1 when something
// could not be measured.
func (s Suite) run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	fail := func(code int, err any) int {
		fmt.Fprintf(stderr, "%s: %v\n", s.Name, err)
		return code
	}
	parser, err := kong.New(s.Flags, kong.Name(s.Name), kong.Description(s.About), kong.Writers(stdout, stderr), kong.Vars{"measures": strings.Join(s.Names, ", ")})
	if err != nil {
		panic("the flags are declared wrongly: " + err.Error())
	}
	if _, err := parser.Parse(args); err != nil {
		return fail(2, err)
	}
	if err := s.Options.Validate(s.Names); err != nil {
		return fail(2, err)
	}
	r, err := s.measure(ctx, stderr)
	if err != nil {
		return fail(1, err)
	}
	if s.Options.JSON {
		err = r.WriteJSON(stdout)
	} else {
		err = r.WriteText(stdout)
	}
	if err != nil {
		return fail(1, err)
	}
	for _, failure := range r.Failures {
		fail(1, failure)
	}
	if len(r.Failures) > 0 || s.Options.Check && r.Missed() > 0 {
		return 1
	}
	return 0
}

// measure starts the servers, measures, and stops them.
func (s Suite) measure(ctx context.Context, log io.Writer) (_ *Report, err error) {
	if !s.Options.Verbose {
		log = io.Discard
	}
	out := &Report{Machine: Machine(), Rounds: s.Options.Rounds, LoadBefore: LoadAverage()}
	measures, ratios, stop, err := s.Start(ctx, log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	out.Ratios = ratios
	for _, m := range measures {
		if len(s.Options.Only) > 0 && !slices.Contains(s.Options.Only, m.Name) {
			continue
		}
		fmt.Fprintf(log, "measuring %s\n", m.Name)
		figures, err := m.Run(ctx)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil { // the others are worth their time all the same
			out.Failures = append(out.Failures, fmt.Sprintf("%s: %v", m.Name, err))
		}
		for i := range figures {
			figures[i].Measure = m.Name
			fmt.Fprintf(log, "  %s\n", figures[i])
		}
		out.Figures = append(out.Figures, figures...)
	}
	out.LoadAfter = LoadAverage()
	return out, nil
}
