package systemtest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Guards P3 and P7 for any number of flaps: servers are paused, resumed, killed, started again, added and drained in a random order, again and again, under load, so that
// what happens to one comes while the ring still moves because of another. No read, of a row or of a plain key, is ever older than what was acknowledged.
// RINGSIDE_SEED repeats a schedule, RINGSIDE_FLAPS makes it longer.
func TestMotionOfFlappingServers(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("RINGSIDE_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	flaps := 8
	if text := os.Getenv("RINGSIDE_FLAPS"); text != "" {
		var err error
		if flaps, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("RINGSIDE_SEED=%d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	c := own(t, nil)
	w := newWorkload(t, c)
	w.mayBeGone()
	w.run()
	defer func() {
		select {
		case <-w.stop:
		default:
			w.end()
		}
	}()
	hurt := "" // the server that is paused or dead; one at a time, as more than half may never be down
	paused := false
	heal := func() {
		s := c.Caches[0]
		for _, each := range c.Caches {
			if each.Name == hurt {
				s = each
			}
		}
		var err error
		if paused {
			err = s.Resume()
		} else {
			err = s.Restart(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		hurt = ""
	}
	added := false
	for range flaps {
		what := ""
		switch n := rnd.IntN(6); {
		case hurt != "" && n < 4:
			what = fmt.Sprintf("%s comes back", hurt)
			heal()
		case hurt == "" && n < 4:
			s := c.Caches[rnd.IntN(len(c.Caches))]
			hurt, paused = s.Name, n < 2
			what = fmt.Sprintf("%s dies (paused: %v)", hurt, paused)
			if !paused { // with what it holds now, which will be old when it comes back
				if saved := dial(t, s.Addr()).do(t, "SAVE"); saved != "OK" {
					t.Logf("SAVE: %s", saved)
				}
			}
			var err error
			if paused {
				err = s.Pause()
			} else {
				err = s.Kill()
			}
			if err != nil {
				t.Fatal(err)
			}
		case !added:
			what = "c4 is added"
			out, err := c.tryCommand("cache", "add", "c4", c.Spares[0].Addr(), "--flush")
			added = err == nil
			what += " " + strings.TrimSpace(out)
		default:
			what = "c4 is drained and removed"
			out, err := c.tryCommand("cache", "drain", "c4", "--wait")
			if err == nil {
				out, err = c.tryCommand("cache", "remove", "c4")
				added = err != nil
			}
			what += " " + strings.TrimSpace(out)
		}
		t.Logf("%s %s", time.Now().Format("05.000"), what)
		time.Sleep(time.Duration(rnd.Int64N(int64(3500 * time.Millisecond))))
	}
	if hurt != "" {
		heal()
	}
	healed := time.Now()
	for _, s := range c.Sidecars {
		eventually(t, 2*time.Minute, "all servers active on "+s.Name, func() bool {
			r, err := ringOf(s)
			if err != nil {
				return false
			}
			for _, each := range r.Caches {
				if each.State != "active" && each.State != "draining" {
					return false
				}
			}
			return true
		})
	}
	t.Logf("all servers are back in their places %v after the last came back", time.Since(healed).Round(time.Millisecond))
	w.settle(time.Now())
	w.end()
	refused, last := 0, time.Time{}
	for n := range w.events {
		if e := &w.events[n]; e.code != "" {
			refused++
			if ended := e.begun.Add(e.took); ended.After(last) {
				last = ended
			}
		}
	}
	t.Logf("%d commands and pipelines, %d refused, the last one %v after the last came back", len(w.events), refused, last.Sub(healed).Round(time.Millisecond))
	for _, wrong := range w.wrong {
		t.Error(wrong)
	}
	w.readBack(t, c)
}

// mayBeGone says that any plain key may be lost from now on.
func (w *workload) mayBeGone() {
	for _, it := range w.items {
		if it.id == 0 {
			it.gone.Store(true)
		}
	}
}
