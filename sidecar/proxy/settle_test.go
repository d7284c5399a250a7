package proxy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/sidecar/topology"
)

// handed starts a proxy of which c1 has handed all its vnodes to c2, none of their keys carried; fill sets them before.
func handed(t testing.TB, fill func(m *motion, w *wire)) *motion {
	t.Helper()
	m := inMotion(t, 2, nil)
	fill(m, m.dial())
	m.drain("c1")
	m.handOver()
	return m
}

// Keys of every type are read on their new owner as they were, with their life.
func TestKeysOfEveryTypeAreCarriedWhenAskedFor(t *testing.T) {
	var tag string
	reads := [][2]string{
		{"GET %s:string", bulk("x")}, {"LRANGE %s:list 0 -1", "*2\r\n" + bulk("a") + bulk("b")}, {"SMEMBERS %s:set", "*1\r\n" + bulk("m")},
		{"HGETALL %s:hash", "*2\r\n" + bulk("f") + bulk("v")}, {"ZRANGE %s:zset 0 -1 WITHSCORES", "*2\r\n" + bulk("m") + bulk("1.5")},
		{"XLEN %s:stream", ":1\r\n"}, {"XPENDING %s:stream g", "*4\r\n:1\r\n" + bulk("1-1") + bulk("1-1") + "*1\r\n*2\r\n" + bulk("c") + bulk("1")},
		{"PFCOUNT %s:hll", ":2\r\n"}, {"GETBIT %s:bits 7", ":1\r\n"}, {"GEOHASH %s:geo p", "*1\r\n" + bulk("u4pruydqqv0")},
		{"STRLEN %s:large", ":500000\r\n"}, {"GET %s:none", "$-1\r\n"}, {"EXPIRETIME %s:mortal", ":4102444800\r\n"}, {"TTL %s:string", ":-1\r\n"},
		{"OBJECT ENCODING %s:number", bulk("int")}, {"TYPE %s:set", "+set\r\n"},
	}
	m := handed(t, func(m *motion, w *wire) {
		tag = m.keyOn("c1", 0)
		for _, c := range []string{
			"SET %s:string x", "RPUSH %s:list a b", "SADD %s:set m", "HSET %s:hash f v", "ZADD %s:zset 1.5 m", "XADD %s:stream 1-1 f v",
			"XGROUP CREATE %s:stream g 0", "XREADGROUP GROUP g c STREAMS %s:stream >", "PFADD %s:hll a b", "SETBIT %s:bits 7 1",
			"GEOADD %s:geo 10.40744 57.64911 p", "SETRANGE %s:large 499999 x", "SET %s:mortal x EXAT 4102444800", "SET %s:number 7",
		} {
			if got := w.do(fmt.Sprintf(c, "{"+tag+"}")); got[0] == '-' {
				t.Fatalf("%s: %q", c, got)
			}
		}
	})
	w := m.dial()
	for range 2 {
		for _, r := range reads {
			w.want(fmt.Sprintf(r[0], "{"+tag+"}"), r[1])
		}
	}
	m.direct[0].want("DBSIZE", ":1\r\n") // the marker
	if n := m.carrier.carried.Load(); n != 12 {
		t.Errorf("%d keys were carried, want 12", n)
	}
}

// Commands on several keys, on whatever server each of them is.
func TestCommandsOnSeveralKeysInAHandOver(t *testing.T) {
	var a, b, c, here string
	m := handed(t, func(m *motion, w *wire) {
		a, b, c, here = m.keyOn("c1", 0), m.keyOn("c1", 1), m.keyOn("c1", 2), m.keyOn("c2", 0)
		w.want(fmt.Sprintf("MSET %s a %s b %s c %s here", a, b, c, here), "+OK\r\n")
		w.want("MSET {"+a+"}x 1 {"+a+"}y 2", "+OK\r\n")
		w.want("RPUSH {"+a+"}l 1 2", ":2\r\n")
		w.want("SADD {"+b+"}s m", ":1\r\n")
	})
	w := m.dial()
	w.want("GET "+a, bulk("a"))
	w.want(fmt.Sprintf("MGET %s %s none %s %s", b, a, here, a), "*5\r\n"+bulk("b")+bulk("a")+"$-1\r\n"+bulk("here")+bulk("a"))
	w.want(fmt.Sprintf("EXISTS %s %s %s %s", a, b, c, here), ":4\r\n")
	w.want(fmt.Sprintf("DEL %s %s", c, here), ":2\r\n")
	w.want(fmt.Sprintf("MGET %s %s", c, here), "*2\r\n$-1\r\n$-1\r\n")
	w.want("EVAL 'return redis.call([[get]],KEYS[1])..redis.call([[get]],KEYS[2])' 2 {"+a+"}x {"+a+"}y", bulk("12"))
	w.want("RENAME {"+a+"}l {"+a+"}k", "+OK\r\n")
	w.want("LRANGE {"+a+"}k 0 -1", "*2\r\n"+bulk("1")+bulk("2"))
	w.want("SUNIONSTORE {"+b+"}t {"+b+"}s", ":1\r\n")
	w.want("SORT {"+a+"}k BY {"+a+"}w* GET {"+a+"}x", "-"+string(errSortCarried)+"\r\n")
	w.want("SORT {"+a+"}k DESC", "*2\r\n"+bulk("2")+bulk("1"))
	m.direct[0].want("DBSIZE", ":1\r\n")
}

