package loadtest

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"ringside/ring"
)

// memory is a client of a map that all clients share. Its first read takes long, and one key cannot be read.
type memory struct {
	mu     *sync.Mutex
	values map[uint32][]byte
	slow   *sync.Once
	v      *values
}

const unreadable = 7

func (m memory) Read(_ context.Context, id uint32) (value []byte, found, hit bool, err error) {
	m.slow.Do(func() { time.Sleep(300 * time.Millisecond) })
	if id == unreadable {
		return nil, false, false, errors.New("BROKEN it is")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	value, found = m.values[id]
	return value, found, id%2 == 0, nil
}

func (m memory) Write(_ context.Context, id uint32, version int64, filling string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[id] = m.v.append(nil, version, filling)
	return nil
}

func (m memory) Close() {}

// Clients that take one request at a time are loaded by the same schedule: one client's slow read makes those wait that were due meanwhile.
func TestCrew(t *testing.T) {
	t.Parallel()
	plan := textPlan()
	plan.Rate, plan.Duration, plan.Connections, plan.Keys, plan.Zipf, plan.Reads = 200, time.Second, 1, 10, 0, 0.9
	m := memory{new(sync.Mutex), map[uint32][]byte{}, new(sync.Once), newValues(plan, Keys{"", "", 10})}
	target := Target{
		Name: "memory", HitsFrom: "x", ShardReadsFrom: "x", MostClients: 5, Notes: []string{"a note"},
		Client: func(context.Context, int) (Client, error) { return m, nil },
	}
	r, err := Run(t.Context(), target, plan, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Requests != 200 || r.Errors["BROKEN"] == 0 || r.Errors["BROKEN"] != r.Failed || r.All.Count+r.Failed != 200 {
		t.Errorf("%d requests, %d answered, errors %v", r.Requests, r.All.Count, r.Errors)
	}
	if r.Check.Stale+r.Check.Lost != 0 || r.Check.Reads != r.Reads-r.Failed {
		t.Errorf("%+v", r.Check)
	}
	// Sixty were due while the first one was read; the last of these waited hardly at all, the first one most.
	if r.All.Max < 290_000 || r.All.P90 < 100_000 {
		t.Errorf("the slow read is hidden: %+v", r.All)
	}
	if answered := float64(r.Reads - r.Failed); r.HitRatio <= 0.3 || r.HitRatio >= 0.8 || r.ShardReads != answered-float64(int(r.HitRatio*answered+0.5)) {
		t.Errorf("hit ratio %v and %v shard reads of %v", r.HitRatio, r.ShardReads, answered)
	}
	if len(r.Seconds) != 1 || r.Seconds[0].Requests != 200 || len(r.Notes) != 1 {
		t.Errorf("%+v", r)
	}
}

func TestModuloRouting(t *testing.T) {
	// The known exercise, as ringside simulate shows it: 66,679 of 100,000 ids move when 2 servers become 3.
	if got := Rerouted(100_000, 2, 3); got != 66_679 {
		t.Errorf("%d ids get another server, want 66679", got)
	}
	f := &moduloFleet{servers: []NamedServer{{"c1", "a"}, {"c2", "b"}, {"spare", "c"}}}
	f.use(f.servers[:2])
	r := &ModuloRival{fleet: f}
	r.Follow([]Step{
		{At: time.Second, Words: []string{"cache", "add", "spare"}}, {At: 2 * time.Second, Words: []string{"kill", "c1"}},
		{At: 3 * time.Second, Words: []string{"cache", "drain", "c1"}}, {At: 4 * time.Second, Words: []string{"cache", "weight", "c1", "2"}},
	}, 100_000)
	if len(r.Events) != 2 || r.Events[1].At != 3*time.Second || len(r.Target.Notes) != 2 {
		t.Fatalf("%+v, %q", r.Events, r.Target.Notes)
	}
	if want := "cache add spare: 2 servers become 3, and 66679 of 100000 rows get another one"; r.Target.Notes[0] != want {
		t.Errorf("%q, want %q", r.Target.Notes[0], want)
	}
	for i, want := range [][]int{{0, 1, 2}, {1, 2}} {
		if err := r.Events[i].Do(t.Context()); err != nil {
			t.Fatal(err)
		}
		used := *f.used.Load()
		if len(used) != len(want) || used[0] != want[0] || used[len(used)-1] != want[len(want)-1] {
			t.Errorf("after %s: %v, want %v", r.Events[i].Name, used, want)
		}
	}
	for _, err := range []error{f.add("spare"), f.add("c9"), f.remove("c1"), f.remove("c2"), f.remove("spare")} {
		if err == nil && len(*f.used.Load()) == 0 {
			t.Error("the last server was taken away")
		}
	}
	if f.add("c9") == nil || f.remove("c9") == nil {
		t.Error("a server that does not exist came or went")
	}
}

func TestRowsAreFoundOnTheirShards(t *testing.T) {
	m := &shardMap{dsns: []string{"s1", "s2"}, owners: make([]byte, 2*ring.Vnodes)}
	at := ring.Vnode([]byte("42"))
	binary.LittleEndian.PutUint16(m.owners[2*int(at):], 1)
	if got, err := m.shard(42); got != 1 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
	binary.LittleEndian.PutUint16(m.owners[2*int(at):], 65535)
	if _, err := m.shard(42); err == nil {
		t.Error("a vnode of nobody has a shard")
	}
}
