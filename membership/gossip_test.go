package membership

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

func TestHintReachesAll(t *testing.T) {
	for _, n := range []int{2, 3, 10} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			nodes := startCluster(t, n)
			var worst time.Duration
			for round := 1; round <= 3; round++ {
				h := Hint{Epoch: uint64(round), Digest: fmt.Sprintf("%016x", round)}
				nodes[round%n].has(nil, h)
				from := nodes[round%n].name
				took := eventually(t, time.Minute, "the hint is everywhere", func() bool {
					for _, m := range nodes {
						if m.name != from && m.hintOf(from) != h {
							return false
						}
					}
					return true
				})
				worst = max(worst, took)
			}
			t.Logf("%d sidecars: a hint was delivered everywhere within %v (the slowest of 3)", n, worst.Round(time.Millisecond))
		})
	}
}

// Messages of equal length were lost by memberlist's queue, most of all when everybody changes at the same time.
func TestEqualLengthHintsOfAllAreNotLost(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 8)
	for round := uint64(1); round <= 3; round++ {
		h := Hint{Epoch: round, Digest: "0123456789abcdef"}
		for _, n := range nodes {
			n.SetHint(h)
		}
		took := eventually(t, time.Minute, "all hints are everywhere", func() bool {
			for _, n := range nodes {
				for _, m := range n.Members() {
					if m.Hint != h {
						return false
					}
				}
			}
			return true
		})
		t.Logf("8 hints of equal length reached 8 sidecars in %v", took.Round(time.Millisecond))
	}
}

// Sidecars that start together learn of each other soon, although memberlist's queue loses some of that news and its own repair is far off.
func TestStartedAtOnce(t *testing.T) {
	t.Parallel()
	const n = 15
	unrepaired := func(n *node) *node {
		n.tune = func(c *memberlist.Config) { c.PushPullInterval = time.Hour }
		return n.run()
	}
	nodes := []*node{unrepaired(prepare(t, "a1"))}
	<-nodes[0].Ready()
	for i := 2; i <= n; i++ {
		nodes = append(nodes, unrepaired(prepare(t, fmt.Sprintf("a%d", i), seeds(nodes[0].Addr()))))
	}
	stopTogether(t, nodes)
	took := eventually(t, time.Minute, "everybody sees everybody", func() bool {
		for _, m := range nodes {
			if len(m.alive()) != n {
				return false
			}
		}
		return true
	})
	t.Logf("%d sidecars that started at once saw each other after %v", n, took.Round(time.Millisecond))
}

func TestTopologyReachesLateJoiner(t *testing.T) {
	t.Parallel()
	big := make([]byte, 300<<10) // beyond any packet; half of it does not compress
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(big[:150<<10])
	h := Hint{Epoch: 7, Digest: "feedfacefeedface"}
	nodes := startCluster(t, 2)
	nodes[0].has(big, h)
	eventually(t, time.Minute, "a2 has it", func() bool { return bytes.Equal(nodes[1].got("a1"), big) })
	nodes[1].has(big, h)

	// It asks whoever has the highest hint, which may be one that has not heard of it yet.
	late := start(t, "a3", seeds(nodes[1].Addr()))
	took := eventually(t, time.Minute, "the late one has it", func() bool { return bytes.Equal(late.gotAny(), big) })
	t.Logf("a late joiner had %d KiB of topology after %v", len(big)>>10, took.Round(time.Millisecond))
}

// A peer whose hint is lower and who does not ask is sent the topology all the same; one at the same epoch with another digest, too.
func TestTopologyIsPushed(t *testing.T) {
	t.Parallel()
	deaf := func(n *node, c *Config) { c.RequestAfter = time.Hour }
	a, b := start(t, "a", deaf), (*node)(nil)
	a.has([]byte("new"), Hint{Epoch: 2, Digest: "bb"})
	b = start(t, "b", deaf, seeds(a.Addr()))
	b.has([]byte("old"), Hint{Epoch: 1, Digest: "aa"})
	eventually(t, time.Minute, "b was sent the newer one", func() bool { return string(b.got("a")) == "new" })

	b.has([]byte("other"), Hint{Epoch: 2, Digest: "aa"})
	eventually(t, time.Minute, "a was sent the other one", func() bool { return string(a.got("b")) == "other" })
	if h := b.hintOf("a"); h != (Hint{Epoch: 2, Digest: "bb"}) {
		t.Fatalf("b knows %v of a", h)
	}
}

