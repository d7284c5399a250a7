package proxy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"ringside/resp"
)

// caller is one client of the storm: it knows what each of its requests may be answered.
type caller struct {
	t       *testing.T
	addr    string
	id      int
	rng     *rand.Rand
	counted int // INCRs that were acknowledged
	unknown int // INCRs whose fate is not known
	down    int // answers that a server is down
}

func (c *caller) key(i int) string   { return fmt.Sprintf("storm:%d:%d", c.id, i) }
func (c *caller) value(i int) string { return fmt.Sprintf("value of %d:%d", c.id, i) }
func (c *caller) counter() string    { return fmt.Sprintf("counter:%d", c.id) }

const callerKeys = 4

// session opens a connection, sends pipelines and checks every reply; now and then it cuts the connection in the middle.
func (c *caller) session(until time.Time) {
	conn, err := net.DialTimeout("tcp", c.addr, 10*time.Second)
	if err != nil {
		c.t.Errorf("client %d: %v", c.id, err)
		return
	}
	defer conn.Close()
	w := &wire{t: c.t, conn: conn}
	for time.Now().Before(until) {
		var out []byte
		var asked []int // key, -1: INCR, -2: MGET
		for range 1 + c.rng.IntN(8) {
			switch n := c.rng.IntN(callerKeys + 2); n {
			case callerKeys:
				out = resp.AppendCommandString(out, "INCR", c.counter())
				asked = append(asked, -1)
			case callerKeys + 1:
				out = resp.AppendCommandString(out, "MGET", c.key(0), c.key(1), c.key(2), c.key(3))
				asked = append(asked, -2)
			default:
				out = resp.AppendCommandString(out, "GET", c.key(n))
				asked = append(asked, n)
			}
		}
		cut := c.rng.IntN(20) == 0
		if cut {
			out = out[:c.rng.IntN(len(out))]
		}
		if _, err := conn.Write(out); err != nil {
			c.t.Errorf("client %d: %v", c.id, err)
			return
		}
		if cut {
			for _, n := range asked {
				if n == -1 {
					c.unknown++
				}
			}
			return
		}
		for _, n := range asked {
			frame, err := w.tryReply()
			if err != nil {
				c.t.Errorf("client %d: %v", c.id, err)
				return
			}
			c.check(n, frame)
		}
		time.Sleep(time.Duration(c.rng.IntN(20)) * time.Millisecond)
	}
}

func (c *caller) check(n int, frame string) {
	if frame[0] == '-' {
		if n == -1 {
			c.unknown++
		}
		if code := string(resp.ErrorCode([]byte(frame))); code != "CACHEDOWN" && code != "LOADING" {
			c.t.Errorf("client %d: %q", c.id, frame)
		}
		c.down++
		return
	}
	want := ""
	switch n {
	case -1:
		v, ok := resp.IntOf([]byte(frame))
		if !ok || int(v) <= c.counted {
			c.t.Errorf("client %d: INCR %q after %d", c.id, frame, c.counted)
		}
		c.counted++
		return
	case -2:
		want = "*4\r\n" + bulk(c.value(0)) + bulk(c.value(1)) + bulk(c.value(2)) + bulk(c.value(3))
	default:
		want = bulk(c.value(n))
	}
	if frame != want {
		c.t.Errorf("client %d: %q, want %q", c.id, frame, want)
	}
}

// 300 clients with values of their own, connections cut at random, one server paused, killed and restarted: nobody ever gets another's
// reply, nor nil for a key that exists, and no INCR is run twice.
func TestStorm(t *testing.T) {
	b := persistent(t, 3, func(c *Config) { c.ReplyTimeout = time.Second })
	b.adopts.Store(true)
	const clients = 300
	callers := make([]*caller, clients)
	setup := b.dial()
	for i := range callers {
		c := &caller{t: t, addr: b.addr, id: i, rng: rand.New(rand.NewPCG(7, uint64(i)))}
		callers[i] = c
		for k := range callerKeys {
			eventually(t, "a key is set", func() bool { return setup.do(fmt.Sprintf("SET %s '%s'", c.key(k), c.value(k))) == "+OK\r\n" })
		}
	}
	until := time.Now().Add(4 * time.Second)
	var all sync.WaitGroup
	for _, c := range callers {
		all.Go(func() {
			for time.Now().Before(until) {
				c.session(until)
			}
		})
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	time.Sleep(500 * time.Millisecond)
	must(b.caches[0].Pause())
	time.Sleep(1400 * time.Millisecond)
	must(b.caches[0].Resume())
	time.Sleep(400 * time.Millisecond)
	must(b.caches[1].Kill())
	time.Sleep(500 * time.Millisecond)
	must(b.caches[1].Restart(context.Background()))
	all.Wait()
	counted, down := 0, 0
	for _, c := range callers {
		counted, down = counted+c.counted, down+c.down
		got := 0
		eventually(t, "the counter can be read", func() bool {
			reply := setup.do("GET " + c.counter())
			if n, ok := resp.BulkOf([]byte(reply)); ok {
				got, _ = strconv.Atoi(string(n))
			}
			return reply[0] == '$'
		})
		if got < c.counted || got > c.counted+c.unknown {
			t.Errorf("client %d: the counter is %d after %d acknowledged and %d unknown INCRs", c.id, got, c.counted, c.unknown)
		}
	}
	if counted == 0 || down == 0 {
		t.Errorf("%d INCRs and %d answers that a server is down: the storm was none", counted, down)
	}
}
