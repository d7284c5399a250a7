package cdc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ringside/shard/keyspace"
)

// follower follows one shard, or looks whether somebody does.
type follower struct {
	shard    Shard
	cfg      Config
	deps     Deps
	counts   *counters
	log      *slog.Logger
	slot     string
	outdated atomic.Bool // another one with other keyspaces is to take its place
	known    []string    // the keyspaces, as describe gives them
	seen     LSN         // the highest position that was acknowledged here
	broken   string      // why the slot cannot be read on from; "": it can
	failures int         // in a row
	warned   bool        // of max_slot_wal_keep_size

	mu       sync.Mutex // guards the following
	role     Role
	reason   string // of the role
	trouble  string // what hinders following, while the role stays
	asOf     time.Time
	complete bool // nothing is owed, and the follower knows our keyspaces
	heard    sight
	left     map[string]string
	acked    LSN
	logged   string
	walSaid  string // the last wal_status that was logged
}

func newFollower(s Shard, cfg Config, deps Deps, counts *counters, log *slog.Logger) *follower {
	f := &follower{
		shard: s, cfg: cfg, deps: deps, counts: counts, log: log.With("shard", s.Name), slot: SlotName(s.Name), role: Starting,
	}
	for _, ks := range cfg.Keyspaces {
		f.known = append(f.known, describe(ks))
	}
	slices.Sort(f.known)
	return f
}

// describe tells keyspaces apart that make different keys of the same rows.
func describe(ks *keyspace.Keyspace) string {
	return fmt.Sprintf("%s %s %s %s", ks.Name, ks.Table, ks.Pattern, ks.ShardBy)
}

// run returns when ctx has ended.
func (f *follower) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := f.attend(ctx)
		if ctx.Err() != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(jitter(f.conclude(err), rand.N[time.Duration])):
		}
	}
}

// retryMost is the longest pause after errors that keep coming.
const retryMost = 30 * time.Second

// lasting is how long a session must have followed for its end not to count as one more failure.
const lasting = time.Minute

var (
	errTaken   = errors.New("another sidecar follows")
	errChanged = errors.New("the tables or the publication have changed")
)

// unreachableError says that the shard itself could not be asked.
type unreachableError struct{ err error }

func (e *unreachableError) Error() string { return e.err.Error() }
func (e *unreachableError) Unwrap() error { return e.err }

// conclude draws the conclusions of an error and returns the pause until the next attempt.
func (f *follower) conclude(err error) time.Duration {
	s, advice := judge(err, false)
	unready, notReady := errors.AsType[*notReadyError](err)
	_, unreachable := errors.AsType[*unreachableError](err)
	switch {
	case errors.Is(err, errChanged):
		return 0
	case notReady:
		f.become(Down, unready.what)
		return 2 * f.cfg.Look
	case unreachable: // below
	case f.broken != "":
		// The next attempt makes a new slot. If that breaks as well, something is wrong that a new slot does not cure.
		f.failures++
		f.say(slog.LevelWarn, "the change stream cannot be read on: a new slot will be made, and cached rows flushed", "error", err)
		return min(f.cfg.Look<<min(f.failures-1, 8), retryMost)
	case s == setting:
		f.mu.Lock()
		set, always := errors.AsType[*settingError](err)
		off := always && set.always || f.heard.past.slot == ""
		f.mu.Unlock()
		if off {
			f.become(Off, err.Error())
			f.say(slog.LevelWarn, "changes made by others are not followed: cached rows may be as old as their TTL", "error", err, "todo", advice)
			return f.cfg.OffRetry
		}
		f.become(StandBy, err.Error())
		f.say(slog.LevelError, "changes made by others are not followed at present", "error", err, "todo", advice)
		return 4 * f.cfg.Look
	}
	role := Down
	if !unreachable {
		role = StandBy
	}
	f.become(role, err.Error())
	f.say(slog.LevelWarn, "changes made by others cannot be followed at present", "error", err)
	return f.cfg.Look
}

// attend keeps a session on the shard: it looks whether somebody follows, and follows if nobody does. It returns the error that ended it.
func (f *follower) attend(ctx context.Context) error {
	site, err := openSite(ctx, f.shard, f.cfg)
	if _, old := errors.AsType[*settingError](err); err != nil && !old {
		return &unreachableError{err}
	}
	if err != nil {
		return err
	}
	defer site.close()
	for {
		asked := time.Now()
		seen, err := site.look(ctx)
		if err != nil {
			return &unreachableError{err}
		}
		f.hear(seen, asked)
		if seen.walLevel != "logical" {
			return &settingError{"wal_level of the server is " + seen.walLevel, "set wal_level = logical and max_slot_wal_keep_size, and restart the server", true}
		}
		if seen.slot == nil || !seen.slot.active || f.broken != "" {
			err := f.lead(ctx, site, seen)
			if s, _ := judge(err, false); s != taken && !errors.Is(err, errTaken) {
				return err
			}
			f.broken = "" // whoever follows now can read it
		}
		f.become(StandBy, "")
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(jitter(f.cfg.Look, rand.N[time.Duration])):
		}
	}
}

