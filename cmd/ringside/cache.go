package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

type cacheCmd struct {
	Add    cacheAddCmd    `cmd:"" help:"Let a cache server join the ring."`
	Drain  cacheDrainCmd  `cmd:"" help:"Take all that a cache server owns from it, so that it can be removed."`
	Weight cacheWeightCmd `cmd:"" help:"Give a cache server another weight; 0 takes all that it owns from it."`
	Remove cacheRemoveCmd `cmd:"" help:"Forget a cache server that is drained, down, or has never joined."`
}

// Help is shown by ringside cache --help.
func (c *cacheCmd) Help() string {
	return `Changes need the token of the sidecar: RINGSIDE_TOKEN, or --token. Each returns once it is committed; with --wait, once it is carried out.

Example: ringside cache add c4 10.0.0.4:6379 --wait`
}

// changeFlags are the flags of every change.
type changeFlags struct {
	Admin     adminFlags    `embed:""`
	JSON      bool          `name:"json" help:"Print the answer as JSON."`
	Wait      bool          `help:"Return when the change is carried out, and show how far it is."`
	WaitLimit time.Duration `default:"1h" placeholder:"1h" help:"How long to wait at most; the change goes on by itself (default: 1h)."`
}

type cacheAddCmd struct {
	Name   string      `arg:"" help:"Its name, which places it on the ring for good."`
	Addr   string      `arg:"" help:"host:port, as all sidecars reach it."`
	Weight int64       `default:"1" placeholder:"1" help:"Its share of the ring is weight / sum of all weights (default: 1)."`
	Flush  bool        `help:"Add it although it holds keys. They are deleted."`
	Change changeFlags `embed:""`
}

type cacheDrainCmd struct {
	Name   string      `arg:"" help:"Its name."`
	Change changeFlags `embed:""`
}

type cacheWeightCmd struct {
	Name   string      `arg:"" help:"Its name."`
	Weight int64       `arg:"" help:"Its new weight."`
	Change changeFlags `embed:""`
}

type cacheRemoveCmd struct {
	Name   string      `arg:"" help:"Its name."`
	Change changeFlags `embed:""`
}

// Run adds the server.
func (c *cacheAddCmd) Run(ctx context.Context, env *environment) error {
	body := map[string]any{"name": c.Name, "addr": c.Addr, "weight": c.Weight, "flush": c.Flush}
	return c.Change.run(ctx, env, "add", c.Name, body)
}

// Run drains the server.
func (c *cacheDrainCmd) Run(ctx context.Context, env *environment) error {
	return c.Change.run(ctx, env, "drain", c.Name, map[string]any{"name": c.Name})
}

// Run gives the server its weight.
func (c *cacheWeightCmd) Run(ctx context.Context, env *environment) error {
	return c.Change.run(ctx, env, "weight", c.Name, map[string]any{"name": c.Name, "weight": c.Weight})
}

// Run removes the server.
func (c *cacheRemoveCmd) Run(ctx context.Context, env *environment) error {
	return c.Change.run(ctx, env, "remove", c.Name, map[string]any{"name": c.Name})
}

// changedAnswer is the answer to a change.
type changedAnswer struct {
	Epoch uint64 `json:"epoch"`
	State string `json:"state"`
}

// progressAnswer is what is needed of /changes.
type progressAnswer struct {
	Epoch    uint64 `json:"epoch"`
	Changing bool   `json:"changing"`
	Summary  string `json:"summary"`
	Servers  []struct {
		Name  string `json:"name"`
		State string `json:"state"`
	} `json:"servers"`
	Lost []struct {
		From  string `json:"from"`
		Epoch uint64 `json:"epoch"`
	} `json:"lost"`
}

// gone is the state of a server that is not there.
const gone = "gone"

func (p *progressAnswer) state(server string) string {
	for _, s := range p.Servers {
		if s.Name == server {
			return s.State
		}
	}
	return gone
}

// lost says what was lost since an epoch, if anything was.
func (p *progressAnswer) lost(since uint64) error {
	var from []string
	for _, l := range p.Lost {
		if l.Epoch > since && !slices.Contains(from, l.From) {
			from = append(from, l.From)
		}
	}
	switch len(from) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%s went down before all its plain keys were carried over: those are lost", printable(from[0]))
	}
	return fmt.Errorf("%s went down before all their plain keys were carried over: those are lost", printable(strings.Join(from, ", ")))
}

