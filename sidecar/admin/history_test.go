package admin

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestHistory is the buffer as a table: what is seen and when, and what is told of it.
func TestHistory(t *testing.T) {
	start := time.UnixMilli(1_000_000)
	type event struct {
		pools []Pool // what look sees
		sums  *Counts
	}
	look := func(pools ...Pool) event { return event{pools: pools} }
	end := func(requests, errors, hits, misses uint64) event {
		return event{sums: &Counts{requests, errors, hits, misses}}
	}
	pool := func(name string, waiting int, oldest int64, shed uint64) Pool {
		return Pool{Name: name, Waiting: waiting, OldestWaitMS: oldest, Shed: shed}
	}
	for _, test := range []struct {
		name                           string
		events                         []event
		requests, errors, hits, misses []uint64
		shards                         string // as JSON
	}{
		{"nothing", nil, []uint64{}, []uint64{}, []uint64{}, []uint64{}, `[]`},
		{"the first sums only begin", []event{end(1000, 10, 500, 100)}, []uint64{}, []uint64{}, []uint64{}, []uint64{}, `[]`},
		{"what is above them counts", []event{end(1000, 10, 500, 100), end(1007, 11, 503, 102), end(1007, 11, 503, 102)},
			[]uint64{7, 0}, []uint64{1, 0}, []uint64{3, 0}, []uint64{2, 0}, `[]`},
		{"a sum that lacks a loop is made up for", []event{end(100, 0, 50, 0), end(60, 0, 20, 0), end(110, 0, 55, 0)},
			[]uint64{0, 10}, []uint64{0, 0}, []uint64{0, 5}, []uint64{0, 0}, `[]`},
		{"the worst of a slot is kept", []event{
			end(0, 0, 0, 0), look(pool("s1", 1, 5, 0)), look(pool("s1", 9, 70, 2)), look(pool("s1", 0, 0, 3)), end(0, 0, 0, 0), look(pool("s1", 0, 0, 3)), end(0, 0, 0, 0),
		}, []uint64{0, 0}, []uint64{0, 0}, []uint64{0, 0}, []uint64{0, 0}, `[{"name":"s1","queue_ms":[70,0],"waiting":[9,0],"shed":[3,0]}]`},
		{"shards come and go", []event{
			end(0, 0, 0, 0), look(pool("s2", 0, 1, 40)), end(0, 0, 0, 0), look(pool("s2", 0, 2, 41), pool("s1", 3, 3, 7)), end(0, 0, 0, 0), look(pool("s1", 4, 4, 8)), end(0, 0, 0, 0),
		}, []uint64{0, 0, 0}, []uint64{0, 0, 0}, []uint64{0, 0, 0}, []uint64{0, 0, 0},
			`[{"name":"s1","queue_ms":[-1,3,4],"waiting":[-1,3,4],"shed":[-1,0,1]},{"name":"s2","queue_ms":[1,2,-1],"waiting":[0,0,-1],"shed":[0,1,-1]}]`},
		{"another shard of the same name", []event{
			end(0, 0, 0, 0), look(pool("s1", 0, 0, 50)), end(0, 0, 0, 0), look(pool("s1", 0, 0, 2)), end(0, 0, 0, 0),
		}, []uint64{0, 0}, []uint64{0, 0}, []uint64{0, 0}, []uint64{0, 0}, `[{"name":"s1","queue_ms":[0,0],"waiting":[0,0],"shed":[0,2]}]`},
	} {
		t.Run(test.name, func(t *testing.T) {
			var h history
			at := start
			for _, e := range test.events {
				if e.sums == nil {
					h.look(e.pools)
					continue
				}
				h.end(at, historyEvery, 7, *e.sums)
				at = at.Add(historyEvery)
			}
			a := h.answer()
			shards, err := json.Marshal(a.Shards)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(a.Requests, test.requests) || !reflect.DeepEqual(a.Errors, test.errors) || !reflect.DeepEqual(a.Hits, test.hits) || !reflect.DeepEqual(a.Misses, test.misses) {
				t.Errorf("got %+v", a)
			}
			if string(shards) != test.shards {
				t.Errorf("shards:\n%s\nwant\n%s", shards, test.shards)
			}
			for i := range a.At {
				if a.At[i] != start.Add(time.Duration(i+1)*historyEvery).UnixMilli() || a.Seconds[i] != 5 || a.Epoch[i] != 7 {
					t.Errorf("slot %d: %d, %v s, epoch %d", i, a.At[i], a.Seconds[i], a.Epoch[i])
				}
			}
		})
	}
}

// TestHistoryForgets: it is bounded (promise P6), in time and in shards.
func TestHistoryForgets(t *testing.T) {
	var h history
	h.look([]Pool{{Name: "gone", OldestWaitMS: 9}})
	const more = 25
	for i := range uint64(historySlots + more + 1) {
		h.look([]Pool{{Name: "s1", OldestWaitMS: int64(i)}})
		h.end(time.UnixMilli(int64(i)), historyEvery, i, Counts{Requests: i * i})
	}
	a := h.answer()
	if len(a.At) != historySlots || a.At[0] != more+1 || a.At[historySlots-1] != int64(historySlots+more) || a.Epoch[0] != more+1 {
		t.Fatalf("%d slots, from %d to %d", len(a.At), a.At[0], a.At[len(a.At)-1])
	}
	for i, n := range a.Requests {
		slot := uint64(i + more + 1)
		if n != slot*slot-(slot-1)*(slot-1) || a.Shards[0].QueueMS[i] != int64(slot) {
			t.Fatalf("slot %d: %d requests, queue %d", slot, n, a.Shards[0].QueueMS[i])
		}
	}
	if len(a.Shards) != 1 || a.Shards[0].Name != "s1" {
		t.Errorf("shards that have gone stay: %d", len(a.Shards))
	}
}

// TestRecords: a server that runs takes samples by itself.
func TestRecords(t *testing.T) {
	t.Parallel()
	s := newSetup(t, small(t))
	counted := make(chan struct{}, 10)
	s.deps.Counts = func() Counts { counted <- struct{}{}; return Counts{} }
	server := s.server(t)
	start(t, server)
	for range 2 { // what there was at first, and the end of a slot
		select {
		case <-counted:
		case <-time.After(30 * time.Second):
			t.Fatal("no sample within 30 s")
		}
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if body := get(server, "/history").Body.String(); strings.Contains(body, `"requests":[0]`) && strings.Contains(body, `"epoch":[1]`) {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("the sample is not shown: %s", body)
		}
	}
}
