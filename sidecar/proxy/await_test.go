package proxy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ringside/resp"
	"ringside/sidecar/topology"
)

// ahead tells a server of the ring's next change, as whoever makes it does before the sidecars hear of it. What it returns is that topology.
func (m *motion) ahead(server string, change func(*topology.Topology) (*topology.Topology, error)) *topology.Topology {
	m.t.Helper()
	next, err := change(m.holder.Current())
	if err != nil {
		m.t.Fatal(err)
	}
	marker := topology.Marker{Epoch: next.Epoch}
	m.serverOf(server).want("SET "+topology.MarkerName+" '"+marker.String()+"'", "+OK\r\n")
	return next
}

// waitsForConnections is how many clients wait for a handshake.
func (m *motion) waitsForConnections() (n int) {
	for _, one := range collect(m.server, func(w *worker) int { return len(w.opening) }) {
		n += one
	}
	return n
}

// expects compares the replies that come by a connection.
func expects(t *testing.T, w *wire, what string, want ...string) {
	t.Helper()
	for i, one := range want {
		if got := w.reply(); got != one {
			t.Errorf("%s: reply %d: %q, want %q", what, i, got, one)
		}
	}
}

// talk is what a client sends while its sidecar has not heard of the newest ring yet, and what it must be told.
type talk struct {
	send []string
	want []string
}

