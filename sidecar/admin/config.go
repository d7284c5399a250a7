package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"ringside/shard/keyspace"
	"ringside/sidecar/topology"
)

// Config says where to listen.
type Config struct {
	Listen string // IP:port; port 0 takes a free one
	Token  string // empty: no changes, and no reads from beyond this machine
	Pprof  bool   // serve /debug/pprof/
}

// Validate checks the configuration by itself. The error never contains the token.
func (c Config) Validate() error {
	if _, err := netip.ParseAddrPort(c.Listen); err != nil {
		return fmt.Errorf("listen is %q: it must be an IP address and a port, such as 127.0.0.1:6381", c.Listen)
	}
	for _, b := range []byte(c.Token) {
		if b <= ' ' || b > '~' {
			return errors.New("token must be printable ASCII without spaces")
		}
	}
	return nil
}

// Deps is what the server shows. The functions are called by many goroutines and must not block for long.
type Deps struct {
	Name, Version string // of this sidecar
	Topology      *topology.Holder
	Keyspaces     *keyspace.Set
	Members       func() []Member
	Pools         func() []Pool
	Counts        func() Counts // may take a second
	Ready         func() error  // nil: clients are answered; else why not
	// Change does what an operator asks for, within ctx, and returns once it is committed. Its error is a *BadChangeError, a
	// *topology.Refusal, or says why it could not be done now.
	Change   func(ctx context.Context, c Change) (Changed, error)
	Progress func() Progress
	// Invalidation tells how changes on the shards are followed. Verify looks at so many entries and compares them with the shards, within ctx.
	Invalidation func() Invalidation
	Verify       func(ctx context.Context, sample int) Verification
	// Shards is about shards and moves between them.
	Shards Shards
	// HotKeys returns the n keys of each kind that were used most lately.
	HotKeys  func(n int) HotKeys
	Gatherer prometheus.Gatherer
	Log      *slog.Logger
}

func (d Deps) validate() error {
	if d.Topology == nil || d.Keyspaces == nil || d.Members == nil || d.Pools == nil || d.Counts == nil || d.Ready == nil || d.Change == nil || d.Progress == nil ||
		d.Invalidation == nil || d.Verify == nil || !d.Shards.complete() || d.HotKeys == nil || d.Gatherer == nil || d.Log == nil {
		return errors.New("admin: Topology, Keyspaces, Members, Pools, Counts, Ready, Change, Progress, Invalidation, Verify, Shards, HotKeys, Gatherer and Log must all be given")
	}
	return nil
}

// Member is one sidecar in the answer of /members.
type Member struct {
	Name    string `json:"name"`
	Addr    string `json:"addr"` // gossip
	Redis   string `json:"redis"`
	Admin   string `json:"admin"`
	Version string `json:"version"`
	Boot    string `json:"boot"`
	Epoch   uint64 `json:"epoch"`
	Digest  string `json:"digest"`
	State   string `json:"state"`
	Self    bool   `json:"self"`
}

// Pool is one shard in the answer of /pools.
type Pool struct {
	Name         string `json:"name"`
	Budget       int    `json:"budget"` // connections of the whole cluster
	Limit        int    `json:"limit"`  // this sidecar's part of them
	InUse        int    `json:"in_use"`
	Idle         int    `json:"idle"`
	Waiting      int    `json:"waiting"`
	OldestWaitMS int64  `json:"oldest_wait_ms"`
	Served       uint64 `json:"served"`
	Shed         uint64 `json:"shed"`
	State        string `json:"state"` // up or down
	LastError    string `json:"last_error"`
	Diagnosis    string `json:"diagnosis"`  // fine, protecting, budget too small, long transaction, hot key or down
	Refused      uint64 `json:"refused"`    // sessions for which the budget of the whole cluster had no room
	SpareShed    uint64 `json:"spare_shed"` // work that nobody waits for
}