func (f *changeFlags) run(ctx context.Context, env *environment, verb, server string, body map[string]any) error {
	client, err := f.Admin.client(env)
	if err != nil {
		return err
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		return err
	}
	answer, err := client.post(ctx, "/caches/"+verb, encoded)
	if err != nil {
		return err
	}
	var changed changedAnswer
	if err := decodeAnswer("/caches/"+verb, answer, &changed); err != nil {
		return err
	}
	if f.Wait {
		if changed, err = f.await(ctx, env, client, verb, server, changed); err != nil {
			return err
		}
		if answer, err = json.Marshal(changed); err != nil {
			return err
		}
	}
	if f.JSON {
		return writeJSON(env.stdout, answer)
	}
	_, err = fmt.Fprintf(env.stdout, "%s is %s, epoch %d\n", printable(server), printable(changed.State), changed.Epoch)
	return err
}

const (
	// askEvery is how often a change that is waited for is asked after.
	askEvery = 300 * time.Millisecond
	// deafFor is how long the sidecar may not answer meanwhile.
	deafFor = 30 * time.Second
)

// await waits until a change is carried out. The error says why it will not be, or not yet.
func (f *changeFlags) await(ctx context.Context, env *environment, client *adminClient, verb, server string, changed changedAnswer) (changedAnswer, error) {
	show := newProgressLine(env.stderr)
	defer show.end()
	began, heard := time.Now(), time.Now()
	for {
		var p progressAnswer
		err := client.decode(ctx, "/changes", &p)
		switch {
		case ctx.Err() != nil:
			return changed, errors.New("interrupted; the change goes on by itself: /changes and the ring page say how far it is")
		case err != nil && time.Since(heard) > deafFor:
			return changed, fmt.Errorf("the change was committed, but it is not known how far it is: %w", err)
		case err == nil:
			heard = time.Now()
			show.say(p.Summary)
			switch done, failed := outcome(verb, p.state(server), p.Changing); {
			case p.Epoch < changed.Epoch: // not heard here yet
			case failed != "":
				return changed, fmt.Errorf("%s is %s: %s", server, p.state(server), failed)
			case done:
				return changedAnswer{p.Epoch, p.state(server)}, p.lost(changed.Epoch)
			}
		}
		if time.Since(began) > f.WaitLimit {
			return changed, fmt.Errorf("not carried out within %v, and it goes on: %s", f.WaitLimit, printable(p.Summary))
		}
		timer := time.NewTimer(askEvery)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// outcome decides whether a change is carried out, or why it cannot be any more.
func outcome(verb, state string, changing bool) (done bool, failed string) {
	switch {
	case verb == "remove":
		return state == gone, ""
	case state == gone && verb == "drain":
		return true, "" // drained and removed meanwhile
	case state == gone:
		return false, "somebody has removed it"
	case verb == "drain" && state != "draining":
		return false, "somebody has given it work again"
	case verb == "drain":
		return !changing, ""
	case state == "draining":
		return false, "somebody drains it"
	case verb == "add" || state == "joining":
		return state == "active" && !changing, ""
	}
	return !changing, ""
}

// progressLine says how far something is: in one line that is written over on a terminal, else in a line for each change.
type progressLine struct {
	out      io.Writer
	terminal bool
	last     string
}

func newProgressLine(out io.Writer) *progressLine {
	p := &progressLine{out: out}
	if f, ok := out.(*os.File); ok {
		if info, err := f.Stat(); err == nil {
			p.terminal = info.Mode()&os.ModeCharDevice != 0
		}
	}
	return p
}

func (p *progressLine) say(text string) {
	if text == p.last {
		return
	}
	p.last = text
	var line bytes.Buffer
	if p.terminal {
		line.WriteString("\r\x1b[K") // to the beginning of the line, and clear it
	}
	if text != "" {
		line.WriteString(printable(text))
	}
	if !p.terminal {
		if text == "" {
			return
		}
		line.WriteByte('\n')
	}
	_, _ = p.out.Write(line.Bytes()) // progress only
}

// end clears the line.
func (p *progressLine) end() {
	if p.terminal {
		p.say("")
	}
}
