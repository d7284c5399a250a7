package handover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ringside/ring"
	"ringside/sidecar/topology"
)

func TestMarkersOnlyGoForward(t *testing.T) {
	for _, c := range []struct {
		was          string
		epoch, since uint64
		step         topology.Step
		live         []uint64
		want         string
	}{
		{"", 5, 5, topology.Open, []uint64{5}, "5 5:open"},
		{"5 5:open", 5, 5, topology.Held, []uint64{5}, "5 5:held"},
		{"5 5:handed", 5, 5, topology.Open, []uint64{5}, "5 5:handed"},
		{"9 5:held", 6, 5, topology.Held, []uint64{5}, "9 5:held"},
		{"5 5:held", 7, 5, topology.Held, []uint64{5}, "7 5:held"},
		{"7 5:handed", 7, 7, topology.Open, []uint64{5, 7}, "7 5:handed 7:open"},
		{"7 5:handed 7:open", 8, 7, topology.Held, []uint64{7}, "8 7:held"},            // 5 is over
		{"9 5:handed 9:held", 7, 5, topology.Handed, []uint64{5}, "9 5:handed 9:held"}, // 9 we have not heard of
	} {
		m, err := topology.ParseMarker(c.was)
		if err != nil {
			t.Fatal(err)
		}
		if got := forward(m, c.epoch, c.since, c.step, c.live).String(); got != c.want {
			t.Errorf("%q, epoch %d, %d %v: %q, want %q", c.was, c.epoch, c.since, c.step, got, c.want)
		}
	}
}

const clientList = `id=6 addr=127.0.0.1:46994 laddr=127.0.0.1:17999 fd=7 name= age=0 db=0 cmd=client|list user=default
id=7 addr=127.0.0.1:1 name=ringside:12:9,12:app-1 age=5 flags=b
id=8 addr=127.0.0.1:2 name=worker age=5
id=9 name=ringside:x::app-2 age=5
id=10 name=ringside:3::app=3 age=5

`

func TestCallersOfAClientList(t *testing.T) {
	got := callers(clientList)
	if len(got) != 2 || got[0].id != 7 || got[0].caller.Epoch != 12 || !slices.Equal(got[0].caller.Held, []uint64{9, 12}) || got[1].id != 10 || got[1].caller.Sidecar != "app=3" {
		t.Errorf("%+v", got)
	}
}

func FuzzCallers(f *testing.F) {
	f.Add(clientList)
	f.Add("id=-1 name=ringside:1::x\nname=ringside:1::x id=18446744073709551616")
	f.Fuzz(func(t *testing.T, list string) {
		for _, c := range callers(list) {
			if c.id <= 0 {
				t.Errorf("connection %d", c.id)
			}
			if back, ok := topology.ParseCaller(c.caller.Name()); !ok || back.Epoch != c.caller.Epoch || !slices.Equal(back.Held, c.caller.Held) {
				t.Errorf("%+v became %+v", c.caller, back)
			}
		}
	})
}

// TestWhatIsDoneWithEachKey: a key is carried, swept or left by its vnode and its name alone.
func TestWhatIsDoneWithEachKey(t *testing.T) {
	caches := []topology.Cache{
		{Name: "c1", Addr: "h:1", Weight: 1, RunID: "r1", Gen: 1}, {Name: "c2", Addr: "h:2", Weight: 1, RunID: "r2", Gen: 1}, {Name: "c3", Addr: "h:3", Weight: 1, RunID: "r3", Gen: 1},
	}
	old, err := topology.Bootstrap(caches, nil)
	if err != nil {
		t.Fatal(err)
	}
	now, err := topology.WeighCache(old, "c3", 3)
	if err != nil {
		t.Fatal(err)
	}
	hasher := ring.NewHasher()
	seen := map[string]int{}
	for _, h := range now.Handovers {
		for i := range 3000 {
			key := fmt.Sprintf("k{%d}", i)
			v := hasher.Vnode(ring.CacheKey([]byte(key)))
			was, is := old.Caches[old.CacheOf(v)].Name, now.Caches[now.CacheOf(v)].Name
			d, to := dutyOf(now, h, hasher, key)
			want := sweep
			switch {
			case is == h.From:
				want = leave
			case was == h.From:
				want = carry
			}
			if d != want || (d == carry && to != is) {
				t.Fatalf("%s on %s, before of %s, now of %s: duty %d to %q", key, h.From, was, is, d, to)
			}
			seen[fmt.Sprint(d)]++
			if d, _ := dutyOf(now, h, hasher, "rs:1.1:"+key); d != leave {
				t.Fatalf("an entry of a row: duty %d", d)
			}
		}
		stranger := h
		stranger.Since++
		if _, ok := target(now, stranger, 0); ok {
			t.Error("a hand-over that the topology does not have has targets")
		}
	}
	if len(now.Handovers) != 2 || len(seen) != 3 {
		t.Errorf("%d hand-overs, duties %v", len(now.Handovers), seen)
	}
}

