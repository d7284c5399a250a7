package sidecar

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringside/ring"
	"ringside/shard"
	"ringside/shard/catalog"
	"ringside/shard/keyspace"
	"ringside/shard/mover"
	"ringside/sidecar/admin"
	"ringside/sidecar/config"
	"ringside/sidecar/topology"
)

// shards does what operators ask for about shards and moves, and gives the mover what it needs of the sidecar.
type shards struct {
	changes   *changes
	feed      *feed
	topology  *topology.Holder
	keyspaces *keyspace.Set
	mover     *mover.Mover // nil: there is no catalog, and so no shards
	heat      *shardHeat
	whole     func(s topology.Shard) string // its dsn, with the password that the configuration has for it

	ring atomic.Pointer[ringOf]
}

type ringOf struct {
	of   *topology.Topology
	ring mover.Ring
}

// newShards prepares to move vnodes.
func (s *Sidecar) newShards(reg prometheus.Registerer) (*shards, error) {
	x := &shards{changes: s.operator, feed: s.feed, topology: s.topology, keyspaces: s.cfg.Set(), heat: s.heat, whole: s.dsn}
	if s.catalog == nil {
		return x, nil
	}
	tables := func() (all []string) {
		for _, ks := range x.keyspaces.Keyspaces() {
			all = append(all, ks.Table)
		}
		return all
	}
	var err error
	x.mover, err = mover.New(mover.Config{Holder: s.cfg.Name + "/" + s.bootID, ViewTTL: s.cfg.ViewTTL}, mover.Deps{
		Journal: s.catalog.get, DSN: s.dsnOf, Ring: x.currentRing, Publish: x.publish, Tables: tables, Registerer: reg, Log: s.log,
		View: func(name string) (shard.View, time.Time) { return s.fleet.Confirmation(name).View() },
		MaxSize: func(name string) int64 {
			for i := range s.cfg.Shards {
				if s.cfg.Shards[i].Name == name {
					return int64(s.cfg.Shards[i].MaxSize)
				}
			}
			return 0
		},
		Queue: func(name string) (time.Duration, uint64) {
			for _, p := range s.fleet.Pools() {
				if p.Name == name {
					return p.OldestWait, p.Served
				}
			}
			return 0, 0
		},
	})
	return x, err
}

// dsnOf returns how a shard of the present topology is reached.
func (s *Sidecar) dsnOf(name string) (string, bool) {
	t := s.topology.Current()
	if i := t.ShardIndex(name); i >= 0 {
		return s.dsn(t.Shards[i]), true
	}
	return "", false
}

// run moves what is to be moved, until ctx ends.
func (x *shards) run(ctx context.Context) error {
	if x.mover == nil {
		return nil
	}
	return x.mover.Run(ctx)
}

// currentRing is what the mover needs of the present topology.
func (x *shards) currentRing() mover.Ring {
	t := x.topology.Current()
	if r := x.ring.Load(); r != nil && r.of == t {
		return r.ring
	}
	r := mover.Ring{Epoch: t.Epoch, Settled: !t.Changing(), Owners: t.ShardTable(), Overrides: map[string]string{}}
	for _, s := range t.Shards {
		r.Shards, r.Weights = append(r.Shards, s.Name), append(r.Weights, s.Weight)
	}
	for _, o := range t.Overrides {
		r.Overrides[o.ShardKey] = o.Shard
	}
	x.ring.Store(&ringOf{t, r})
	return r
}

// publish implements mover.Deps.
func (x *shards) publish(ctx context.Context, driver uint64, p catalog.NewPart) error {
	x.feed.refresh(ctx)
	for range 2 * changeTries {
		t := x.topology.Current()
		var next *topology.Topology
		var err error
		switch {
		case p.Key == "":
			next, err = topology.GiveVnodes(t, p.Vnodes, p.To)
		case p.Clear:
			next, err = topology.ClearOverride(t, p.Key)
		default:
			next, err = topology.SetOverride(t, p.Key, p.To)
		}
		if err != nil || next == t {
			return err
		}
		if err = x.feed.commitAs(ctx, driver, t, next); !errors.Is(err, catalog.ErrConflict) {
			return err
		}
	}
	return errors.New("the ring is being changed by others again and again")
}

// functions are what the admin interface offers.
func (x *shards) functions() admin.Shards {
	return admin.Shards{
		Plan: x.plan, Start: x.start, Cancel: x.cancel, Moves: x.moves, Verify: x.verify, Add: x.add, Weigh: x.weigh, Remove: x.remove, Attach: x.attach,
	}
}

