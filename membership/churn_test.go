package membership

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// remembered counts everything that is kept about others, by where.
func (g *Gossip) remembered() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	sizes := map[string]int{
		"members": len(g.tab.members) - 1, "early": len(g.tab.early), "askedEarly": len(g.askedEarly), "queue": len(g.queue.sent),
		"fresh": len(g.fresh), "hints to deliver": len(g.box.hints), "topologies to deliver": len(g.box.parcels),
		"waiting sends": len(g.out.jobs), "sends": len(g.out.active),
	}
	for what, n := range sizes {
		if n == 0 {
			delete(sizes, what)
		}
	}
	return sizes
}

// passer is a sidecar that comes, has a topology, votes, and goes again; nothing of it is kept by the test.
type passer struct {
	*Gossip
	cable *cuttable
	stop  context.CancelFunc
	ended chan error
}

func pass(t *testing.T, name string, retained time.Duration, seeds ...string) *passer {
	t.Helper()
	p := &passer{ended: make(chan error, 1)}
	body := []byte("topology of " + name)
	p.Gossip = New(Config{Name: name, BindAddr: "127.0.0.1", Join: seeds, RejoinInterval: time.Second}, Callbacks{Topology: func() []byte { return body }}, nil, slog.New(slog.DiscardHandler))
	p.keep = retention{gone: retained, sweepEvery: retained / 4}
	p.tune = func(c *memberlist.Config) {
		c.ProbeInterval, c.ProbeTimeout, c.SuspicionMult = 400*time.Millisecond, 350*time.Millisecond, 3
		c.AwarenessMaxMultiplier = 1 // the dead are found soon, also by who finds many
		c.GossipToTheDeadTime = 4 * time.Second
	}
	p.network = func(inner memberlist.NodeAwareTransport) memberlist.NodeAwareTransport {
		p.cable = &cuttable{NodeAwareTransport: inner}
		return p.cable
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	go func() { p.ended <- p.Run(ctx) }()
	select {
	case <-p.Ready():
	case err := <-p.ended:
		t.Fatalf("%s: Run ended: %v", name, err)
	}
	return p
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A thousand sidecars come and go, one in forty without a word. Those who stay forget them all: no goroutine and less than 2 MiB are
// left of them (2 KiB for each), and no table has any of them a short time after it may forget.
func TestThousandJoinsAndLeaves(t *testing.T) {
	const total, batch, retained = 1000, 40 / crowded, 8 * time.Second
	const allowance = 2 << 20
	// A machine that is busy with other things is not kept longer than that, unless it is asked for the long tests.
	const atLeast = 3 * batch
	budget := 20 * time.Second
	if os.Getenv("RINGSIDE_LONG") != "" {
		budget = 10 * time.Minute
	}
	a := pass(t, "stays-1", retained)
	stay := []*passer{a, pass(t, "stays-2", retained, a.Addr())}
	defer func() {
		for _, p := range stay {
			p.stop()
		}
		for _, p := range stay {
			if err := <-p.ended; err != nil {
				t.Error(err)
			}
		}
	}()
	for i, p := range stay {
		p.SetHint(Hint{Epoch: uint64(i + 1), Digest: "stays"})
	}
	forgotten := func() bool {
		for _, p := range stay {
			if sizes := p.remembered(); len(sizes) != 1 || sizes["members"] != 1 {
				return false
			}
		}
		return true
	}
	round := func(first int) {
		var crowd []*passer
		names := map[string]bool{}
		for i := range batch {
			names[fmt.Sprintf("pod-%d", first+i)] = true
			crowd = append(crowd, pass(t, fmt.Sprintf("pod-%d", first+i), retained, a.Addr()))
		}
		crowd[0].SetHint(Hint{Epoch: uint64(first), Digest: "passes"}) // the others will ask for it
		for i, p := range crowd {
			p.SetVotes([]string{fmt.Sprintf("cache-%d", first+i)})
		}
		eventually(t, time.Minute, "all of a batch have come and voted", func() bool {
			voters := 0
			for _, m := range a.Members() {
				if names[m.Name] && len(m.Votes) == 1 {
					voters++
				}
			}
			return voters == batch
		})
		var wg sync.WaitGroup
		for i, p := range crowd {
			if i == 0 {
				p.cable.cut.Store(true) // a crash
			}
			p.stop()
			wg.Go(func() {
				if err := <-p.ended; err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	eventually(t, time.Minute, "those who stay have met", forgotten)
	var goroutines int
	var before uint64
	eventually(t, time.Minute, "the number of goroutines stands still", func() bool {
		was := goroutines
		time.Sleep(300 * time.Millisecond)
		goroutines, before = runtime.NumGoroutine(), heap()
		return goroutines == was
	})

	begun := time.Now()
	passed := 0
	for passed+batch <= total && (passed < atLeast || time.Since(begun) < budget) {
		round(passed)
		passed += batch
	}
	churned := time.Since(begun)
	took := eventually(t, 2*time.Minute, "all are forgotten", forgotten)
	eventually(t, time.Minute, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= goroutines })
	now := heap()
	t.Logf("%d joins and leaves in %v, forgotten %v later; %d goroutines before and %d after; heap %d KiB before and %d KiB after",
		passed, churned.Round(time.Millisecond), took.Round(time.Millisecond), goroutines, runtime.NumGoroutine(), before>>10, now>>10)
	if now > before+allowance {
		t.Errorf("the heap has grown by %d KiB", (now-before)>>10)
	}
}