func TestRequest(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	nodes[0].has([]byte("same"), Hint{Epoch: 1, Digest: "x"})
	nodes[1].has([]byte("same"), Hint{Epoch: 1, Digest: "x"})
	eventually(t, time.Minute, "settled", func() bool { return nodes[1].hintOf("a1").Epoch == 1 && nodes[0].hintOf("a2").Epoch == 1 })
	nodes[1].Request("nobody")
	nodes[1].Request("a2")
	nodes[1].Request("a1")
	eventually(t, time.Minute, "answered", func() bool { return string(nodes[1].got("a1")) == "same" })
}

func TestLeaveIsSeenAtOnce(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3, patient)
	begun := time.Now()
	nodes[2].stop()
	for _, n := range nodes[:2] {
		took := eventually(t, time.Minute, "seen to have left", func() bool { return n.sees("a3", Left) })
		t.Logf("%s saw a3 leave after %v", n.name, took.Round(time.Millisecond))
	}
	<-nodes[2].ended
	if took := time.Since(begun); took > 4*time.Second || nodes[2].err != nil {
		t.Fatalf("Run ended after %v with %v", took, nodes[2].err)
	}
	// memberlist's own notice comes later and must not turn it into a death.
	time.Sleep(time.Second)
	if !nodes[0].sees("a3", Left) {
		t.Fatal("a3 is not shown as left any more")
	}
	// The name is free at once, at another address.
	again := start(t, "a3", seeds(nodes[0].Addr()))
	took := eventually(t, time.Minute, "back at a new address", func() bool {
		m, _ := nodes[1].member("a3")
		return m.State == Alive && m.Addr == again.Addr() && m.Meta.Boot == again.cfg.Meta.Boot
	})
	t.Logf("back at another address after %v", took.Round(time.Millisecond))
}

func TestCrashAndRestartAtAnotherAddress(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	old := nodes[2].Addr()
	nodes[2].has(nil, Hint{Epoch: 9, Digest: "before"})
	eventually(t, time.Minute, "hint known", func() bool { return nodes[0].hintOf("a3").Epoch == 9 })
	nodes[2].crash()

	// It is back before anybody noticed: its old address is still thought alive, but does not answer.
	squatter, err := net.Listen("tcp", old) // so that the new one gets another port; it accepts and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer squatter.Close()
	again := start(t, "a3", seeds(nodes[0].Addr()))
	again.SetHint(Hint{Epoch: 3, Digest: "after"})
	took := eventually(t, time.Minute, "accepted at the new address, with the new process's hint", func() bool {
		for _, n := range nodes[:2] {
			m, _ := n.member("a3")
			if m.State != Alive || m.Addr != again.Addr() || m.Hint.Digest != "after" {
				return false
			}
		}
		return true
	})
	t.Logf("accepted under the same name at another address %v after a crash", took.Round(time.Millisecond))
	select {
	case <-again.ended:
		t.Fatalf("the new one gave up: %v", again.err)
	default:
	}
}

func TestCrashIsSeen(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	nodes[1].crash()
	took := eventually(t, time.Minute, "seen to be dead", func() bool { return nodes[0].sees("a2", Dead) && nodes[2].sees("a2", Dead) })
	t.Logf("death seen after %v (probes seven times as often as in production)", took.Round(time.Millisecond))
}

func TestRestartAtTheSameAddress(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	port := int(netip.MustParseAddrPort(nodes[1].Addr()).Port())
	nodes[1].has(nil, Hint{Epoch: 9, Digest: "before"})
	eventually(t, time.Minute, "hint known", func() bool { return nodes[0].hintOf("a2").Epoch == 9 })
	nodes[1].crash()
	again := start(t, "a2", seeds(nodes[0].Addr()), func(_ *node, c *Config) { c.BindPort = port })
	again.SetHint(Hint{Epoch: 3, Digest: "after"})
	eventually(t, time.Minute, "the new process's word counts", func() bool {
		m, _ := nodes[0].member("a2")
		return m.State == Alive && m.Meta.Boot == again.cfg.Meta.Boot && m.Hint.Digest == "after"
	})
}

