package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

type moveCmd struct {
	Plan   movePlanCmd   `cmd:"" help:"Show what the weights ask for, or what was named, and what speaks against it; changes nothing."`
	Start  moveStartCmd  `cmd:"" help:"Move vnodes between shards while everything runs."`
	Status moveStatusCmd `cmd:"" help:"Show how far moves are."`
	Cancel moveCancelCmd `cmd:"" help:"Call a move off: what of it is not committed yet."`
	Verify moveVerifyCmd `cmd:"" help:"Compare what the shards own and hold with the shard map: exit 1 if they differ."`
}

// Help is shown by ringside move --help.
func (c *moveCmd) Help() string {
	return `Without --vnodes and --to it is about what the shards' weights ask for. Changes need the token of the sidecar: RINGSIDE_TOKEN, or --token.

Example: ringside shard weight s1 0; ringside move plan; ringside move start --wait`
}

// whichFlags say what is to be moved.
type whichFlags struct {
	Vnodes string `placeholder:"A-B" help:"Vnodes to move, with --to."`
	To     string `placeholder:"NAME" help:"The shard to move them to."`
	By     string `enum:"vnodes,load" default:"vnodes" placeholder:"load" help:"What the weights divide: vnodes, or the load of the shards as the sidecar that is asked knows it (default: vnodes)."`
}

func (w whichFlags) check() error {
	if (w.Vnodes == "") != (w.To == "") {
		return misusef("--vnodes and --to go together; without both, it is about what the weights ask for")
	}
	if w.By == "load" && w.To != "" {
		return misusef("--by load is about what the weights ask for; --vnodes and --to do not go with it")
	}
	return nil
}

// shardsMayTake is how long a sidecar looks at the shards at most, beside what --timeout says.
const shardsMayTake = 55 * time.Second

type movePlanCmd struct {
	Admin adminFlags `embed:""`
	Which whichFlags `embed:""`
	JSON  bool       `name:"json" help:"Print the answer as JSON."`
}

// movePlanAnswer is /moves/plan.
type movePlanAnswer struct {
	Flows []struct {
		From   string  `json:"from"`
		To     string  `json:"to"`
		Vnodes int     `json:"vnodes"`
		Rows   int64   `json:"rows"`
		Bytes  int64   `json:"bytes"`
		Load   float64 `json:"load"`
	} `json:"flows"`
	Shards []struct {
		Name       string  `json:"name"`
		Weight     uint32  `json:"weight"`
		Vnodes     int     `json:"vnodes"`
		VnodesThen int     `json:"vnodes_then"`
		Load       float64 `json:"load"`
		LoadThen   float64 `json:"load_then"`
	} `json:"shards"`
	Parts   int      `json:"parts"`
	Vnodes  int      `json:"vnodes"`
	Rows    int64    `json:"rows"`
	Bytes   int64    `json:"bytes"`
	Seconds float64  `json:"seconds"`
	Refused []string `json:"refused"`
	Notes   []string `json:"notes"`
}

// Run shows the plan. It fails if the move would be refused.
func (c *movePlanCmd) Run(ctx context.Context, env *environment) error {
	if err := c.Which.check(); err != nil {
		return err
	}
	client, err := c.Admin.client(env)
	if err != nil {
		return err
	}
	client.timeout += shardsMayTake
	return showPlan(ctx, env, client, url.Values{"vnodes": {c.Which.Vnodes}, "to": {c.Which.To}, "by": {c.Which.By}}, c.JSON)
}

// showPlan shows what a request comes to.
func showPlan(ctx context.Context, env *environment, client *adminClient, request url.Values, asJSON bool) error {
	body, err := client.get(ctx, "/moves/plan", request)
	if err != nil {
		return err
	}
	var p movePlanAnswer
	if err := decodeAnswer("/moves/plan", body, &p); err != nil {
		return err
	}
	if asJSON {
		if err := writeJSON(env.stdout, body); err != nil {
			return err
		}
	} else if err := p.print(env, request.Get("shard_key")); err != nil {
		return err
	}
	if len(p.Refused) > 0 {
		return fmt.Errorf("such a move would be refused (reasons: %d)", len(p.Refused))
	}
	return nil
}