var errNoName = &admin.BadChangeError{Reason: "name is missing"}

var errNoCatalog = &topology.Refusal{Reason: "this cluster has no catalog, and so no shards"}

func (x *shards) usable() error {
	if x.mover == nil || len(x.topology.Current().Shards) == 0 {
		return errNoCatalog
	}
	return nil
}

// request decides what is asked for by the topology that counts.
func (x *shards) request(ctx context.Context, want admin.MoveRequest) (mover.Request, error) {
	if err := x.usable(); err != nil {
		return mover.Request{}, err
	}
	x.feed.refresh(ctx)
	if want.Key != "" {
		if err := x.divides(want.Key); err != nil {
			return mover.Request{}, err
		}
		if t := x.topology.Current(); want.To != "" && len(t.Overrides) >= topology.MaxOverrides {
			if _, err := topology.SetOverride(t, want.Key, want.To); err != nil {
				return mover.Request{}, err
			}
		}
	}
	if want.ByLoad {
		load, fixed := x.heat.load(x.topology.Current())
		if load == nil {
			return mover.Request{}, &topology.Refusal{Reason: "this sidecar has asked nothing of the shards lately, so it knows no load: ask another one, or later"}
		}
		return mover.Request{Load: load, Fixed: fixed}, nil
	}
	if want.To == "" {
		return mover.Request{Key: want.Key}, nil
	}
	if x.topology.Current().ShardIndex(want.To) < 0 {
		return mover.Request{}, &topology.Refusal{Unknown: true, Reason: fmt.Sprintf("there is no shard %s", want.To)}
	}
	if want.Key != "" {
		return mover.Request{Key: want.Key, To: want.To}, nil
	}
	vnodes, err := mover.Vnodes(want.First, want.Last)
	if err != nil {
		return mover.Request{}, &admin.BadChangeError{Reason: err.Error()}
	}
	return mover.Request{To: want.To, Vnodes: vnodes}, nil
}

// divides refuses what is no shard key of any keyspace.
func (x *shards) divides(key string) error {
	all := x.keyspaces.Keyspaces()
	if len(all) == 0 {
		return &topology.Refusal{Reason: "no keyspace has a table: there are no shard keys"}
	}
	for _, ks := range all {
		if ks.IsShardKey([]byte(key)) {
			return nil
		}
	}
	return &admin.BadChangeError{Reason: fmt.Sprintf("%s is no shard key: no keyspace's shard_by field can have that value", shard.QuoteKey(key))}
}

func (x *shards) plan(ctx context.Context, want admin.MoveRequest) (admin.MovePlan, error) {
	request, err := x.request(ctx, want)
	if err != nil {
		return admin.MovePlan{}, err
	}
	p, err := x.mover.Plan(ctx, request)
	if err != nil {
		return admin.MovePlan{}, &topology.Refusal{Reason: err.Error()}
	}
	out := admin.MovePlan{Parts: len(p.Parts), Seconds: p.Took.Seconds(), Refused: p.Refused, Notes: p.Notes, Shards: x.heat.planned(x.topology.Current(), p.Parts)}
	rates := x.heat.vnodes.Rates(time.Now())
	for _, part := range p.Parts {
		at := slices.IndexFunc(out.Flows, func(f admin.MoveFlow) bool { return f.From == part.From && f.To == part.To })
		if at < 0 {
			at = len(out.Flows)
			out.Flows = append(out.Flows, admin.MoveFlow{From: part.From, To: part.To})
		}
		f := &out.Flows[at]
		for _, v := range part.Vnodes {
			f.Load += rates[v]
		}
		f.Vnodes, f.Rows, f.Bytes = f.Vnodes+len(part.Vnodes), f.Rows+part.Rows, f.Bytes+part.Bytes
		out.Vnodes, out.Rows, out.Bytes = out.Vnodes+len(part.Vnodes), out.Rows+part.Rows, out.Bytes+part.Bytes
	}
	return out, nil
}