func TestNameTaken(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	second := start(t, "a2", seeds(nodes[0].Addr()))
	select {
	case <-second.ended:
	case <-time.After(time.Minute):
		t.Fatal("the second one of the name stays")
	}
	if !errors.Is(second.err, ErrNameTaken) || !strings.Contains(second.err.Error(), nodes[1].Addr()) {
		t.Fatalf("Run returned %v", second.err)
	}
	// The first one was not harmed.
	for range 20 {
		if m, _ := nodes[0].member("a2"); m.State != Alive || m.Addr != nodes[1].Addr() {
			t.Fatalf("a2 is now %+v", m)
		}
		time.Sleep(20 * time.Millisecond)
	}
	select {
	case <-nodes[1].ended:
		t.Fatalf("the first one left: %v", nodes[1].err)
	default:
	}
}

func TestPartitionHeals(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 4, rejoinEvery(time.Second))
	left, right := nodes[:2], nodes[2:]
	split(left, right)
	eventually(t, time.Minute, "each side has given the other up", func() bool {
		return nodes[0].sees("a3", Dead) && nodes[1].sees("a4", Dead) && nodes[2].sees("a1", Dead) && nodes[3].sees("a2", Dead)
	})
	// Longer than memberlist talks to the dead: from here on it would never meet them again.
	time.Sleep(1500 * time.Millisecond)
	nodes[0].has([]byte("topology"), Hint{Epoch: 5, Digest: "during"})
	mend(nodes)
	took := eventually(t, time.Minute, "whole again, and told", func() bool {
		for _, n := range nodes {
			if len(n.alive()) != 4 || n != nodes[0] && n.hintOf("a1").Epoch != 5 {
				return false
			}
		}
		return string(nodes[3].gotAny()) == "topology"
	})
	t.Logf("healed %v after the partition ended (re-join every second)", took.Round(time.Millisecond))
}

func TestOtherClusterAndOtherKeysAreNotHeard(t *testing.T) {
	t.Parallel()
	const k1, k2 = "0123456789abcdef", "fedcba9876543210fedcba9876543210"
	a := start(t, "a", cluster("prod"), keys(k1))
	labelled := start(t, "b", cluster("test"), keys(k1), seeds(a.Addr()))
	keyed := start(t, "c", cluster("prod"), keys(k2), seeds(a.Addr()))
	plain := start(t, "d", cluster("prod"), seeds(a.Addr()))
	// Both keys, in either order, understand each other: that is how keys are rotated.
	friend := start(t, "e", cluster("prod"), keys(k1, k2), seeds(a.Addr()))
	eventually(t, time.Minute, "those with the key have met", func() bool { return a.sees("e", Alive) && friend.sees("a", Alive) })
	a.SetHint(Hint{Epoch: 4, Digest: "secret"})
	eventually(t, time.Minute, "the hint passes", func() bool { return friend.hintOf("a").Epoch == 4 })
	time.Sleep(time.Second) // several attempts to join
	for _, n := range []*node{labelled, plain} {
		if got := n.alive(); len(got) != 1 {
			t.Errorf("%s sees %v", n.name, got)
		}
	}
	// c has k2, which e accepts, but a has the cluster's present key: nobody brings c in.
	if got := a.alive(); len(got) != 2 {
		t.Errorf("a sees %v", got)
	}
	_ = keyed
	if log := a.logs.String(); !strings.Contains(log, "level=WARN") || strings.Count(log, "unacceptable label") > 2*logBurst {
		t.Errorf("label mismatches are not logged, or flood the log:\n%s", log)
	}
}