// print shows it; key is the shard key that it is about, empty: vnodes.
func (p *movePlanAnswer) print(env *environment, key string) error {
	if p.Vnodes == 0 {
		_, err := fmt.Fprintln(env.stdout, "nothing to move: the shards have what was asked for")
		return err
	}
	flows := &table{heading: []string{"FROM", "TO", "VNODES", "LOAD/S", "ROWS (ABOUT)", "BYTES (ABOUT)"}}
	what := func(vnodes int) any {
		if key != "" {
			return "key " + shownKey(key)
		}
		return vnodes
	}
	for _, f := range p.Flows {
		flows.add(f.From, f.To, what(f.Vnodes), fmt.Sprintf("%.1f", f.Load), f.Rows, bytesOf(f.Bytes))
	}
	flows.add("all", counted(p.Parts, "part"), what(p.Vnodes), "", p.Rows, fmt.Sprintf("%s, about %v", bytesOf(p.Bytes), seconds(p.Seconds)))
	refused := &table{heading: []string{"REFUSED, BECAUSE"}}
	for _, r := range p.Refused {
		refused.add(r)
	}
	notes := &table{heading: []string{"NOTE"}}
	for _, n := range p.Notes {
		notes.add(n)
	}
	shards := &table{heading: []string{"SHARD", "WEIGHT", "VNODES", "THEN", "LOAD/S", "THEN"}}
	for _, s := range p.Shards {
		shards.add(s.Name, s.Weight, s.Vnodes, s.VnodesThen, fmt.Sprintf("%.1f", s.Load), fmt.Sprintf("%.1f", s.LoadThen))
	}
	return writeTables(env.stdout, flows, shards, refused, notes)
}

func bytesOf(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", (n+1023)>>10)
}

func seconds(s float64) time.Duration {
	return (time.Duration(s) * time.Second).Round(time.Second)
}

type moveStartCmd struct {
	Which  whichFlags  `embed:""`
	Change changeFlags `embed:""`
}

// Run starts a move, and with --wait shows how far it is until it has ended.
func (c *moveStartCmd) Run(ctx context.Context, env *environment) error {
	if err := c.Which.check(); err != nil {
		return err
	}
	client, err := c.Change.Admin.client(env)
	if err != nil {
		return err
	}
	request := map[string]string{}
	if c.Which.To != "" {
		request["vnodes"], request["to"] = c.Which.Vnodes, c.Which.To
	} else {
		request["by"] = c.Which.By
	}
	var started struct {
		ID     int64 `json:"id"`
		Parts  int   `json:"parts"`
		Vnodes int   `json:"vnodes"`
	}
	asking := *client
	asking.timeout += shardsMayTake
	answer, err := order(ctx, &asking, "/moves/start", request, &started)
	if err != nil {
		return err
	}
	if !c.Change.JSON {
		if _, err := fmt.Fprintf(env.stdout, "move %d: %s in %s\n", started.ID, counted(started.Vnodes, "vnode"), counted(started.Parts, "part")); err != nil {
			return err
		}
	}
	if c.Change.Wait {
		if answer, err = awaitMove(ctx, env, client, started.ID, c.Change.WaitLimit); err != nil {
			return err
		}
	}
	if c.Change.JSON {
		return writeJSON(env.stdout, answer)
	}
	return nil
}

// order sends a change and decodes what came of it.
func order(ctx context.Context, client *adminClient, path string, request, answer any) ([]byte, error) {
	encoded, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	body, err := client.post(ctx, path, encoded)
	if err != nil {
		return nil, err
	}
	return body, decodeAnswer(path, body, answer)
}

