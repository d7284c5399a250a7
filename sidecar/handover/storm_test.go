package handover

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"ringside/sidecar/topology"
)

// loop does what an event loop of a sidecar does with plain keys: it adopts topologies when it comes to it, names its connections, asks the marker,
// holds back, and settles keys before it uses them on a new owner.
type loop struct {
	f       *fleet
	carrier *Carrier
	name    string
	top     *topology.Topology
	conns   map[string]*redis.Conn
	held    map[string]map[uint64]bool
}

func (f *fleet) loop(c *Carrier, name string) *loop {
	return &loop{f: f, carrier: c, name: name, top: f.current(), conns: map[string]*redis.Conn{}, held: map[string]map[uint64]bool{}}
}

func (l *loop) say(server string) {
	caller := topology.Caller{Sidecar: l.name, Epoch: l.top.Epoch}
	for since := range l.held[server] {
		caller.Held = append(caller.Held, since)
	}
	l.f.must(l.conns[server].ClientSetName(ctxb, caller.Name()).Err())
}

// adopt takes over a newer topology, and notes what is held.
func (l *loop) adopt() {
	if now := l.f.current(); now != l.top {
		time.Sleep(rand.N(20 * time.Millisecond))
		l.top = now
		for server := range l.conns {
			l.say(server)
		}
	}
	for i := range l.top.Handovers {
		h := &l.top.Handovers[i]
		if l.conns[h.From] != nil && !l.held[h.From][h.Since] && l.f.step(*h) >= topology.Held {
			l.held[h.From][h.Since] = true
			l.say(h.From)
		}
	}
}

// at returns the connection to a server, nil when the topology has to be a newer one first.
func (l *loop) at(server string) *redis.Conn {
	if l.conns[server] == nil {
		l.conns[server], l.held[server] = l.f.db[server].Conn(), map[uint64]bool{}
		l.say(server)
	}
	if m, _, err := readMarker(ctxb, l.conns[server]); err != nil || m.Epoch > l.top.Epoch {
		return nil
	}
	return l.conns[server]
}

// do sends one command to where its key is now.
func (l *loop) do(command, key string, args ...any) (any, error) {
	for {
		l.adopt()
		to := l.send(key)
		if to == nil {
			time.Sleep(2 * time.Millisecond)
			continue
		}
		return to.Do(ctxb, append([]any{command, key}, args...)...).Result()
	}
}

// send returns where a command on key is to be sent now, nil to wait.
func (l *loop) send(key string) *redis.Conn {
	h, owner := placeOf(l.top, key)
	if h == nil {
		return l.at(owner)
	}
	from := l.at(h.From)
	if from == nil {
		return nil
	}
	m, _, err := readMarker(ctxb, from)
	l.f.must(err)
	switch m.Steps[h.Since] {
	case topology.Open:
		return from
	case topology.Held:
		return nil
	}
	to := l.at(owner)
	if to == nil {
		return nil
	}
	if from.Exists(ctxb, key).Val() == 0 {
		l.f.must(to.Unlink(ctxb, topology.CarryPrefix+key).Err())
		return to
	}
	if err := l.carrier.Carry(ctxb, *h, owner, []byte(key)); err != nil {
		return nil // a carrier that the test made die, or another topology meanwhile
	}
	return to
}

// TestNoWriteIsLostInAStorm guards H1 and H2: counters that all loops raise and keys of each one's own, through several changes of the ring, with
// carriers and drivers that stand still for longer than their leases, or die.
func TestNoWriteIsLostInAStorm(t *testing.T) {
	f := newFleet(t, 2, 3)
	cfg := testConfig()
	cfg.LeaseTTL, cfg.CarryTimeout, cfg.HearPatience, cfg.HoldPatience = 15*time.Millisecond, 10*time.Second, time.Minute, time.Minute
	const counters, loops = 300, 6
	var carriers []*Carrier
	for range 2 {
		c := f.carrier(cfg, nil)
		c.hook = func(op) bool {
			switch rand.N(60) {
			case 0:
				time.Sleep(rand.N(40 * time.Millisecond))
			case 1:
				return false
			}
			return true
		}
		carriers = append(carriers, c)
		f.run(c)
	}
	ctx, stop := context.WithCancel(ctxb)
	defer stop()
	var acked [counters]atomic.Int64
	var commands, wrong atomic.Int64
	var wg sync.WaitGroup
	for i := range loops {
		wg.Go(func() {
			l := f.loop(carriers[i%len(carriers)], fmt.Sprint("loop-", i))
			defer func() {
				for _, conn := range l.conns {
					conn.Close()
				}
			}()
			mine := map[string]string{}
			for n := 0; ctx.Err() == nil; n++ {
				commands.Add(1)
				at := rand.N(counters)
				if _, err := l.do("INCR", fmt.Sprint("counter:", at)); err != nil {
					t.Errorf("INCR: %v", err)
					return
				}
				acked[at].Add(1)
				key := fmt.Sprintf("own:%d:%d", i, rand.N(200))
				got, err := l.do("GET", key)
				if errors.Is(err, redis.Nil) {
					got, err = "", nil
				}
				if err != nil || got != mine[key] {
					wrong.Add(1)
					t.Errorf("%s is %v (%v), want %q", key, got, err, mine[key])
					return
				}
				if rand.N(2) == 0 {
					mine[key] = ""
					_, err = l.do("DEL", key)
				} else {
					mine[key] = strconv.Itoa(n)
					_, err = l.do("SET", key, n)
				}
				if err != nil {
					t.Errorf("write: %v", err)
					return
				}
			}
		})
	}
	for _, change := range []func(){
		func() { f.join("c3") },
		func() { f.publish(topology.DrainCache(f.current(), "c1")) },
		func() { f.publish(topology.WeighCache(f.current(), "c1", 3)) },
		func() { f.publish(topology.DrainCache(f.current(), "c3")) },
		func() { f.publish(topology.WeighCache(f.current(), "c3", 1)) },
	} {
		change()
		within(t, "all is carried", func() bool {
			for _, p := range carriers[0].Progress() {
				if !p.Done || p.Since != f.current().Epoch {
					return false
				}
			}
			return true
		})
		f.publish(topology.Finish(f.current(), f.current().Handovers, true))
	}
	stop()
	wg.Wait()
	var carried float64
	for i := range counters {
		l := f.loop(carriers[0], "reader")
		got, err := l.do("INCRBY", fmt.Sprint("counter:", i), 0)
		if err != nil || got != acked[i].Load() {
			t.Errorf("counter %d is %v (%v), %d were acknowledged", i, got, err, acked[i].Load())
		}
		for _, conn := range l.conns {
			conn.Close()
		}
	}
	for _, c := range carriers {
		carried += counted(c.metrics.carried)
	}
	t.Logf("%d rounds of commands, %v keys carried", commands.Load(), carried)
	if commands.Load() < 500 || carried < 200 {
		t.Error("too little happened")
	}
}
