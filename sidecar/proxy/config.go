package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"ringside/resp"
	"ringside/shard"
	"ringside/shard/keyspace"
)

// Config holds what can be set. Zero fields of DefaultConfig's result are for the caller to fill in.
type Config struct {
	Name    string // of this sidecar, for INFO
	Version string // of ringside
	// Listen is a numeric host:port, or unix:/path.
	Listen   string
	Password string // empty: none asked for

	MaxClients int // above it new clients get one error and are closed
	Loops      int // event loops; one per core

	Limits resp.Limits
	// InFlight is how many requests of one client may be unanswered before its input is left unread.
	InFlight int
	// OutputSoft is how many bytes of unread replies stop the reading of a client's requests; OutputHard, how many end the connection.
	OutputSoft, OutputHard int
	// OutputMessages is how many bytes of unread messages end the connection of a subscriber, if OutputHard is not less.
	OutputMessages int
	// Subscriptions is how many channels and patterns one client may listen to.
	Subscriptions int
	// PrivateUpstreams is how many clients may have a connection of their own to a cache server; above it -OVERLOADED.
	PrivateUpstreams int
	// PrivateIdle is how long such a connection is kept for its client's next WATCH or blocking command.
	PrivateIdle time.Duration
	// QueuedCommands and QueuedBytes bound what a client queues between MULTI and EXEC.
	QueuedCommands, QueuedBytes int
	// ClientIdle is how long a client may send nothing, unless it is waiting for something; 0: as long as it likes.
	ClientIdle time.Duration
	// UpstreamIdle is how long a connection to a cache server is kept without use: many sidecars that use it now and then must not
	// take all the clients that a server allows. 0: for ever.
	UpstreamIdle time.Duration
	// UpstreamCalls is how many requests may wait for one upstream connection; above it -OVERLOADED.
	UpstreamCalls int
	// ConnectTimeout and ReplyTimeout bound the wait for a cache server: to connect, and while it owes a reply and sends nothing.
	ConnectTimeout, ReplyTimeout time.Duration
	// RowTimeout bounds a miss or a write of a row, waiting included.
	RowTimeout time.Duration
	// RowOps is how many misses and writes may be under way in this sidecar; above it -OVERLOADED.
	RowOps int

	// SweepTimeout bounds KEYS, DBSIZE, RANDOMKEY and FLUSHALL, which go through all names on all cache servers.
	SweepTimeout time.Duration

	// SlowFrom is how long a request takes that SLOWLOG and LATENCY show.
	SlowFrom time.Duration
	// SlowLines says whether such requests are logged too.
	SlowLines SlowLines

	// ViewTTL is how long a shard's word about its view holds.
	ViewTTL time.Duration
	// ServeUnconfirmed: answer from the cache although the row's shard could not be asked for longer than ViewTTL.
	ServeUnconfirmed bool
}

// DefaultConfig returns the defaults; Name, Version and Listen are still to be set.
func DefaultConfig() Config {
	return Config{
		MaxClients: 10000, Loops: 1, Limits: resp.DefaultLimits(), InFlight: 1024,
		OutputSoft: 1 << 20, OutputHard: 256 << 20, UpstreamCalls: 1 << 16,
		OutputMessages: 32 << 20, Subscriptions: 1 << 16,
		PrivateUpstreams: 1024, PrivateIdle: 10 * time.Second, QueuedCommands: 1 << 16, QueuedBytes: 64 << 20,
		ConnectTimeout: 500 * time.Millisecond, ReplyTimeout: 3 * time.Second, RowTimeout: 5 * time.Second, RowOps: 8192,
		SweepTimeout: time.Minute, UpstreamIdle: 5 * time.Minute, SlowFrom: 10 * time.Millisecond,
		ViewTTL: time.Second, ServeUnconfirmed: true,
	}
}

// Validate names the first setting that cannot work.
func (c Config) Validate() error {
	if c.Listen == "" {
		return errors.New("proxy: no address to listen on")
	}
	positive := []struct {
		name string
		n    int64
	}{
		{"MaxClients", int64(c.MaxClients)}, {"Loops", int64(c.Loops)}, {"InFlight", int64(c.InFlight)}, {"OutputSoft", int64(c.OutputSoft)},
		{"OutputMessages", int64(c.OutputMessages)}, {"Subscriptions", int64(c.Subscriptions)}, {"PrivateUpstreams", int64(c.PrivateUpstreams)}, {"PrivateIdle", int64(c.PrivateIdle)}, {"QueuedCommands", int64(c.QueuedCommands)}, {"QueuedBytes", int64(c.QueuedBytes)},
		{"UpstreamCalls", int64(c.UpstreamCalls)}, {"ConnectTimeout", int64(c.ConnectTimeout)}, {"ReplyTimeout", int64(c.ReplyTimeout)},
		{"RowTimeout", int64(c.RowTimeout)}, {"RowOps", int64(c.RowOps)}, {"SweepTimeout", int64(c.SweepTimeout)}, {"SlowFrom", int64(c.SlowFrom)}, {"ViewTTL", int64(c.ViewTTL)},
	}
	for _, p := range positive {
		if p.n <= 0 {
			return fmt.Errorf("proxy: %s is %d, must be above 0", p.name, p.n)
		}
	}
	if c.ClientIdle < 0 || c.UpstreamIdle < 0 {
		return fmt.Errorf("proxy: ClientIdle is %v and UpstreamIdle %v, must not be below 0", c.ClientIdle, c.UpstreamIdle)
	}
	if err := c.Limits.Validate(); err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	if c.OutputHard < c.OutputSoft {
		return fmt.Errorf("proxy: OutputHard (%d) is below OutputSoft (%d)", c.OutputHard, c.OutputSoft)
	}
	return nil
}

// Row is what a read found.
type Row struct {
	Found bool
	Body  []byte // the row as JSON
	Err   error
}

// Rows answers what a loop cannot answer from the cache. Its methods block, obey ctx, and are called from many goroutines.
// It is an interface because floor 2 must not know PostgreSQL.
type Rows interface {
	// Read reads the rows of keys, and calls got with the indexes of those that are there by then, until each has been told once: of rows, which has
	// one for each key, it may use those and the ones told before. It calls it on the caller's goroutine. at is good for that call; a key stays valid
	// and unchanged until its row has been told.
	Read(ctx context.Context, keys []keyspace.Key, got func(at []int, rows []Row))
	// Write returns once the write is on the shard and no reader can be given what it replaced.
	Write(ctx context.Context, op keyspace.Op) (keyspace.Outcome, error)
	// Refuses returns the error with which a write of the row would be refused now because its shard has too much to do; nil: Write may try. It is called on
	// the loops, must not block, and allocates nothing.
	Refuses(key *keyspace.Key) error
	// Refresh has the cached copy of a row made anew in the background, if nobody does that already. It does not wait. The key stays valid and
	// unchanged.
	Refresh(key keyspace.Key)
}

// Shards gives what a shard last confirmed. The pointer stays the same for a name.
type Shards interface {
	Confirmation(name string) *shard.Confirmation
}

// Credentials are how a cache server is spoken to.
type Credentials struct {
	Username, Password string
	TLS                *tls.Config // nil: plain TCP. An empty ServerName stands for the host of the server's address
}

// Cluster tells what the sidecar knows of the others.
type Cluster interface {
	// Sidecars returns how many are alive, this one included. It is called on the loops and must not block.
	Sidecars() int
}