// A transaction is queued by one state of a hand-over and run by another.
func TestTransactionsAcrossAHandOver(t *testing.T) {
	m := inMotion(t, 2, nil)
	key, tag := m.keyOn("c1", 0), "{"+m.keyOn("c1", 1)+"}"
	w, watcher, other := m.dial(), m.dial(), m.dial()
	w.want("MSET "+key+" 1 "+tag+"a 5 "+tag+"b 6", "+OK\r\n")
	w.want("MULTI", "+OK\r\n")
	w.want("INCR "+tag+"a", "+QUEUED\r\n")
	other.want("SCRIPT LOAD 'return 7'", bulk(shaOf("return 7")))
	watcher.want("WATCH "+key, "+OK\r\n")
	m.drain("c1")
	m.step(topology.Open)
	m.rollCall(topology.Held)
	other.want("WATCH "+key, "+OK\r\n")
	other.want("MULTI", "+OK\r\n")
	other.want("INCR "+key, "+QUEUED\r\n")
	other.want("EXEC", "*1\r\n:2\r\n") // it is still served there
	other.want("WATCH "+key, "+OK\r\n")
	m.step(topology.Held)
	m.rollCall(topology.Handed)
	w.want("INCR "+tag+"b", "+QUEUED\r\n")
	w.want("EVALSHA "+shaOf("return 7")+" 1 "+tag+"a", "+QUEUED\r\n")
	m.direct[1].want("SCRIPT FLUSH", "+OK\r\n") // as one that joins
	w.send("EXEC", "GET "+tag+"a")
	m.step(topology.Handed)
	for _, want := range []string{"*3\r\n:6\r\n:7\r\n:7\r\n", bulk("6")} {
		if got := w.reply(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for _, c := range []*wire{watcher, other} {
		c.want("MULTI", "+OK\r\n")
		c.want("SET "+key+" lost", "+QUEUED\r\n")
		c.want("EXEC", "*-1\r\n")
		c.want("WATCH "+key, "+OK\r\n")
		c.want("MULTI", "+OK\r\n")
		c.want("INCR "+key, "+QUEUED\r\n")
		if got := c.do("EXEC"); !strings.HasPrefix(got, "*1\r\n:") {
			t.Errorf("%q", got)
		}
	}
	w.want("GET "+key, bulk("4"))
}

// What waits for data goes on waiting where its keys are, and is called off only where it could miss something.
func TestBlockedCommandsFollowTheirKeys(t *testing.T) {
	m := inMotion(t, 2, nil)
	key, stream := m.keyOn("c1", 0), m.keyOn("c1", 1)
	blocked := map[string]*wire{}
	for _, c := range []string{
		"BLPOP " + key + " 0", "BLMOVE {" + key + "}a {" + key + "}b LEFT LEFT 30", "BZPOPMIN {" + key + "}z 30.5",
		"XREAD BLOCK 30000 STREAMS " + stream + " 0-0", "XREAD BLOCK 0 STREAMS " + stream + " $", "BLPOP {" + key + "}none 3",
	} {
		w := m.dial()
		w.send(c, "PING")
		blocked[c] = w
	}
	waiting := func(w *wire) int { return strings.Count(w.do("CLIENT LIST"), "flags=b ") }
	eventually(t, "all wait", func() bool { return waiting(m.direct[0]) == len(blocked) })
	m.drain("c1")
	m.handOver() // nobody is ended, and all say so by their names
	w := m.dial()
	w.want("RPUSH "+key+" 1", ":1\r\n")
	w.want("RPUSH {"+key+"}a 2", ":1\r\n")
	w.want("ZADD {"+key+"}z 1 m", ":1\r\n")
	w.want("XADD "+stream+" 1-1 f v", bulk("1-1"))
	for c, want := range map[string]string{
		"BLPOP " + key + " 0": "*2\r\n" + bulk(key) + bulk("1"), "BLMOVE {" + key + "}a {" + key + "}b LEFT LEFT 30": bulk("2"),
		"BZPOPMIN {" + key + "}z 30.5":                 "*3\r\n" + bulk("{"+key+"}z") + bulk("m") + bulk("1"),
		"XREAD BLOCK 30000 STREAMS " + stream + " 0-0": "*1\r\n*2\r\n" + bulk(stream) + "*1\r\n*2\r\n" + bulk("1-1") + "*2\r\n" + bulk("f") + bulk("v"),
		"XREAD BLOCK 0 STREAMS " + stream + " $":       "-TRYAGAIN " + errRingChanged.Error() + "\r\n",
		"BLPOP {" + key + "}none 3":                    "*-1\r\n",
	} {
		if got := blocked[c].reply(); got != want {
			t.Errorf("%s: %q, want %q", c, got, want)
		}
		if got := blocked[c].reply(); got != "+PONG\r\n" {
			t.Errorf("after %s: %q", c, got)
		}
	}
	if n := waiting(m.direct[0]) + waiting(m.direct[1]); n != 0 {
		t.Errorf("%d still wait", n)
	}
}

// A key that cannot be carried is an error, not a key that is not there; and one that is being carried is carried once.
func TestKeysThatCannotBeCarried(t *testing.T) {
	var key, other string
	m := handed(t, func(m *motion, w *wire) {
		key, other = m.keyOn("c1", 0), m.keyOn("c1", 1)
		w.want("MSET "+key+" v "+other+" w", "+OK\r\n")
	})
	m.carrier.fails.Store(true)
	w := m.dial()
	for _, c := range []string{"GET " + key, "MGET x " + key, "SET " + key + " new"} {
		w.want(c, "-CACHEDOWN c1 a key cannot be carried over to c2: not today\r\n")
	}
	w.want("GET {"+key+"}none", "$-1\r\n")
	m.direct[0].want("GET "+key, bulk("v"))
	m.carrier.fails.Store(false)
	clients := make([]*wire, 20)
	for i := range clients {
		clients[i] = m.dial()
		clients[i].send("APPEND "+key+" x", "GET "+other)
	}
	for _, c := range clients {
		if got := c.reply(); got[0] != ':' {
			t.Errorf("%q", got)
		}
		if got := c.reply(); got != bulk("w") {
			t.Errorf("%q", got)
		}
	}
	w.want("STRLEN "+key, ":21\r\n")
	// The former owner cannot be reached: what is settled goes on, what is not cannot be told.
	if err := m.caches[0].Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is gone", func() bool { return strings.HasPrefix(w.do("GET {"+key+"}new"), "-CACHEDOWN c1 ") })
	w.want("STRLEN "+key, ":21\r\n")
}

// A key is not used while somebody may still put there what he has read on the former owner: his lease is ended first.
func TestSettlingEndsTheLease(t *testing.T) {
	var key string
	m := handed(t, func(m *motion, w *wire) { key = m.keyOn("c1", 0) })
	m.direct[1].want("SET "+topology.CarryPrefix+key+" token", "+OK\r\n")
	m.dial().want("SET "+key+" new", "+OK\r\n")
	m.direct[1].want("EXISTS "+topology.CarryPrefix+key, ":0\r\n")
}

// Commands wait for a carrier that takes its time, and are refused when it takes too long. The key is carried all the same.
func TestACarrierTakesItsTime(t *testing.T) {
	var key string
	m := inMotion(t, 2, nil)
	m.carrier.hold = make(chan struct{})
	key = m.keyOn("c1", 0)
	w := m.dial()
	w.want("SET "+key+" v", "+OK\r\n")
	m.drain("c1")
	m.handOver()
	begun := time.Now()
	w.want("GET "+key, "-"+string(errHeld)+"\r\n")
	if took := time.Since(begun); took < settleFor {
		t.Errorf("refused after %v", took)
	}
	w.send("GET " + key)
	close(m.carrier.hold)
	if got := w.reply(); got != bulk("v") {
		t.Errorf("%q", got)
	}
}

// A command on keys of two hand-overs: while a key of the one is being carried, the other one is handed, and its keys have to be settled too.
func TestAHandOverIsHandedWhileKeysOfAnotherAreSettled(t *testing.T) {
	for _, c := range []struct{ command, want string }{
		{"MGET %s %s", "*2\r\n" + bulk("1") + bulk("2")},
		{"EXISTS %s %s", ":2\r\n"},
		{"DEL %s %s", ":2\r\n"},
	} {
		got := "-" + string(errHeld) + "\r\n"
		for chance := 0; chance < 4 && got == "-"+string(errHeld)+"\r\n"; chance++ { // a busy machine may take longer than a command waits
			got = overtaken(t, c.command)
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.command, got, c.want)
		}
	}
}

// overtaken returns the reply to a command on a key from c1, which is being carried when c2 hands over, and one from c2.
func overtaken(t *testing.T, command string) string {
	t.Helper()
	m := inMotion(t, 3, nil)
	next, err := topology.WeighCache(m.holder.Current(), "c3", 3)
	if err != nil {
		t.Fatal(err)
	}
	moving := func(from string) string {
		for n := 0; ; n++ {
			key := m.keyOn(from, n)
			if l, err := next.Locate(testKeyspaces(t), []byte(key)); err != nil || l.Cache == "c3" {
				return key
			}
		}
	}
	a, b := moving("c1"), moving("c2")
	w := m.dial()
	w.want(fmt.Sprintf("MSET %s 1 %s 2", a, b), "+OK\r\n")
	w.want("GET "+m.keyOn("c3", 0), "$-1\r\n") // so that nothing waits for the connection
	m.carrier.hold = make(chan struct{})
	m.follow(next, nil)
	handOver := func(from string) {
		m.h = next.Handovers[slices.IndexFunc(next.Handovers, func(h topology.Handover) bool { return h.From == from })]
		m.handOver()
	}
	handed := func(want int) {
		eventually(t, "the loops have heard of what is handed", func() bool {
			return !slices.ContainsFunc(collect(m.server, func(w *worker) int {
				n := 0
				for _, h := range w.gate.handovers {
					if h.step == topology.Handed {
						n++
					}
				}
				return n
			}), func(n int) bool { return n != want })
		})
	}
	handOver("c1")
	handed(1)
	w.send(fmt.Sprintf(command, a, b))
	eventually(t, "a key is being carried", func() bool {
		return slices.Contains(collect(m.server, func(w *worker) int { return w.settler.carrying }), 1)
	})
	handOver("c2")
	handed(2)
	close(m.carrier.hold)
	return w.reply()
}

func TestWhatIsSettledIsBounded(t *testing.T) {
	h := &handover{settled: map[string]struct{}{}}
	key := []byte(strings.Repeat("k", 1<<10))
	for i := range 3 * maxSettledBytes / len(key) {
		one := append(slices.Clone(key), fmt.Sprint(i)...)
		h.remember(one)
		h.remember(one)
		if !h.isSettled(one) {
			t.Fatal("it is forgotten at once")
		}
		if h.bytes > maxSettledBytes || len(h.settled) > maxSettled {
			t.Fatalf("%d keys of %d bytes are remembered", len(h.settled), h.bytes)
		}
	}
	sum := 0
	for k := range h.settled {
		sum += len(k)
	}
	if sum != h.bytes {
		t.Errorf("%d bytes are remembered, %d counted", sum, h.bytes)
	}
}

// More keys in one command than are asked for at a time.
func TestManyKeysAreSettledAtOnce(t *testing.T) {
	const n = 3 * maxAsking
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint("many:", i)
	}
	m := handed(t, func(m *motion, w *wire) { w.want("MSET "+strings.Join(keys, " v ")+" v", "+OK\r\n") })
	want := fmt.Sprintf("*%d\r\n", n) + strings.Repeat(bulk("v"), n)
	w := m.dial()
	eventually(t, "all are settled", func() bool { // on a busy machine not within settleFor
		got := w.do("MGET " + strings.Join(keys, " "))
		if got != want && !strings.HasPrefix(got, "-TRYAGAIN ") {
			t.Fatalf("%.200q", got)
		}
		return got == want
	})
	m.direct[0].want("DBSIZE", ":1\r\n")
}
