package membership

import (
	"fmt"
	"math/rand/v2"
	"net"
	"reflect"
	"testing"
	"time"
)

var t0 = time.Unix(1_700_000_000, 0)

func after(d time.Duration) time.Time { return t0.Add(d) }

func sight(name, boot string) sighting {
	return sighting{name: name, ip: net.IPv4(127, 0, 0, 1).To4(), port: 7, meta: Meta{Boot: boot}}
}

func say(name, boot string, seq, epoch uint64) record {
	return record{Name: name, Boot: boot, Seq: seq, Hint: Hint{Epoch: epoch}}
}

func goodbye(name, boot string, seq uint64) record {
	return record{Name: name, Boot: boot, Seq: seq, Leaving: true}
}

func ownTable() *table { return newTable(say("me", "boot", 1, 0), Meta{Boot: "boot"}, t0) }

// Each case is a history of what memberlist and records say about one peer, and what is then believed.
func TestTable(t *testing.T) {
	seen := func(boot string) func(*table) bool {
		return func(tab *table) bool { return tab.seen(sight("p", boot), t0).fresh }
	}
	gone := func(tab *table) bool { tab.gone("p", t0); return false }
	hear := func(r record) func(*table) bool {
		return func(tab *table) bool { return tab.heard(r, t0).fresh }
	}
	for name, c := range map[string]struct {
		steps []func(*table) bool // each reports whether something is to be passed on
		fresh string              // y or n per step
		state State
		epoch uint64
	}{
		"alive, then heard":               {[]func(*table) bool{seen("b1"), hear(say("p", "b1", 1, 5))}, "ny", Alive, 5},
		"older and repeated records":      {[]func(*table) bool{seen("b1"), hear(say("p", "b1", 3, 5)), hear(say("p", "b1", 2, 9)), hear(say("p", "b1", 3, 5))}, "nynn", Alive, 5},
		"a lower epoch is news too":       {[]func(*table) bool{seen("b1"), hear(say("p", "b1", 1, 5)), hear(say("p", "b1", 2, 4))}, "nyy", Alive, 4},
		"heard before memberlist shows":   {[]func(*table) bool{hear(say("p", "b1", 1, 5)), hear(say("p", "b1", 2, 6)), seen("b1")}, "nny", Alive, 6},
		"died":                            {[]func(*table) bool{seen("b1"), hear(say("p", "b1", 1, 5)), gone}, "nyn", Dead, 5},
		"said goodbye":                    {[]func(*table) bool{seen("b1"), hear(goodbye("p", "b1", 9))}, "ny", Left, 0},
		"goodbye, then memberlist":        {[]func(*table) bool{seen("b1"), hear(goodbye("p", "b1", 9)), gone}, "nyn", Left, 0},
		"memberlist, then the goodbye":    {[]func(*table) bool{seen("b1"), gone, hear(goodbye("p", "b1", 9))}, "nny", Left, 0},
		"an alive overtaken by a goodbye": {[]func(*table) bool{seen("b1"), hear(goodbye("p", "b1", 9)), seen("b1")}, "nyn", Left, 0},
		"restarted: word of old is void":  {[]func(*table) bool{seen("b1"), hear(say("p", "b1", 9, 7)), seen("b2"), hear(say("p", "b1", 10, 8))}, "nynn", Alive, 0},
		"restarted: new word came first":  {[]func(*table) bool{seen("b1"), hear(say("p", "b1", 9, 7)), hear(say("p", "b2", 1, 3)), seen("b2")}, "nyny", Alive, 3},
		"left and came back":              {[]func(*table) bool{seen("b1"), hear(goodbye("p", "b1", 9)), gone, seen("b2"), hear(say("p", "b2", 1, 2))}, "nynny", Alive, 2},
		"dead and found again":            {[]func(*table) bool{seen("b1"), hear(say("p", "b1", 4, 5)), gone, seen("b1")}, "nynn", Alive, 5},
		"two lives do not chase":          {[]func(*table) bool{seen("b1"), hear(say("p", "b2", 1, 1)), hear(say("p", "b3", 1, 2)), hear(say("p", "b2", 2, 3)), hear(say("p", "b3", 2, 4))}, "nnnnn", Alive, 0},
	} {
		tab := ownTable()
		var fresh []byte
		for _, step := range c.steps {
			fresh = append(fresh, map[bool]byte{true: 'y', false: 'n'}[step(tab)])
		}
		m := tab.members["p"]
		if string(fresh) != c.fresh || m.state != c.state || m.rec.Hint.Epoch != c.epoch {
			t.Errorf("%s: passed on %s, %v, epoch %d; want %s, %v, %d", name, fresh, m.state, m.rec.Hint.Epoch, c.fresh, c.state, c.epoch)
		}
	}
	if h := ownTable().heard(say("me", "else", 99, 99), t0); h.fresh || h.dropped != "own" {
		t.Errorf("a record under our own name: %+v", h)
	}
}

