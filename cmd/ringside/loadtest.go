package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"ringside/loadtest"
	"ringside/loadtest/page"
)

type loadtestCmd struct {
	Demo     string   `placeholder:"FILE" help:"demo.json of the demo's folder, or what ringside demo --json has printed: load its sidecars. - reads standard input."`
	Addr     []string `placeholder:"HOST:PORT,..." help:"Load these Redis addresses of sidecars instead."`
	Admin    []string `placeholder:"HOST:PORT,..." help:"Their admin addresses, for hit ratio, shard reads and events."`
	Token    string   `placeholder:"TOKEN" help:"Token of the sidecars, for events, and from another machine for their metrics; better given as RINGSIDE_TOKEN. With --demo, the demo's."`
	Password string   `placeholder:"PASSWORD" help:"Redis password of the sidecars; better given as RINGSIDE_PASSWORD."`

	Rate        *float64       `placeholder:"N" help:"Requests a second, sent when they are due whatever becomes of those before (default: 2000)."`
	Duration    *time.Duration `placeholder:"30s" help:"How long (default: 30s)."`
	Ramp        time.Duration  `placeholder:"0s" help:"The rate rises from 0 in this time, which is a part of the duration."`
	Poisson     bool           `help:"Requests are due at random, as those of many users are, instead of evenly spaced."`
	Connections *int           `placeholder:"N" help:"Connections, spread over the sidecars (default: 50)."`
	Pipeline    *int           `placeholder:"N" help:"Requests that follow each other on one connection, if as many are due together (default: 1)."`
	Batch       *time.Duration `placeholder:"200us" help:"What is due within this time is sent together (default: 200us)."`
	Timeout     *time.Duration `name:"request-timeout" placeholder:"5s" help:"A request without reply for this long has failed, and its connection is given up (default: 5s)."`

	Pattern       *string  `placeholder:"PATTERN" help:"Keys to ask for; numbers from 1 on are put for {id} (default: user:{id})."`
	Keys          *int     `placeholder:"N" help:"How many keys (default: 100000)."`
	Zipf          *float64 `placeholder:"S" help:"Exponent of Zipf's law by which keys are chosen; 0 chooses all alike (default: 0.99)."`
	Reads         *float64 `placeholder:"SHARE" help:"Share of requests that read (GET); the others write (SET) (default: 0.95)."`
	ValueSize     *string  `placeholder:"N[-M]" help:"Bytes of text in what is written, chosen at random (default: 20-100)."`
	Text          bool     `help:"The keys are plain keys, not rows."`
	VersionColumn *string  `placeholder:"COLUMN" help:"bigint column of the rows in which versions are written (default: visits)."`
	TextColumn    *string  `placeholder:"COLUMN" help:"Text column of the rows that makes them large (default: name)."`
	Warm          bool     `help:"Before, read every row once (with --text: write every key), so that the cache holds them."`
	Seed          *uint64  `placeholder:"N" help:"The same seed draws the same keys (default: 1)."`

	Exercise  bool     `help:"The known exercise: the demo's spare cache server is added after a third of the time, with modulo routing and with ringside. Taken away again at the end."`
	Compare   []string `enum:"redis,twemproxy,postgres,modulo" placeholder:"NAME,..." help:"Load these likewise, before, all of them warm: ${enum}. The last two need --demo."`
	Table     string   `default:"users" placeholder:"TABLE" help:"The rows' table, for postgres and modulo (default: users)."`
	KeyColumn string   `default:"id" placeholder:"COLUMN" help:"Its key (default: id)."`

	Scenario string `placeholder:"FILE" help:"YAML file of events at times, such as { at: 10s, do: cache add spare }."`

	HTML string `name:"html" placeholder:"FILE" help:"Write a report with charts, in one file that needs nothing else." type:"path"`
	JSON bool   `name:"json" help:"Print the report as one JSON object."`
}