func TestPace(t *testing.T) {
	p := pace{rate: 1000}
	now := time.Unix(1000, 0)
	for i, c := range []struct {
		after time.Duration
		n     float64
		want  time.Duration
	}{
		{0, 100, 0}, // the burst
		{0, 100, 100 * time.Millisecond},
		{50 * time.Millisecond, 0, 50 * time.Millisecond},
		{time.Hour, 150, 50 * time.Millisecond},
	} {
		now = now.Add(c.after)
		if got := p.take(now, c.n); got != c.want {
			t.Errorf("%d: wait %v, want %v", i, got, c.want)
		}
	}
	ctx, cancel := context.WithCancel(ctxb)
	cancel()
	if p.wait(ctx, 1e6) {
		t.Error("it waits although the context has ended")
	}
}

func TestLeasesGetLongerForWhatIsSlow(t *testing.T) {
	for tries, want := range map[int]time.Duration{0: 1, 4: 1, 5: 2, 9: 4, 13: 8, 1000: 8} {
		if got := longer(time.Second, tries); got != want*time.Second {
			t.Errorf("after %d tries: %v", tries, got)
		}
	}
}

func TestProgressTravelsInTheLease(t *testing.T) {
	p := Progress{From: "c1", Since: 3, Step: topology.Handed, Done: true, Scanned: 1, Carried: 2, Swept: 3, TooBig: 4, Rounds: 5}
	got := Progress{From: "c1", Since: 3, Step: topology.Handed}
	got.hear("TOKEN" + p.numbers())
	p.Elsewhere = true
	if got != p {
		t.Errorf("%+v, want %+v", got, p)
	}
	got.hear("TOKEN")
	if !got.Elsewhere {
		t.Error("a lease without numbers is nobody's")
	}
}

func TestConfigIsChecked(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(c *Config){
		"max value is 0":    func(c *Config) { c.MaxValue = 0 },
		"rate is -1":        func(c *Config) { c.Rate = -1 },
		"parallel is 65":    func(c *Config) { c.Parallel = 65 },
		"batch is 2001":     func(c *Config) { c.Batch = 2001 },
		"lease ttl is 0s":   func(c *Config) { c.LeaseTTL = 0 },
		"longer than lease": func(c *Config) { c.CarryTimeout = c.LeaseTTL },
		"a third of driver": func(c *Config) { c.DriverTTL = 2 * c.Asserting },
	} {
		c := DefaultConfig()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		if _, err := New(Deps{}, c, nil, nil); err == nil {
			t.Errorf("%s: a carrier was made", want)
		}
	}
}

// TestTheEndOfEachWay: what a carrier does first, and what it says in the end, for each answer that is not the usual one.
func TestTheEndOfEachWay(t *testing.T) {
	for _, c := range []struct {
		answers []answer
		ops     []op
		end     end
	}{
		{[]answer{answerDone, answerDone, answerDone, answerDone, answerDone}, []op{opLease, opDump, opRestore, opRemove, opRelease}, endSettled},
		{[]answer{answerDone, answerLater, answerDone, answerThere, answerDone, answerDone}, []op{opLease, opDump, opDump, opRestore, opRemove, opRelease}, endSettled},
		{[]answer{answerTaken}, []op{opLease}, endAgain},
		{[]answer{answerDone, answerAbsent, answerDone}, []op{opLease, opDump, opRelease}, endSettled},
		{[]answer{answerDone, answerUnfit, answerDone, answerDone}, []op{opLease, opDump, opRemove, opRelease}, endDropped},
		{[]answer{answerDone, answerStale, answerDone}, []op{opLease, opDump, opRelease}, endStale},
		{[]answer{answerDone, answerDone, answerLost}, []op{opLease, opDump, opRestore}, endAgain},
		{[]answer{answerDone, answerDone, answerUnfit, answerDone, answerDone}, []op{opLease, opDump, opRestore, opRemove, opRelease}, endDropped},
		{[]answer{answerDone, answerDone, answerRefused, answerDone}, []op{opLease, opDump, opRestore, opRelease}, endRefused},
		{[]answer{answerDone, answerDone, answerDone, answerStale, answerDone}, []op{opLease, opDump, opRestore, opRemove, opRelease}, endStale},
	} {
		var p progress
		var ops []op
		for _, a := range c.answers {
			ops = append(ops, p.next)
			p = p.hear(a)
		}
		if !slices.Equal(ops, c.ops) || p.next != opEnd || p.end != c.end {
			t.Errorf("%v: %v, then %v with end %d; want %v and %d", c.answers, ops, p.next, p.end, c.ops, c.end)
		}
	}
}