// talks are about keys with this tag, which hold what tagged has put there.
func talks(tag string) []talk {
	return []talk{
		{[]string{"GET " + tag + "s", "PING"}, []string{bulk("v"), "+PONG\r\n"}},
		{[]string{"HELLO 3", "GET " + tag + "s"}, []string{"%7", bulk("v")}},
		{[]string{"APPEND " + tag + "a x", "APPEND " + tag + "a y", "GET " + tag + "a"}, []string{":1\r\n", ":2\r\n", bulk("xy")}},
		{[]string{"MGET " + tag + "s " + tag + "none elsewhere"}, []string{"*3\r\n" + bulk("v") + "$-1\r\n$-1\r\n"}},
		{[]string{"MSET " + tag + "m 1 other 2", "EXISTS " + tag + "m other"}, []string{"+OK\r\n", ":2\r\n"}},
		{[]string{"EVAL 'return redis.call(\"incr\", KEYS[1])' 1 " + tag + "e", "GET " + tag + "e"}, []string{":1\r\n", bulk("1")}},
		{[]string{"MULTI", "INCR " + tag + "t", "PING", "EXEC", "GET " + tag + "t"}, []string{"+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "*2\r\n:1\r\n+PONG\r\n", bulk("1")}},
		{[]string{"WATCH " + tag + "w", "GET " + tag + "w", "MULTI", "INCR " + tag + "w", "EXEC", "GET " + tag + "w"},
			[]string{"+OK\r\n", bulk("5"), "+OK\r\n", "+QUEUED\r\n", "*1\r\n:6\r\n", bulk("6")}},
		{[]string{"BLPOP " + tag + "l 20", "LLEN " + tag + "l"}, []string{"*2\r\n" + bulk(tag+"l") + bulk("first"), ":1\r\n"}},
		{[]string{"SUNIONSTORE " + tag + "u " + tag + "set", "SCARD " + tag + "u"}, []string{":1\r\n", ":1\r\n"}},
		{[]string{"PUBLISH " + tag + "s hello", "SCRIPT LOAD 'return 1'"}, []string{":0\r\n", bulk(shaOf("return 1"))}},
	}
}

// tagged puts something on the server that owns the keys of a tag, past the proxy.
func tagged(w *wire, tag string) {
	w.want("SET "+tag+"s v", "+OK\r\n")
	w.want("SET "+tag+"w 5", "+OK\r\n")
	w.want("RPUSH "+tag+"l first second", ":2\r\n")
	w.want("SADD "+tag+"set member", ":1\r\n")
}

func drainC1(t *topology.Topology) (*topology.Topology, error) { return topology.DrainCache(t, "c1") }

// A connection that is made when its server knows of a newer ring than the sidecar has to wait until that has heard of it too. Nothing is refused,
// everything runs once and in its order, wherever the keys are by then.
func TestConnectionsWaitForTheNewerTopology(t *testing.T) {
	nextEpoch := func(t *topology.Topology) (*topology.Topology, error) {
		content := t.Content()
		content.Epoch++
		return topology.New(content)
	}
	for _, c := range []struct {
		name   string
		change func(*topology.Topology) (*topology.Topology, error)
		opened bool // there were connections before, which were lost
	}{
		{"nothing moves", nextEpoch, false},
		{"handed over, first connections", drainC1, false},
		{"handed over, connections made anew", drainC1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := inMotion(t, 2, nil)
			tag := "{" + m.keyOn("c1", 0) + "}"
			tagged(m.direct[0], tag)
			if c.opened {
				for range 4 { // both loops
					m.dial().want("GET "+tag+"none", "$-1\r\n")
				}
			}
			next := m.ahead("c1", c.change)
			m.direct[0].do("CLIENT KILL TYPE normal SKIPME yes")
			m.carrier.wires["c1"] = dial(t, m.caches[0].Addr())
			all := talks(tag)
			wires := make([]*wire, len(all))
			for i := range all {
				wires[i] = m.dial()
				wires[i].send(all[i].send...)
			}
			waits := m.dial()
			waits.send("BRPOP "+tag+"q 30", "PING")
			eventually(t, "all wait", func() bool { return m.waitsForConnections() == len(all)+1 })
			eventually(t, "the newer epoch is told", func() bool { return m.epochs.Load() == next.Epoch })
			m.direct[0].want("EXISTS "+tag+"a "+tag+"e "+tag+"t "+tag+"m", ":0\r\n")
			m.follow(next, nil)
			if len(next.Handovers) > 0 {
				m.handOver()
			}
			for i := range all {
				for n, want := range all[i].want {
					got := wires[i].reply()
					if want == "%7" && strings.HasPrefix(got, want) {
						continue
					}
					if got == "*-1\r\n" && strings.HasPrefix(all[i].send[0], "WATCH") {
						break // its keys were handed over before EXEC came
					}
					if got != want {
						t.Errorf("%q: reply %d: %q, want %q", all[i].send, n, got, want)
					}
				}
			}
			m.dial().want("LPUSH "+tag+"q late", ":1\r\n")
			expects(t, waits, "BRPOP", "*2\r\n"+bulk(tag+"q")+bulk("late"), "+PONG\r\n")
			if n := m.waitsForConnections(); n != 0 {
				t.Errorf("%d clients still wait for a connection", n)
			}
		})
	}
}

// What has waited for a connection finds its keys elsewhere: with a server that is to be asked instead of the one that it was to go to.
func TestWhatWaitsForAConnectionGoesWhereItsKeysAre(t *testing.T) {
	m := inMotion(t, 2, nil)
	tag := "{" + m.keyOn("c1", 0) + "}"
	tagged(m.direct[0], tag)
	next := m.ahead("c1", drainC1)
	watches, pops, gets := m.dial(), m.dial(), m.dial()
	watches.send("WATCH "+tag+"w", "MULTI", "INCR "+tag+"w", "EXEC")
	pops.send("BLPOP " + tag + "l 20")
	gets.send("GET "+tag+"s", "SET "+tag+"s new")
	eventually(t, "all wait", func() bool { return m.waitsForConnections() == 3 })
	// By the time that the sidecar hears of the change, all has been handed over.
	m.h = next.Handovers[0]
	marker := topology.Marker{Epoch: next.Epoch, Steps: map[uint64]topology.Step{m.h.Since: topology.Handed}}
	m.direct[0].want("SET "+topology.MarkerName+" '"+marker.String()+"'", "+OK\r\n")
	m.follow(next, nil)
	expects(t, watches, "WATCH", "+OK\r\n", "+OK\r\n", "+QUEUED\r\n", "*1\r\n:6\r\n")
	expects(t, pops, "BLPOP", "*2\r\n"+bulk(tag+"l")+bulk("first"))
	expects(t, gets, "GET", bulk("v"), "+OK\r\n")
	m.direct[0].want("EXISTS "+tag+"w "+tag+"l "+tag+"s", ":0\r\n")
	m.direct[1].want("GET "+tag+"w", bulk("6"))
	m.direct[1].want("LRANGE "+tag+"l 0 -1", "*1\r\n"+bulk("second"))
	m.direct[1].want("GET "+tag+"s", bulk("new"))
}

// A client that leaves while it waits for a connection leaves nothing behind.
func TestAClientLeavesWhileItWaitsForAConnection(t *testing.T) {
	m := inMotion(t, 2, nil)
	key := m.keyOn("c1", 0)
	next := m.ahead("c1", drainC1)
	commands := []string{"LPUSH " + key + " x", "BLPOP " + key + " 0", "WATCH " + key}
	wires := make([]*wire, len(commands))
	for i, command := range commands {
		wires[i] = m.dial()
		wires[i].send(command)
	}
	eventually(t, "all wait", func() bool { return m.waitsForConnections() == len(commands) })
	for _, w := range wires {
		_ = w.conn.Close() // what a client does that has crashed
	}
	eventually(t, "they are forgotten", func() bool { return m.waitsForConnections() == 0 })
	m.follow(next, nil)
	m.dial().want("EXISTS "+key, ":0\r\n")
	eventually(t, "no connection for single clients is left", func() bool { return m.server.privates.Load() == 0 })
}

// A connection that is in use goes on when its server says, in reply to a question, that there is a newer ring.
func TestAConnectionInUseOutlivesANewerEpoch(t *testing.T) {
	m := inMotion(t, 2, nil)
	key := m.keyOn("c1", 0)
	m.drain("c1")
	w := m.dial()
	w.want("RPUSH "+key+" a", ":1\r\n")
	blocked := m.dial()
	blocked.send("BLPOP {" + key + "}none 20")
	m.waits(0, 1)
	id := m.direct[0].do("CLIENT LIST")
	next := m.ahead("c1", func(now *topology.Topology) (*topology.Topology, error) {
		content := now.Content()
		content.Epoch = 9
		return topology.New(content)
	})
	eventually(t, "it is heard of", func() bool { return m.epochs.Load() == next.Epoch })
	w.want("RPUSH "+key+" b", ":2\r\n")
	for line := range strings.Lines(id) {
		if was, _, _ := strings.Cut(line, " "); strings.Contains(line, "name=ringside:") && !strings.Contains(m.direct[0].do("CLIENT LIST"), was+" ") {
			t.Errorf("%s is gone", was)
		}
	}
	w.want("RPUSH {"+key+"}none c", ":1\r\n")
	expects(t, blocked, "BLPOP", "*2\r\n"+bulk("{"+key+"}none")+bulk("c"))
}

// Keys that are watched may be handed over before others are watched too: EXEC fails, nothing else does.
func TestWatchGoesOnAfterItsKeysHaveMoved(t *testing.T) {
	m := inMotion(t, 2, nil)
	tag := "{" + m.keyOn("c1", 0) + "}"
	w := m.dial()
	w.want("WATCH "+tag+"a", "+OK\r\n")
	m.drain("c1")
	m.handOver()
	w.want("RPUSH "+tag+"l x", ":1\r\n")
	w.want("WATCH "+tag+"b", "+OK\r\n")
	w.want("BLPOP "+tag+"l 20", "*2\r\n"+bulk(tag+"l")+bulk("x"))
	for _, exec := range []string{"*-1\r\n", "*1\r\n+OK\r\n"} {
		w.want("WATCH "+tag+"b", "+OK\r\n")
		w.want("MULTI", "+OK\r\n")
		w.want("SET "+tag+"b 1", "+QUEUED\r\n")
		w.want("EXEC", exec)
	}
}

func TestHowLongCommandsWaitAtTheGate(t *testing.T) {
	const ms = int64(time.Millisecond)
	endless, short, long := &ownCall{}, &ownCall{deadline: 100 * ms}, &ownCall{deadline: 60_000 * ms}
	for i, c := range []struct {
		h    hold
		last int64 // the last millisecond at which it still waits; -1: there is none
	}{
		{hold{}, 499}, {hold{missing: 1}, 2999}, {hold{opening: true}, 2999},
		{hold{call: endless}, -1}, {hold{call: short}, 499}, {hold{call: long}, 59_999}, {hold{call: short, missing: 1}, 2999},
	} {
		if c.last < 0 {
			if c.h.late(1 << 62) {
				t.Errorf("%d: it ends", i)
			}
			continue
		}
		if c.h.late(c.last*ms) || !c.h.late((c.last+1)*ms) {
			t.Errorf("%d: it does not wait for %d ms", i, c.last)
		}
	}
}

// What waits too long for its sidecar to hear of a newer ring is told to try again, as nothing of it has run.
func TestANewerTopologyThatDoesNotCome(t *testing.T) {
	m := inMotion(t, 1, nil)
	m.direct[0].want("SET "+topology.MarkerName+" 9", "+OK\r\n")
	begun := time.Now()
	commands := []string{"SET a 1", "GET a", "MGET a b", "WATCH a", "BLPOP l 1", "DBSIZE", "SCAN 0", "EVAL 'return 1' 1 a"}
	wires := make([]*wire, len(commands))
	for i, command := range commands {
		wires[i] = m.dial()
		wires[i].send(command, "PING")
	}
	for i, command := range commands {
		got := wires[i].reply()
		if want := "-TRYAGAIN cache server c1: " + (&behindError{9, 1}).Error() + "\r\n"; got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
		expects(t, wires[i], "after "+command, "+PONG\r\n")
	}
	if took := time.Since(begun); took < settleFor {
		t.Errorf("refused after %v", took)
	}
	m.direct[0].want("EXISTS a", ":0\r\n")
	wires[0].send("MULTI", "SET a 1", "EXEC", "GET a")
	expects(t, wires[0], "MULTI", "+OK\r\n", "+QUEUED\r\n")
	if got := wires[0].reply(); !strings.HasPrefix(got, "-TRYAGAIN ") {
		t.Errorf("EXEC: %q", got)
	}
	content := m.holder.Current().Content()
	content.Epoch = 9
	next, err := topology.New(content)
	m.follow(next, err)
	if got := wires[0].reply(); got != "$-1\r\n" && !strings.HasPrefix(got, "-TRYAGAIN ") {
		t.Errorf("GET: %q", got)
	}
	wires[0].want("SET a 1", "+OK\r\n")
	if n := m.epochs.Load(); n != 9 {
		t.Errorf("epoch %d was told, want 9", n)
	}
}

// Clients of every kind go on while their connections are lost again and again and servers know of each change first.
func TestNobodyIsRefusedWhileServersKnowFirst(t *testing.T) {
	m := inMotion(t, 2, nil)
	const rounds = 5
	for round := range rounds {
		tag := fmt.Sprintf("{%s}%d:", m.keyOn("c1", 0), round)
		tagged(m.direct[0], tag)
		next := m.ahead("c1", func(now *topology.Topology) (*topology.Topology, error) {
			content := now.Content()
			content.Epoch++
			return topology.New(content)
		})
		all := talks(tag)
		wires := make([]*wire, len(all))
		for i := range all {
			wires[i] = m.dial()
			wires[i].send(all[i].send...)
		}
		m.follow(next, nil)
		for i := range all {
			for n, want := range all[i].want {
				if got := wires[i].reply(); got != want && !(want == "%7" && strings.HasPrefix(got, want)) {
					t.Errorf("round %d: %q: reply %d: %q, want %q", round, all[i].send, n, got, want)
				}
			}
		}
	}
	v, _, err := resp.Decode([]byte(m.dial().do("DBSIZE")))
	if err != nil || v.Int == 0 {
		t.Errorf("DBSIZE: %v, %v", v, err)
	}
}
