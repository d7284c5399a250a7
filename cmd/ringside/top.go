package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

type topCmd struct {
	Admin adminFlags    `embed:""`
	All   bool          `help:"Ask all living sidecars that this one knows, at the admin addresses that they tell."`
	Every time.Duration `default:"2s" placeholder:"2s" help:"How often to ask (default: 2s)."`
	Once  bool          `help:"Print one view and end, for scripts: the rates of one such interval."`
	JSON  bool          `name:"json" help:"Print each view as one JSON object on a line, instead of drawing it."`
}

// Help is shown by ringside top --help.
func (c *topCmd) Help() string {
	return `Rates are those since the view before. It ends with q or Ctrl-C.`
}

// Run shows views until it is told to end.
func (c *topCmd) Run(ctx context.Context, env *environment) error {
	if c.Every < 100*time.Millisecond || c.Every > time.Hour {
		return misusef("--every is %v; allowed are 100ms to 1h", c.Every)
	}
	client, err := c.Admin.client(env)
	if err != nil {
		return err
	}
	w := &watcher{first: client, flags: c.Admin, env: env, all: c.All, before: map[string]scrape{}}
	if err := w.ask(ctx); err != nil { // from here on what does not answer is shown
		return err
	}
	if c.Once || c.JSON {
		return c.print(ctx, env, w)
	}
	screen, err := openScreen(os.Stdin, os.Stdout)
	if err != nil {
		return fmt.Errorf("%w: use --once or --json", err)
	}
	defer screen.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go screen.awaitQ(cancel) // ends with the process: nobody can stop the reading of a terminal
	for {
		screen.draw(w.title(c.Every), w.view())
		if !pause(ctx, c.Every) {
			return nil // q, or Ctrl-C, as one ends it
		}
		if err := w.ask(ctx); err != nil && ctx.Err() == nil {
			screen.draw(w.title(c.Every), topView{Sidecars: []topSidecar{{Name: client.base.Host, Fault: err.Error()}}})
			if !pause(ctx, c.Every) {
				return nil
			}
		}
	}
}

// print is for scripts.
func (c *topCmd) print(ctx context.Context, env *environment, w *watcher) error {
	for {
		if !pause(ctx, c.Every) {
			return errors.New("interrupted")
		}
		if err := w.ask(ctx); err != nil {
			return err
		}
		v := w.view()
		var err error
		if c.JSON {
			err = json.NewEncoder(env.stdout).Encode(v)
		} else {
			_, err = fmt.Fprintln(env.stdout, strings.Join(v.lines(), "\n"))
		}
		if err != nil || c.Once {
			return err
		}
	}
}

// pause reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// watcher asks sidecars for their metrics again and again.
type watcher struct {
	first *adminClient
	flags adminFlags
	env   *environment
	all   bool

	before map[string]scrape // by admin address
	last   []asked
}

// title is the line above a view.
func (w *watcher) title(every time.Duration) string {
	return fmt.Sprintf("ringside top   %s   %s   every %v, q ends it", w.first.base.Host, time.Now().Format(time.TimeOnly), every)
}

func (w *watcher) view() topView { return newTopView(w.last) }

// ask asks each sidecar once. The error is of the one that was named.
func (w *watcher) ask(ctx context.Context) error {
	var members membersAnswer
	if err := w.first.decode(ctx, "/members", &members); err != nil {
		return err
	}
	type target struct {
		name   string
		client *adminClient
		fault  string
	}
	var targets []target
	for _, m := range members.Members {
		switch {
		case m.Self:
			targets = append(targets, target{name: m.Name, client: w.first})
		case w.all && m.State == "alive":
			flags := w.flags
			flags.Admin = m.Admin
			client, err := flags.client(w.env)
			if err != nil {
				targets = append(targets, target{name: m.Name, fault: "it does not tell an admin address"})
				continue
			}
			targets = append(targets, target{name: m.Name, client: client})
		}
	}
	all := make([]asked, len(targets))
	var group sync.WaitGroup
	for i, t := range targets {
		all[i] = asked{name: t.name, fault: t.fault}
		if t.client == nil {
			continue
		}
		group.Go(func() {
			body, err := t.client.fetch(ctx, "/metrics", nil)
			if err == nil {
				all[i].over.now, err = readScrape(time.Now(), body)
			}
			if err == nil { // a sidecar of an older version knows no hot keys: then none are shown
				_ = t.client.decode(ctx, "/hotkeys", &all[i].hot)
			}
			if err != nil {
				all[i].fault = err.Error()
			}
		})
	}
	group.Wait()
	for i, t := range targets {
		if all[i].fault != "" {
			if t.client == w.first {
				return errors.New(all[i].fault)
			}
			continue
		}
		now := all[i].over.now
		var known bool
		if all[i].over.before, known = w.before[t.client.base.Host]; !known {
			all[i].over.before = now // so nothing has been counted yet
		}
		w.before[t.client.base.Host] = now
	}
	w.last = all
	return nil
}