func TestGarbageDoesNoHarm(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	udp, err := net.Dial("udp", nodes[0].Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	r := rand.New(rand.NewPCG(1, 2))
	label := append([]byte{244, byte(len("ringside/"))}, "ringside/"...) // memberlist's label header, so that the rest is read
	for range 300 {
		b := make([]byte, 1+r.IntN(600))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		if b[0]%2 == 0 {
			b[0] = 8 // memberlist's type of user messages
			b = append(label[:len(label):len(label)], b...)
		}
		_, _ = udp.Write(b)
		if len(b) < 100 {
			tcp, err := net.Dial("tcp", nodes[0].Addr())
			if err == nil {
				_, _ = tcp.Write(b)
				_ = tcp.Close()
			}
		}
	}
	d := delegate{nodes[0].Gossip}
	d.NotifyMsg(nil)
	d.NotifyMsg([]byte{kindRequest, messageVersion})
	d.NotifyMsg(encodeRequest(record{Name: "stranger", Boot: "x", Seq: 1}))
	d.NotifyMsg([]byte{99, messageVersion, 1, 2, 3})
	d.MergeRemoteState([]byte{kindTopology, messageVersion}, false)
	if m, err := encodeTopology(nodes[1].tabOwn(), []byte("not deflate")); err == nil {
		d.NotifyMsg(m)
	}
	nodes[1].SetHint(Hint{Epoch: 1, Digest: "fine"})
	eventually(t, time.Minute, "still at work", func() bool { return nodes[0].hintOf("a2").Epoch == 1 })
	if got := nodes[0].got("a2"); got != nil {
		t.Errorf("garbage was delivered as a topology: %q", got)
	}
}

func (n *node) tabOwn() record {
	n.Gossip.mu.Lock()
	defer n.Gossip.mu.Unlock()
	return n.tab.own()
}

func TestAddressInUse(t *testing.T) {
	t.Parallel()
	a := start(t, "a")
	port := int(netip.MustParseAddrPort(a.Addr()).Port())
	b := prepare(t, "b", func(_ *node, c *Config) { c.BindPort = port }).run()
	<-b.ended
	if b.err == nil || !strings.Contains(b.err.Error(), "in use") || !strings.Contains(b.err.Error(), a.Addr()) {
		t.Fatalf("Run returned %v", b.err)
	}
	if err := b.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "before") {
		t.Fatalf("a second Run returned %v", err)
	}
}

// A callback that hangs delays only callbacks: gossip goes on, and the latest is delivered once it returns.
func TestSlowCallbackHarmsNobody(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	a := start(t, "a")
	b := prepare(t, "b", seeds(a.Addr()))
	seen := make(chan Hint, 100)
	b.cb.OnHint = func(_ string, h Hint) {
		<-release
		seen <- h
	}
	b.run()
	<-b.Ready()
	for i := uint64(1); i <= 50; i++ {
		a.SetHint(Hint{Epoch: i})
		time.Sleep(5 * time.Millisecond)
	}
	eventually(t, time.Minute, "b knows the last hint although its callback hangs", func() bool {
		m, _ := b.member("a")
		return m.Hint.Epoch == 50
	})
	close(release)
	var last Hint
	eventually(t, time.Minute, "the last hint is delivered", func() bool {
		select {
		case last = <-seen:
		default:
		}
		return last.Epoch == 50
	})
	if n := len(seen); n > 3 {
		t.Errorf("%d stale hints were kept for the callback", n)
	}
}

func TestSeedNamesAreResolvedAfresh(t *testing.T) {
	t.Parallel()
	a := start(t, "a")
	addr := netip.MustParseAddrPort(a.Addr())
	b := prepare(t, "b", seeds(fmt.Sprintf("ringside.example:%d", addr.Port()), "broken.example:1"))
	calls := 0
	b.lookup = func(_ context.Context, host string) ([]netip.Addr, error) {
		if host == "broken.example" {
			return nil, errors.New("no such host")
		}
		if calls++; calls < 3 { // the record appears later
			return nil, errors.New("no such host")
		}
		return []netip.Addr{addr.Addr()}, nil
	}
	b.run()
	eventually(t, time.Minute, "joined once the name resolves", func() bool { return b.sees("a", Alive) })
}