// Help is shown by ringside loadtest --help.
func (c *loadtestCmd) Help() string {
	return `Latency is counted from when a request was due, so a slow answer counts for all that waited behind it. Every value is checked while it is
read: exit 1 if one is older than a value whose write had been acknowledged before. It writes: never point it at rows that matter.

The known exercise shows what adding a cache server costs a client that routes by modulo, beside ringside: hit ratio and reads of
the database over time, in one report.

Events of a scenario: the commands cache, shard, move and override with their arguments (the demo's addresses are known), each carried out as with
--wait; and kill, pause and resume with the name of a process of the demo.

Examples:
  ringside demo --dir /tmp/demo &
  ringside loadtest --demo /tmp/demo/demo.json --rate 20000 --duration 60s --warm
  ringside loadtest --demo /tmp/demo/demo.json --scenario events.yaml --html report.html
  ringside loadtest --demo /tmp/demo/demo.json --exercise --html exercise.html
  ringside loadtest --demo /tmp/demo/demo.json --compare redis,twemproxy,postgres
  ringside loadtest --addr 127.0.0.1:6380 --admin 127.0.0.1:6381 --text --pattern 'test:{id}' --keys 10000 --warm`
}

func (c *loadtestCmd) plan() (loadtest.Plan, error) {
	p := loadtest.DefaultPlan()
	if c.Exercise {
		p = loadtest.ExercisePlan()
	}
	p.Ramp, p.Poisson, p.Text, p.Warm = c.Ramp, c.Poisson, c.Text, p.Warm || c.Warm || len(c.Compare) > 0
	given(&p.Rate, c.Rate)
	given(&p.Duration, c.Duration)
	given(&p.Connections, c.Connections)
	given(&p.Pipeline, c.Pipeline)
	given(&p.Batch, c.Batch)
	given(&p.Timeout, c.Timeout)
	given(&p.Pattern, c.Pattern)
	given(&p.Keys, c.Keys)
	given(&p.Zipf, c.Zipf)
	given(&p.Reads, c.Reads)
	given(&p.VersionColumn, c.VersionColumn)
	given(&p.TextColumn, c.TextColumn)
	given(&p.Seed, c.Seed)
	if c.ValueSize != nil {
		least, most, isRange := strings.Cut(*c.ValueSize, "-")
		if !isRange {
			most = least
		}
		var errs [2]error
		p.MinSize, errs[0] = strconv.Atoi(least)
		p.MaxSize, errs[1] = strconv.Atoi(most)
		if errors.Join(errs[:]...) != nil {
			return p, fmt.Errorf("--value-size is %q: it must be a number of bytes, or two such as 20-100", *c.ValueSize)
		}
	}
	if p.Text && c.Exercise {
		return p, errors.New("--exercise is about rows: leave --text out")
	}
	return p, p.Validate()
}

// given sets what was given on the command line.
func given[T any](into, value *T) {
	if value != nil {
		*into = *value
	}
}

// loaded is the cluster that is loaded.
type loaded struct {
	loadtest.Sidecars
	demo demoReady // empty without --demo
}

func (c *loadtestCmd) cluster(env *environment) (loaded, error) {
	var l loaded
	l.Password, l.Token = c.Password, c.Token
	if l.Password == "" {
		l.Password = env.getenv("RINGSIDE_PASSWORD")
	}
	if l.Token == "" {
		l.Token = env.getenv("RINGSIDE_TOKEN")
	}
	switch {
	case c.Demo != "" && len(c.Addr)+len(c.Admin) > 0:
		return l, errors.New("--demo says where the sidecars are: leave --addr and --admin out")
	case c.Demo == "" && len(c.Addr) == 0:
		return l, errors.New("name what is to be loaded: --demo FILE, of ringside demo --json, or --addr HOST:PORT")
	case c.Demo == "":
		l.Redis, l.Admin = c.Addr, c.Admin
		return l, nil
	}
	var err error
	if l.demo, err = readDemo(c.Demo); err != nil {
		return l, err
	}
	if l.Token == "" {
		l.Token = l.demo.Token
	}
	for _, s := range l.demo.Sidecars {
		l.Redis, l.Admin, l.PIDs = append(l.Redis, s.Redis), append(l.Admin, s.Admin), append(l.PIDs, s.PID)
	}
	return l, nil
}

