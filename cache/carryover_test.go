package cache

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
)

// itemOf is another row that is handed over as h's.
func (h *handOver) itemOf(name string) Item {
	i := h.item()
	i.Ref.Name, i.Carry.Ref.Name = "rs:9.0:"+name, "rs:1.0:"+name
	return i
}

func TestCarryOverTakesWhatIsThereAndLeavesTheRest(t *testing.T) {
	h := newHandOver(t)
	for _, name := range []string{"a", "b", "both"} {
		h.from.Set(ctxb, "rs:1.0:"+name, valueEntry("old"), time.Minute)
	}
	h.to.Set(ctxb, "rs:9.0:both", valueEntry("new"), time.Minute)
	h.from.Set(ctxb, "rs:1.0:poisoned", AppendPoison(nil, Token{1}), time.Minute)
	h.from.HSet(ctxb, "rs:1.0:list", "a", "b")
	h.from.Set(ctxb, "rs:1.0:taken", valueEntry("old"), time.Minute)
	h.to.HSet(ctxb, "rs:9.0:taken", "a", "b")
	late := h.itemOf("late")
	late.Carry.Until = time.Now().Add(-time.Second)
	items := []Item{h.itemOf("a"), h.itemOf("b"), h.itemOf("both"), h.itemOf("poisoned"), h.itemOf("none"), h.itemOf("list"), h.itemOf("taken"), late}
	if n := h.CarryOver(ctxb, items); n != 2 {
		t.Errorf("%d carried", n)
	}
	for name, want := range map[string]string{"a": "old", "b": "old", "both": "new", "poisoned": "", "none": "", "list": "", "taken": "", "late": ""} {
		got, _ := h.to.Get(ctxb, "rs:9.0:"+name).Bytes() // empty if it is not there
		if want == "" && len(got) > 0 || want != "" && string(got) != string(valueEntry(want)) {
			t.Errorf("%s: %q on the new server", name, got)
		}
	}
	if n := h.CarryOver(ctxb, items[:2]); n != 0 {
		t.Errorf("%d carried twice", n)
	}
	if n := h.CarryOver(ctxb, nil); n != 0 {
		t.Errorf("%d of nothing carried", n)
	}
}

// What is large is handed over in several goes, so that no script lasts long.
func TestCarryOverOfLargeEntries(t *testing.T) {
	h := newHandOver(t)
	var hands, puts atomic.Int64
	count := func(cmd redis.Cmder) {
		switch stepOf(h.Cache, cmd) {
		case "hand":
			hands.Add(1)
		case "put":
			puts.Add(1)
		}
	}
	h.after("c1", count)
	h.after("c2", count)
	var items []Item
	large := valueEntry(string(bytes.Repeat([]byte("x"), putBytes/3)))
	for i := range 12 {
		name := fmt.Sprint("large", i)
		h.from.Set(ctxb, "rs:1.0:"+name, large, time.Minute)
		items = append(items, h.itemOf(name), h.itemOf(fmt.Sprint("none", i)))
	}
	if n := h.CarryOver(ctxb, items); n != 12 {
		t.Errorf("%d carried", n)
	}
	if a, b := hands.Load(), puts.Load(); a < 4 || b < 4 || a > 6 || b > 6 {
		t.Errorf("handed over in %d goes, put in %d", a, b)
	}
	for i := range 12 {
		if got, err := h.to.Get(ctxb, fmt.Sprint("rs:9.0:large", i)).Bytes(); err != nil || !bytes.Equal(got, large) {
			t.Errorf("large%d: %d bytes, %v", i, len(got), err)
		}
	}
	if n := h.to.DBSize(ctxb).Val(); n != 12 {
		t.Errorf("%d entries, leases are left", n)
	}
}

// Guards P3: a write that comes while an entry is taken over without having been asked for leaves nothing old behind.
func TestAWriteOvertakesCarryOver(t *testing.T) {
	for _, at := range []string{"take", "hand"} {
		t.Run(at, func(t *testing.T) {
			h := newHandOver(t)
			h.put(t, valueEntry("0"), time.Minute)
			h.from.Set(ctxb, "rs:1.0:other", valueEntry("old"), time.Minute)
			other := newSidecarLike(t, h.sidecar)
			var once atomic.Bool
			write := func(cmd redis.Cmder) {
				if stepOf(h.Cache, cmd) == at && once.CompareAndSwap(false, true) {
					if err := other.Write(ctxb, []Ref{h.was, h.is}, h.row.writer); err != nil {
						t.Error(err)
					}
				}
			}
			h.after("c1", write)
			h.after("c2", write)
			if n := h.CarryOver(ctxb, []Item{h.item(), h.itemOf("other")}); n != 1 || !once.Load() {
				t.Errorf("%d carried", n)
			}
			if n := h.to.Exists(ctxb, h.is.Name).Val(); n != 0 {
				t.Error("the entry is in its new place")
			}
			wantVersion(t, h.read(t), nil, 1)
		})
	}
}

// Who waits for a lease by which an entry is taken over is told when it is there.
func TestWhoWaitsForCarryOverIsWoken(t *testing.T) {
	h := newHandOver(t)
	h.put(t, valueEntry("7"), time.Minute)
	other := newSidecarLike(t, h.sidecar)
	other.cfg.LeaseWait, other.cfg.StepTimeout, other.cfg.ReadTimeout = time.Minute, 20*time.Second, 2*time.Minute // however busy the machine is
	read := make(chan Value, 1)
	h.after("c2", func(cmd redis.Cmder) {
		if stepOf(h.Cache, cmd) != "take" {
			return
		}
		go func() {
			r := other.ReadMany(ctxb, []Item{h.item()}, func(context.Context, []int) ([]Loaded, error) { return []Loaded{h.row.load()}, nil })[0]
			read <- r.Value
		}()
		within(t, "the reader waits", func() bool {
			entry, err := h.to.Get(ctxb, h.is.Name).Bytes()
			return err == nil && Kind(entry) == KindLease && bytes.Equal(entry, awaited(entry))
		})
	})
	if n := h.CarryOver(ctxb, []Item{h.item()}); n != 1 {
		t.Errorf("%d carried", n)
	}
	if v := <-read; string(v.Body) != "7" || h.row.loaded() != 0 {
		t.Errorf("%q after %d loads", v.Body, h.row.loaded())
	}
	if n := testutil.ToFloat64(other.metrics.woken); n != 1 {
		t.Errorf("%v were woken", n)
	}
}
