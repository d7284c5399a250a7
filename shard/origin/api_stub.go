package origin

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringside/shard"
	"ringside/shard/keyspace"
)

type Fleet struct{}

var errStub = errors.New("not built yet")

func New(cfg Config, reg prometheus.Registerer, log *slog.Logger) *Fleet { return &Fleet{} }
func (f *Fleet) Apply(shards []ShardConfig) error                        { return errStub }
func (f *Fleet) Run(ctx context.Context) error                           { <-ctx.Done(); return nil }
func (f *Fleet) Confirmation(name string) *shard.Confirmation            { return &shard.Confirmation{} }
func (f *Fleet) OnView(fn func(name string, v shard.View))               {}
func (f *Fleet) Poke(name string)                                        {}
func (f *Fleet) SetLimit(name string, n int)                             {}
func (f *Fleet) Install(ctx context.Context, name string, v shard.View, topology []byte, owned []uint16) error {
	return errStub
}
func (f *Fleet) Advance(ctx context.Context, name string, v shard.View, topology []byte) (shard.View, error) {
	return v, errStub
}
func (f *Fleet) Topology(ctx context.Context, name string) (shard.View, []byte, error) {
	return shard.View{}, nil, errStub
}
func (f *Fleet) CheckTable(ctx context.Context, name string, ks *keyspace.Keyspace) error {
	return errStub
}

// Row is the answer for one key.
type Row struct {
	Found bool
	Body  []byte // row_to_json of the row; nil when not Found
	Err   error  // shard.ErrNotOwner when the shard may not answer for this key's vnode
}

func (f *Fleet) Load(ctx context.Context, name string, ks *keyspace.Keyspace, keys []keyspace.Key) ([]Row, shard.View, error) {
	return nil, shard.View{}, errStub
}
func (f *Fleet) Write(ctx context.Context, name string, v shard.View, op keyspace.Op, beforeCommit func() error) (keyspace.Outcome, error) {
	return keyspace.Outcome{}, errStub
}

// PoolStats is a snapshot of one shard's pool.
type PoolStats struct {
	Name       string
	Limit      int           // sessions this sidecar may hold
	InUse      int           // of them running a request
	Idle       int           // of them idle
	Waiting    int           // requests that wait for one
	OldestWait time.Duration // of those, the longest
	Served     uint64        // requests that got a connection
	Shed       uint64        // requests refused: queue full or waited too long
	DownSince  time.Time     // zero: the shard is up
	LastError  string        // what was last wrong; may remain after recovery
}

func (f *Fleet) Pools() []PoolStats { return nil }
func (f *Fleet) Close()             {}

// TableError says that a table cannot be served as a keyspace.
type TableError struct {
	Shard, Keyspace, Table string
	Column                 string // empty when the fault is not in one column
	Reason                 string
}

func (e *TableError) Error() string { return e.Reason }