// movePart is one of /moves.
type movePart struct {
	Move     int64   `json:"move"`
	Part     int64   `json:"part"`
	From     string  `json:"from"`
	To       string  `json:"to"`
	Vnodes   int     `json:"vnodes"`
	ShardKey string  `json:"shard_key"`
	State    string  `json:"state"`
	Cancel   bool    `json:"cancel"`
	Step     string  `json:"step"`
	Why      string  `json:"why"`
	Rows     int64   `json:"rows"`
	Copied   int64   `json:"copied"`
	Sent     int64   `json:"sent"`
	Changes  int64   `json:"changes"`
	Rate     float64 `json:"rate"`
	ETA      float64 `json:"eta_seconds"`
	Attempts int     `json:"attempts"`
	Blocked  float64 `json:"blocked_ms"`
	Seconds  float64 `json:"seconds"`
}

type movesAnswer struct {
	Moves []movePart `json:"moves"`
}

func (p *movePart) ended() bool {
	return p.State == "done" || p.State == "cancelled" || p.State == "failed"
}

// awaitMove waits until a move has ended. The error says that not all of it was carried out.
func awaitMove(ctx context.Context, env *environment, client *adminClient, id int64, limit time.Duration) ([]byte, error) {
	show := newProgressLine(env.stderr)
	defer show.end()
	began, heard := time.Now(), time.Now()
	for {
		body, err := client.get(ctx, "/moves", nil)
		var answer movesAnswer
		if err == nil {
			err = decodeAnswer("/moves", body, &answer)
		}
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("interrupted; move %d goes on by itself: ringside move status", id)
		case err != nil && time.Since(heard) > deafFor:
			return nil, fmt.Errorf("move %d was begun, but it is not known how far it is: %w", id, err)
		case err == nil:
			heard = time.Now()
			s := summarize(answer.Moves, id)
			show.say(s.text)
			if s.ended {
				return body, s.err
			}
		}
		if time.Since(began) > limit {
			return nil, fmt.Errorf("move %d has not ended within %v, and goes on", id, limit)
		}
		timer := time.NewTimer(askEvery)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// moveSummary says how far a move is.
type moveSummary struct {
	text  string
	ended bool
	err   error
}

func summarize(parts []movePart, id int64) moveSummary {
	var all, done, failed, cancelled int
	var copied, rows int64
	var rate float64
	var now, why []string
	for _, p := range parts {
		if p.Move != id {
			continue
		}
		all++
		rows, copied = rows+max(p.Rows, p.Copied), copied+p.Copied
		switch p.State {
		case "done":
			done++
		case "failed":
			failed++
			why = append(why, p.Why)
		case "cancelled":
			cancelled++
		case "running":
			rate += p.Rate
			text := fmt.Sprintf("%s to %s: %s", p.From, p.To, p.Step)
			if p.Why != "" {
				text += " (" + p.Why + ")"
			}
			now = append(now, text)
		}
	}
	s := moveSummary{ended: all > 0 && done+failed+cancelled == all}
	s.text = fmt.Sprintf("%d of %s done, %d of about %d rows copied", done, counted(all, "part"), copied, rows)
	if rate > 0 {
		s.text += fmt.Sprintf(", %.0f rows/s", rate)
	}
	if len(now) > 0 {
		s.text += "; " + strings.Join(now, "; ")
	}
	switch {
	case failed > 0:
		s.err = fmt.Errorf("%d of %s called off: %s", failed, counted(all, "part"), printable(why[0]))
	case cancelled > 0:
		s.err = fmt.Errorf("%d of %s cancelled", cancelled, counted(all, "part"))
	}
	return s
}

type moveStatusCmd struct {
	Admin adminFlags `embed:""`
	JSON  bool       `name:"json" help:"Print the answer as JSON."`
}

// Run shows the latest moves.
func (c *moveStatusCmd) Run(ctx context.Context, env *environment) error {
	client, err := c.Admin.client(env)
	if err != nil {
		return err
	}
	body, err := client.get(ctx, "/moves", nil)
	if err != nil || c.JSON {
		return errors.Join(err, writeIf(env, body, err == nil))
	}
	var answer movesAnswer
	if err := decodeAnswer("/moves", body, &answer); err != nil {
		return err
	}
	if len(answer.Moves) == 0 {
		_, err := fmt.Fprintln(env.stdout, "no moves")
		return err
	}
	parts := &table{heading: []string{"MOVE", "PART", "FROM", "TO", "VNODES", "STATE", "STEP", "COPIED", "OF ABOUT", "ROWS/S", "ETA", "CHANGES", "ATTEMPTS", "BLOCKED", "TOOK", "WHY"}}
	for _, p := range answer.Moves {
		state, eta := p.State, "-"
		if p.Cancel && !p.ended() {
			state += ", cancelling"
		}
		if p.ETA >= 0 {
			eta = seconds(p.ETA).String()
		}
		var what any = p.Vnodes
		if p.ShardKey != "" {
			what = "key " + shownKey(p.ShardKey)
		}
		parts.add(p.Move, p.Part, p.From, p.To, what, state, p.Step, p.Copied, p.Rows, fmt.Sprintf("%.0f", p.Rate), eta, p.Changes, p.Attempts,
			fmt.Sprintf("%.0f ms", p.Blocked), seconds(p.Seconds), p.Why)
	}
	return writeTables(env.stdout, parts)
}

func writeIf(env *environment, body []byte, ok bool) error {
	if !ok {
		return nil
	}
	return writeJSON(env.stdout, body)
}

type moveCancelCmd struct {
	ID     int64       `arg:"" help:"The move, as ringside move status shows it."`
	Change changeFlags `embed:""`
}

// Run cancels a move. Parts that are committed stay moved.
func (c *moveCancelCmd) Run(ctx context.Context, env *environment) error {
	client, err := c.Change.Admin.client(env)
	if err != nil {
		return err
	}
	var answer struct {
		ID int64 `json:"id"`
	}
	body, err := order(ctx, client, "/moves/cancel", map[string]int64{"id": c.ID}, &answer)
	if err != nil {
		return err
	}
	if c.Change.Wait {
		var ended []byte
		if ended, err = awaitMove(ctx, env, client, c.ID, c.Change.WaitLimit); ended == nil {
			return err
		}
		body = ended // that parts were cancelled is what was wanted
	}
	if c.Change.JSON {
		return writeJSON(env.stdout, body)
	}
	_, err = fmt.Fprintf(env.stdout, "move %d is being called off; parts that are committed stay where they are\n", c.ID)
	return err
}

type moveVerifyCmd struct {
	Admin adminFlags `embed:""`
	JSON  bool       `name:"json" help:"Print the answer as JSON."`
}

// Run compares the shards with the map.
func (c *moveVerifyCmd) Run(ctx context.Context, env *environment) error {
	client, err := c.Admin.client(env)
	if err != nil {
		return err
	}
	client.timeout += shardsMayTake
	body, err := client.get(ctx, "/moves/verify", nil)
	if err != nil {
		return err
	}
	var v struct {
		Shards []struct {
			Name   string `json:"name"`
			Vnodes int    `json:"vnodes"`
			Keys   int    `json:"overrides"`
			Moving int    `json:"moving"`
			Rows   int64  `json:"rows"`
			Astray int64  `json:"astray"`
		} `json:"shards"`
		Faults []string `json:"faults"`
	}
	if err := decodeAnswer("/moves/verify", body, &v); err != nil {
		return err
	}
	if c.JSON {
		err = writeJSON(env.stdout, body)
	} else {
		found := &table{heading: []string{"SHARD", "VNODES", "OVERRIDES", "MOVING", "ROWS", "ASTRAY"}}
		for _, s := range v.Shards {
			found.add(s.Name, s.Vnodes, s.Keys, s.Moving, s.Rows, s.Astray)
		}
		faults := &table{heading: []string{"FAULT"}}
		for _, f := range v.Faults {
			faults.add(f)
		}
		err = writeTables(env.stdout, found, faults)
	}
	if err == nil && len(v.Faults) > 0 {
		err = fmt.Errorf("the shards are not as the shard map says, or could not be looked at (faults: %d)", len(v.Faults))
	}
	return err
}