// lead tries to become the follower, and follows until something ends it.
func (f *follower) lead(ctx context.Context, site *site, seen sight) error {
	v, failed, err := site.publish(ctx, f.cfg.Keyspaces, seen.past.slot != "")
	if err != nil {
		return err
	}
	stream, err := openStream(ctx, f.shard, f.cfg)
	if err != nil {
		return err
	}
	defer stream.close()
	now, started, err := stream.identify(ctx)
	if err != nil {
		return err
	}
	if started != site.started {
		return errors.New("the dsn leads to different servers")
	}
	if seen, err = site.look(ctx); err != nil {
		return err
	}
	p, why := decide(seen.past, now, seen.slot, f.seen)
	if p == follow && f.broken != "" {
		p, why = replace, f.broken
	}
	switch p {
	case standBy:
		return errTaken
	case refuse:
		return &settingError{what: fmt.Sprintf("the replication slot %s cannot be used: %s", f.slot, why), advice: "rename the shard, or drop the slot"}
	case replace:
		f.log.Warn("changes may have been missed: a new replication slot is made, then cached rows are flushed", "why", why)
		if err := f.replaceSlot(ctx, site, seen, why); err != nil {
			return err
		}
		if err := f.rehear(ctx, site); err != nil {
			return err
		}
	}
	if p == create || p == replace {
		if err := stream.createSlot(ctx, f.cfg.SlotWait); err != nil {
			return err
		}
		f.broken, f.seen = "", 0
	}
	if err := stream.start(ctx); err != nil {
		return f.streamFault(err)
	}
	if err := site.takeOver(ctx, now, f.cfg.Sidecar, f.known); err != nil {
		return err
	}
	if err := f.rehear(ctx, site); err != nil {
		return err
	}
	f.tell(v, failed, seen.keep)
	begun := time.Now()
	err = newSession(f, site, stream, v).run(ctx)
	if time.Since(begun) > lasting {
		f.failures = 0
	}
	f.mu.Lock()
	f.left, f.acked = nil, 0
	f.mu.Unlock()
	return f.streamFault(err)
}

// replaceSlot drops what is left of the slot, after it has been written down that a flush is owed.
func (f *follower) replaceSlot(ctx context.Context, site *site, seen sight, why string) error {
	limited, cancel := site.bounded(ctx)
	defer cancel()
	if err := oweFlush(limited, site.conn, []string{allKeyspaces}, why); err != nil {
		return err
	}
	if seen.slot == nil {
		return nil
	}
	return site.dropSlot(ctx)
}

// streamFault notes whether the slot has to be replaced.
func (f *follower) streamFault(err error) error {
	if s, _ := judge(err, true); s == broken {
		f.broken = err.Error()
	}
	return err
}

// tell logs once how the shard is followed from now on.
func (f *follower) tell(v survey, failed error, keep string) {
	f.counts.takeovers.Inc()
	c := v.publication.covers(f.cfg.Keyspaces, v.relations)
	f.mu.Lock()
	f.left = c.left
	f.mu.Unlock()
	f.become(Active, "")
	f.log.Info("following the shard's changes", "slot", f.slot, "tables", len(c.byName))
	for name, why := range c.left {
		f.log.Warn("changes of a keyspace are not followed: its TTL is the bound", "keyspace", name, "why", why)
	}
	if failed != nil {
		f.log.Warn("the publication is not what it should be: let the owner of the tables alter it", "error", failed)
	}
	if keep == "-1" && !f.warned {
		f.warned = true
		f.log.Warn("max_slot_wal_keep_size is -1: a follower that stays away could fill the server's disk; set it, to a tenth of the disk or so")
	}
}

// rehear learns what the shard says after we have changed it.
func (f *follower) rehear(ctx context.Context, site *site) error {
	asked := time.Now()
	seen, err := site.look(ctx)
	if err == nil {
		f.hear(seen, asked)
	}
	return err
}

// hear takes in what the shard says. asked is when it was asked.
func (f *follower) hear(s sight, asked time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard = s
	f.complete, f.trouble = false, ""
	switch {
	case s.past.slot != "" && (s.slot == nil || s.slot.walStatus == "lost"):
		f.trouble = "the replication slot is gone"
	case len(s.due.keyspaces) > 0:
		f.trouble = "cached rows must be flushed first: " + s.due.why
	case includes(s.keyspaces, f.known):
		f.complete = true
	case s.follower != "":
		f.trouble = "the follower " + s.follower + " does not know all keyspaces of this sidecar"
	}
	if s.aged {
		f.asOf = later(f.asOf, asked.Add(-s.age))
	}
	if s.slot == nil || s.slot.walStatus == f.walSaid {
		return
	}
	f.walSaid = s.slot.walStatus
	if level, text := walAlarm(s.slot.walStatus); text != "" {
		f.log.Log(context.Background(), level, text, "slot", f.slot, "wal_status", s.slot.walStatus, "retained_bytes", s.slot.retained, "safe_bytes", s.slot.safe)
	}
}

// walAlarm says how bad the wal_status of a slot is; "" if it is not.
func walAlarm(status string) (slog.Level, string) {
	switch status {
	case "extended":
		return slog.LevelWarn, "the replication slot keeps more log than max_wal_size"
	case "unreserved":
		return slog.LevelError, "the replication slot keeps more log than max_slot_wal_keep_size and is about to be lost"
	case "lost":
		return slog.LevelError, "the replication slot was lost"
	}
	return slog.LevelInfo, ""
}

func includes(all, some []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (f *follower) become(r Role, reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if reason == "" {
		f.logged = ""
	}
	f.role, f.reason = r, reason
}

// say logs an error, unless it is the one that was logged last.
func (f *follower) say(level slog.Level, text string, attrs ...any) {
	what := fmt.Sprint(text, attrs)
	f.mu.Lock()
	again := f.logged == what
	f.logged = what
	f.mu.Unlock()
	if !again {
		f.log.Log(context.Background(), level, text, attrs...)
	}
}
