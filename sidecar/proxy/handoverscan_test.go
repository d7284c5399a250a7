package proxy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/sidecar/topology"
)

// A scan shows every key that is there all the time, whenever its pages come while the keys are handed over, also if it was begun before.
func TestScanMissesNothingThatIsHandedOver(t *testing.T) {
	for _, begun := range []string{"before", "open", "handed"} {
		t.Run(begun, func(t *testing.T) {
			m := inMotion(t, 3, nil)
			m.fill(600)
			w := m.dial()
			want := scanAll(t, w, " COUNT 50", nil)
			var left []string // on the former owner
			advance := func() {}
			if begun != "before" {
				m.drain("c2")
			}
			if begun == "handed" {
				m.handOver()
			}
			got := scanAll(t, w, " COUNT 40", func(page int) {
				switch {
				case page == 2 && begun == "before":
					m.drain("c2")
				case page == 4 && begun != "handed":
					m.handOver()
				case page == 5:
					left = arrayOf(m.direct[1].do("KEYS key:*"))
					advance = func() {
						m.carrier.mu.Lock()
						defer m.carrier.mu.Unlock()
						for range min(15, len(left)) {
							l, err := m.holder.Current().Locate(testKeyspaces(t), []byte(left[0]))
							if err == nil {
								err = m.carrier.carry("c2", l.Cache, left[0])
							}
							if err != nil {
								t.Error(err)
							}
							left = left[1:]
						}
					}
				case page == 25:
					m.carrier.carryAll(t, m.bench, m.h)
					next, err := topology.Finish(m.holder.Current(), []topology.Handover{m.h}, true)
					m.follow(next, err)
				}
				advance()
			})
			if !slices.Equal(got, want) {
				t.Errorf("%d of %d keys were shown", len(got), len(want))
			}
		})
	}
}

// fill sets plain keys, and puts entries of rows beside them.
func (m *motion) fill(n int) {
	m.t.Helper()
	w := m.dial()
	for i := range n {
		w.send(fmt.Sprintf("SET key:%d x", i))
	}
	for range n {
		if got := w.reply(); got != "+OK\r\n" {
			m.t.Fatal(got)
		}
	}
	for _, direct := range m.direct {
		direct.want("MSET rs:1.1:user:1 V rs:1.1:user:2 V", "+OK\r\n")
	}
}

// Commands about all keys know of those that are on their way.
func TestAllKeysInAHandOver(t *testing.T) {
	m := inMotion(t, 3, nil)
	m.fill(300)
	w := m.dial()
	names := func() []string {
		all := arrayOf(w.do("KEYS *"))
		slices.Sort(all)
		return all
	}
	all := names()
	size := w.do("DBSIZE")
	same := func(when string) {
		t.Helper()
		w.want("DBSIZE", size)
		if got := names(); !slices.Equal(got, all) {
			t.Errorf("%s: KEYS shows %d of %d", when, len(got), len(all))
		}
		if key := w.do("RANDOMKEY"); !slices.Contains(all, strings.Split(key, "\r\n")[1]) {
			t.Errorf("%s: RANDOMKEY %q", when, key)
		}
	}
	m.drain("c1")
	same("open")
	m.handOver()
	same("handed")
	for _, key := range all[:len(all)/2] { // every second one of those that c1 has
		w.do("EXISTS " + key)
	}
	same("half carried")
	m.direct[0].want("SCRIPT EXISTS x", "*1\r\n:0\r\n")
	w.want("SCRIPT LOAD 'return 9'", bulk(shaOf("return 9")))
	m.direct[0].want("SCRIPT EXISTS "+shaOf("return 9"), "*1\r\n:1\r\n")
	// A flush takes what the former owner has, and the leases of those who carry it.
	lease := topology.CarryPrefix + all[len(all)-1]
	m.direct[1].want("SET "+lease+" token", "+OK\r\n")
	w.want("FLUSHALL", "+OK\r\n")
	w.want("DBSIZE", ":0\r\n")
	w.want("KEYS *", "*0\r\n")
	w.want("RANDOMKEY", "$-1\r\n")
	m.direct[1].want("EXISTS "+lease, ":0\r\n")
	if left := arrayOf(m.direct[0].do("KEYS key:*")); len(left) > 0 {
		t.Errorf("%d keys are left on the former owner", len(left))
	}
	m.direct[0].want("EXISTS "+topology.MarkerName, ":1\r\n")
}

