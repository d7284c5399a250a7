package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringside/internal/failpoint"
)

const (
	// Timeout bounds every call, whatever its context allows.
	Timeout = 5 * time.Second

	// maxConns is how many sessions one sidecar holds at most. One would do; a second lets a call through while the first one's
	// connection is being given up, and a third holds tickets (door.go).
	maxConns       = 3
	connectTimeout = 2 * time.Second
	pingTimeout    = 500 * time.Millisecond
	closeTimeout   = 2 * time.Second
	connIdleTime   = 5 * time.Minute
	connLifetime   = time.Hour

	// lockSchema is the class of the advisory lock, key 0, that everybody holds who installs something into the schema "ringside". The
	// list of ringside's advisory locks is in shard/origin.
	lockSchema = 0x52530003
)

var (
	// ErrConflict: the epoch has moved on, or there is nothing to change yet. Load, and decide anew.
	ErrConflict = errors.New("the topology was changed by somebody else")
	// ErrUnavailable: the catalog's database cannot be reached or is not serving. A change that was under way may have been made: Load
	// shows it. Try again later.
	ErrUnavailable = errors.New("the catalog is unavailable")
)

// Record is a topology as the catalog holds it.
type Record struct {
	Epoch  uint64 // from 1
	Digest string // identifies the content; not empty
	Body   []byte // the encoded topology; not empty
}

func (r Record) validate() error {
	switch {
	case r.Epoch == 0 || r.Epoch > math.MaxInt64:
		return fmt.Errorf("catalog: epoch %d is not within 1..%d", r.Epoch, int64(math.MaxInt64))
	case r.Digest == "":
		return errors.New("catalog: the record has no digest")
	case len(r.Body) == 0:
		return errors.New("catalog: the record has no topology")
	}
	return nil
}

// Catalog is a connection to the catalog's database. Its methods may be called by any goroutine.
type Catalog struct {
	db     *pgxpool.Pool
	log    *slog.Logger
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	doors  doors
}

// Open connects and installs the table if it is missing. The error is ErrUnavailable when it may help to try again later; otherwise the
// connection string is wrong, or the role may not do what is needed. log may be nil.
func Open(ctx context.Context, dsn string, log *slog.Logger) (*Catalog, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	conf, err := parse(dsn)
	if err != nil {
		return nil, err
	}
	// The context bounds nothing: the pool opens its connections later, under the contexts of those who want one.
	db, err := pgxpool.NewWithConfig(context.Background(), conf)
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	c := &Catalog{db: db, log: log.With("component", "catalog")}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if err := c.call(ctx, "install", true, c.installRepeatedly); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// parse reads the connection string. The parser's own message is dropped: it repeats parts of the string, and which part of a broken
// string is the password cannot be known.
func parse(dsn string) (*pgxpool.Config, error) {
	conf, err := pgxpool.ParseConfig(dsn)
	if dsn == "" || err != nil {
		return nil, errors.New("catalog: dsn is not a PostgreSQL connection string " +
			"(expected postgres://user@host:port/database or key=value pairs)")
	}
	conf.MaxConns, conf.MinConns, conf.MinIdleConns = maxConns, 0, 0
	conf.MaxConnIdleTime, conf.MaxConnLifetime = connIdleTime, connLifetime
	conf.PingTimeout = pingTimeout
	cc := conf.ConnConfig
	cc.DialFunc = failpoint.Dial(cc.DialFunc)
	if cc.ConnectTimeout <= 0 || cc.ConnectTimeout > connectTimeout {
		cc.ConnectTimeout = connectTimeout
	}
	// A standby would answer with an old topology and take no change, whatever the DSN's target_session_attrs says.
	cc.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	if cc.RuntimeParams["application_name"] == "" {
		cc.RuntimeParams["application_name"] = "ringside catalog"
	}
	return conf, nil
}

// Close ends the calls under way and closes the connections. A server that does not answer is not waited for longer than closeTimeout: its
// connections then end behind our back, within pgx's own 15 s. Close may be called more than once.
func (c *Catalog) Close() {
	c.cancel()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.db.Close()
	}()
	select {
	case <-closed:
	case <-time.After(closeTimeout):
		c.log.Warn("the catalog's server does not answer; leaving its connections")
	}
}

