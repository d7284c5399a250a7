package cdc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringside/shard/keyspace"
)

const (
	// Publication is the name of the publication on every shard. Its tables are those of the keyspaces, each with the columns of its replica identity.
	Publication = "ringside"
	// MoverOrigin marks what the mover writes, which changes no row: a transaction is ignored if it was written under the replication origin of that
	// name, or if it began with pg_logical_emit_message(true, MoverOrigin, ...), which needs no privilege.
	MoverOrigin = "ringside_mover"

	heartbeatPrefix = "ringside"
	outputPlugin    = "pgoutput"

	oldestServer = 150000 // column lists of publications
)

// Key names a row that was changed. Its slices are the receiver's to keep, not to change.
type Key struct {
	Keyspace *keyspace.Keyspace
	Text     []byte // the whole key, canonical
	ShardKey []byte // canonical text of the shard_by field
}

// Deps is what is done about changes. Calls for one shard come one at a time, from a goroutine of that shard.
type Deps struct {
	// Invalidate deletes the entries of these rows, at most Config.BatchKeys, from every server that may hold one, whatever they are but the poison of
	// living writers. Every change of them is visible on the shard before the call. After an error the same rows are given again, until it returns
	// nil; only then the log is acknowledged. It must end soon after ctx.
	Invalidate func(ctx context.Context, keys []Key) error
	// Flush makes all entries useless that a keyspace has for rows of a shard; an empty keyspace stands for all. It is called after a TRUNCATE, and
	// when changes may have been missed. why is for logs. After an error it is called again.
	Flush func(ctx context.Context, shard, keyspace, why string) error
}

// Config holds the keyspaces and limits of Followers. The zero value of any other field means its default.
type Config struct {
	Sidecar   string               // this sidecar's name, shown to the others as the follower
	Keyspaces []*keyspace.Keyspace // all table keyspaces

	// LagLimit is by how much following may lag before the shard counts as degraded, at least Beat + Look. Default 2 s.
	LagLimit time.Duration
	// Beat is how often the follower marks the log and measures how long the mark takes to come by. Default 1 s.
	Beat time.Duration
	// Look is about how often a sidecar that does not follow looks whether somebody does. Default 500 ms.
	Look time.Duration
	// OffRetry is how often a shard is asked that cannot be followed because of its settings. Default 1 min.
	OffRetry time.Duration
	// Check is how often the follower compares the publication with the tables. Default 5 s.
	Check time.Duration
	// CallTimeout bounds a statement, and the opening of a connection. Default 5 s.
	CallTimeout time.Duration
	// SlotWait bounds the making of a slot, which waits for all transactions that are under way. Default 10 s.
	SlotWait time.Duration
	// InvalidateTimeout and FlushTimeout bound one call of Deps. Defaults 10 s and 1 min.
	InvalidateTimeout, FlushTimeout time.Duration
	// BatchKeys is about the most rows that are handed out at once. Default 1000.
	BatchKeys int
	// PendingKeys is about how many rows of one shard may wait to be handed out, before reading stops. Default 20,000.
	PendingKeys int
}

// WithDefaults returns c with every zero field set to its default.
func (c Config) WithDefaults() Config {
	duration := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	duration(&c.LagLimit, 2*time.Second)
	duration(&c.Beat, time.Second)
	duration(&c.Look, 500*time.Millisecond)
	duration(&c.OffRetry, time.Minute)
	duration(&c.Check, 5*time.Second)
	duration(&c.CallTimeout, 5*time.Second)
	duration(&c.SlotWait, 10*time.Second)
	duration(&c.InvalidateTimeout, 10*time.Second)
	duration(&c.FlushTimeout, time.Minute)
	if c.BatchKeys == 0 {
		c.BatchKeys = 1000
	}
	if c.PendingKeys == 0 {
		c.PendingKeys = 20_000
	}
	return c
}

// Validate reports every field whose value cannot work. Zero fields count as their defaults.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	for _, d := range []struct {
		name     string
		d, least time.Duration
	}{
		{"beat", c.Beat, 10 * time.Millisecond}, {"look", c.Look, 10 * time.Millisecond}, {"off_retry", c.OffRetry, 10 * time.Millisecond},
		{"check", c.Check, 10 * time.Millisecond}, {"call_timeout", c.CallTimeout, 100 * time.Millisecond}, {"slot_wait", c.SlotWait, 100 * time.Millisecond},
		{"invalidate_timeout", c.InvalidateTimeout, 10 * time.Millisecond}, {"flush_timeout", c.FlushTimeout, 10 * time.Millisecond},
		{"lag_limit", c.LagLimit, c.Beat + c.Look},
	} {
		if d.d < d.least {
			errs = append(errs, fmt.Errorf("%s is %v, must be at least %v", d.name, d.d, d.least))
		}
	}
	if c.BatchKeys < 1 || c.PendingKeys < c.BatchKeys {
		errs = append(errs, fmt.Errorf("batch_keys is %d and pending_keys %d: they must be at least 1, and not descend", c.BatchKeys, c.PendingKeys))
	}
	return errors.Join(errs...)
}

// pieceKeys is how many rows of a transaction are gathered before they are passed on.
func (c Config) pieceKeys() int { return max(1, c.BatchKeys/2) }

// Shard is one shard to follow.
type Shard struct {
	Name string
	// DSN is a PostgreSQL connection string, URI or key=value, as the pools use it. It may hold a password and is never printed. Its role must be
	// allowed to replicate, and own the tables unless the publication has them.
	DSN string
}

// parse drops the parser's own message, which repeats parts of the string.
func (s Shard) parse() (*pgx.ConnConfig, error) {
	parsed, err := pgxpool.ParseConfig(s.DSN) // it knows the settings of pools, which may be in there
	if s.DSN == "" || err != nil {
		return nil, fmt.Errorf("shard %q: dsn is not a PostgreSQL connection string "+
			"(expected postgres://user@host:port/database or key=value pairs)", s.Name)
	}
	return parsed.ConnConfig, nil
}
