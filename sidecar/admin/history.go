package admin

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Counts are what a sidecar has counted since its start. A sum may be too low now and then, for some that count are late; a later one makes up for it.
type Counts struct {
	Requests, Errors uint64
	Hits, Misses     uint64 // of rows
}

// The history has historySlots slots of historyEvery. Queues are looked at every queueEvery, since what waits is there for moments; the worst of a slot is kept.
const (
	queueEvery   = time.Second
	historyEvery = 5 * time.Second
	historyFor   = 15 * time.Minute
	historySlots = int(historyFor / historyEvery)
)

// unknown stands in the history of a shard for the time in which there was none of that name.
const unknown = -1

// history is what happened in the last quarter of an hour. It is pure: it knows no clock, and whoever uses it locks. Its size depends on the
// number of shards alone: about 6 KB for each.
type history struct {
	ended  int // slots that have ended, also those that were overwritten
	at     [historySlots]time.Time
	took   [historySlots]time.Duration
	epoch  [historySlots]uint64
	counts [historySlots]Counts // in the slot
	most   Counts               // highest sums so far
	begun  bool                 // the sums at the beginning are known
	shards map[string]*shardHistory
}

type shardHistory struct {
	slots [historySlots]shardSlot
	now   shardSlot // that has not ended
	shed  uint64    // sum at the end of the last slot
}

type shardSlot struct {
	queueMS, waiting, shed int64
	known                  bool
}

// look takes note of the queues.
func (h *history) look(pools []Pool) {
	for _, p := range pools {
		s := h.shards[p.Name]
		if s == nil {
			if h.shards == nil {
				h.shards = map[string]*shardHistory{}
			}
			s = &shardHistory{shed: p.Shed}
			h.shards[p.Name] = s
		}
		s.now.known = true
		s.now.queueMS = max(s.now.queueMS, p.OldestWaitMS)
		s.now.waiting = max(s.now.waiting, int64(p.Waiting))
		if p.Shed < s.shed {
			s.shed = 0 // another shard of that name
		}
		s.now.shed = int64(p.Shed - s.shed)
	}
}

// end ends a slot, which took so long. The first call only learns the sums, for nobody knows how long they took to come about.
func (h *history) end(at time.Time, took time.Duration, epoch uint64, sums Counts) {
	if h.begun {
		i := h.ended % historySlots
		h.at[i], h.took[i], h.epoch[i] = at, took, epoch
		h.counts[i] = Counts{
			Requests: above(sums.Requests, h.most.Requests), Errors: above(sums.Errors, h.most.Errors),
			Hits: above(sums.Hits, h.most.Hits), Misses: above(sums.Misses, h.most.Misses),
		}
		for name, s := range h.shards {
			s.slots[i] = s.now
			s.shed += uint64(s.now.shed)
			s.now = shardSlot{}
			if !slices.ContainsFunc(s.slots[:], func(one shardSlot) bool { return one.known }) {
				delete(h.shards, name)
			}
		}
		h.ended++
	}
	h.begun = true
	h.most = Counts{
		Requests: max(sums.Requests, h.most.Requests), Errors: max(sums.Errors, h.most.Errors),
		Hits: max(sums.Hits, h.most.Hits), Misses: max(sums.Misses, h.most.Misses),
	}
}

// above is how much n is above the highest so far: what is missing in a sum that is too low comes with the next one.
func above(n, most uint64) uint64 {
	if n < most {
		return 0
	}
	return n - most
}

// historyAnswer is /history: lists of the same length, the oldest first.
type historyAnswer struct {
	EverySeconds float64              `json:"every_seconds"` // about, from one to the next
	ForSeconds   float64              `json:"for_seconds"`   // how long it goes back at most
	At           []int64              `json:"at"`            // end of the slot, in milliseconds since 1970
	Seconds      []float64            `json:"seconds"`       // what the slot took
	Epoch        []uint64             `json:"epoch"`         // at its end
	Requests     []uint64             `json:"requests"`
	Errors       []uint64             `json:"errors"`
	Hits         []uint64             `json:"hits"`
	Misses       []uint64             `json:"misses"`
	Shards       []shardHistoryAnswer `json:"shards"`
}

type shardHistoryAnswer struct {
	Name    string  `json:"name"`
	QueueMS []int64 `json:"queue_ms"` // the longest that the first of the queue had waited; -1: not known
	Waiting []int64 `json:"waiting"`  // the most that waited at once
	Shed    []int64 `json:"shed"`     // refused
}

func (h *history) answer() historyAnswer {
	n := min(h.ended, historySlots)
	a := historyAnswer{
		EverySeconds: historyEvery.Seconds(), ForSeconds: historyFor.Seconds(), At: make([]int64, n), Seconds: make([]float64, n), Epoch: make([]uint64, n),
		Requests: make([]uint64, n), Errors: make([]uint64, n), Hits: make([]uint64, n), Misses: make([]uint64, n), Shards: make([]shardHistoryAnswer, 0, len(h.shards)),
	}
	for name := range h.shards {
		a.Shards = append(a.Shards, shardHistoryAnswer{Name: name, QueueMS: make([]int64, n), Waiting: make([]int64, n), Shed: make([]int64, n)})
	}
	slices.SortFunc(a.Shards, func(a, b shardHistoryAnswer) int { return strings.Compare(a.Name, b.Name) })
	for k := range n {
		i := (h.ended - n + k) % historySlots
		a.At[k], a.Seconds[k], a.Epoch[k] = h.at[i].UnixMilli(), h.took[i].Seconds(), h.epoch[i]
		a.Requests[k], a.Errors[k], a.Hits[k], a.Misses[k] = h.counts[i].Requests, h.counts[i].Errors, h.counts[i].Hits, h.counts[i].Misses
		for _, s := range a.Shards {
			slot := h.shards[s.Name].slots[i]
			if !slot.known {
				slot = shardSlot{queueMS: unknown, waiting: unknown, shed: unknown}
			}
			s.QueueMS[k], s.Waiting[k], s.Shed[k] = slot.queueMS, slot.waiting, slot.shed
		}
	}
	return a
}

// recorder writes the history.
type recorder struct {
	mu   sync.Mutex // guards past
	past history
}

// record writes the history until ctx ends.
func (s *Server) record(ctx context.Context) {
	tick := time.NewTicker(queueEvery)
	defer tick.Stop()
	began := time.Now()
	for {
		now := time.Now()
		took := now.Sub(began)
		ending := took >= historyEvery-queueEvery/2 || !s.recorder.past.begun // only this goroutine writes
		var sums Counts
		var epoch uint64
		if ending {
			began, sums = now, s.deps.Counts() // which may wait
			if t := s.deps.Topology.Current(); t != nil {
				epoch = t.Epoch
			}
		}
		pools := s.deps.Pools()
		s.recorder.mu.Lock()
		s.recorder.past.look(pools)
		if ending {
			s.recorder.past.end(now, took, epoch, sums)
		}
		s.recorder.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// serveHistory is /history.
func (s *Server) serveHistory(w http.ResponseWriter, r *http.Request) {
	s.recorder.mu.Lock()
	a := s.recorder.past.answer()
	s.recorder.mu.Unlock()
	writeJSON(w, r, a)
}
