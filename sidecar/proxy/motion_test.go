package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringside/cache"
	"ringside/resp"
	"ringside/shard"
	"ringside/sidecar/topology"
)

// motion is a proxy before servers of which one hands its plain keys over: to the others, step by step as the test says.
type motion struct {
	*bench
	direct  []*wire // to each server, past the proxy
	carrier *testCarrier
	h       topology.Handover // the one under way
}

// inMotion starts a proxy before n servers of which none hands anything over yet.
func inMotion(t testing.TB, n int, change func(*Config)) *motion {
	t.Helper()
	m := &motion{carrier: &testCarrier{wires: map[string]*wire{}}}
	m.bench = start(t, n, change)
	m.plain.Store(m.carrier)
	for i, s := range m.caches {
		w := dial(t, s.Addr())
		m.direct = append(m.direct, w)
		m.carrier.wires[fmt.Sprintf("c%d", i+1)] = dial(t, s.Addr())
	}
	return m
}

// follow makes next the topology of all loops.
func (m *motion) follow(next *topology.Topology, err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
	m.shards.confirmation.Confirm(shard.View{Epoch: next.Epoch, Phase: shard.Done}, time.Now().Add(time.Hour), nil)
	m.holder.Publish(next)
	collect(m.server, func(w *worker) struct{} { w.turn(); return struct{}{} })
	if n := len(next.Handovers); n > 0 {
		m.h = next.Handovers[n-1]
	}
}

// drain has a server lose all that it has.
func (m *motion) drain(server string) {
	m.t.Helper()
	m.follow(topology.DrainCache(m.holder.Current(), server))
}

func (m *motion) serverOf(name string) *wire { return m.direct[m.holder.Current().CacheIndex(name)] }

// step writes the marker of the server that hands over, as its driver does.
func (m *motion) step(s topology.Step) {
	m.t.Helper()
	marker := topology.Marker{Epoch: m.holder.Current().Epoch, Steps: map[uint64]topology.Step{m.h.Since: s}}
	m.serverOf(m.h.From).want("SET "+topology.MarkerName+" '"+marker.String()+"'", "+OK\r\n")
}

// rollCall waits until no connection to the server keeps the hand-over from going on to a step.
func (m *motion) rollCall(s topology.Step) {
	m.t.Helper()
	w := m.serverOf(m.h.From)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		hindered := ""
		for _, c := range callersAt(w) {
			if c.Hinders(m.h, s) {
				hindered = c.Name()
			}
		}
		if hindered == "" {
			return
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("%s does not hear that keys are handed over (%v)", hindered, s)
		}
	}
}

// handOver takes all steps.
func (m *motion) handOver() {
	m.t.Helper()
	m.step(topology.Open)
	m.rollCall(topology.Held)
	m.step(topology.Held)
	m.rollCall(topology.Handed)
	m.step(topology.Handed)
}

func callersAt(w *wire) []topology.Caller {
	list, _, err := resp.Decode([]byte(w.do("CLIENT LIST")))
	if err != nil {
		w.t.Fatal(err)
	}
	var all []topology.Caller
	for field := range strings.FieldsSeq(list.Text) {
		if name, ok := strings.CutPrefix(field, "name="); ok {
			if c, ok := topology.ParseCaller(name); ok {
				all = append(all, c)
			}
		}
	}
	return all
}

// testCarrier carries one key at a time.
type testCarrier struct {
	mu      sync.Mutex
	wires   map[string]*wire
	carried atomic.Int64
	fails   atomic.Bool
	hold    chan struct{} // if set, a carry waits for it
}

func (c *testCarrier) Carry(ctx context.Context, h topology.Handover, to string, key []byte) error {
	if c.hold != nil {
		select {
		case <-c.hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if c.fails.Load() {
		return errors.New("not today")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.carry(h.From, to, string(key))
}

// carry is called with mu held.
func (c *testCarrier) carry(from, to, key string) error {
	ask := func(server string, args ...string) (string, error) {
		w := c.wires[server]
		if _, err := w.conn.Write(resp.AppendCommandString(nil, args...)); err != nil {
			return "", err
		}
		return w.tryReply()
	}
	dump, err := ask(from, "DUMP", key)
	body, ok := resp.BulkOf([]byte(dump))
	if err != nil || !ok {
		return err
	}
	ttl, err := ask(from, "PTTL", key)
	if err != nil {
		return err
	}
	left, _ := resp.IntOf([]byte(ttl))
	restored, err := ask(to, "RESTORE", key, fmt.Sprint(max(left, 0)), string(body))
	if err != nil || restored[0] == '-' && !strings.HasPrefix(restored, "-BUSYKEY") {
		return fmt.Errorf("RESTORE: %s, %v", restored, err)
	}
	c.carried.Add(1)
	_, err = ask(from, "UNLINK", key)
	return err
}

// carryAll carries whatever is left of a hand-over, as its driver does.
func (c *testCarrier) carryAll(t testing.TB, b *bench, h topology.Handover) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	now := b.holder.Current()
	i := slices.Index(now.Handovers, h)
	for _, key := range arrayOf(c.wires[h.From].do("KEYS *")) {
		l, err := now.Locate(testKeyspaces(t), []byte(key))
		if err != nil || strings.HasPrefix(key, cache.Prefix) || now.HandoverOf(l.CacheVnode) != i {
			continue
		}
		if err := c.carry(h.From, l.Cache, key); err != nil {
			t.Error(err)
		}
	}
}

func arrayOf(frame string) []string {
	v, _, err := resp.Decode([]byte(frame))
	if err != nil {
		return nil
	}
	var all []string
	for _, e := range v.Elems {
		all = append(all, e.Text)
	}
	return all
}
