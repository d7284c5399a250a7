package proxy

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringside/sidecar/topology"
)

// While a hand-over is open the former owner serves, while it is held nobody, and then the new one. What waits keeps its order, and holds up nobody else.
func TestHandOverStepByStep(t *testing.T) {
	m := inMotion(t, 2, nil)
	moving, staying := m.keyOn("c1", 0), m.keyOn("c2", 0)
	c1, c2 := m.direct[0], m.direct[1]
	w, other := m.dial(), m.dial()
	w.want("SET "+moving+" 1", "+OK\r\n")
	m.drain("c1")
	w.want("INCR "+moving, ":2\r\n")
	c1.want("GET "+moving, bulk("2"))
	c2.want("EXISTS "+moving, ":0\r\n")

	m.step(topology.Open)
	m.rollCall(topology.Held)
	w.want("INCR "+moving, ":3\r\n")
	m.step(topology.Held)
	m.rollCall(topology.Handed) // all loops have seen it
	w.send("INCR "+moving, "GET "+moving, "SET "+staying+" x", "GET "+staying)
	other.want("SET "+staying+" y", "+OK\r\n")
	c1.want("GET "+moving, bulk("3"))
	if n := m.carrier.carried.Load(); n != 0 {
		t.Errorf("%d keys were carried too early", n)
	}
	m.step(topology.Handed)
	for _, want := range []string{":4\r\n", bulk("4"), "+OK\r\n", bulk("x")} {
		if got := w.reply(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	c1.want("EXISTS "+moving, ":0\r\n")
	c2.want("GET "+moving, bulk("4"))
	other.want("DEL "+moving, ":1\r\n")
	w.want("EXISTS "+moving, ":0\r\n")
	if n := m.carrier.carried.Load(); n != 1 {
		t.Errorf("%d keys were carried, want 1", n)
	}
	next, err := topology.Finish(m.holder.Current(), []topology.Handover{m.h}, true)
	m.follow(next, err)
	for i, open := range collect(m.server, func(w *worker) bool { return w.gate != nil }) {
		if open {
			t.Errorf("loop %d still has a gate", i)
		}
	}
	w.want("INCR "+moving, ":1\r\n")
}

// While a hand-over is open, who has no connection to the former owner yet waits for one, and is told when there is none to be had.
func TestTheFormerOwnerIsReachedFirst(t *testing.T) {
	m := inMotion(t, 2, nil)
	moving, staying := m.keyOn("c1", 0), m.keyOn("c2", 0)
	m.dial().want("SET "+moving+" v", "+OK\r\n")
	m.drain("c1")
	for range 2 {
		w := m.dial()
		w.do("HELLO 3")
		begun := time.Now()
		w.want("GET "+moving, bulk("v"))
		if took := time.Since(begun); took > 20*holdFor {
			t.Errorf("it took %v", took)
		}
	}
	if err := m.caches[0].Kill(); err != nil {
		t.Fatal(err)
	}
	w := m.dial()
	eventually(t, "it is gone", func() bool { return strings.HasPrefix(w.do("GET "+moving), "-CACHEDOWN c1 ") })
	w.want("EXISTS "+staying, ":0\r\n")
}

// What waits too long for a held hand-over is refused, in its place.
func TestHeldTooLong(t *testing.T) {
	m := inMotion(t, 2, nil)
	moving, staying := m.keyOn("c1", 0), m.keyOn("c2", 0)
	w := m.dial()
	w.want("SET "+staying+" s", "+OK\r\n")
	w.want("GET "+moving, "$-1\r\n")
	m.drain("c1")
	m.step(topology.Held)
	m.rollCall(topology.Handed)
	begun := time.Now()
	w.send("GET "+staying, "SET "+moving+" x", "GET "+staying, "MULTI", "SET "+moving+" x", "EXEC", "MGET "+staying+" "+moving, "PING")
	held := "-" + string(errHeld) + "\r\n"
	for i, want := range []string{bulk("s"), held, bulk("s"), "+OK\r\n", "+QUEUED\r\n", held, held, "+PONG\r\n"} {
		if got := w.reply(); got != want {
			t.Errorf("reply %d: %q, want %q", i, got, want)
		}
		if took := time.Since(begun); i == 1 && took < holdFor {
			t.Errorf("refused after %v", took)
		}
	}
	m.direct[0].want("EXISTS "+moving, ":0\r\n")
	m.direct[1].want("EXISTS "+moving, ":0\r\n")
	m.step(topology.Handed)
	w.want("SET "+moving+" x", "+OK\r\n")
	if n := m.count("handover_waits_total", ""); n < 3 {
		t.Errorf("%v commands waited, want 3", n)
	}
}

// A client that leaves while its command waits leaves nothing behind.
func TestAClientLeavesWhileItsCommandWaits(t *testing.T) {
	m := inMotion(t, 2, nil)
	moving := m.keyOn("c1", 0)
	m.dial().want("GET "+moving, "$-1\r\n")
	m.drain("c1")
	m.step(topology.Held)
	m.rollCall(topology.Handed)
	w := m.dial()
	w.send("SET "+moving+" x", "SET "+moving+" y")
	waits := func() (n int) {
		for _, one := range collect(m.server, func(w *worker) int { return len(w.gate.waiting) }) {
			n += one
		}
		return n
	}
	eventually(t, "it waits", func() bool { return waits() == 1 })
	_ = w.conn.Close() // what a client does that has crashed
	eventually(t, "it is forgotten", func() bool { return waits() == 0 })
	m.step(topology.Handed)
	m.dial().want("GET "+moving, "$-1\r\n")
}

// A connection says by which epoch it sends keys, and each one open says so anew when that changes.
func TestConnectionsSayTheirEpoch(t *testing.T) {
	m := inMotion(t, 2, func(c *Config) { c.Name = "app 1" })
	key := m.keyOn("c1", 0)
	for range 2 { // both loops
		w := m.dial()
		w.want("GET "+key, "$-1\r\n")
		w.want("WATCH "+key, "+OK\r\n")
		w3 := m.dial()
		w3.do("HELLO 3")
		w3.want("GET "+key, "_\r\n")
	}
	names := func() (all []string) {
		for _, c := range callersAt(m.direct[0]) {
			all = append(all, c.Name())
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	if got := names(); !slices.Equal(got, []string{"ringside:1::app_1"}) {
		t.Errorf("connections are named %q", got)
	}
	if n := len(callersAt(m.direct[0])); n < 4 {
		t.Errorf("%d connections have names, want at least 4", n)
	}
	m.drain("c1")
	eventually(t, "all say that they have heard", func() bool { return slices.Equal(names(), []string{"ringside:2::app_1"}) })
	m.step(topology.Held)
	eventually(t, "all say that they hold", func() bool { return slices.Equal(names(), []string{"ringside:2:2:app_1"}) })
}

// A server whose marker cannot be read is not used.
func TestABrokenMarkerIsRefused(t *testing.T) {
	m := inMotion(t, 1, nil)
	w := m.dial()
	w.want("SET a 1", "+OK\r\n")
	m.direct[0].want("SET "+topology.MarkerName+" nonsense", "+OK\r\n")
	m.direct[0].do("CLIENT KILL TYPE normal SKIPME yes")
	eventually(t, "the marker is looked at", func() bool {
		return strings.HasPrefix(w.do("GET a"), "-CACHEDOWN c1 the marker on the cache server is broken")
	})
	m.direct[0].want("DEL "+topology.MarkerName, ":1\r\n")
	m.direct[0].want("LPUSH "+topology.MarkerName+" 9", ":1\r\n")
	eventually(t, "the marker is looked at", func() bool { return strings.HasPrefix(w.do("GET a"), "-CACHEDOWN c1 GET rs:ring refused: WRONGTYPE") })
}

// A process that the topology does not name is asked for no plain key, whatever it has kept.
func TestARestartedServerServesNothingBeforeItIsNamed(t *testing.T) {
	b := persistent(t, 1, nil)
	w := b.dial()
	w.want("SET a old", "+OK\r\n")
	restart(t, b.caches[0])
	for range 20 {
		for _, command := range []string{"GET a", "MGET a b", "SCAN 0", "RANDOMKEY", "KEYS *", "EVAL 'return 1' 1 a", "SUBSCRIBE ch"} {
			got := w.do(command)
			if command == "SUBSCRIBE ch" {
				if got[0] != '-' {
					w.do("UNSUBSCRIBE ch")
				}
				continue
			}
			if !strings.HasPrefix(got, "-CACHEDOWN c1 ") {
				t.Fatalf("%s: %q", command, got)
			}
		}
	}
	content := b.holder.Current().Content()
	content.Epoch++
	content.Caches[0].RunID = ""
	b.publish(content)
	w.want("GET a", "-CACHEDOWN c1 "+errNotNamed.Error()+"\r\n")
	content.Epoch++
	content.Caches[0].RunID = runIDAt(t, b.caches[0].Addr())
	b.publish(content)
	w.want("GET a", bulk("old"))
}

// Keys that went down with their server are refused for a moment, and then begin anew on another one.
func TestLostKeysBeginAnew(t *testing.T) {
	m := inMotion(t, 3, nil)
	lost, other := m.keyOn("c1", 0), m.keyOn("c2", 0)
	w := m.dial()
	w.want("SET "+lost+" 1", "+OK\r\n")
	w.want("SET "+other+" 2", "+OK\r\n")
	begun := time.Now()
	next, err := topology.MarkDown(m.holder.Current(), []string{"c1"})
	m.follow(next, err)
	if got := w.do("GET " + lost); !strings.HasSuffix(got, errKeysLost.Error()+"\r\n") && time.Since(begun) < loseFor {
		t.Errorf("%q", got)
	}
	w.want("GET "+other, bulk("2"))
	eventually(t, "it begins anew", func() bool { return w.do("GET "+lost) == "$-1\r\n" })
	if took := time.Since(begun); took < loseFor {
		t.Errorf("after %v", took)
	}
	w.want("SET "+lost+" 3", "+OK\r\n")
	eventually(t, "there is no gate any more", func() bool {
		return !slices.Contains(collect(m.server, func(w *worker) bool { return w.gate != nil }), true)
	})
}

// Clients count while all keys are handed over: nothing is lost, nothing counted twice, and nobody is refused anything who has not waited as long as
// he may.
func TestNothingIsLostInAHandOver(t *testing.T) {
	m := inMotion(t, 3, nil)
	const clients, keys = 16, 20
	stop := make(chan struct{})
	var all sync.WaitGroup
	counts := make([][keys]int, clients)
	var made, refused atomic.Int64
	for i := range clients {
		all.Go(func() {
			w := m.dial()
			if i%2 == 1 {
				w.do("HELLO 3")
			}
			for round := 0; ; round++ {
				select {
				case <-stop:
					return
				default:
				}
				var sent []int
				begun := time.Now()
				for n := range 5 {
					k := (round*5 + n) % keys
					sent = append(sent, k)
					w.send(fmt.Sprintf("INCR n:%d:%d", i, k))
				}
				for _, k := range sent {
					got := w.reply()
					if strings.HasPrefix(got, "-"+string(errHeld)) && time.Since(begun) >= holdFor { // nothing has run
						refused.Add(1)
						continue
					}
					counts[i][k]++
					made.Add(1)
					if got != fmt.Sprintf(":%d\r\n", counts[i][k]) {
						t.Errorf("client %d, key %d: %q after %d and %v", i, k, got, counts[i][k]-1, time.Since(begun))
						return
					}
				}
			}
		})
	}
	for _, change := range []func() (*topology.Topology, error){
		func() (*topology.Topology, error) { return topology.DrainCache(m.holder.Current(), "c1") },
		func() (*topology.Topology, error) { return topology.WeighCache(m.holder.Current(), "c1", 1) },
		func() (*topology.Topology, error) { return topology.DrainCache(m.holder.Current(), "c3") },
	} {
		time.Sleep(50 * time.Millisecond) // under load
		next, err := change()
		m.follow(next, err)
		handovers := slices.Clone(next.Handovers)
		for _, m.h = range handovers {
			m.handOver()
		}
		for _, h := range handovers {
			m.carrier.carryAll(t, m.bench, h)
		}
		next, err = topology.Finish(m.holder.Current(), handovers, true)
		m.follow(next, err)
	}
	time.Sleep(50 * time.Millisecond)
	for begun := time.Now(); made.Load() < 1000 && time.Since(begun) < time.Minute; {
		time.Sleep(10 * time.Millisecond)
	}
	close(stop)
	all.Wait()
	w := m.dial()
	for i := range clients {
		for k := range keys {
			if counts[i][k] > 0 {
				w.want(fmt.Sprintf("GET n:%d:%d", i, k), bulk(fmt.Sprint(counts[i][k])))
			}
		}
	}
	if n := m.count("plain_keys_carried_on_demand_total", ""); n == 0 || made.Load() < 1000 || 10*refused.Load() > made.Load() {
		t.Errorf("%v keys were carried, %d INCRs made and %d refused", n, made.Load(), refused.Load())
	}
}
