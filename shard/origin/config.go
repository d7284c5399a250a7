package origin

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Config holds the limits of a Fleet. The zero value of a field means its default.
type Config struct {
	// ViewTTL is how long a shard's word about its view may be relied on, counted from when it was asked. Every shard is asked
	// more often than every half of it. Default 1 s.
	ViewTTL time.Duration
	// ConnectTimeout bounds one attempt to open a connection, per host that the DSN names. Default 1 s.
	ConnectTimeout time.Duration
	// LoadTimeout is the server's time limit for one load. The caller waits at most Grace longer. Default 2 s.
	LoadTimeout time.Duration
	// WriteTimeout is the server's time limit for the statement of one write, and for the pause before its COMMIT. The caller waits
	// for the whole transaction at most Grace longer than it. Default 3 s.
	WriteTimeout time.Duration
	// LockTimeout is how long a statement of a load or write may wait for one lock that somebody else's transaction holds; the time limit of the
	// statement goes on meanwhile. Default 1 s.
	LockTimeout time.Duration
	// QueueLimit is how many requests may wait for a connection to one shard; one more is refused. Default 1024.
	QueueLimit int
	// QueueWait is how long one of them waits before it is refused. It must be below the caller's own deadline. Default 500 ms.
	QueueWait time.Duration
	// AdminTimeout bounds Install, Advance, Topology and CheckTable. Default 15 s.
	AdminTimeout time.Duration
	// ApplicationName is what the shard's pg_stat_activity shows. Default "ringside".
	ApplicationName string
}

// Grace is how much longer than the server's own time limit a caller waits, so that the server ends the statement and the
// connection lives.
const Grace = 250 * time.Millisecond

// WithDefaults returns c with every zero field set to its default.
func (c Config) WithDefaults() Config {
	duration := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	duration(&c.ViewTTL, time.Second)
	duration(&c.ConnectTimeout, time.Second)
	duration(&c.LoadTimeout, 2*time.Second)
	duration(&c.WriteTimeout, 3*time.Second)
	duration(&c.LockTimeout, time.Second)
	duration(&c.QueueWait, 500*time.Millisecond)
	duration(&c.AdminTimeout, 15*time.Second)
	if c.QueueLimit == 0 {
		c.QueueLimit = 1024
	}
	if c.ApplicationName == "" {
		c.ApplicationName = "ringside"
	}
	return c
}

// Validate reports every field whose value cannot work. Zero fields count as their defaults.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	atLeast := func(name string, d, least time.Duration) {
		if d < least {
			errs = append(errs, fmt.Errorf("%s is %v, must be at least %v", name, d, least))
		}
	}
	atLeast("view_ttl", c.ViewTTL, 100*time.Millisecond)
	atLeast("connect_timeout", c.ConnectTimeout, 50*time.Millisecond)
	atLeast("load_timeout", c.LoadTimeout, 50*time.Millisecond)
	atLeast("write_timeout", c.WriteTimeout, 50*time.Millisecond)
	atLeast("lock_timeout", c.LockTimeout, 10*time.Millisecond)
	atLeast("queue_wait", c.QueueWait, time.Millisecond)
	atLeast("admin_timeout", c.AdminTimeout, time.Second)
	if c.QueueLimit < 1 {
		errs = append(errs, fmt.Errorf("queue_limit is %d, must be at least 1", c.QueueLimit))
	}
	return errors.Join(errs...)
}

// WriteBound is the longest time after a call of Write in which its transaction can still begin to commit, also when the
// process is stopped at the worst moment: waiting, the fence, the statement, and the idle transaction that the shard then ends.
// A poison must outlive it (promise P3).
func (c Config) WriteBound() time.Duration {
	c = c.WithDefaults()
	return c.QueueWait + c.WriteTimeout + Grace + c.LoadTimeout + 2*c.WriteTimeout
}

// ShardConfig names one shard and says how to reach it.
type ShardConfig struct {
	Name string
	// DSN is a PostgreSQL connection string, URI or key=value. It may hold a password and is never printed.
	DSN string
	// MaxConnections is the budget of the whole cluster for this shard. Doors of them are kept for sessions that are being opened; the rest, Seats, is the
	// upper end of what SetLimit may grant.
	MaxConnections int
}

// Validate reports what is wrong with s, naming the shard and printing no secret. It does not touch the network.
func (s ShardConfig) Validate() error {
	if s.Name == "" {
		return errors.New("a shard has no name")
	}
	if s.MaxConnections < 1 {
		return fmt.Errorf("shard %q: max_connections is %d, must be at least 1", s.Name, s.MaxConnections)
	}
	_, err := s.parse()
	return err
}

// parse turns the DSN into a pool configuration. The parser's own message is dropped: it repeats parts of the string, and
// which part of a broken string is the password cannot be known.
func (s ShardConfig) parse() (*pgxpool.Config, error) {
	parsed, err := pgxpool.ParseConfig(s.DSN)
	if s.DSN == "" || err != nil {
		return nil, fmt.Errorf("shard %q: dsn is not a PostgreSQL connection string "+
			"(expected postgres://user@host:port/database or key=value pairs)", s.Name)
	}
	return parsed, nil
}