// Messages come to who listens whatever the hand-over does, and once.
func TestMessagesFollowTheirChannel(t *testing.T) {
	m := inMotion(t, 2, nil)
	channel := m.keyOn("c1", 0)
	listener, pattern := m.dial(), m.dial()
	listener.do("HELLO 3")
	listener.want("SUBSCRIBE "+channel, ">3\r\n"+bulk("subscribe")+bulk(channel)+":1\r\n")
	pattern.do("PSUBSCRIBE " + channel[:len(channel)-1] + "*")
	publisher := m.dial()
	n := 0
	publish := func(at int) {
		t.Helper()
		n++
		text := fmt.Sprint("message ", n)
		publisher.do("PUBLISH " + channel + " '" + text + "'")
		if got, want := listener.reply(), ">3\r\n"+bulk("message")+bulk(channel)+bulk(text); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if got := pattern.reply(); !strings.HasSuffix(got, bulk(text)) {
			t.Errorf("the pattern: %q", got)
		}
		// Past the proxy, to where the channel lives by now, as another sidecar publishes.
		m.direct[at].do("PUBLISH " + channel + " direct")
		if got := listener.reply(); !strings.HasSuffix(got, bulk("direct")) {
			t.Errorf("%q", got)
		}
		pattern.reply()
	}
	publish(0)
	m.drain("c1")
	publish(0)
	m.step(topology.Open)
	m.rollCall(topology.Held) // the feeds say that they listen at the new owner too
	publish(0)
	publish(1)
	m.step(topology.Held)
	m.rollCall(topology.Handed)
	publish(0)
	m.step(topology.Handed)
	eventually(t, "publishers go to the new owner", func() bool {
		return !slices.Contains(collect(m.server, func(w *worker) bool { return w.gate.handovers[0].step != topology.Handed }), true)
	})
	publish(1)
	publish(0) // who has not heard of it yet
	time.Sleep(10 * time.Millisecond)
	listener.want("PING", "+PONG\r\n") // nothing came twice
}

// A plan of two passes goes through all servers, begins anew when a change begins, and ends.
func TestScanPlans(t *testing.T) {
	owners, former := scanOrder([]string{"a", "b", "c"}), scanOrder([]string{"b", "x"})
	still, moving := &scanPlan{passes: [2][]scanServer{passOwners: owners}}, &scanPlan{change: 2, passes: [2][]scanServer{former, owners}}
	walk := func(p *scanPlan, cursor uint64) (pages int) {
		for at, more := p.resume(cursor); more; at, more = p.resume(cursor) {
			pages++
			var err error
			if cursor, err = p.next(at, 0); err != nil || pages > 100 {
				t.Fatalf("%v after %d pages", err, pages)
			}
			if cursor == 0 {
				break
			}
		}
		return pages
	}
	inOwners, err := still.next(spot{pass: passOwners}, 7)
	if err != nil {
		t.Fatal(err)
	}
	inFormer, err := moving.next(spot{pass: passFormer}, 7)
	if err != nil {
		t.Fatal(err)
	}
	later := &scanPlan{change: 3, passes: moving.passes}
	for _, c := range []struct {
		what   string
		plan   *scanPlan
		cursor uint64
		pages  int
	}{
		{"all", still, 0, 3}, {"on", still, inOwners, 3}, {"all of two passes", moving, 0, 5}, {"begun before", moving, inOwners, 5},
		{"on in the first pass", moving, inFormer, 5}, {"the change is over", still, inFormer, 3}, {"another change", later, inFormer, 5},
		{"of the owners in a change", moving, uint64(owners[1].tag) | 2<<tagBits, 2}, {"that is over", still, uint64(owners[1].tag) | 2<<tagBits, 2},
	} {
		if got := walk(c.plan, c.cursor); got != c.pages {
			t.Errorf("%s: %d pages, want %d", c.what, got, c.pages)
		}
	}
}
