package mover

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringside/ring"
	"ringside/shard"
	"ringside/shard/catalog"
)

// Config holds the paces and limits of a Mover. The zero value of a field means its default.
type Config struct {
	Holder string // names this sidecar's process; no two may have the same
	// ViewTTL is for how long a shard's view may be relied on; the sidecars' own. Default 1 s.
	ViewTTL time.Duration
	// Lease is for how long a driver that says nothing more is waited for. Default 4 s.
	Lease time.Duration
	// Look is about how often a Mover that does not drive looks whether there is something to do. Default 2 s.
	Look time.Duration
	// Block is for how long the source may take no writes in one attempt at a cut-over. Default 250 ms.
	Block time.Duration
	// Retry is the pause after an attempt that failed; it doubles up to 16 times that. Default 500 ms.
	Retry time.Duration
	// Page is about how long copying one page of rows takes: their number is adapted to it. Default 100 ms.
	Page time.Duration
	// Grace is for how long the source keeps rows that have moved. Default 5 s.
	Grace time.Duration
	// LagLimit is by how many bytes a standby of either shard may lag before copying waits. Default 64 MiB.
	LagLimit int64
	// QueueLimit is how long requests may wait for a connection to either shard before copying waits. Default 100 ms.
	QueueLimit time.Duration
}

// WithDefaults returns c with every zero field set to its default.
func (c Config) WithDefaults() Config {
	duration := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	duration(&c.ViewTTL, time.Second)
	duration(&c.Lease, 4*time.Second)
	duration(&c.Look, 2*time.Second)
	duration(&c.Block, 250*time.Millisecond)
	duration(&c.Retry, 500*time.Millisecond)
	duration(&c.Page, 100*time.Millisecond)
	duration(&c.Grace, 5*time.Second)
	duration(&c.QueueLimit, 100*time.Millisecond)
	if c.LagLimit == 0 {
		c.LagLimit = 64 << 20
	}
	return c
}

// Ring is what a Mover needs to know of the topology that its sidecar acts by.
type Ring struct {
	Epoch uint64
	// Settled: no change of the cache servers is being carried out.
	Settled bool
	Shards  []string // sorted
	Weights []uint32 // of Shards
	Owners  []uint16 // vnode -> index in Shards, or ring.None. Read only
	// Overrides are the shards of shard keys that are not placed by their vnode. Read only.
	Overrides map[string]string
}

// owner returns the shard of a vnode, empty: none.
func (r Ring) owner(vnode uint16) string {
	if at := r.Owners[vnode]; at != ring.None {
		return r.Shards[at]
	}
	return ""
}

// has reports whether the map, or the overrides, say what a part has come to.
func (r Ring) has(p catalog.NewPart) bool {
	if p.Key != "" {
		at, apart := r.Overrides[p.Key]
		return apart != p.Clear && (p.Clear || at == p.To)
	}
	for _, v := range p.Vnodes {
		if r.owner(v) != p.To {
			return false
		}
	}
	return true
}

// Deps is what a Mover works with. The functions are called by many goroutines.
type Deps struct {
	Journal func(ctx context.Context) (*catalog.Catalog, error)
	// DSN returns how a shard is reached; false: there is none of that name.
	DSN  func(name string) (string, bool)
	Ring func() Ring
	// View returns the last view that was confirmed by a shard, and when it was asked for.
	View func(name string) (shard.View, time.Time)
	// Publish makes the shard map give vnodes to a shard, or sets or clears the override of a key, by a topology of the next epoch, if it is not so already. It
	// returns once it is committed, and acted by here; catalog.ErrDeposed when another driver than the one with that token has taken over.
	Publish func(ctx context.Context, driver uint64, p catalog.NewPart) error
	// Queue returns how long the first request waits for a connection to a shard, and how many were given one.
	Queue func(name string) (wait time.Duration, served uint64)
	// MaxSize returns how many bytes a shard's database may come to; 0: not known. nil: of none is it known.
	MaxSize func(name string) int64
	// Tables returns those of the keyspaces: name or schema.name, unquoted. Each must be attached.
	Tables     func() []string
	Registerer prometheus.Registerer
	Log        *slog.Logger
}

func (d Deps) validate() error {
	if d.Journal == nil || d.DSN == nil || d.Ring == nil || d.View == nil || d.Publish == nil || d.Queue == nil || d.Registerer == nil || d.Log == nil {
		return errors.New("mover: Journal, DSN, Ring, View, Publish, Queue, Registerer and Log must all be given")
	}
	return nil
}