// The same records in any order, any number of times, end in the same belief (invariant I4).
func TestRecordsMergeInAnyOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		tab := ownTable()
		tab.seen(sight("p", "b2"), t0)
		records := []record{say("p", "b1", 50, 9), say("p", "b2", 1, 1), say("p", "b2", 2, 7), say("p", "b2", 3, 4), say("p", "b1", 51, 8)}
		records = append(records, records...)
		r.Shuffle(len(records), func(i, j int) { records[i], records[j] = records[j], records[i] })
		for _, rec := range records {
			tab.heard(rec, t0)
		}
		if got := tab.members["p"].rec; !reflect.DeepEqual(got, say("p", "b2", 3, 4)) {
			t.Fatalf("%v ended as %+v", records, got)
		}
	}
}

func TestTableStaysSmall(t *testing.T) {
	tab := ownTable()
	for i := range 5000 {
		now := after(time.Duration(i) * time.Second)
		name := fmt.Sprintf("pod-%d", i)
		tab.seen(sight(name, "b"), now)
		tab.heard(say(name, "b", 1, 1), now)
		tab.heard(say(fmt.Sprintf("stranger-%d", i), "b", 1, 1), now)
		tab.gone(name, now)
		if i%30 == 0 {
			tab.sweep(now, goneFor)
		}
		if n := len(tab.members); n > 1+maxGone+31 || len(tab.early) > 31 {
			t.Fatalf("after %d joins and deaths: %d members, %d early records", i, n, len(tab.early))
		}
	}
	for i := range 2 * maxEarly {
		tab.heard(say(fmt.Sprintf("flood-%d", i), "b", 1, 1), t0)
	}
	if len(tab.early) > maxEarly {
		t.Fatalf("%d early records", len(tab.early))
	}
	tab.sweep(after(3*time.Hour), goneFor)
	if len(tab.members) != 1 || len(tab.list()) != 1 || !tab.list()[0].Self {
		t.Fatalf("left over: %+v", tab.list())
	}
}

func TestSay(t *testing.T) {
	tab := ownTable()
	if tab.say(Hint{}, false) {
		t.Error("nothing new was news")
	}
	if !tab.say(Hint{Epoch: 1}, false) || !tab.say(Hint{Epoch: 1}, true) || tab.own().Seq != 3 || !tab.own().Leaving {
		t.Errorf("own record: %+v", tab.own())
	}
}

func TestQueueSendsEachRecordOftenEnough(t *testing.T) {
	q := queue{sent: map[string]int{}}
	records := map[string]record{}
	for i := range 40 { // all of one length: memberlist's queue loses some of these
		name := fmt.Sprintf("a%02d", i)
		records[name] = say(name, "0123456789abcdef", 1, 1)
		q.add(name)
	}
	q.add("forgotten")
	lookup := func(name string) (record, bool) { r, ok := records[name]; return r, ok }
	times := map[string]int{}
	packets := 0
	for msg := q.take(300, 4, lookup); msg != nil; msg = q.take(300, 4, lookup) {
		packets++
		m, err := decodeMessage(msg)
		if err != nil || len(msg) > 300 {
			t.Fatal(len(msg), err)
		}
		for _, r := range m.records {
			times[r.Name]++
		}
		if packets == 3 { // a newer record starts over
			records["a00"] = say("a00", "0123456789abcdef", 2, 2)
			times["a00"] = 0
			q.add("a00")
		}
	}
	for name := range records {
		if times[name] != 4 {
			t.Errorf("%s was sent %d times", name, times[name])
		}
	}
	if len(q.sent) != 0 {
		t.Errorf("left in the queue: %v", q.sent)
	}
	q.add("a00")
	if q.take(5, 4, lookup) != nil || len(q.sent) != 1 {
		t.Error("a record that does not fit now must wait for the next packet")
	}
	for n, want := range map[int]int{1: 4, 2: 4, 9: 4, 10: 8, 98: 8, 100: 12, 1000: 16} {
		if got := transmissions(n); got != want {
			t.Errorf("%d sidecars: %d transmissions, want %d", n, got, want)
		}
	}
}

func TestMailboxKeepsTheHighest(t *testing.T) {
	b := newMailbox()
	for i := range maxParcels {
		if b.put(parcel{from: fmt.Sprint(i), hint: Hint{Epoch: uint64(i + 2)}}) {
			t.Fatal("displaced too early")
		}
	}
	if b.put(parcel{from: "3", hint: Hint{Epoch: 90}}) || b.parcels["3"].hint.Epoch != 90 {
		t.Error("a sender's newer topology replaces its older one")
	}
	if !b.put(parcel{from: "high", hint: Hint{Epoch: 99}}) || len(b.parcels) != maxParcels || b.parcels["0"].from != "" {
		t.Errorf("the lowest was to go: %v", b.parcels)
	}
	if !b.put(parcel{from: "low", hint: Hint{Epoch: 1}}) || b.parcels["low"].from != "" {
		t.Error("a lower one than all that wait is not kept")
	}
	if out := b.empty(); len(out.parcels) != maxParcels || len(b.parcels) != 0 {
		t.Error("not emptied")
	}
}