func (x *shards) start(ctx context.Context, want admin.MoveRequest) (admin.MoveStarted, error) {
	request, err := x.request(ctx, want)
	if err != nil {
		return admin.MoveStarted{}, err
	}
	id, p, err := x.mover.Start(ctx, request)
	refused, isRefused := errors.AsType[*mover.RefusedError](err)
	switch {
	case isRefused:
		return admin.MoveStarted{}, &topology.Refusal{Reason: "the move was not begun: " + refused.Error()}
	case errors.Is(err, catalog.ErrConflict) && want.Key != "":
		return admin.MoveStarted{}, &topology.Refusal{Reason: fmt.Sprintf("vnode %d, that of shard key %s, is being moved already, or a key of it is: wait until that is done, or cancel it", ring.NewHasher().Vnode([]byte(want.Key)), shard.QuoteKey(want.Key))}
	case errors.Is(err, mover.ErrNothing):
		return admin.MoveStarted{}, &topology.Refusal{Reason: "there is nothing to move: the shards have what was asked for"}
	case errors.Is(err, catalog.ErrConflict):
		return admin.MoveStarted{}, &topology.Refusal{Reason: "some of the vnodes are being moved already: wait until that is done, or cancel it"}
	case err != nil && p.Parts == nil:
		return admin.MoveStarted{}, &topology.Refusal{Reason: err.Error()}
	case err != nil:
		return admin.MoveStarted{}, err
	}
	out := admin.MoveStarted{ID: id, Parts: len(p.Parts)}
	for _, part := range p.Parts {
		out.Vnodes += len(part.Vnodes)
		out.Rows += part.Rows
	}
	return out, nil
}

func (x *shards) cancel(ctx context.Context, id int64) error {
	if err := x.usable(); err != nil {
		return err
	}
	journal, err := x.feed.catalog.get(ctx)
	if err != nil {
		return err
	}
	found, open, err := journal.CancelMove(ctx, id)
	switch {
	case err != nil:
		return err
	case !found:
		return &topology.Refusal{Unknown: true, Reason: fmt.Sprintf("there is no move %d", id)}
	case !open:
		return &topology.Refusal{Reason: fmt.Sprintf("move %d has ended already", id)}
	}
	x.mover.Wake()
	return nil
}

// movesShown is of how many moves the parts are listed.
const movesShown = 5

func (x *shards) moves(ctx context.Context) ([]admin.MovePart, error) {
	if x.mover == nil {
		return nil, nil
	}
	journal, err := x.feed.catalog.get(ctx)
	if err != nil {
		return nil, err
	}
	parts, err := journal.Parts(ctx, movesShown)
	out := make([]admin.MovePart, len(parts))
	for i, p := range parts {
		out[i] = admin.MovePart{
			ShardKey: p.Key, Clear: p.Clear, Move: p.Move, Part: p.ID, From: p.From, To: p.To, Vnodes: len(p.Vnodes), State: string(p.State), Cancel: p.Cancel, Step: p.Step, Why: p.Why,
			Rows: p.Rows, Bytes: p.Bytes, Copied: p.Copied, Sent: p.Sent, Changes: p.Changes, Deleted: p.Deleted, Rate: p.Rate, ETA: -1, Attempts: p.Attempts,
			Blocked: float64(p.Blocked.Microseconds()) / 1000,
		}
		if out[i].ETA = -1; p.Rate > 0 && p.State == catalog.PartRunning {
			out[i].ETA = max(0, float64(p.Rows-p.Copied)/p.Rate)
		}
		if !p.Started.IsZero() {
			end := p.Ended
			if end.IsZero() {
				end = time.Now()
			}
			out[i].Seconds = max(0, end.Sub(p.Started).Seconds())
		}
	}
	return out, err
}

func (x *shards) verify(ctx context.Context) (admin.MoveVerification, error) {
	if err := x.usable(); err != nil {
		return admin.MoveVerification{}, err
	}
	x.feed.refresh(ctx)
	v := x.mover.Verify(ctx)
	out := admin.MoveVerification{Epoch: v.Epoch, Faults: v.Faults}
	for _, s := range v.Shards {
		out.Shards = append(out.Shards, admin.ShardVerified{Name: s.Name, Vnodes: s.Vnodes, Overrides: s.Keys, Moving: s.Moving, Rows: s.Rows, Astray: s.Astray})
	}
	return out, nil
}

func (x *shards) weigh(ctx context.Context, name string, weight int64) (admin.Changed, error) {
	if name == "" {
		return admin.Changed{}, errNoName
	}
	if err := config.CheckWeight(weight); err != nil {
		return admin.Changed{}, &admin.BadChangeError{Reason: fmt.Sprintf("weight %v", err)}
	}
	return x.change(ctx, name, func(t *topology.Topology) (*topology.Topology, error) {
		return topology.WeighShard(t, name, uint32(weight))
	})
}