// readDemo reads what ringside demo --json has printed.
func readDemo(file string) (demoReady, error) {
	var r demoReady
	var text []byte
	var err error
	if file == "-" {
		text, err = io.ReadAll(os.Stdin)
	} else {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return r, fmt.Errorf("--demo: %w", err)
	}
	if len(strings.TrimSpace(string(text))) == 0 {
		return r, fmt.Errorf("--demo: %s is empty: the demo writes it once all of it answers", file)
	}
	if err := json.Unmarshal(text, &r); err != nil || len(r.Sidecars) == 0 {
		return r, fmt.Errorf("--demo: %s is not what ringside demo --json prints", file)
	}
	return r, nil
}

// Run loads the cluster, and before it what it is compared with.
func (c *loadtestCmd) Run(ctx context.Context, env *environment) error {
	plan, err := c.plan()
	if err != nil {
		return misuse{err}
	}
	cluster, err := c.cluster(env)
	if err != nil {
		return misuse{err}
	}
	steps, err := c.steps(cluster, plan)
	if err != nil {
		return misuse{err}
	}
	events, err := cluster.events(steps, plan.Duration)
	if err != nil {
		return misuse{err}
	}
	if err := c.createHTML(); err != nil {
		return misuse{err}
	}
	if err := cluster.Answer(ctx); err != nil {
		return err
	}
	report := loadtest.NewReport(c.title(), plan)
	rivals, err := c.rivals(ctx, env, cluster, plan, steps)
	if err != nil {
		return err
	}
	if len(rivals) > 0 {
		c.announce(env, "ringside", plan)
	}
	result, err := loadtest.Run(ctx, cluster.Target(plan), plan, events, c.progress(env))
	if err != nil {
		return err
	}
	result.Judged = true
	for _, r := range append([]*loadtest.Result{result}, rivals...) {
		report.Add(r)
	}
	err = c.show(env, report)
	if c.Exercise {
		err = errors.Join(err, cluster.tidy(ctx))
	}
	return err
}

func (c *loadtestCmd) title() string {
	if c.Exercise {
		return "A cache server is added: modulo routing and ringside"
	}
	return "ringside loadtest"
}

func (c *loadtestCmd) announce(env *environment, name string, plan loadtest.Plan) {
	fmt.Fprintf(env.stderr, "%s: %s\n", name, plan.Describe())
}

// progress is told of every second.
func (c *loadtestCmd) progress(env *environment) func(loadtest.Second) {
	return func(s loadtest.Second) { fmt.Fprintln(env.stderr, s) }
}

func (c *loadtestCmd) show(env *environment, report *loadtest.Report) error {
	var errs []error
	if c.JSON {
		errs = append(errs, json.NewEncoder(env.stdout).Encode(report))
	} else {
		errs = append(errs, report.WriteText(env.stdout))
	}
	if c.HTML != "" {
		errs = append(errs, c.writeHTML(report))
	}
	if n := report.Violations(); n > 0 {
		errs = append(errs, fmt.Errorf("%d reads returned something older than an acknowledged write, or nothing", n))
	}
	if unanswered := report.Unanswered(); unanswered != "" {
		errs = append(errs, errors.New(unanswered))
	}
	if undone := report.Undone(); undone != "" {
		errs = append(errs, errors.New(undone))
	}
	return errors.Join(errs...)
}

// createHTML finds out before the load whether the report can be written. What is there is left until it is.
func (c *loadtestCmd) createHTML() error {
	if c.HTML == "" {
		return nil
	}
	f, err := os.OpenFile(c.HTML, os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	return f.Close()
}

func (c *loadtestCmd) writeHTML(report *loadtest.Report) error {
	f, err := os.Create(c.HTML)
	if err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	return errors.Join(page.Write(f, report), f.Close())
}