// Load returns the topology; found is false when none has been created yet.
func (c *Catalog) Load(ctx context.Context) (r Record, found bool, err error) {
	err = c.call(ctx, "load", true, func(ctx context.Context) error {
		r, found, err = c.load(ctx)
		return err
	})
	return r, found, err
}

func (c *Catalog) load(ctx context.Context) (Record, bool, error) {
	var r Record
	var epoch int64
	err := c.db.QueryRow(ctx, `select epoch, digest, topology from ringside.catalog`).Scan(&epoch, &r.Digest, &r.Body)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Record{}, false, nil
	case err != nil:
		return Record{}, false, err
	}
	r.Epoch = uint64(epoch)
	return r, true, nil
}

// Create stores the first topology. When there is one already, also when it is being created in the same moment, that one is returned and
// created is false.
func (c *Catalog) Create(ctx context.Context, first Record) (r Record, created bool, err error) {
	if err := first.validate(); err != nil {
		return Record{}, false, err
	}
	// To be repeated is harmless: at worst the record that the first attempt stored is found, and called somebody else's.
	err = c.call(ctx, "create", true, func(ctx context.Context) error {
		// The insert waits for another one that is under way. The row can only be missing afterwards if an operator removed it.
		for range 3 {
			tag, err := c.db.Exec(ctx, `insert into ringside.catalog (epoch, digest, topology) values ($1, $2, $3) on conflict do nothing`,
				int64(first.Epoch), first.Digest, first.Body)
			if err != nil {
				return err
			}
			if tag.RowsAffected() == 1 {
				r, created = first, true
				return nil
			}
			var found bool
			if r, found, err = c.load(ctx); err != nil || found {
				return err
			}
		}
		return ErrConflict
	})
	return r, created, err
}

// CompareAndSwap replaces the topology of epoch from by next, whose epoch must be from+1. The error is ErrConflict when the catalog is at
// another epoch or empty. After any other error the change may have been made: Load shows it.
func (c *Catalog) CompareAndSwap(ctx context.Context, from uint64, next Record) error {
	return c.CompareAndSwapAs(ctx, 0, from, next)
}

// ErrDeposed: another driver of moves has taken over.
var ErrDeposed = errors.New("another sidecar drives the moves")

// CompareAndSwapAs is CompareAndSwap by the driver of moves with that token. The error is ErrDeposed when it is that no more: what it believes to be
// committed may have moved on.
func (c *Catalog) CompareAndSwapAs(ctx context.Context, token, from uint64, next Record) error {
	if err := next.validate(); err != nil {
		return err
	}
	if next.Epoch != from+1 {
		return fmt.Errorf("catalog: epoch %d does not follow epoch %d", next.Epoch, from)
	}
	return c.call(ctx, "change", false, func(ctx context.Context) error {
		tag, err := c.db.Exec(ctx, `update ringside.catalog set epoch = $2, digest = $3, topology = $4, changed_at = now()
where epoch = $1 and ($5 = 0 or exists (select from ringside.driver where token = $5 for share))`, int64(from), int64(next.Epoch), next.Digest, next.Body, int64(token))
		if err == nil && tag.RowsAffected() == 0 && token != 0 {
			var drives bool
			if err := c.db.QueryRow(ctx, `select exists (select from ringside.driver where token = $1)`, int64(token)).Scan(&drives); err != nil || !drives {
				return cmp.Or(err, ErrDeposed)
			}
		}
		if err == nil && tag.RowsAffected() == 0 {
			return fmt.Errorf("%w: it is not at epoch %d any more", ErrConflict, from)
		}
		return err
	})
}