func (x *shards) remove(ctx context.Context, name string) (admin.Changed, error) {
	if name == "" {
		return admin.Changed{}, errNoName
	}
	if err := x.usable(); err != nil {
		return admin.Changed{}, err
	}
	x.feed.refresh(ctx)
	journal, err := x.feed.catalog.get(ctx)
	if err != nil {
		return admin.Changed{}, err
	}
	open, err := journal.OpenParts(ctx)
	if err != nil {
		return admin.Changed{}, err
	}
	for _, p := range open {
		if p.From == name || p.To == name {
			return admin.Changed{}, &topology.Refusal{Reason: fmt.Sprintf("move %d goes from shard %s to shard %s: wait until it is done, or cancel it", p.Move, p.From, p.To)}
		}
	}
	t, err := x.changes.commit(ctx, admin.Change{Name: name}, func(t *topology.Topology) (*topology.Topology, error) {
		return topology.RemoveShard(t, name)
	})
	if err != nil {
		return admin.Changed{}, err
	}
	return admin.Changed{Epoch: t.Epoch, State: "gone"}, nil
}

// change makes a change of the shards.
func (x *shards) change(ctx context.Context, name string, next change) (admin.Changed, error) {
	if err := x.usable(); err != nil {
		return admin.Changed{}, err
	}
	x.feed.refresh(ctx)
	t, err := x.changes.commit(ctx, admin.Change{Name: name}, next)
	if err != nil {
		return admin.Changed{}, err
	}
	return admin.Changed{Epoch: t.Epoch, State: string(t.Shards[t.ShardIndex(name)].State)}, nil
}

// add lets a shard join, if it can be one: it can be reached by this sidecar, and has the tables.
func (x *shards) add(ctx context.Context, s admin.NewShard) (admin.Changed, error) {
	bad := func(format string, args ...any) (admin.Changed, error) {
		return admin.Changed{}, &admin.BadChangeError{Reason: fmt.Sprintf(format, args...)}
	}
	if err := config.CheckName(s.Name); err != nil {
		return bad("name %v", err)
	}
	if err := config.CheckDSN(s.DSN); err != nil {
		return bad("dsn %v", err)
	}
	if err := config.CheckWeight(s.Weight); err != nil {
		return bad("weight %v", err)
	}
	switch {
	case config.DSN(s.DSN).HasPassword():
		return bad("dsn carries a password, which must not travel: give each sidecar the whole dsn under shards: in its configuration, and leave the password out here")
	case s.MaxConnections < 1 || s.MaxConnections > config.MaxConnections:
		return bad("max_connections is %d: it must be from 1 to %d", s.MaxConnections, config.MaxConnections)
	}
	joining := topology.Shard{Name: s.Name, DSN: s.DSN, Weight: uint32(s.Weight), MaxConnections: int(s.MaxConnections)}
	next := func(t *topology.Topology) (*topology.Topology, error) { return topology.AddShard(t, joining) }
	if err := x.usable(); err != nil {
		return admin.Changed{}, err
	}
	if _, err := next(x.topology.Current()); err != nil {
		return admin.Changed{}, err // nothing of it is to be asked
	}
	if err := x.mover.Admit(ctx, s.Name, x.whole(joining), x.keyspaces.Keyspaces()); err != nil {
		return admin.Changed{}, &topology.Refusal{Reason: err.Error()}
	}
	return x.change(ctx, s.Name, next)
}

// attach attaches the table of a keyspace on every shard.
func (x *shards) attach(ctx context.Context, table string) (admin.Attached, error) {
	if err := x.usable(); err != nil {
		return admin.Attached{}, err
	}
	by := ""
	for _, ks := range x.keyspaces.Keyspaces() {
		if ks.Table != table {
			continue
		}
		if by == "" || by == ks.ShardBy {
			by = ks.ShardBy
			continue
		}
		return admin.Attached{}, &topology.Refusal{Reason: fmt.Sprintf("table %s stands behind keyspaces that divide it by different columns", table)}
	}
	if by == "" {
		var all []string
		for _, ks := range x.keyspaces.Keyspaces() {
			all = append(all, ks.Table)
		}
		return admin.Attached{}, &topology.Refusal{Unknown: true, Reason: fmt.Sprintf("no keyspace has table %q: it must be one of %s", table, strings.Join(all, ", "))}
	}
	out := admin.Attached{Table: table}
	for _, s := range x.topology.Current().Shards {
		if err := x.mover.Attach(ctx, s.Name, table, by); err != nil {
			return admin.Attached{}, &topology.Refusal{Reason: fmt.Sprintf("%v (it is attached on %d of %d shards now)", err, len(out.Shards), len(x.topology.Current().Shards))}
		}
		out.Shards = append(out.Shards, s.Name)
	}
	return out, nil
}
